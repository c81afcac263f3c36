// profile.h - what each launch of a kernel did to memory and what it computed, counted as Nsight Compute
// counts: by the simulated device on the cpu backend, by Nsight Compute itself on the gpu backend (ncu.h).
//
// A request is one load or store of a warp. It passes in sectors, 32 bytes each, of global memory, or in
// wavefronts, one pass over the 32 banks each, of shared memory. `ideal` is what the same accesses take if
// the lanes lie side by side, or without bank conflicts; what is above it was lost. (Lanes that read one
// address together can be below it.)
//
// FLOPs are those that threads execute, whatever the result needs: a masked score that is computed counts.
// Where the backends differ: the cpu backend counts a division or a square root as one FLOP and what lies in
// a library function (expf, logf) as none, where a GPU executes, and ncu counts, the instructions that they
// consist of.
#ifndef PROFILE_H
#define PROFILE_H

#include <stdio.h>

#include "attention.h"

enum { PROFILE_GLOBAL, PROFILE_SHARED, PROFILE_SPACES };
enum { PROFILE_LOAD, PROFILE_STORE, PROFILE_ATOMIC, PROFILE_OPERATIONS };
// What a launch computes, of all threads together.
enum {
    PROFILE_FP32,     // FLOPs of fp32 CUDA cores: add, subtract, multiply 1 each, fused multiply-add 2
    PROFILE_TENSOR,   // FLOPs of tensor cores: a product is a multiplication and an addition
    PROFILE_EXP,      // exponentials in fp32 (expf, exp2f, ex2 and so on); cpu backend only
    PROFILE_SPECIAL,  // warps' instructions in the special function units, exp is one of them; gpu backend
                      // only
    PROFILE_BARRIER,  // times that a warp passed __syncthreads or bar.sync; cpu backend only
    PROFILE_WORKS
};
enum { SECTOR_BYTES = 32, PROFILE_TOP_LINES = 12 };

// Counts are whole numbers; NaN: not counted on this backend.
struct traffic {
    double bytes;  // that threads asked for: each thread's access counts, wherever it was served from
    double requests;
    double passes;  // sectors or wavefronts
    double ideal;
};

// What copies move between global and shared memory on their own.
enum {
    PROFILE_CP_ASYNC,  // part of the global loads as well, in Nsight Compute and here
    PROFILE_TMA_LOAD,  // by TMA and the bulk copies, which pass by all that `traffic` counts
    PROFILE_TMA_STORE,
    PROFILE_COPIES
};
struct copies {
    double bytes, sectors;
};

// One load or store in the source.
struct profile_line {
    char position[64];  // file:line
    int bytes;          // of one lane's access
    int space, operation;
    const char *path;  // null for an ordinary access, else the kind of instruction
    double accesses;   // of single lanes
    struct traffic traffic;
};

struct profile_launch {
    char function[64];       // the kernel function
    char position[64];       // file:line of the launch; empty: not known
    double blocks, threads;  // threads of one block
    double dram[2];          // bytes read from and written to DRAM; gpu backend only
    struct traffic traffic[PROFILE_SPACES][PROFILE_OPERATIONS];
    struct copies copies[PROFILE_COPIES];
    double work[PROFILE_WORKS];
    struct profile_line *lines;  // most passes above the ideal first; cpu backend only
    int line_count;
};

// All launches of one kernel of a lab's table.
struct profile {
    const char *kernel;  // its name in the table
    double flops;        // that the result takes: 4 * head_dim for each visible pair, backward 10 * head_dim
    struct profile_launch *launches;
    int launch_count;
};

// An empty profile of this kernel, whose result takes so many FLOPs (kernel_flops in lab.h).
void profile_begin(struct profile *profile, const char *kernel, double flops);
// Adds a launch of which nothing is counted yet (all NaN). Returns null if there is no memory left.
struct profile_launch *profile_add(struct profile *profile);
void profile_free(struct profile *profile);

#ifdef SIMT_CPU
// Takes over what the simulated device has counted since it was last asked. Returns 0, or -1 if there is no
// memory left.
int profile_take(struct profile *profile);
// Forgets what it has counted so far, and counts sectors and wavefronts from now on (slower), or no longer.
void profile_count(int on);
#endif

// FLOPs for each byte that moved in sectors of global memory, over all launches. This is what the L1 caches
// were asked for; what they and the L2 cache served never reached memory, so that the intensity at DRAM is
// higher. NaN if the sectors are not known.
double profile_intensity(const struct profile *profile);

// A GPU whose roofline the report names. The side of a kernel on it: limited by memory if its intensity is
// below peak / bandwidth. NVIDIA's data sheets of A100 SXM 80 GB, H100 SXM and H200 SXM: dense fp16 tensor
// cores with fp32 sums, fp32 CUDA cores, HBM.
struct roofline {
    const char *name;
    double tensor_tflops, fp32_tflops, terabytes;  // a second
};
enum { ROOFLINE_COUNT = 3 };
extern const struct roofline rooflines[ROOFLINE_COUNT];

// A block for each launch with its worst lines, and the roofline of all launches together.
void profile_print(FILE *out, const struct profile *profile);

// Members "launches", "lines" and "rooflines" of the report's JSON: arrays of one object a line, everything
// that is known of `count` profiles. Members that one backend does not count are null.
void profile_write_json(FILE *out, const struct profile *profiles, int count);

#endif
