// options.h - the one command line that all labs share.
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdint.h>

#include "inputs.h"
#include "lab.h"
#include "message.h"

// Order of a tensor's dimensions in memory.
enum layout { LAYOUT_BHSD, LAYOUT_BSHD, LAYOUT_COUNT };
const char *layout_name(enum layout layout);

// Which shape options the user gave, as bits: --load takes the rest from the files.
enum given {
    GIVEN_BATCH = 1 << 0,
    GIVEN_HEADS = 1 << 1,
    GIVEN_KV_HEADS = 1 << 2,
    GIVEN_SEQLEN_Q = 1 << 3,
    GIVEN_SEQLEN_K = 1 << 4,
    GIVEN_DIM = 1 << 5,
    GIVEN_INPUTS = 1 << 6,
    GIVEN_SEED = 1 << 7,
    GIVEN_SCALE = 1 << 8
};

enum { MAX_CHOSEN_KERNELS = 16, MAX_SEQUENCES = 8192, MAX_SPLITS = 128 };

struct options {
    int batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim;
    enum dtype dtype;
    int pad;  // as in struct attention
    int causal;
    int window, window_left, window_right;  // as in struct attention
    // --seqlens: batch is 1, seqlen_q and seqlen_k are the sums. 0 sequences: not packed.
    int sequences;
    int cu_seqlens_q[MAX_SEQUENCES + 1], cu_seqlens_k[MAX_SEQUENCES + 1];
    int splits;             // as in struct attention
    float scale;            // 1 / sqrt(head_dim) unless GIVEN_SCALE
    enum layout layout[4];  // of q, k, v and o
    enum input_kind inputs;
    uint64_t seed;
    const char *load, *save, *outputs, *trace, *json;  // null: not given
    const char *window_text, *seqlens_text[2];         // --window; lengths of queries and keys
    const char *kernel[MAX_CHOSEN_KERNELS];            // names from the lab's table; none: all
    int kernel_count;
    int backward;  // some kernel that is to run is a backward pass (lab.h)
    int repeat;    // launches more than otherwise
    int train;     // steps of --train; 0: not that
    // --generate: steps (0: not that) in so many layers. The rest then describes all steps of a layer as one
    // causal problem of packed sequences (generate.h).
    int generate, layers;
    int bench, profile, sanitize, sweep, list, help;
    uint64_t schedule;  // of threads, on the cpu backend (cuda_runtime_api.h)
    int schedule_given;
    unsigned given;  // bits of enum given
};

// Reads a command line for this lab; `shape` is what holds for what is not said. Returns 0, or -1 with one
// sentence: what is wrong, and the nearest right word. --help and --list end the reading at once.
int options_parse(int argc, char **argv, const struct lab *lab, const struct shape *shape,
                  struct options *options, struct message *why);

// 1 if this kernel is to run: it was named, or none was.
int options_choose(const struct options *options, const struct kernel *kernel);

// The manual that --help prints, and the table that --list prints.
void options_print_help(FILE *out, const struct lab *lab, const struct shape *shape);
void options_print_list(FILE *out, const struct lab *lab);

#endif
