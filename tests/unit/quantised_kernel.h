// quantised_kernel.h - attention with e4m3 numbers as quantise.h defines it, written once more and apart from
// reference_quantised.c: e4m3 by a search through its numbers, the rotation by its matrix, keys in tiles
// under a running maximum, as kernels go through them. Honest, or with one planted fault.
#ifndef QUANTISED_KERNEL_H
#define QUANTISED_KERNEL_H

#include "../simt/e4m3_reference.h"
#include "case.h"

enum { MOST_TOKENS = 600, MOST_COLUMNS = 128 };

enum fault {
    HONEST,
    FAULT_Q_SCALE,  // the scale of the block after it, round the end
    FAULT_K_SCALE,
    FAULT_V_SCALE,
    FAULT_NO_V_SCALE,  // V's scale forgotten
    FAULT_P_UNSCALED,  // P to e4m3 as it is
    FAULT_P_TO_512,    // P times 512: the largest stop at 448
    FAULT_P_OVERFLOW,  // P times 512, NaN past 448: a conversion that does not saturate
    FAULT_LSE,         // the sum is that of 256 P
    FAULT_Q_ROTATED,   // K is not
    FAULT_TAIL,        // amax of the last block is that of its first row
    FAULTS
};

// How a kernel goes through the keys.
struct way {
    int tile;          // keys at a time
    int from_the_end;  // tiles, and columns of the dot products, from the last to the first
    enum fault fault;
    // As lab 07 does it: tensor cores sum P V of a tile, V's scale is in P, and the largest P is 32 to 448,
    // as the maximum stays where it was as long as it can.
    int cuts;
};

// A head as e4m3 numbers and scales.
struct stored {
    float x[MOST_TOKENS][MOST_COLUMNS], scale[MOST_TOKENS / QUANTISE_BLOCK + 1];
    int columns;
};

// The numbers of e4m3 from 0 up, in order: number n has the bits n.
static inline float e4m3_number(int n) {
    int exponent = n >> 3, fraction = n & 7;
    return ldexpf((float)(exponent ? 8 + fraction : fraction), (exponent ? exponent : 1) - 10);
}

