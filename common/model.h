// model.h - what --generate (generate.h) stands on: layers with caches of K and V that have room for what is
// to come, a table of what each step brings, and all steps of a layer as one problem on the host.
#ifndef MODEL_H
#define MODEL_H

#include "device.h"
#include "growth.h"
#include "options.h"
#include "problem.h"

// Device memory of a layer by number.
enum { CACHE_K, CACHE_V, STEP_Q, STEP_O, STEP_LSE, TABLE_Q, TABLE_K, TABLE_V, LAYER_BUFFERS };

struct model_layer {
    struct problem problem;  // all steps as one causal problem, and what the kernel made of it
    struct buffer buffer[LAYER_BUFFERS];
    struct attention a;  // of one step, in device memory
    struct tokens tokens;
};

// Device memory that the layers share, by number.
enum {
    SHARED_CU_SEQLENS_Q,
    SHARED_CU_SEQLENS_K,
    SHARED_SEQUSED_K,
    SHARED_STEP,
    SHARED_WORKSPACE,
    SHARED_BUFFERS
};

struct model {
    struct model_layer *layer;  // [layers]
    int layers, steps, sequences;
    const struct options *options;
    const struct growth *growth;
    struct buffer buffer[SHARED_BUFFERS];
    cudaStream_t stream;
    double kv_bytes;  // of K and V that all layers read in all steps
};

// The model that the options describe, with its references computed. Returns 0, or -1 with a sentence; either
// way the caller frees it.
int model_make(struct model *m, const struct lab *lab, const struct options *o, struct message *why);
void model_free(struct model *m);

// Back to the prompt: only its keys are there, and what follows them in the caches is NaN.
void model_start(const struct model *m);

// Copies what a step left of O and LSE to its place among all steps: `o` and `lse` as in the layer's problem.
void model_fetch_step(const struct model *m, const struct model_layer *l, int step, void *o, float *lse);

#endif
