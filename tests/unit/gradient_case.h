// gradient_case.h - the case of case.h with a gradient dO and what follows from it.
#ifndef GRADIENT_CASE_H
#define GRADIENT_CASE_H

#include "common/backward.h"
#include "common/inputs.h"

#include "case.h"

static struct gradient g[GRADIENTS];
static struct attention a;  // problem.host with dO

static inline void gradients_of(const struct attention *of, double budget) {
    if (gradients_make(of, budget, g) != 0) {
        printf("no memory\n");
        exit(1);
    }
}

// The case of a command line, with dO from the generator and its gradients; end() frees it.
static inline void start(const char *line) {
    make(line);
    a = problem.host;
    a.d_o = a.o;
    a.d_o.data = calloc(1, problem.bytes[TENSOR_O] + 1);
    if (!a.d_o.data) exit(1);
    inputs_fill_gradient(INPUTS_NORMAL, 3, &a);
    gradients_of(&a, INFINITY);
}

static inline void end(void) {
    gradients_free(g);
    free(a.d_o.data);
    problem_free(&problem);
}

static inline int heads_of(int which) { return which == GRADIENT_Q ? a.heads : a.kv_heads; }
static inline int tokens_of(int which) { return which == GRADIENT_Q ? a.seqlen_q : a.seqlen_k; }

#endif
