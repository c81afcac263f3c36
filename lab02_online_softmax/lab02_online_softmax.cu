// lab02_online_softmax.cu - softmax in one pass, and what it opens: attention without S and P.
//
// Softmax needs the maximum of a row before its sum, and the sum before its first probability. A pair (m, l),
// the maximum of some scores and the sum of exp(score - m) over them, needs neither in advance: two pairs of
// disjoint sets of keys merge into the pair of their union, in any order and any grouping. Lecture 25,
// sections 2.1-2.3, experiment 2. The kernels:
//
//     safe     S in memory; softmax passes over each row three times: maximum, sum, probabilities
//     online   S in memory; two passes: (m, l), probabilities
//     fused    no S, no P: O is a sum over keys like l, so it is rescaled with l whenever m rises
//
// Since lab 01: one warp for each query takes the products. All three kernels share their code, so that a
// difference in time is the difference in softmax and in traffic.
//
//     ./lab run 02         or        build/cpu/lab02_online_softmax --seqlen 200 --causal --kernel fused

#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/attention.h"
#include "common/lab.h"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;
constexpr int THREADS = 256;  // eight warps, eight neighbouring queries: they share K and V in the L1 cache

// ---- the state of a softmax ----

static __device__ float warp_max(float x) {
    for (int offset = WARP / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}
static __device__ float warp_sum(float x) {
    for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

struct softmax_state {
    float m;  // maximum of the scores so far; -inf: no key yet. Never NaN, fmaxf and < pass over a NaN
    float l;  // sum of exp(score - m); a NaN among the scores lands here and stays
};

static __device__ struct softmax_state no_keys() { return {-INFINITY, 0.0f}; }
static __device__ struct softmax_state one_key(float score) { return {score, 1.0f}; }

// exp(score - m) for m >= score; for -inf it is 0, even if m is -inf too, when the difference would be NaN.
static __device__ float share(float score, float m) { return score == -INFINITY ? 0.0f : __expf(score - m); }

// The state of two disjoint sets of keys together: associative, commutative, and no_keys() changes nothing.
// Section 2.2 scales both sums, but one of the two factors is always exp(0) = 1.
static __device__ struct softmax_state merge(struct softmax_state a, struct softmax_state b) {
    // BEGIN SOLUTION merge: the larger m, and both l relative to it.
    struct softmax_state high = a.m < b.m ? b : a;
    struct softmax_state low = a.m < b.m ? a : b;
    high.l += low.l * share(low.m, high.m);
    return high;
    // STUB return {fmaxf(a.m, b.m), 0.0f};
    // END SOLUTION
}

static __device__ struct softmax_state shuffle_xor(struct softmax_state state, int offset) {
    state.m = __shfl_xor_sync(ALL_LANES, state.m, offset);
    state.l = __shfl_xor_sync(ALL_LANES, state.l, offset);
    return state;
}

static __device__ float lse_of(struct softmax_state state) {
    return state.l == 0.0f ? -INFINITY : state.m + logf(state.l);
}
static __device__ float inverse_of(float l) { return l == 0.0f ? 0.0f : 1.0f / l; }

// ---- rows of Q, K, V and O in a warp ----

// A warp takes 32 keys at a time, a step, and deals them out in two ways. For the products eight lanes, a
// group, share a row of K or V and go through eight keys row by row: a lane holds 8 columns, one load of 16
// bytes, and the 8 that lie 64 further on, CHUNKS loads in all. For the softmax each lane has one key of its
// own, and so one exp. score_step passes from the first way to the second, output_step back.
//
//     group                   0         1          2           3
//     its lanes               0 ... 7   8 ... 15   16 ... 23   24 ... 31
//     its keys, first plus    0 ... 7   8 ... 15   16 ... 23   24 ... 31    (lane i's own: first + i)
constexpr int STEP = WARP;
constexpr int GROUP = 8;
constexpr int KEYS = GROUP;  // of each group in a step

static __device__ int lane() { return threadIdx.x % WARP; }
static __device__ int column_of(int chunk) { return (chunk * GROUP + lane() % GROUP) * 8; }
static __device__ int key_of(int first, int n) { return first + lane() / GROUP * KEYS + n; }

template <int CHUNKS> constexpr int BATCH = 8 / CHUNKS;  // rows loaded at once: 8 loads, 32 registers

// This lane's part of a row, still packed in fp16; columns past head_dim are 0.
template <int CHUNKS> static __device__ void load_row(const half *x, int head_dim, uint4 *packed_reg) {
    for (int c = 0; c < CHUNKS; c++)
        packed_reg[c] = column_of(c) < head_dim ? *(const uint4 *)(x + column_of(c)) : make_uint4(0, 0, 0, 0);
}

// The same for BATCH rows of K or V, this group's keys n, n + 1 and so on of the step. What lies past the
// visible keys or past head_dim is 0 and never read; a whole step asks once, not for each load.
template <int CHUNKS>
static __device__ void load_rows(struct tensor t, const half *x, int head_dim, int first, int n, int visible,
                                 uint4 (*packed_reg)[CHUNKS]) {
    x += key_of(first, n) * t.stride_row;
    if (first + STEP <= visible && head_dim == CHUNKS * GROUP * 8) {
#pragma unroll
        for (int r = 0; r < BATCH<CHUNKS>; r++)
            load_row<CHUNKS>(x + r * t.stride_row, CHUNKS * GROUP * 8, packed_reg[r]);
    } else {
#pragma unroll
        for (int r = 0; r < BATCH<CHUNKS>; r++)
            load_row<CHUNKS>(x + r * t.stride_row, key_of(first, n + r) < visible ? head_dim : 0,
                             packed_reg[r]);
    }
}

static __device__ void unpack(uint4 packed, float *x_reg) {
    const half2 *pair = (const half2 *)&packed;
    for (int e = 0; e < 4; e++) {
        float2 both = __half22float2(pair[e]);
        x_reg[2 * e] = both.x;
        x_reg[2 * e + 1] = both.y;
    }
}

// The query as the scores want it: scale is in it, once, in fp32.
template <int CHUNKS>
static __device__ void load_query(const struct attention *a, struct position at, float (*q_reg)[8]) {
    uint4 packed_reg[CHUNKS];
    load_row<CHUNKS>(row<half>(a->q, at.batch, at.head, at.i), a->head_dim, packed_reg);
    for (int c = 0; c < CHUNKS; c++) {
        unpack(packed_reg[c], q_reg[c]);
        for (int e = 0; e < 8; e++) q_reg[c][e] *= a->scale;
    }
}

// part_reg[n]: what this lane's columns add to the score of its group's key n. Returns the whole score of the
// lane's own key. In each round a lane keeps half of the keys and trades its parts of the others for its
// partner's parts of these: 4 + 2 + 1 shuffles, where eight sums over eight lanes would take 24.
static __device__ float sum_of_own_key(float *part_reg) {
#pragma unroll
    for (int keep = GROUP / 2; keep > 0; keep /= 2) {
        bool upper = lane() & keep;  // keeps the upper half
        for (int n = 0; n < keep; n++) {
            float mine = upper ? part_reg[n + keep] : part_reg[n];
            float theirs = upper ? part_reg[n] : part_reg[n + keep];
            part_reg[n] = mine + __shfl_xor_sync(ALL_LANES, theirs, keep);
        }
    }
    return part_reg[0];
}

// The score of this lane's key, first + lane(); -inf if that key is not visible.
template <int CHUNKS>
static __device__ float score_step(const struct attention *a, const half *k, int first, int visible,
                                   const float (*q_reg)[8]) {
    float part_reg[KEYS] = {};
#pragma unroll
    for (int n = 0; n < KEYS; n += BATCH<CHUNKS>) {
        uint4 packed_reg[BATCH<CHUNKS>][CHUNKS];
        load_rows<CHUNKS>(a->k, k, a->head_dim, first, n, visible, packed_reg);
        for (int r = 0; r < BATCH<CHUNKS>; r++)
            for (int c = 0; c < CHUNKS; c++) {
                float k_reg[8];
                unpack(packed_reg[r][c], k_reg);
                for (int e = 0; e < 8; e++) part_reg[n + r] += q_reg[c][e] * k_reg[e];
            }
    }
    float score = sum_of_own_key(part_reg);
    return first + lane() < visible ? score : -INFINITY;
}

// o_reg += sum over the group's keys of p * (row of V); p is that of the lane's own key, 0 if not visible.
template <int CHUNKS>
static __device__ void output_step(const struct attention *a, const half *v, int first, int visible, float p,
                                   float (*o_reg)[8]) {
#pragma unroll
    for (int n = 0; n < KEYS; n += BATCH<CHUNKS>) {
        uint4 packed_reg[BATCH<CHUNKS>][CHUNKS];
        load_rows<CHUNKS>(a->v, v, a->head_dim, first, n, visible, packed_reg);
        for (int r = 0; r < BATCH<CHUNKS>; r++) {
            float p_row = __shfl_sync(ALL_LANES, p, n + r, GROUP);  // from the lane whose key this row is
            for (int c = 0; c < CHUNKS; c++) {
                float v_reg[8];
                unpack(packed_reg[r][c], v_reg);
                for (int e = 0; e < 8; e++) o_reg[c][e] += p_row * v_reg[e];
            }
        }
    }
}

// Adds up what the four groups have summed over their keys, times factor, and writes the row of O.
template <int CHUNKS>
static __device__ void store_output(const struct attention *a, struct position at, float factor,
                                    const float (*o_reg)[8]) {
    uint4 *o = (uint4 *)row<half>(a->o, at.batch, at.head, at.i);  // [head_dim / 8], 16 bytes each
    for (int n = 0; n < CHUNKS; n++) {
        uint4 packed;
        half2 *pair = (half2 *)&packed;
        for (int e = 0; e < 8; e += 2) {
            float x = o_reg[n][e] * factor;
            float y = o_reg[n][e + 1] * factor;
            for (int offset = GROUP; offset < WARP; offset *= 2) {
                x += __shfl_xor_sync(ALL_LANES, x, offset);
                y += __shfl_xor_sync(ALL_LANES, y, offset);
            }
            pair[e / 2] = __floats2half2_rn(x, y);
        }
        if (lane() < GROUP && column_of(n) < a->head_dim) o[n * GROUP + lane()] = packed;
    }
}

// ---- S and P in memory: safe and online ----

// S or P: fp16, [batch][heads][seqlen_q][seqlen_k]; a row starts at a multiple of STEP elements (64 bytes).
static __host__ __device__ struct tensor score_matrix(const struct attention *a, int which) {
    struct tensor t;
    t.stride_row = ((int64_t)a->seqlen_k + STEP - 1) / STEP * STEP;
    t.stride_head = t.stride_row * a->seqlen_q;
    t.stride_batch = t.stride_head * a->heads;
    t.data = (half *)a->workspace + which * t.stride_batch * a->batch;
    return t;
}
static __device__ struct tensor s_of(const struct attention *a) { return score_matrix(a, 0); }
static __device__ struct tensor p_of(const struct attention *a) { return score_matrix(a, 1); }

// The query of this warp, numbered through [batch][heads][seqlen_q]; past the end, the whole warp leaves.
static __device__ int64_t query_of_warp() { return ((int64_t)blockIdx.x * THREADS + threadIdx.x) / WARP; }

template <int CHUNKS> __global__ void __launch_bounds__(THREADS) scores(struct attention a) {
    if (query_of_warp() >= query_count(&a)) return;
    struct position at = position_of(&a, query_of_warp());
    int visible = visible_keys(&a, at.i);
    const half *k = row<half>(a.k, at.batch, kv_head_of(&a, at.head), 0);  // [seqlen_k][head_dim]
    half *s = row<half>(s_of(&a), at.batch, at.head, at.i);                // [seqlen_k]

    float q_reg[CHUNKS][8];
    load_query<CHUNKS>(&a, at, q_reg);
    for (int first = 0; first < visible; first += STEP) {
        float score = score_step<CHUNKS>(&a, k, first, visible, q_reg);
        s[first + lane()] = __float2half(score);  // lanes past the end: into the padding of the row
    }
}

__global__ void __launch_bounds__(THREADS) softmax_safe(struct attention a) {
    if (query_of_warp() >= query_count(&a)) return;
    struct position at = position_of(&a, query_of_warp());
    int visible = visible_keys(&a, at.i);
    const half *s = row<half>(s_of(&a), at.batch, at.head, at.i);  // [seqlen_k]
    half *p = row<half>(p_of(&a), at.batch, at.head, at.i);        // [seqlen_k]

    struct softmax_state state = no_keys();
    // BEGIN SOLUTION three_passes: m is the largest visible score, l the sum of exp(score - m).
    for (int key = lane(); key < visible; key += WARP) state.m = fmaxf(state.m, __half2float(s[key]));
    state.m = warp_max(state.m);
    for (int key = lane(); key < visible; key += WARP) state.l += share(__half2float(s[key]), state.m);
    state.l = warp_sum(state.l);
    // STUB state = one_key(warp_max(0.0f));
    // END SOLUTION

    float inverse = inverse_of(state.l);
    for (int key = lane(); key < a.seqlen_k; key += WARP)
        p[key] = __float2half(key < visible ? share(__half2float(s[key]), state.m) * inverse : 0.0f);
    if (lane() == 0) a.lse[query_of_warp()] = lse_of(state);
}

__global__ void __launch_bounds__(THREADS) softmax_online(struct attention a) {
    if (query_of_warp() >= query_count(&a)) return;
    struct position at = position_of(&a, query_of_warp());
    int visible = visible_keys(&a, at.i);
    const half *s = row<half>(s_of(&a), at.batch, at.head, at.i);  // [seqlen_k]
    half *p = row<half>(p_of(&a), at.batch, at.head, at.i);        // [seqlen_k]

    struct softmax_state state = no_keys();
    for (int key = lane(); key < visible; key += WARP) state = merge(state, one_key(__half2float(s[key])));
    for (int offset = WARP / 2; offset > 0; offset /= 2) state = merge(state, shuffle_xor(state, offset));

    float inverse = inverse_of(state.l);
    for (int key = lane(); key < a.seqlen_k; key += WARP)
        p[key] = __float2half(key < visible ? share(__half2float(s[key]), state.m) * inverse : 0.0f);
    if (lane() == 0) a.lse[query_of_warp()] = lse_of(state);
}

template <int CHUNKS> __global__ void __launch_bounds__(THREADS) output(struct attention a) {
    if (query_of_warp() >= query_count(&a)) return;
    struct position at = position_of(&a, query_of_warp());
    int visible = visible_keys(&a, at.i);
    const half *v = row<half>(a.v, at.batch, kv_head_of(&a, at.head), 0);  // [seqlen_k][head_dim]
    const half *p = row<half>(p_of(&a), at.batch, at.head, at.i);          // [seqlen_k]

    float o_reg[CHUNKS][8] = {};
    for (int first = 0; first < visible; first += STEP) {
        float p_own = first + lane() < visible ? __half2float(p[first + lane()]) : 0.0f;
        output_step<CHUNKS>(&a, v, first, visible, p_own, o_reg);
    }
    store_output<CHUNKS>(&a, at, 1.0f, o_reg);
}

// ---- fused: K and V stream by, only (m, l, O) stays ----

template <int CHUNKS> __global__ void __launch_bounds__(THREADS) attention_fused(struct attention a) {
    if (query_of_warp() >= query_count(&a)) return;
    struct position at = position_of(&a, query_of_warp());
    int visible = visible_keys(&a, at.i);
    const half *k = row<half>(a.k, at.batch, kv_head_of(&a, at.head), 0);  // [seqlen_k][head_dim]
    const half *v = row<half>(a.v, at.batch, kv_head_of(&a, at.head), 0);  // [seqlen_k][head_dim]

    float q_reg[CHUNKS][8];
    load_query<CHUNKS>(&a, at, q_reg);
    struct softmax_state state = no_keys();  // m: of all keys so far; l: of those that were this lane's own
    float o_reg[CHUNKS][8] = {};             // sum over this group's keys of exp(score - m) * V
    for (int first = 0; first < visible; first += STEP) {
        float score = score_step<CHUNKS>(&a, k, first, visible, q_reg);
        // BEGIN SOLUTION rescale: when m rises, l and O shrink to fit; p is this key's share, l its sum.
        float m_new = fmaxf(state.m, warp_max(score));
        // Over random scores step n does this with probability 1/n, of 128 steps about 5: worth a branch.
        if (m_new > state.m) {  // what is summed so far is relative to the old maximum
            float rescale = share(state.m, m_new);
            state.m = m_new;
            state.l *= rescale;
            for (int c = 0; c < CHUNKS; c++)
                for (int e = 0; e < 8; e++) o_reg[c][e] *= rescale;
        }
        float p = share(score, state.m);
        state.l += p;
        // STUB float p = share(score, 0.0f);
        // END SOLUTION
        output_step<CHUNKS>(&a, v, first, visible, p, o_reg);
    }
    state.l = warp_sum(state.l);  // a merge without factors: m is the same in all lanes
    store_output<CHUNKS>(&a, at, inverse_of(state.l), o_reg);
    if (lane() == 0) a.lse[query_of_warp()] = lse_of(state);
}

// ---- launches and the table ----

static bool rows_are_aligned(struct tensor t) {
    return (uintptr_t)t.data % 16 == 0 && t.stride_batch % 8 == 0 && t.stride_head % 8 == 0 &&
           t.stride_row % 8 == 0;
}

// One warp for each query. Stops if a row starts off a multiple of 16 bytes: no layout of lab_main does.
static unsigned blocks_of(const struct attention *a) {
    bool aligned =
        rows_are_aligned(a->q) && rows_are_aligned(a->k) && rows_are_aligned(a->v) && rows_are_aligned(a->o);
    CUDA_CHECK(aligned ? cudaSuccess : cudaErrorMisalignedAddress);
    return lab_blocks(query_count(a), THREADS / WARP);
}

static void launch_scores(struct attention a) {
    if (a.head_dim <= 64) scores<1><<<blocks_of(&a), THREADS>>>(a);
    if (a.head_dim > 64 && a.head_dim <= 128) scores<2><<<blocks_of(&a), THREADS>>>(a);
    if (a.head_dim > 128) scores<4><<<blocks_of(&a), THREADS>>>(a);
}

static void launch_output(struct attention a) {
    if (a.head_dim <= 64) output<1><<<blocks_of(&a), THREADS>>>(a);
    if (a.head_dim > 64 && a.head_dim <= 128) output<2><<<blocks_of(&a), THREADS>>>(a);
    if (a.head_dim > 128) output<4><<<blocks_of(&a), THREADS>>>(a);
}

static void launch_safe(struct attention a) {
    if (query_count(&a) == 0) return;
    launch_scores(a);
    softmax_safe<<<blocks_of(&a), THREADS>>>(a);
    launch_output(a);
    CUDA_CHECK(cudaGetLastError());
}

static void launch_online(struct attention a) {
    if (query_count(&a) == 0) return;
    launch_scores(a);
    softmax_online<<<blocks_of(&a), THREADS>>>(a);
    launch_output(a);
    CUDA_CHECK(cudaGetLastError());
}

static void launch_fused(struct attention a) {
    if (query_count(&a) == 0) return;
    if (a.head_dim <= 64) attention_fused<1><<<blocks_of(&a), THREADS>>>(a);
    if (a.head_dim > 64 && a.head_dim <= 128) attention_fused<2><<<blocks_of(&a), THREADS>>>(a);
    if (a.head_dim > 128) attention_fused<4><<<blocks_of(&a), THREADS>>>(a);
    CUDA_CHECK(cudaGetLastError());
}

static size_t matrix_bytes(const struct attention *a) {  // S and P
    return 2 * (size_t)(score_matrix(a, 0).stride_batch * a->batch) * sizeof(half);
}

constexpr struct support ANYWHERE = {1u << DTYPE_FP16, 8, 256, 0, 0, 0};
static const struct kernel kernels[] = {
    {"safe", "softmax in three passes over S", launch_safe, matrix_bytes, ANYWHERE},
    {"online", "maximum and sum in one pass", launch_online, matrix_bytes, ANYWHERE},
    {"fused", "O in the same pass: no S, no P", launch_fused, nullptr, ANYWHERE},
};

static const struct lab lab02 = {
    "lab02_online_softmax",
    "softmax in one pass by merging (m, l) pairs, and attention without S and P",
    "lecture 25, sections 2.1-2.3",
    75,                      // min_sm: the oldest GPU that runs it, Turing
    {1, 2, 2, 192, 64},      // batch, heads, kv_heads, seqlen, head_dim on the cpu backend: a second of work
    {4, 16, 16, 4096, 128},  // and on a GPU: work that fills it
    kernels,
    sizeof kernels / sizeof kernels[0],
    0,  // not causal, unless --causal
};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab02); }
