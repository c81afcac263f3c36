// backward_sweeps.h - the two halves of backward.c. Only it and they include this.
//
// Each sweep writes only its own rows, so no sum is ever shared between threads: one goes over queries (LSE,
// delta, dQ), one over keys (dK, dV), which works the probabilities out once more. They mirror each other: a
// row of Q and one of dO meet all of K and V; a row of K and one of V meet all of Q and dO.
#ifndef BACKWARD_SWEEPS_H
#define BACKWARD_SWEEPS_H

#include "backward.h"
#include "products.h"

// What the sweep over keys has to know of a query: LSE and delta, exact and of the plain implementation, and
// of the errors in backward.h what all pairs of this query share.
struct query {
    double lse, delta, lse_error, delta_error, terms, product;
    float plain_max, plain_sum, plain_delta;
    enum dtype score_type;  // what the plain implementation keeps the scores in
};

// Memory of one worker; each pointer is into one block.
struct scratch {
    struct unpacked left, right;  // one head of K and V, or of Q and dO, in both layouts
    int64_t batch, head;          // which one; batch -1: none yet
    float *x, *y;                 // a row of Q and one of dO, or of K and V
    double x_norm, y_norm;
    double *s, *ds, *sum;                   // [tokens] S, then P; [tokens] dP, then dS; [columns]
    float *plain_s, *plain_ds, *plain_sum;  // the same
    struct query *given;                    // [seqlen_q] of one head, in the sweep over sampled keys
    void *block;
};

struct sweep {
    const struct attention *a;
    struct gradient *out;
    const int64_t *chunk;   // chunk n: rows chunk[n] ... chunk[n + 1] - 1, all of one batch and KV head
    struct query *queries;  // [batch][heads][seqlen_q]; null: dQ is sampled, and they are given
    struct scratch *scratch;
};

// The work on one chunk of rows, for parallel_for.
void query_chunk(void *sweep, int64_t chunk, int worker);
void key_chunk(void *sweep, int64_t chunk, int worker);

static inline void unpack_rows(const struct attention *a, struct scratch *w, struct tensor x, struct tensor y,
                               int64_t batch, int64_t head, int64_t i) {
    unpack_row(a, x, batch, head, i, w->x);
    unpack_row(a, y, batch, head, i, w->y);
    w->x_norm = (double)norm_of(w->x, a->head_dim), w->y_norm = (double)norm_of(w->y, a->head_dim);
}

// ---------------------------------------------------------------- errors: see backward.h

static inline double unit(const struct attention *a) { return dtype_unit_roundoff(a->dtype); }

// At least e^x - 1, and not much more; this is asked for every pair.
static inline double growth(double x) { return x < 1 ? x + x * x : expm1(x); }

static inline double share_of_ds(const struct attention *a, double share_of_p, int64_t terms) {
    double u = unit(a), sums = (double)(a->head_dim + terms) * 0x1p-24;
    return share_of_p + 2 * u + (1 + share_of_p) * (share_of_p + u + sums);
}

// What is lost in the subnormal range, of one pair: P and dS are stored, and so are dP and O.
static inline double lost(const struct attention *a, double magnitude, double d_o) {
    double scale = fabs((double)a->scale);
    return dtype_min_positive(a->dtype) / 2 * (1 + scale * (magnitude + 1 + a->head_dim * d_o));
}

// A NaN among the inputs of a row is in the row itself, too: then there is nothing to bound.
static inline void finish(struct row_error *e) {
    if (!isfinite(e->scale + e->worst + e->sums + e->least)) *e = (struct row_error){0, 0, 0, 0};
}

#endif
