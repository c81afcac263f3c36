// lab16_gradients.h - rows of dQ, dK and dV once more, where a NaN or an infinity that they do not see may
// have come into them.
//
// Tensor cores multiply whole tiles: a pair that is not seen has P = dS = 0, but 0 times a NaN in K, Q or V
// is a NaN. As recompute_row in lab16.h, which has the reasons; for lab 06 and what follows. One warp a
// row, in fp32, from the pairs that are seen alone. Slow, and needed only where tensors hold such numbers.
//
// CUDA C, for .cu files only.
#ifndef LAB16_GRADIENTS_H
#define LAB16_GRADIENTS_H

#include "lab16.h"

// P and dS of one pair: q, k, v, d_o are its rows.
struct lab16_pair {
    float p, ds;
};
template <class T>
static __device__ struct lab16_pair lab16_pair_of(const T *q, const T *k, const T *v, const T *d_o,
                                                  int head_dim, float scale, float lse, float delta) {
    float s = 0.0f, dp = 0.0f;
    for (int c = 0; c < head_dim; c += 2) {
        float2 x = unpack2<T>(*(const uint32_t *)(q + c)), y = unpack2<T>(*(const uint32_t *)(k + c));
        s += x.x * y.x + x.y * y.y;
        x = unpack2<T>(*(const uint32_t *)(d_o + c)), y = unpack2<T>(*(const uint32_t *)(v + c));
        dp += x.x * y.x + x.y * y.y;
    }
    float p = __expf(s * scale - lse);
    struct lab16_pair pair = {p, p * (dp - delta)};
    return pair;
}

// A row of fp32 sums of a warp: lane l has the pairs of columns l and l + 32.
constexpr unsigned LAB16_ALL = 0xffffffffu;
constexpr int LAB16_LANES = 32;
template <class T>
static __device__ void lab16_add_row(float factor, const T *x, int head_dim, float2 (&sum_reg)[2]) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int c = 2 * ((int)threadIdx.x % LAB16_LANES + e * LAB16_LANES);
        if (c >= head_dim) continue;
        float2 y = unpack2<T>(*(const uint32_t *)(x + c));
        sum_reg[e].x += factor * y.x, sum_reg[e].y += factor * y.y;
    }
}
template <class T>
static __device__ void lab16_store_row(const float2 (&sum_reg)[2], float factor, int head_dim, T *to) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int c = 2 * ((int)threadIdx.x % LAB16_LANES + e * LAB16_LANES);
        if (c < head_dim) *(uint32_t *)(to + c) = pack2<T>(sum_reg[e].x * factor, sum_reg[e].y * factor);
    }
}

// Row i of dQ of one head; i is numbered as in the tensor. delta: D [batch][heads][seqlen_q].
template <class T>
static __device__ void recompute_dq_row(const struct attention *a, int batch, int head, int64_t i,
                                        const float *delta) {
    int kv_head = kv_head_of(a, head), lane = threadIdx.x % LAB16_LANES;
    int64_t query = ((int64_t)batch * a->heads + head) * a->seqlen_q + i;
    struct span seen = visible_range(a, i);
    float2 sum_reg[2] = {};
    for (int first = seen.first; first < seen.end; first += LAB16_LANES) {
        int key = first + lane;
        float ds = 0.0f;  // of the lane's own key
        if (key < seen.end)
            ds = lab16_pair_of(row<T>(a->q, batch, head, i), row<T>(a->k, batch, kv_head, key),
                               row<T>(a->v, batch, kv_head, key), row<T>(a->d_o, batch, head, i), a->head_dim,
                               a->scale, a->lse[query], delta[query])
                     .ds;
        for (int n = 0; n < LAB16_LANES && first + n < seen.end; n++)
            lab16_add_row(__shfl_sync(LAB16_ALL, ds, n), row<T>(a->k, batch, kv_head, first + n), a->head_dim,
                          sum_reg);
    }
    lab16_store_row(sum_reg, a->scale, a->head_dim, row<T>(a->dq, batch, head, i));
}

// Row j of dK and of dV of one KV head.
template <class T>
static __device__ void recompute_dk_dv_row(const struct attention *a, int batch, int kv_head, int64_t j,
                                           const float *delta) {
    int group = a->heads / a->kv_heads, lane = threadIdx.x % LAB16_LANES;
    struct sequence s = sequence_at(a, a->sequences ? sequence_of(a->cu_seqlens_k, a->sequences, j) : 0);
    int64_t end = (int64_t)s.first_query + s.seqlen_q;
    float2 dk_reg[2] = {}, dv_reg[2] = {};
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t first = s.first_query; first < end; first += LAB16_LANES) {
            int64_t i = first + lane;
            struct lab16_pair pair = {0.0f, 0.0f};
            bool is_seen = false;
            if (i < end) {
                struct span seen = visible_span(a, s.seqlen_q, s.seqlen_k, i - s.first_query);
                is_seen = j - s.first_key >= seen.first && j - s.first_key < seen.end;
            }
            if (is_seen) {
                int64_t query = ((int64_t)batch * a->heads + head) * a->seqlen_q + i;
                pair = lab16_pair_of(row<T>(a->q, batch, head, i), row<T>(a->k, batch, kv_head, j),
                                     row<T>(a->v, batch, kv_head, j), row<T>(a->d_o, batch, head, i),
                                     a->head_dim, a->scale, a->lse[query], delta[query]);
            }
            unsigned seeing = __ballot_sync(LAB16_ALL, is_seen);
            for (int n = 0; n < LAB16_LANES; n++) {
                if (!(seeing >> n & 1)) continue;
                lab16_add_row(__shfl_sync(LAB16_ALL, pair.p, n), row<T>(a->d_o, batch, head, first + n),
                              a->head_dim, dv_reg);
                lab16_add_row(__shfl_sync(LAB16_ALL, pair.ds, n), row<T>(a->q, batch, head, first + n),
                              a->head_dim, dk_reg);
            }
        }
    lab16_store_row(dk_reg, a->scale, a->head_dim, row<T>(a->dk, batch, kv_head, j));
    lab16_store_row(dv_reg, 1.0f, a->head_dim, row<T>(a->dv, batch, kv_head, j));
}

#endif