// The nearest of them, of two the even; past the last that one, or NaN.
static inline float to_e4m3(float x, int saturates) {
    float magnitude = fabsf(x);
    int low = 0, high = 0x7e;
    if (isnan(x)) return NAN;
    if (magnitude > 448) return saturates ? copysignf(448, x) : NAN;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (e4m3_number(middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double below = (double)magnitude - (double)e4m3_number(low);
    double above = (double)e4m3_number(high) - (double)magnitude;
    int n = below < above || (below == above && low % 2 == 0) ? low : high;
    return copysignf(e4m3_number(n), x);
}

// Row c of the rotation times x: (-1)^(ones in c & column), signs, 1 / sqrt(columns).
static inline float rotated_element(const float *x, int columns, int c) {
    static double sign[256][256];  // of up to 256 columns, made once; 0: not yet
    double sum = 0;
    for (int i = 0; i < columns; ++i) {
        if (sign[c][i] == 0) {
            int ones = 0;
            for (int bits = c & i; bits; bits &= bits - 1) ++ones;
            sign[c][i] = (ones % 2 ? -1 : 1) * (double)quantise_sign(i);
        }
        sum += sign[c][i] * (double)x[i];
    }
    return (float)(sum / sqrt(columns));
}

static inline void store_head(struct tensor t, int b, int h, int tokens, int rotate, enum fault fault,
                              struct stored *s) {
    int dim = problem.host.head_dim;
    s->columns = !rotate ? dim : dim <= 64 ? 64 : 128;
    for (int first = 0; first < tokens; first += 128) {
        int end = first + 128 < tokens ? first + 128 : tokens;
        float amax = 0;
        for (int i = first; i < end; ++i) {
            float x[MOST_COLUMNS] = {0};
            for (int c = 0; c < dim; ++c) x[c] = (float)load(t, b, h, i, c);
            for (int c = 0; c < s->columns; ++c) {
                float y = rotate ? rotated_element(x, s->columns, c) : x[c];
                s->x[i][c] = y;
                int counts = isfinite(y) && (fault != FAULT_TAIL || end < tokens || i == first);
                if (counts && fabsf(y) > amax) amax = fabsf(y);
            }
        }
        float scale = amax > 0 ? amax / 448 : 1;
        for (int i = first; i < end; ++i)
            for (int c = 0; c < s->columns; ++c) {
                float y = s->x[i][c];
                s->x[i][c] = !isfinite(y) ? NAN : to_e4m3(amax > 0 ? y * (448 / amax) : 0, 1);
            }
        s->scale[first / 128] = scale;
    }
}

static inline float scale_at(const struct stored *s, int i, int tokens, int of_next) {
    int block = i / 128, blocks = (tokens + 127) / 128;
    return s->scale[of_next ? (block + 1) % blocks : block];
}

// sums += P V of keys first ... end - 1 as tensor cores sum it.
static inline void add_cut_off(const struct stored *v, const float *weight, int first, int end, float *sums) {
    for (int c = 0; c < problem.host.head_dim; ++c) {
        double sum = 0;
        for (int j = first; j < end; j += 32)
            sum = e4m3_sum_slowly(sum, weight + j, 1, &v->x[j][c], MOST_COLUMNS, end - j < 32 ? end - j : 32);
        sums[c] += (float)sum;
    }
}

static inline void one_query(struct way way, const struct stored *q, const struct stored *k,
                             const struct stored *v, int i, struct tensor o, float *lse) {
    const struct attention *a = &problem.host;
    int n = a->seqlen_k, tiles = (n + way.tile - 1) / way.tile, wrong_q = way.fault == FAULT_Q_SCALE;
    int p_to_512 = way.fault == FAULT_P_TO_512 || way.fault == FAULT_P_OVERFLOW;
    float up = way.fault == FAULT_P_UNSCALED ? 1
               : p_to_512                    ? 512
               : way.cuts                    ? 32
                                             : 256,
          from = -INFINITY, sum = 0;
    float sums[MOST_COLUMNS] = {0}, q_scale = a->scale * scale_at(q, i, a->seqlen_q, wrong_q);
    for (int t = 0; t < tiles; ++t) {
        int first = (way.from_the_end ? tiles - 1 - t : t) * way.tile;
        int end = first + way.tile < n ? first + way.tile : n;
        float s[MOST_TOKENS], weights[MOST_TOKENS], max = -INFINITY;
        for (int j = first; j < end; ++j) {
            float dot = 0;
            for (int c = 0; c < q->columns; ++c) {
                int at = way.from_the_end ? q->columns - 1 - c : c;
                dot += q->x[i][at] * k->x[j][at];
            }
            dot *= q_scale * scale_at(k, j, n, way.fault == FAULT_K_SCALE);
            if (way.cuts) dot += logf(scale_at(v, j, n, 0));
            s[j] = sees(a, i, j) ? dot : -INFINITY;
            max = fmaxf(max, s[j]);
        }
        if (max == -INFINITY) {  // nothing is seen here; or NaN only
            int nan = 0;
            for (int j = first; j < end; ++j) nan |= isnan(s[j]);
            if (!nan) continue;
        }
        if (max > from + (way.cuts ? logf(14) : 0) || from == -INFINITY) {  // P of 448 is 14 times 32
            float down = from == -INFINITY ? 0 : expf(from - max);
            sum *= down;
            for (int c = 0; c < a->head_dim; ++c) sums[c] *= down;
            from = max;
        }
        for (int j = first; j < end; ++j) {
            weights[j] = 0;
            if (!sees(a, i, j)) continue;
            float p = expf(s[j] - from), weight = to_e4m3(p * up, way.fault != FAULT_P_OVERFLOW);
            float v_scale = scale_at(v, j, n, way.fault == FAULT_V_SCALE);
            if (way.fault == FAULT_NO_V_SCALE) v_scale = 1;
            sum += way.cuts ? p / v_scale : p, weights[j] = weight;
            for (int c = 0; c < a->head_dim && !way.cuts; ++c) sums[c] += weight * v->x[j][c] * v_scale;
        }
        if (way.cuts) add_cut_off(v, weights, first, end, sums);
    }
    int empty = from == -INFINITY && sum == 0;
    for (int c = 0; c < a->head_dim; ++c)
        number_store(a->dtype, o.data, i * o.stride_row + c, empty ? 0 : (double)(sums[c] / (up * sum)));
    *lse = empty ? -INFINITY : from + logf(sum) + (way.fault == FAULT_LSE ? logf(256) : 0);
}

// Runs it on `problem`, and leaves O and LSE there.
static inline void quantised_kernel(struct way way, int rotated) {
    static struct stored q, k, v;
    const struct attention *a = &problem.host;
    for (int b = 0; b < a->batch; ++b)
        for (int h = 0; h < a->heads; ++h) {
            int kv = kv_head_of(a, h);
            struct tensor o = a->o;
            o.data = (char *)o.data + (b * o.stride_batch + h * o.stride_head) * dtype_bytes(a->dtype);
            store_head(a->q, b, h, a->seqlen_q, rotated, way.fault, &q);
            store_head(a->k, b, kv, a->seqlen_k, rotated && way.fault != FAULT_Q_ROTATED, way.fault, &k);
            store_head(a->v, b, kv, a->seqlen_k, 0, way.fault, &v);
            for (int i = 0; i < a->seqlen_q; ++i)
                one_query(way, &q, &k, &v, i, o, &a->lse[((int64_t)b * a->heads + h) * a->seqlen_q + i]);
        }
}

#endif
