// backward.h - what the right gradients are, and how far from them an honest kernel may be: the backward
// pass's part of reference.h, with the same two computations side by side, in double and in the storage type.
//
//     P = exp(S - LSE)   dV = P^T dO   dP = dO V^T   delta_i = sum_j P_ij dP_ij = dO_i . O_i
//     dS = P (dP - delta)   dQ = scale dS K   dK = scale dS^T Q        (FlashAttention-2, algorithm 2)
//
// dK and dV sum over the query heads that share a KV head. A query that sees no key contributes nothing and
// its dQ is 0; so are dK and dV of a key that no query sees. `a` holds host pointers; a->d_o is read.
#ifndef BACKWARD_H
#define BACKWARD_H

#include "reference.h"

enum gradient_index { GRADIENT_Q, GRADIENT_K, GRADIENT_V, GRADIENTS };

// One gradient, for the rows that are examined.
struct gradient {
    // Of dq a row's number is (batch * heads + head) * seqlen_q + i, of dk and dv (batch * kv_heads + kv_head)
    // * seqlen_k + j.
    struct rows rows;
    double *exact, *plain;    // [rows.count][head_dim]
    struct row_facts *facts;  // [rows.count]: keys is how many keys (queries) the row sees (is seen by), o the
                              // errors of this gradient, lse nothing
    int has_signal;           // this gradient cannot be all zero: some examined row's exact value is not
};

// Fills `out` (each gradient of its own rows). Threaded; the result does not depend on how. A problem whose
// full gradients cost more than `budget` multiply-adds is examined on a sample of rows of each gradient. A
// sampled row of dQ is still worked out from q, k, v and d_o alone; dK and dV of a sampled key need LSE and
// delta of every query that sees it, and there (only there) a->lse and delta = dO . O of a->o are taken as
// given: what the kernel itself is given. Returns 0, or -1 without memory.
int gradients_make(const struct attention *a, double budget, struct gradient out[GRADIENTS]);
void gradients_free(struct gradient gradients[GRADIENTS]);

// Bytes of memory that gradients_make takes at least with REFERENCE_BUDGET and one thread.
double gradients_bytes(const struct attention *a);

#endif
