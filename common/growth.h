// growth.h - what a lab provides for --generate (generate.h): sequences that grow by a token a step.
//
// The caches of K and V are packed, with room for what is to come: sequence s has rows
// cu_seqlens_k[s] ... cu_seqlens_k[s + 1] - 1, of which the first seqused_k[s] hold keys.
#ifndef GROWTH_H
#define GROWTH_H

#include "attention.h"

// What one layer of the model has for the tokens of all steps, in device memory.
struct tokens {
    const void *q;      // [sequences][steps][heads][head_dim]
    const void *k, *v;  // [sequences][steps][kv_heads][head_dim]
    int steps;
    int *step;       // which one it is, from 0: one number for all layers
    int *seqused_k;  // as in struct attention, of all layers
};

// How a lab does it, in three parts of a step. Each enqueues on a.stream, and everything is as
// struct attention says for packed sequences, with one query each.
struct growth {
    // Before attention in a layer: the step's q goes to a.q, its k and v to row seqused_k[s] - 1 of sequence
    // s.
    void (*append)(struct attention a, struct tokens tokens);
    // After the last layer: the step's number and all of seqused_k rise by one.
    void (*advance)(struct attention a, struct tokens tokens);
};

#endif
