// products.h - the products of rows that reference.c, reference_quantised.c and backward.c are made of: one
// head of a tensor unpacked to fp32, and its products with one row, in double and in fp32. Only these include
// it.
//
// Sixteen tokens (or sixteen columns) are worked on at once: their sums stay in registers, and no sum is
// split, so the order of additions, hence the result, is the same on every machine.
#ifndef PRODUCTS_H
#define PRODUCTS_H

#include <math.h>

#include "attention.h"

enum { LANES = 16 };

static inline int64_t round_up(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// Storage types are subsets of fp32, so a head unpacked to fp32 serves the double computation (which widens
// it again, exactly) and the plain one. Rows have `columns` elements, head_dim rounded up to LANES.
struct unpacked {
    float *lanes;      // [tokens / LANES][head_dim][LANES]: LANES tokens side by side, for dots; or null
    float *rows;       // [tokens][columns], for weighted; or one row, of passage
    int64_t row_step;  // columns; or 0: rows holds one row
    float *norm;       // [tokens]: Euclidean norm of the row's finite elements
    float *max;        // [tokens]: the largest finite |element|
};

// Which layouts are kept.
enum layouts { KEEP_LANES = 1, KEEP_ROWS = 2 };

// How many floats that takes, and where they lie: place_unpacked returns what comes after them. The memory is
// zero before: lanes past the last token and columns past head_dim hold 0. unpacked_tokens: what a row of one
// value for each token needs as room for dots to write to.
double unpacked_floats(const struct attention *a, double tokens, unsigned layouts);
float *place_unpacked(const struct attention *a, int64_t tokens, unsigned layouts, float *at,
                      struct unpacked *u);
static inline int64_t unpacked_tokens(int64_t tokens) { return round_up(tokens, LANES) + LANES; }

void unpack_row(const struct attention *a, struct tensor t, int64_t batch, int64_t head, int64_t i,
                float *to);
void unpack_head(const struct attention *a, struct tensor t, int64_t batch, int64_t head, int64_t tokens,
                 struct unpacked *u);

// Euclidean norm of the finite elements; the largest finite |element|; the largest of a span.
float norm_of(const float *x, int count);
float max_of(const float *x, int count);
float largest(const float *values, struct span tokens);

// dots:     s[j] = sum_c x[c] k[j][c]        for j < n (and up to LANES - 1 more, never used), k in lanes
// weighted: o[c] = sum_{j<n} p[j] v[j][c]    for c < columns, v in rows
void dots_double(const float *x, const float *k, int head_dim, int64_t n, double *s);
void dots_float(const float *x, const float *k, int head_dim, int64_t n, float *s);
void weighted_double(const double *p, const float *v, int head_dim, int64_t n, double *o);
void weighted_float(const float *p, const float *v, int head_dim, int64_t n, float *o);

// Turns n dot products into exp(score - max), score = scale * dot product. A NaN is passed over by max and
// comes back through exp. softmax_double looks at the scores' magnitudes, too; softmax_float rounds the
// scores to the type first, and works in fp32.
struct softmax {
    double max, sum;  // of the scores; of the exponentials
    double largest;   // finite |score|
};
struct softmax softmax_double(double *s, int64_t n, double scale);
struct softmax softmax_float(float *s, int64_t n, float scale, enum dtype dtype);

// Tokens first ... end - 1 of an unpacked head. Dots are worked out from `lanes` on, where a group of LANES
// begins: `before` of them belong to tokens outside.
struct seen {
    const float *lanes, *rows;
    int64_t before, n;
};
static inline struct seen seen_in(const struct attention *a, const struct unpacked *u, struct span tokens) {
    struct seen seen = {.before = tokens.first % LANES, .n = tokens.end - tokens.first};
    if (u->lanes) seen.lanes = u->lanes + (tokens.first - seen.before) * a->head_dim;
    if (u->row_step) seen.rows = u->rows + tokens.first * u->row_step;
    return seen;
}

// The type that the plain implementation keeps a number in: the storage type, unless it is too large for that
// (or the type has 8 bits: see reference_forward).
static inline enum dtype kept_type(const struct attention *a, double largest_magnitude) {
    return dtype_bytes(a->dtype) == 1 || largest_magnitude > dtype_max_finite(a->dtype) ? DTYPE_FP32
                                                                                        : a->dtype;
}

// What a score may be off by: a sum of head_dim products, of absolute values that `product` bounds, the scale
// and the exponential's argument, all in fp32; and storing the score in a type.
static inline double score_error(const struct attention *a, double product, double score, enum dtype type) {
    return (a->head_dim + 4) * 0x1p-24 * product + dtype_unit_roundoff(type) * fabs(score);
}

// number_round of a float (but for the sign of a zero), asked for every pair, of which many are subnormal in
// fp16: no branch and no slow arithmetic. Adding a double whose own last place is worth as much as the type's
// at x, and is even, lets the adder round.
static inline float rounded(enum dtype type, float x) {
    if (type != DTYPE_FP16 && type != DTYPE_BF16) return (float)number_round(type, (double)x);
    uint32_t exponent = bits_of_float(x) >> 23 & 0xff, lowest = type == DTYPE_FP16 ? 113 : 1;
    uint32_t fraction = type == DTYPE_FP16 ? 10 : 7;
    if (exponent < lowest) exponent = lowest;
    double shift = double_of_bits((uint64_t)(exponent + 948 - fraction) << 52 | (uint64_t)1 << 51);
    double nearest = (double)x + shift - shift;
    if (nearest > dtype_max_finite(type)) return INFINITY;
    return nearest < -dtype_max_finite(type) ? -INFINITY : (float)nearest;
}

#endif
