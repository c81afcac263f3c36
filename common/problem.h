// problem.h - one case on the host: its shape, its inputs (made or loaded), its reference; and the folder of
// .npy files that a case is read from and written to. No kernel is needed for any of it: tests/ground_truth
// uses it alone.
//
// The folder: q k v [batch][heads or kv_heads][seqlen][head_dim] in float16 or float32, o like q and lse
// [batch][heads][seqlen_q] also in float64; all in C order. o and lse may be missing: they are computed. Of a
// backward pass also do like o (generated if missing), and its answers dq like q, dk like k and dv like v.
#ifndef PROBLEM_H
#define PROBLEM_H

#include "backward.h"
#include "compare.h"
#include "message.h"
#include "options.h"
#include "tensors.h"

struct problem {
    struct attention host;  // in host memory, in the layouts asked for; results: those of a kernel
    int backward;           // 1: there are d_o, dq, dk and dv, too
    size_t bytes[TENSORS];  // 0 of one that does not exist
    enum layout layout[4];
    int inputs_finite;   // no NaN or infinity in q, k and v
    int d_o_finite;      // nor in d_o
    int inputs_rounded;  // loaded q, k or v held numbers that the storage type cannot: they were rounded
    int d_o_rounded;     // so did d_o
    int answer_ignored;  // and the folder's answers to the unrounded ones were passed over

    struct rows rows;            // the rows that are checked
    struct reference reference;  // for these rows; o and lse replaced by the loaded ones if there were any
    int o_loaded, lse_loaded;
    double o_roundoff, lse_roundoff;  // half an ulp at 1 of the types of the loaded o and lse, 0 if computed

    enum quantised quantised_as;  // what `quantised` is for; QUANTISED_NOT: it is not there
    struct reference quantised;   // for kernels that quantise to e4m3, as problem_quantised left it

    struct gradient gradients[GRADIENTS];  // of dq, dk and dv, as problem_gradients left them
    int gradients_sampled;                 // some of their rows are not examined
    int gradient_loaded[GRADIENTS];        // like o_loaded ...
    double gradient_roundoff[GRADIENTS];   // ... and o_roundoff
};

// The tensor that a gradient is in: GRADIENT_Q ... are in the order of TENSOR_DQ ...
static inline enum tensor_index gradient_tensor(int gradient) { return TENSOR_DQ + gradient; }

// Bytes of host memory that a case of this shape takes: the tensors and lse, copies of the results or the
// largest input for comparisons, and the reference. A double, since the product of a shape may pass every
// integer. `backward`: it has gradients.
double problem_bytes(const struct attention *a, int backward);

// The part of the machine's memory that a case may take.
#define USABLE_MEMORY 0.9

// Returns 0 if the host can hold a case of this shape and number its elements in 64 bits, else -1 with a
// sentence.
int problem_fits(const struct attention *a, int backward, struct message *why);

// What the options say of the case: shape, scale, mask and type, no tensors. (With --load, the files say
// more.) Of packed sequences it points into the options.
struct attention problem_shape(const struct options *options);

// Makes the case that the options describe: inputs generated, or loaded with the shape taken from the
// files. Packed sequences stay in the options, which have to live as long. The reference is not computed yet.
// Returns 0, or -1 with a sentence (bad file, shapes that disagree, no memory).
int problem_make(const struct options *options, struct problem *problem, struct message *why);

// Chooses the rows and computes (or loads) their reference. Returns 0, or -1 with a sentence: no memory, or a
// loaded o or lse that is not the answer to the loaded q, k, v under these options.
int problem_reference(const struct options *options, struct problem *problem, struct message *why);

// The same for the gradients of a problem with a backward pass, anew each time it is called, and on a sample
// of rows past `budget` (backward.h): then host.o and host.lse have to be there.
int problem_gradients(const struct options *options, struct problem *problem, double budget,
                      struct message *why);

// Has the reference for kernels that quantise that way, if they do: of the last way only, since each takes as
// much memory as the first. After problem_reference. Returns 0, or -1 with a sentence.
int problem_quantised(struct problem *problem, enum quantised as, struct message *why);

// One of the results in problem->host, and what it should be by a kernel that quantises that way.
struct comparison problem_comparison(const struct problem *problem, enum output output, enum quantised as);

// Writes q, k, v and do (float16, or float32 for bf16 and fp32, exact either way) and, if the reference
// covers all rows, o and lse as float64. Makes the folder if it is missing. Returns 0, or -1 with a sentence.
int problem_save(const struct problem *problem, const char *folder, struct message *why);

// Writes those of dq, dk and dv whose reference is there and covers all rows, as float64.
int problem_save_gradients(const struct problem *problem, const char *folder, struct message *why);

// Writes what a kernel left in host.o and host.lse as o_NAME.npy and lse_NAME.npy into an existing folder, of
// a backward kernel also dq_NAME.npy and so on.
int problem_save_result(const struct problem *problem, const struct kernel *kernel, const char *folder,
                        struct message *why);

// Reads what problem_save_result wrote back into host.o and host.lse, or of a backward kernel also host.dq
// and so on, to the bit, with 0xFF in the gaps of --pad. Returns 0, or -1 with a sentence: a file is missing
// or damaged, or of another shape or type than the problem's.
int problem_load_result(struct problem *problem, const char *kernel, int backward, const char *folder,
                        struct message *why);

// TENSORS if the gaps of --pad between the rows of all results, as a kernel left them, hold the 0xFF bytes
// that were there; else the first tensor of which they do not.
enum tensor_index problem_gap_written(const struct problem *problem);

void problem_free(struct problem *problem);

#endif
