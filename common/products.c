#include "products.h"

#include <math.h>
#include <string.h>

double unpacked_floats(const struct attention *a, double tokens, unsigned layouts) {
    double columns = (double)round_up(a->head_dim, LANES), room = tokens + 2 * LANES;
    return (layouts & KEEP_LANES ? room * a->head_dim : 0) +
           (layouts & KEEP_ROWS ? room * columns : columns) + 2 * room;
}

float *place_unpacked(const struct attention *a, int64_t tokens, unsigned layouts, float *at,
                      struct unpacked *u) {
    int64_t columns = round_up(a->head_dim, LANES), room = unpacked_tokens(tokens);
    u->lanes = layouts & KEEP_LANES ? at : NULL;
    u->rows = at + (layouts & KEEP_LANES ? room * a->head_dim : 0);
    u->row_step = layouts & KEEP_ROWS ? columns : 0;
    u->norm = u->rows + (layouts & KEEP_ROWS ? room * columns : columns);
    u->max = u->norm + room;
    return u->max + room;
}

// With the type a constant, as below, the conversion is a few instructions.
static inline void load_row(enum dtype type, const void *data, int64_t at, int count, float *to) {
    for (int c = 0; c < count; ++c) to[c] = (float)number_load(type, data, at + c);
}

void unpack_row(const struct attention *a, struct tensor t, int64_t batch, int64_t head, int64_t i,
                float *to) {
    int64_t at = batch * t.stride_batch + head * t.stride_head + i * t.stride_row;
    if (a->dtype == DTYPE_FP16)
        load_row(DTYPE_FP16, t.data, at, a->head_dim, to);
    else if (a->dtype == DTYPE_BF16)
        load_row(DTYPE_BF16, t.data, at, a->head_dim, to);
    else
        load_row(a->dtype, t.data, at, a->head_dim, to);
}

float norm_of(const float *x, int count) {
    double squares = 0;
    for (int c = 0; c < count; ++c)
        if (isfinite(x[c])) squares += (double)x[c] * (double)x[c];
    return (float)sqrt(squares);
}

float max_of(const float *x, int count) {
    float max = 0;
    for (int c = 0; c < count; ++c)
        if (isfinite(x[c]) && fabsf(x[c]) > max) max = fabsf(x[c]);
    return max;
}

void unpack_head(const struct attention *a, struct tensor t, int64_t batch, int64_t head, int64_t tokens,
                 struct unpacked *u) {
    for (int64_t i = 0; i < tokens; ++i) {
        float *row = u->rows + i * u->row_step;
        unpack_row(a, t, batch, head, i, row);
        u->norm[i] = norm_of(row, a->head_dim), u->max[i] = max_of(row, a->head_dim);
        if (!u->lanes) continue;
        float *lane = u->lanes + i / LANES * LANES * a->head_dim + i % LANES;
        for (int64_t c = 0; c < a->head_dim; ++c) lane[c * LANES] = row[c];
    }
}

float largest(const float *values, struct span tokens) {
    float largest = 0;
    for (int j = tokens.first; j < tokens.end; ++j)
        if (values[j] > largest) largest = values[j];
    return largest;
}

// One text for both: only the type of the sums differs.
#define DEFINE_PRODUCTS(real)                                                                                \
    void dots_##real(const float *x, const float *k, int head_dim, int64_t n, real *s) {                     \
        for (int64_t j = 0; j < n; j += LANES, k += (int64_t)LANES * head_dim) {                             \
            real sum[LANES] = {0};                                                                           \
            for (int c = 0; c < head_dim; ++c)                                                               \
                _Pragma("GCC unroll 16") for (int lane = 0; lane < LANES; ++lane) sum[lane] +=               \
                    (real)x[c] * (real)k[c * LANES + lane];                                                  \
            memcpy(s + j, sum, sizeof sum);                                                                  \
        }                                                                                                    \
    }                                                                                                        \
    void weighted_##real(const real *p, const float *v, int head_dim, int64_t n, real *o) {                  \
        int64_t columns = round_up(head_dim, LANES);                                                         \
        for (int64_t c = 0; c < columns; c += LANES) {                                                       \
            real sum[LANES] = {0};                                                                           \
            for (int64_t j = 0; j < n; ++j)                                                                  \
                _Pragma("GCC unroll 16") for (int lane = 0; lane < LANES; ++lane) sum[lane] +=               \
                    p[j] * (real)v[j * columns + c + lane];                                                  \
            memcpy(o + c, sum, sizeof sum);                                                                  \
        }                                                                                                    \
    }
DEFINE_PRODUCTS(double)
DEFINE_PRODUCTS(float)

struct softmax softmax_double(double *s, int64_t n, double scale) {
    struct softmax row = {.max = -INFINITY};
    for (int64_t j = 0; j < n; ++j) {
        double magnitude = fabs(s[j] *= scale);
        if (magnitude > row.largest && isfinite(magnitude)) row.largest = magnitude;
        if (s[j] > row.max) row.max = s[j];
    }
    for (int64_t j = 0; j < n; ++j) row.sum += s[j] = exp(s[j] - row.max);
    return row;
}

struct softmax softmax_float(float *s, int64_t n, float scale, enum dtype dtype) {
    float max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; ++j) {
        s[j] = rounded(dtype, s[j] * scale);
        if (s[j] > max) max = s[j];
    }
    for (int64_t j = 0; j < n; ++j) sum += s[j] = expf(s[j] - max);
    return (struct softmax){.max = (double)max, .sum = (double)sum};
}
