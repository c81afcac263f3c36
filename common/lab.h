// lab.h - what the main() of every lab calls. A lab states its kernels in a table; lab_main does the rest: it
// reads the command line, makes or loads the inputs, runs each kernel, checks it against the reference and
// prints the table.
#ifndef LAB_H
#define LAB_H

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "attention.h"
#include "quantise.h"

#ifdef __cplusplus
extern "C" {
#endif

// Exit codes of every program here, read by CTest and by graders.
enum lab_exit { LAB_OK = 0, LAB_WRONG = 1, LAB_USAGE = 2, LAB_SKIPPED = 77 };

// What only some kernels can do.
enum feature {
    FEATURE_WINDOW = 1 << 0,     // --window
    FEATURE_PACKED = 1 << 1,     // --seqlens: packed sequences
    FEATURE_UNALIGNED = 1 << 2,  // rows that start at any element, not only at multiples of 16 bytes
    FEATURE_SPLITS = 1 << 3,     // --splits: keys shared out to so many blocks
    FEATURE_GROWING = 1 << 4     // --generate: seqused_k and stream of struct attention
};

// What a kernel can do; anything else is refused in one sentence with exit code 2, never answered wrongly.
struct support {
    unsigned dtypes;        // bits 1u << DTYPE_...
    int head_dim_multiple;  // head_dim is a multiple of this ...
    int head_dim_max;       // ... and at most this
    int gpu_only;           // 1: needs the gpu backend (a library the CPU lacks)
    unsigned features;      // bits of enum feature
    float score_max;        // it is right for scores up to this magnitude; 0: for all
    int unordered_dq;  // 1: dQ is a sum of atomic additions in any order: right, but not the same bits again
    // How it quantises its 16-bit inputs to e4m3, if it does: it is judged by an emulation of that.
    enum quantised quantised;
};

struct trace_names;  // trace.h
struct growth;       // growth.h

struct kernel {
    const char *name;  // for --kernel
    const char *adds;  // what it adds to the kernel before it, in a few words
    // Enqueues the kernel(s) on the default stream. Checks its launches with CUDA_CHECK; does not
    // synchronise.
    void (*launch)(struct attention a);
    // Bytes of scratch in global memory that launch needs in a.workspace; a null pointer means none. Looks at
    // the shape and type only: it is asked before there are any tensors, and not at cu_seqlens. Never asked
    // about a shape of more than LARGEST_SCORES scores, so that a few matrices of them can be counted in 64
    // bits.
    size_t (*workspace)(const struct attention *a);
    struct support support;
    // A null pointer: launch is a forward pass, from q, k, v to o and lse. Else launch is a backward pass,
    // from q, k, v, o, lse and d_o to dq, dk and dv, and this is the forward pass before it, enqueued in the
    // same way: it makes o and lse, and may leave more for launch in the workspace. Only launch is timed; it
    // is enqueued again and again after one forward pass, and has to find what it needs each time.
    void (*forward)(struct attention a);
    // For --trace: the same as launch, but its kernels also mark their phases in a.trace (trace.h), and what
    // the marks' numbers stand for. Null pointers: this kernel cannot be traced.
    void (*launch_traced)(struct attention a);
    const struct trace_names *trace_names;
    // How many blocks its main launch has, for the report to set against the multiprocessors; null: it does
    // not say. Looks at what workspace looks at.
    int64_t (*blocks)(const struct attention *a);
    // What of launch depends on the sequences' lengths alone, so that the layers of a model need it once in
    // each step: leaves it in the workspace, which they share. launch then has a.planned. A null pointer:
    // nothing.
    void (*plan)(struct attention a);
};

#define LARGEST_SCORES ((int64_t)1 << 57)

// FLOPs that the result of its launch takes: of visible pairs only, see visible_pairs, which reads
// cu_seqlens.
static inline double kernel_flops(const struct kernel *kernel, const struct attention *a) {
    return (kernel->forward ? 10.0 : 4.0) * a->head_dim * visible_pairs(a);
}

struct shape {
    int batch, heads, kv_heads, seqlen, head_dim;
    int seqlen_q;  // 0: seqlen queries, as there are keys
};

struct lab {
    const char *name;     // the program's name, e.g. "lab01_naive"
    const char *idea;     // one sentence for --help and the first line of output
    const char *lecture;  // e.g. "lecture 25, sections 1.1-1.3"
    int min_sm;           // lowest compute capability that runs it, e.g. 75; the CPU backend runs all
    struct shape on_cpu;  // default shape: right in a second or two on this backend
    struct shape on_gpu;
    const struct kernel *kernels;
    int kernel_count;
    int causal;                   // 1: masks are its subject, causal unless --full says otherwise
    const struct growth *growth;  // for --generate: how its sequences grow; null: they do not
};

// Runs the whole program. Returns a lab_exit code for main to return.
int lab_main(int argc, char **argv, const struct lab *lab);

// Stops the program with exit code 1 and one line (file, line, call, CUDA's name for the error and its text)
// unless the CUDA call succeeded. After a launch: CUDA_CHECK(cudaGetLastError()).
#define CUDA_CHECK(call) lab_cuda_check((call), #call, __FILE__, __LINE__)
void lab_cuda_check(cudaError_t status, const char *call, const char *file, int line);

// Blocks that cover `items` with `per_block` to each, for a one-dimensional grid; stops as CUDA_CHECK does
// beyond the limit of 2^31 - 1. (Of y and z a grid has only 65535, fewer than batch * heads may be.)
static inline unsigned lab_blocks(int64_t items, int64_t per_block) {
    int64_t blocks = (items + per_block - 1) / per_block;
    CUDA_CHECK(blocks <= INT32_MAX ? cudaSuccess : cudaErrorInvalidConfiguration);
    return (unsigned)blocks;
}

// Bytes of shared memory that a block may have, of `most` that the device has: fewer if LAB_SHARED_BYTES says
// so, and 0 if that is no number or more than there are.
static inline long lab_shared_bytes(long most) {
    const char *wanted = getenv("LAB_SHARED_BYTES");
    char *end = NULL;
    long bytes = wanted ? strtol(wanted, &end, 10) : most;
    return (wanted && *end != '\0') || bytes > most ? 0 : bytes;
}

#ifdef __cplusplus
}
#endif

#endif
