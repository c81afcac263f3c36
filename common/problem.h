// problem.h - one case on the host: its shape, its inputs (made or loaded), its reference; and the folder of
// .npy files that a case is read from and written to. No kernel is needed for any of it: tests/ground_truth
// uses it alone.
//
// The folder: q k v [batch][heads or kv_heads][seqlen][head_dim] in float16 or float32, o like q and lse
// [batch][heads][seqlen_q] also in float64; all in C order. o and lse may be missing: they are computed.
#ifndef PROBLEM_H
#define PROBLEM_H

#include "message.h"
#include "options.h"
#include "reference.h"

struct problem {
    struct attention host;  // in host memory, in the layouts asked for; o and lse: a kernel's results
    size_t bytes[4];        // of q, k, v and o
    enum layout layout[4];
    int inputs_finite;   // no NaN or infinity in q, k and v
    int inputs_rounded;  // loaded q, k or v held numbers that the storage type cannot: they were rounded
    int answer_ignored;  // and the folder's o or lse, the answer to the unrounded ones, was passed over

    struct rows rows;            // the rows that are checked
    struct reference reference;  // for these rows; o and lse replaced by the loaded ones if there were any
    int o_loaded, lse_loaded;
    double o_roundoff, lse_roundoff;  // half an ulp at 1 of the types of the loaded o and lse, 0 if computed
};

// A tensor of that many elements in that order in memory.
struct tensor tensor_view(void *data, enum layout layout, int heads, int seqlen, int head_dim);

// Bytes of host memory that a case of this shape takes: q, k, v, o and lse, a copy of the largest of them for
// comparisons, and the reference. A double, since the product of a shape may pass every integer.
double problem_bytes(const struct attention *a);

// The part of the machine's memory that a case may take.
#define USABLE_MEMORY 0.9

// Returns 0 if the host can hold a case of this shape and number its elements in 64 bits, else -1 with a
// sentence.
int problem_fits(const struct attention *a, struct message *why);

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

// Writes q, k, v (float16, or float32 for bf16 and fp32, exact either way) and, if the reference covers all
// rows, o and lse as float64. Makes the folder if it is missing. Returns 0, or -1 with a sentence.
int problem_save(const struct problem *problem, const char *folder, struct message *why);

// Writes what a kernel left in host.o and host.lse as o_NAME.npy and lse_NAME.npy into an existing folder.
int problem_save_result(const struct problem *problem, const char *folder, const char *name,
                        struct message *why);

// 1 if the gaps of --pad between the rows of host.o, as a kernel left it, hold the 0xFF bytes that were
// there.
int problem_gaps_intact(const struct problem *problem);

void problem_free(struct problem *problem);

#endif
