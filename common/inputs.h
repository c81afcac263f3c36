// inputs.h - Q, K and V from a seed: the same numbers on every machine, in every layout, at every shape.
#ifndef INPUTS_H
#define INPUTS_H

#include <stdint.h>

#include "attention.h"

// Each kind is there because of wrong kernels that the others let pass.
enum input_kind {
    INPUTS_NORMAL,
    INPUTS_ZERO_Q,
    INPUTS_CONSTANT_V,
    INPUTS_ONE_HOT,
    INPUTS_LN3,
    INPUTS_RISING,
    INPUTS_FALLING,
    INPUTS_LOW,
    INPUTS_HUGE,
    INPUTS_OUTLIERS,
    INPUTS_TINY,
    INPUTS_NAN,
    INPUTS_NAN_Q,
    INPUTS_NAN_V,
    INPUTS_STEEP,
    INPUTS_UNEVEN,
    INPUTS_ONE_ROW,
    INPUTS_ADDED_OUTLIERS,
    INPUTS_STEPS,
    INPUTS_PEAK,
    INPUTS_COUNT
};

const char *inputs_name(enum input_kind kind);
const char *inputs_purpose(enum input_kind kind);    // one line: what it holds and which faults it is for
enum input_kind inputs_from_name(const char *name);  // INPUTS_COUNT: there is no such kind

// Fills a->q, a->k and a->v (host memory of a->dtype, any strides) with the kind's values, rounded to
// a->dtype. An element depends on the seed, the tensor, and its (batch, head, token, column) alone; in the
// structured kinds also on seqlen_k, head_dim, scale, causal and window, from which they are built. In a
// packed problem, sequence s holds what batch s of an ordinary problem of that sequence's lengths would.
// (Huge is built on key 0: it means nothing under a window that hides that key.) Threaded.
void inputs_fill(enum input_kind kind, uint64_t seed, const struct attention *a);

// Fills a->d_o, the gradient that a backward pass starts from, under the same terms: N(0,1) in every kind but
// one-row.
void inputs_fill_gradient(enum input_kind kind, uint64_t seed, const struct attention *a);

// The generator itself: element (batch, head, token, column) of tensor number `tensor` (0 q, 1 k, 2 v,
// 3 dO). Near N(0,1): the sum of twelve uniform numbers (Irwin-Hall), mean 0, variance 1, |x| < 6,
// excess kurtosis -0.1. Chosen over Box-Muller because it needs integers only, so that not one bit
// depends on a machine's logarithm.
double inputs_normal(uint64_t seed, int tensor, int64_t batch, int64_t head, int64_t token, int64_t column);

#endif
