// lab04_fa2.cu - FlashAttention-2: the loops swapped, then the same loop on tensor cores.
//
// A block takes a tile of queries and passes by all keys, a tile at a time. So O, m and l of a query never
// leave the registers of the warp that has it, there is one division at the end, and blocks share nothing.
// Lecture 25, sections 4.1-4.4, experiment 3. The kernels:
//
//     loop_swap   lab 03 with the loops swapped, in fp32 on CUDA cores
//     mma         both products on tensor cores; what S = Q K^T leaves in registers is an operand of P V
//     swizzle     the tiles' chunks of 16 bytes exchanged within their rows: no bank conflicts
//     staged      two stages of K and V, filled by cp.async: the next tile arrives during both products
//     pipelined   exponentials at their lowest price, and beside the products
//
// Since lab 03: the loops; tiles of 16-bit numbers, as tensor cores take them; bf16. A warp holds S and O as
// mma.sync holds its results from the first kernel on, so that the step to tensor cores is two functions.
// A mask is only applied here; lab 05 leaves out what nobody sees.
//
//     ./lab run 04         or        build/cpu/lab04_fa2 --seqlen 300 --dtype bf16 --kernel pipelined

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/attention.h"
#include "common/lab.h"
#include "common/lab16.h"
#include "common/ptx.h"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * WARP;
constexpr int KEYS = 64;   // in a tile of K or V
constexpr int STRIP = 16;  // rows of an mma
constexpr int STRIPS = 2;  // of a warp on tensor cores: what it loads of K and V serves 32 queries
constexpr float LOG2E = 1.44269504f;

// ---- what a warp has ----

// A warp has strips of 16 queries, and of S and O all columns of these rows. Lane 4 g + t has, as mma.sync
// leaves them (common/ptx/matrix.h), x[n][0 ... 3] for every 8 columns n:
//
//     column          8n + 2t    8n + 2t + 1
//     row g           x[n][0]    x[n][1]            h = 0
//     row g + 8       x[n][2]    x[n][3]            h = 1
//
// The four lanes of the same g, a quad, share two whole rows of a strip. (The shuffle tells the compiler that
// a warp's number is the same in its lanes, so it needs no register of theirs.)
static __device__ int warp() { return __shfl_sync(ALL_LANES, (int)threadIdx.x / WARP, 0); }
static __device__ int lane() { return threadIdx.x % WARP; }
static __device__ int lane_row() { return lane() / 4; }
static __device__ int lane_column() { return lane() % 4 * 2; }
template <int S> static __device__ int row_of(int s, int h) {  // of the block's, where a warp has S strips
    return (warp() * S + s) * STRIP + h * 8 + lane_row();
}

// What a block works on: queries first_query ... first_query + queries - 1 of a head, and all its keys.
struct work {
    const void *q, *k, *v;  // the head: [seqlen_q][head_dim], [seqlen_k][head_dim] twice
    int batch, head, first_query, queries;
};

// Block number blockIdx.x counts through [batch][heads][tiles of QUERIES]. *w is in shared memory: the same
// for all threads, and in no registers.
template <class T, int QUERIES> static __device__ void find_work(const struct attention *a, struct work *w) {
    if (threadIdx.x == 0) {
        int tiles = (a->seqlen_q + QUERIES - 1) / QUERIES;
        w->first_query = (int)blockIdx.x % tiles * QUERIES;
        w->queries = min(QUERIES, a->seqlen_q - w->first_query);
        w->head = (int)blockIdx.x / tiles % a->heads;
        w->batch = (int)blockIdx.x / tiles / a->heads;
        w->q = row<T>(a->q, w->batch, w->head, 0);
        w->k = row<T>(a->k, w->batch, kv_head_of(a, w->head), 0);
        w->v = row<T>(a->v, w->batch, kv_head_of(a, w->head), 0);
    }
    __syncthreads();  // *w is written before anybody reads it
}

static __device__ float quad_max(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}
static __device__ float quad_sum(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// ---- softmax, as in labs 02 and 03 ----

// What scores are taken relative to, m: but not if that is -inf, when no key has been seen and every score is
// -inf, too. The difference would be NaN; so it is -inf, and its exponential 0.
static __device__ float base_of(float m) { return m == -INFINITY ? 0.0f : m; }

// Scores times `factor`; keys that a query does not see, or that do not exist, get -inf.
template <int S, int K>
static __device__ void mask(const struct attention *a, const struct work &w, int first_key, float factor,
                            float (*s_reg)[K / 8][4]) {
#pragma unroll
    for (int s = 0; s < S; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int limit = visible_keys(a, w.first_query + row_of<S>(s, h)) - first_key - lane_column();
#pragma unroll
            for (int e = 0; e < K / 4; e++) {
                float *score = &s_reg[s][e / 2][2 * h + e % 2];
                *score = e / 2 * 8 + e % 2 < limit ? *score * factor : -INFINITY;
            }
        }
}

// Makes P = exp(S - m) of S, and brings m, l and O, which are of the tiles before this one, up to the new m.
// Nothing is divided by l: that can wait until the end. m is the row's; l is of this lane's keys only.
template <int D, int S>
static __device__ void softmax(float (*s_reg)[KEYS / 8][4], float (*m_reg)[2], float (*l_reg)[2],
                               float (*o_reg)[D / 8][4]) {
#pragma unroll
    for (int s = 0; s < S; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            // fmaxf passes over a NaN. The sum does not, and through it the NaN reaches O and LSE.
            float m = m_reg[s][h];
#pragma unroll
            for (int e = 0; e < KEYS / 4; e++) m = fmaxf(m, s_reg[s][e / 2][2 * h + e % 2]);
            m = quad_max(m);
            // BEGIN SOLUTION rescale: m is the new maximum: keep it, and bring l and O so far up to it.
            float keep = __expf(m_reg[s][h] - base_of(m));
            m_reg[s][h] = m;
#pragma unroll
            for (int e = 0; e < D / 4; e++) o_reg[s][e / 2][2 * h + e % 2] *= keep;
            l_reg[s][h] *= keep;
            // STUB (void)o_reg;
            // END SOLUTION
#pragma unroll
            for (int e = 0; e < KEYS / 4; e++) {
                float *score = &s_reg[s][e / 2][2 * h + e % 2];
                *score = __expf(*score - base_of(m));
                l_reg[s][h] += *score;
            }
        }
}

// ---- the end: O = O / l, LSE = m + ln l ----

// Where a chunk (16 bytes, 8 numbers) of row r begins, in bytes, in a tile of rows of D 16-bit numbers.
template <int D, bool SWIZZLED> static __device__ int place(int r, int chunk) {
    return r * D * 2 + (SWIZZLED ? chunk ^ (r & 7) : chunk) * 16;
}

// Divides, and writes O and LSE. o_smem: room for the block's rows of O, which go out in whole chunks.
template <class T, int D, int S, bool SWIZZLED>
static __device__ void finish(const struct attention *a, const struct work &w, const float (*m_reg)[2],
                              float (*l_reg)[2], float (*o_reg)[D / 8][4], char *o_smem) {
    unsigned broken[S][2];  // lanes that have a NaN in O, and none in l: see recompute_row
    __syncthreads();        // nobody still reads the tiles that O takes the place of
#pragma unroll
    for (int s = 0; s < S; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            // BEGIN SOLUTION division: l is the sum of the row's four lanes, inverse 1 / l, or 0 for no key.
            float l = quad_sum(l_reg[s][h]);
            float inverse = l == 0.0f ? 0.0f : 1.0f / l;
            // STUB float l = quad_sum(0.0f), inverse = 1.0f;
            // END SOLUTION
            l_reg[s][h] = inverse;
            int r = row_of<S>(s, h);
            bool has_nan = false;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                float x = o_reg[s][n][2 * h] * inverse;
                float y = o_reg[s][n][2 * h + 1] * inverse;
                has_nan |= isnan(x + y);
                *(uint32_t *)(o_smem + place<D, SWIZZLED>(r, n) + lane_column() * 2) = pack2<T>(x, y);
            }
            broken[s][h] = __ballot_sync(ALL_LANES, has_nan && !isnan(l) && r < w.queries);
            if (lane_column() == 0 && r < w.queries) {
                int64_t query = ((int64_t)w.batch * a->heads + w.head) * a->seqlen_q + w.first_query + r;
                a->lse[query] = l == 0.0f ? -INFINITY : m_reg[s][h] + logf(l);
            }
        }
    __syncwarp();  // the warp's rows are whole before its lanes read them in another order
    T *o = row<T>(a->o, w.batch, w.head, w.first_query);
    for (int e = lane(); e < S * STRIP * (D / 8); e += WARP) {
        int r = warp() * S * STRIP + e / (D / 8);
        int chunk = e % (D / 8);
        if (r < w.queries && chunk * 8 < a->head_dim)
            *(uint4 *)(o + r * a->o.stride_row + chunk * 8) =
                *(const uint4 *)(o_smem + place<D, SWIZZLED>(r, chunk));
    }
    if (!a->causal) return;  // every query sees all keys
    __syncwarp();            // O is written before rows of it are written again
#pragma unroll
    for (int n = 0; n < S * 2; n++) {
        int s = n / 2, h = n % 2;
        for (int g = 0; g < 8; g++) {
            float m = __shfl_sync(ALL_LANES, m_reg[s][h], g * 4);
            float inverse = __shfl_sync(ALL_LANES, l_reg[s][h], g * 4);
            int r = (warp() * S + s) * STRIP + h * 8 + g, i = w.first_query + r;
            if (broken[s][h] >> g * 4 & 15)
                recompute_row<T>((const T *)w.q + i * a->q.stride_row, (const T *)w.k, a->k.stride_row,
                                 (const T *)w.v, a->v.stride_row, o + r * a->o.stride_row, a->head_dim,
                                 span{0, visible_keys(a, i)}, a->scale, m, inverse);
        }
    }
}

// ---- loop_swap: lab 03's products, in fp32, but for a block that stays with its queries ----

constexpr int PADDING = 4;  // floats after a row of Q or K: neighbouring rows in different banks

// Copies ROWS rows of one head, row `first` and so on, to shared memory as fp32; rows from `end` on, and
// columns past head_dim, become 0.
template <class T, int D, int ROWS, int STRIDE>
static __device__ void load_tile_fp32(const void *head, int64_t stride_row, int first, int end, int head_dim,
                                      float *tile_smem) {
    for (int e = threadIdx.x; e < ROWS * (D / 4); e += THREADS) {
        int r = e / (D / 4);
        int c = e % (D / 4) * 4;
        uint2 packed = make_uint2(0, 0);
        if (first + r < end && c < head_dim)
            packed = *(const uint2 *)((const T *)head + (first + r) * stride_row + c);
        float2 low = unpack2<T>(packed.x);
        float2 high = unpack2<T>(packed.y);
        *(float4 *)(tile_smem + r * STRIDE + c) = make_float4(low.x, low.y, high.x, high.y);
    }
}

static __device__ float dot(float4 x, float4 y) { return x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w; }

// S = Q K^T. In each load of K the eight lanes of a column want the same 16 bytes, of Q the four of a row.
template <int D>
static __device__ void multiply_q_k_fp32(const float *q_smem, const float *k_smem, float (*s_reg)[4]) {
    const float *q = q_smem + row_of<1>(0, 0) * (D + PADDING);
    const float *k = k_smem + lane_column() * (D + PADDING);
#pragma unroll 1
    for (int c = 0; c < D; c += 4) {
        float4 q0_reg = *(const float4 *)(q + c);
        float4 q1_reg = *(const float4 *)(q + 8 * (D + PADDING) + c);
#pragma unroll
        for (int e = 0; e < KEYS / 4; e++) {
            float4 k_reg = *(const float4 *)(k + (e / 2 * 8 + e % 2) * (D + PADDING) + c);
            s_reg[e / 2][e % 2] += dot(q0_reg, k_reg);
            s_reg[e / 2][2 + e % 2] += dot(q1_reg, k_reg);
        }
    }
}

// O += P V. The probabilities of a row are in its quad; they go round by shuffles.
template <int D>
static __device__ void multiply_p_v_fp32(const float (*p_reg)[4], const float *v_smem, float (*o_reg)[4]) {
#pragma unroll
    for (int e = 0; e < KEYS / 4; e++)
#pragma unroll 1
        for (int t = 0; t < 4; t++) {
            float p0 = __shfl_sync(ALL_LANES, p_reg[e / 2][e % 2], t, 4);
            float p1 = __shfl_sync(ALL_LANES, p_reg[e / 2][2 + e % 2], t, 4);
            const float *v = v_smem + (e / 2 * 8 + t * 2 + e % 2) * D + lane_column();
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                float2 v_reg = *(const float2 *)(v + n * 8);
                o_reg[n][0] += p0 * v_reg.x;
                o_reg[n][1] += p0 * v_reg.y;
                o_reg[n][2] += p1 * v_reg.x;
                o_reg[n][3] += p1 * v_reg.y;
            }
        }
}

template <class T, int D> __global__ void __launch_bounds__(THREADS, 2) loop_swap(struct attention a) {
    constexpr int QUERIES = WARPS * STRIP;
    extern __shared__ __align__(128) char shared_smem[];
    float *q_smem = (float *)shared_smem;              // [QUERIES][D + PADDING]
    float *k_smem = q_smem + QUERIES * (D + PADDING);  // [KEYS][D + PADDING]
    float *v_smem = k_smem + KEYS * (D + PADDING);     // [KEYS][D]
    __shared__ struct work w;
    find_work<T, QUERIES>(&a, &w);
    load_tile_fp32<T, D, QUERIES, D + PADDING>(w.q, a.q.stride_row, w.first_query, w.first_query + w.queries,
                                               a.head_dim, q_smem);

    float m_reg[1][2] = {{-INFINITY, -INFINITY}}, l_reg[1][2] = {}, o_reg[1][D / 8][4] = {};
    for (int first = 0; first < a.seqlen_k; first += KEYS) {
        __syncthreads();  // nobody still reads the tiles that the next lines overwrite
        load_tile_fp32<T, D, KEYS, D + PADDING>(w.k, a.k.stride_row, first, a.seqlen_k, a.head_dim, k_smem);
        load_tile_fp32<T, D, KEYS, D>(w.v, a.v.stride_row, first, a.seqlen_k, a.head_dim, v_smem);
        __syncthreads();  // Q, K and V are whole before anybody reads them

        if (warp() * STRIP >= w.queries) continue;  // this warp only helps loading
        float s_reg[1][KEYS / 8][4] = {};
        multiply_q_k_fp32<D>(q_smem, k_smem, s_reg[0]);
        mask<1, KEYS>(&a, w, first, a.scale, s_reg);
        softmax<D, 1>(s_reg, m_reg, l_reg, o_reg);
        multiply_p_v_fp32<D>(s_reg[0], v_smem, o_reg[0]);
    }
    finish<T, D, 1, false>(&a, w, m_reg, l_reg, o_reg, shared_smem);
}

// ---- mma and swizzle: both products on tensor cores ----

// Copies ROWS rows of one head, row `first` and so on, to shared memory; rows from `end` on, and columns past
// head_dim, become 0. A thread has the same chunk of every APARTth row. ASYNC: without waiting for them.
template <class T, int D, int ROWS, bool SWIZZLED, bool ASYNC>
static __device__ void load_tile(const void *head, int64_t stride_row, int first, int end, int head_dim,
                                 char *tile_smem) {
    constexpr int APART = THREADS / (D / 8);
    static_assert(APART % 8 == 0, "the swizzle is the same in all rows of a thread");
    int r = threadIdx.x / (D / 8);
    int chunk = threadIdx.x % (D / 8);
    bool inside = chunk * 8 < head_dim;
    const T *from = (const T *)head + (first + r) * stride_row + (inside ? chunk * 8 : 0);
    char *to = tile_smem + place<D, SWIZZLED>(r, chunk);
    uint32_t to_address = shared_address(to);
    if (ASYNC && first + ROWS <= end) {  // the usual case, without a question for each row
#pragma unroll
        for (int i = 0; i < ROWS; i += APART)
            cp_async_16(to_address + i * D * 2, from + i * stride_row, inside ? 16 : 0);
        return;
    }
#pragma unroll(ASYNC ? 1 : 4)
    for (int i = 0; i < ROWS; i += APART, from += APART * stride_row) {
        bool there = inside && first + r + i < end;
        if (ASYNC)
            cp_async_16(to_address + i * D * 2, there ? from : head, there ? 16 : 0);
        else
            *(uint4 *)(to + i * D * 2) = there ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
    }
}

// Where a lane's row of the four matrices of an ldmatrix begins, in 16 rows and 16 columns of a tile. By
// rows: matrix 0 top left, 1 below it, 2 and 3 to their right, as A wants them, and B if its rows are in
// memory (V, with _trans). By columns: 1 to the right of 0, as B wants them if its columns are in memory (K).
template <int D, bool SWIZZLED> static __device__ int place_by_rows() {
    return place<D, SWIZZLED>(lane() % 16, lane() / 16);
}
template <int D, bool SWIZZLED> static __device__ int place_by_columns() {
    return place<D, SWIZZLED>(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2);
}

// The same, `steps` times 16 columns to the right. A row is one or two times 128 bytes, so chunk 2 steps + c
// is chunk c with other bits set, and so it stays if a swizzle changes c. (The tile's address, the same in
// all lanes, is added later.)
static __device__ uint32_t to_the_right(uint32_t place, int steps) {
    return (place ^ steps % 4 * 32) + steps / 4 * 128;
}

// S = Q K^T for K keys of a tile.
template <class T, int D, int K, bool SWIZZLED>
static __device__ void multiply_q_k(uint32_t q_strips, uint32_t k_tile, float (*s_reg)[K / 8][4]) {
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t q_reg[STRIPS][4];
        uint32_t q_at = q_strips + to_the_right(place_by_rows<D, SWIZZLED>(), step);
        uint32_t k_at = k_tile + to_the_right(place_by_columns<D, SWIZZLED>(), step);
#pragma unroll
        for (int s = 0; s < STRIPS; s++) ldmatrix_x4(q_reg[s], q_at + s * STRIP * D * 2);
#pragma unroll
        for (int n = 0; n < K / 16; n++) {
            uint32_t k_reg[4];
            ldmatrix_x4(k_reg, k_at + n * 16 * D * 2);
            const uint32_t left[2] = {k_reg[0], k_reg[1]}, right[2] = {k_reg[2], k_reg[3]};
#pragma unroll
            for (int s = 0; s < STRIPS; s++) {
                mma_m16n8k16<T>(s_reg[s][2 * n], q_reg[s], left);
                mma_m16n8k16<T>(s_reg[s][2 * n + 1], q_reg[s], right);
            }
        }
    }
}

// 16 columns of P, in the registers in which S = Q K^T left them, as the left operand of P V.
template <class T> static __device__ void pack_p(const float (*p_reg)[4], uint32_t (&packed_reg)[4]) {
    // BEGIN SOLUTION operand: the accumulators that a lane has are what mma.sync wants of it as A: pack.
    packed_reg[0] = pack2<T>(p_reg[0][0], p_reg[0][1]);  // row g, columns 2t and 2t + 1
    packed_reg[1] = pack2<T>(p_reg[0][2], p_reg[0][3]);  // row g + 8
    packed_reg[2] = pack2<T>(p_reg[1][0], p_reg[1][1]);  // row g, columns 2t + 8 and 2t + 9
    packed_reg[3] = pack2<T>(p_reg[1][2], p_reg[1][3]);
    // STUB packed_reg[0] = packed_reg[1] = packed_reg[2] = packed_reg[3] = 0;
    // STUB (void)p_reg;
    // END SOLUTION
}

// O += P V for 16 keys.
template <class T, int D, bool SWIZZLED>
static __device__ void multiply_16_keys(const uint32_t (&p_reg)[STRIPS][4], uint32_t v_rows,
                                        float (*o_reg)[D / 8][4]) {
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
        uint32_t v_reg[4];
        ldmatrix_x4_trans(v_reg, v_rows + to_the_right(place_by_rows<D, SWIZZLED>(), n));
        const uint32_t left[2] = {v_reg[0], v_reg[1]}, right[2] = {v_reg[2], v_reg[3]};
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            mma_m16n8k16<T>(o_reg[s][2 * n], p_reg[s], left);
            mma_m16n8k16<T>(o_reg[s][2 * n + 1], p_reg[s], right);
        }
    }
}

// O += P V for a tile.
template <class T, int D, bool SWIZZLED>
static __device__ void multiply_p_v(const float (*p_reg)[KEYS / 8][4], uint32_t v_tile,
                                    float (*o_reg)[D / 8][4]) {
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
        uint32_t packed_reg[STRIPS][4];
#pragma unroll
        for (int s = 0; s < STRIPS; s++) pack_p<T>(&p_reg[s][2 * n], packed_reg[s]);
        multiply_16_keys<T, D, SWIZZLED>(packed_reg, v_tile + n * 16 * D * 2, o_reg);
    }
}

constexpr int TILE = WARPS * STRIPS * STRIP;  // queries of a block

template <class T, int D, bool SWIZZLED>
__global__ void __launch_bounds__(THREADS, 2) attention_mma(struct attention a) {
    extern __shared__ __align__(128) char shared_smem[];
    char *q_smem = shared_smem;            // [TILE][D] of T
    char *k_smem = q_smem + TILE * D * 2;  // [KEYS][D]
    char *v_smem = k_smem + KEYS * D * 2;  // [KEYS][D]
    __shared__ struct work w;
    find_work<T, TILE>(&a, &w);
    load_tile<T, D, TILE, SWIZZLED, false>(w.q, a.q.stride_row, w.first_query, w.first_query + w.queries,
                                           a.head_dim, q_smem);

    uint32_t q_strips = shared_address(q_smem) + warp() * STRIPS * STRIP * D * 2;
    float m_reg[STRIPS][2], l_reg[STRIPS][2] = {}, o_reg[STRIPS][D / 8][4] = {};
    for (int s = 0; s < STRIPS; s++) m_reg[s][0] = m_reg[s][1] = -INFINITY;
    for (int first = 0; first < a.seqlen_k; first += KEYS) {
        __syncthreads();  // nobody still reads the tiles that the next lines overwrite
        load_tile<T, D, KEYS, SWIZZLED, false>(w.k, a.k.stride_row, first, a.seqlen_k, a.head_dim, k_smem);
        load_tile<T, D, KEYS, SWIZZLED, false>(w.v, a.v.stride_row, first, a.seqlen_k, a.head_dim, v_smem);
        __syncthreads();  // Q, K and V are whole before anybody reads them

        if (warp() * STRIPS * STRIP >= w.queries) continue;  // this warp only helps loading
        float s_reg[STRIPS][KEYS / 8][4] = {};
        multiply_q_k<T, D, KEYS, SWIZZLED>(q_strips, shared_address(k_smem), s_reg);
        mask<STRIPS, KEYS>(&a, w, first, a.scale, s_reg);
        softmax<D, STRIPS>(s_reg, m_reg, l_reg, o_reg);
        multiply_p_v<T, D, SWIZZLED>(s_reg, shared_address(v_smem), o_reg);
    }
    finish<T, D, STRIPS, SWIZZLED>(&a, w, m_reg, l_reg, o_reg, q_smem);
}

// ---- staged: loads behind the products ----

// Starts copying the tile of K keys from `first` on, if there is one, to a stage: K [K][D], V [K][D].
template <class T, int D, int K>
static __device__ void load_stage(const struct attention *a, const struct work &w, int first,
                                  char *stage_smem) {
    if (first < a->seqlen_k) {
        load_tile<T, D, K, true, true>(w.k, a->k.stride_row, first, a->seqlen_k, a->head_dim, stage_smem);
        load_tile<T, D, K, true, true>(w.v, a->v.stride_row, first, a->seqlen_k, a->head_dim,
                                       stage_smem + K * D * 2);
    }
    cp_async_commit();
}

// Starts copying the block's queries and the first stage, and waits for the queries.
template <class T, int D, int K>
static __device__ void load_first(const struct attention *a, const struct work &w, char *q_smem,
                                  char *stages_smem) {
    load_tile<T, D, TILE, true, true>(w.q, a->q.stride_row, w.first_query, w.first_query + w.queries,
                                      a->head_dim, q_smem);
    cp_async_commit();
    load_stage<T, D, K>(a, w, 0, stages_smem);
    cp_async_wait<1>();  // this thread's part of Q is there
    __syncthreads();     // everybody's is
}

template <class T, int D> __global__ void __launch_bounds__(THREADS, 2) staged(struct attention a) {
    constexpr int STAGE_BYTES = 2 * KEYS * D * 2;
    extern __shared__ __align__(128) char shared_smem[];
    char *q_smem = shared_smem;                 // [TILE][D] of T
    char *stages_smem = q_smem + TILE * D * 2;  // [2][STAGE_BYTES]
    __shared__ struct work w;
    find_work<T, TILE>(&a, &w);
    load_first<T, D, KEYS>(&a, w, q_smem, stages_smem);

    uint32_t q_strips = shared_address(q_smem) + warp() * STRIPS * STRIP * D * 2;
    float m_reg[STRIPS][2], l_reg[STRIPS][2] = {}, o_reg[STRIPS][D / 8][4] = {};
    for (int s = 0; s < STRIPS; s++) m_reg[s][0] = m_reg[s][1] = -INFINITY;
    int stage = 0;  // bytes from the first
    for (int first = 0; first < a.seqlen_k; first += KEYS) {
        cp_async_wait<0>();  // this thread's part of the tile is there
        __syncthreads();     // everybody's is, and nobody still reads the stage that the next lines refill
        uint32_t k_tile = shared_address(stages_smem) + stage;
        stage ^= STAGE_BYTES;
        load_stage<T, D, KEYS>(&a, w, first + KEYS, stages_smem + stage);

        if (warp() * STRIPS * STRIP >= w.queries) continue;  // this warp only helps loading
        float s_reg[STRIPS][KEYS / 8][4] = {};
        multiply_q_k<T, D, KEYS, true>(q_strips, k_tile, s_reg);
        mask<STRIPS, KEYS>(&a, w, first, a.scale, s_reg);
        softmax<D, STRIPS>(s_reg, m_reg, l_reg, o_reg);
        multiply_p_v<T, D, true>(s_reg, k_tile + KEYS * D * 2, o_reg);
    }
    cp_async_wait_all();  // also where there was no key, and nobody waited
    finish<T, D, STRIPS, true>(&a, w, m_reg, l_reg, o_reg, q_smem);
}

// ---- pipelined: cheaper exponentials, beside the products ----

template <int D> constexpr int TILE_KEYS = 64;  // in a tile of K or V: as many as S has registers for
template <> constexpr int TILE_KEYS<64> = 128;
// m before any key: below all scores, and finite, so that -inf - m is no NaN.
constexpr float LOWEST = -1e30f;
// m is rounded, by up to 1 where it is near the limit, and a score of its row is up to 2^RISE and three such
// roundings above it: P is at most 2^11 then. fp16 ends at 2^16.
constexpr float SCORE_MAX = 1 << 24;
constexpr float RISE = 8.0f;  // in powers of two: see raise_maximum

// Changes the sign of the warp's rows of Q, in place.
template <int D> static __device__ void negate_q(char *q_smem) {
    uint4 *rows = (uint4 *)(q_smem + warp() * STRIPS * STRIP * D * 2);
    constexpr uint32_t SIGNS = 0x80008000;
    for (int e = lane(); e < STRIPS * STRIP * D * 2 / 16; e += WARP) {
        uint4 x = rows[e];
        rows[e] = make_uint4(x.x ^ SIGNS, x.y ^ SIGNS, x.z ^ SIGNS, x.w ^ SIGNS);
    }
    __syncwarp();  // the rows are whole before the warp's lanes read them
}

// m is now in powers of two, m = factor * (largest q . k), and any number not far below will do in its place:
// P, l and O are relative to it, and it cancels. So it follows the largest score only when that is RISE above
// it in some row of the warp, and P is at most 2^RISE. After the first tiles that hardly ever happens: then
// there are no shuffles, and O is not rescaled.
template <int D, int K>
static __device__ void raise_maximum(float factor, const float (*s_reg)[K / 8][4], float (*m_reg)[2],
                                     float (*l_reg)[2], float (*o_reg)[D / 8][4]) {
    float top_reg[STRIPS][2];  // of this lane's scores
    bool rises = false;
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = s_reg[s][0][2 * h];
#pragma unroll
            for (int e = 1; e < K / 4; e++) top = fmaxf(top, s_reg[s][e / 2][2 * h + e % 2]);
            top_reg[s][h] = top * factor;
            rises |= top_reg[s][h] > m_reg[s][h] + RISE;
        }
    if (!__any_sync(ALL_LANES, rises)) return;
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float m = fmaxf(m_reg[s][h], quad_max(top_reg[s][h]));
            float keep = ex2(m_reg[s][h] - m);
            m_reg[s][h] = m;
            l_reg[s][h] *= keep;
#pragma unroll
            for (int e = 0; e < D / 4; e++) o_reg[s][e / 2][2 * h + e % 2] *= keep;
        }
}

// P = 2^(factor * S - m) of 16 columns, packed, and their sum into l: a multiplication and addition in one
// instruction, and the exponential itself.
template <class T>
static __device__ void exponentials(float factor, const float (*s_reg)[4], const float *m_reg, float *l_reg,
                                    uint32_t (&packed_reg)[4]) {
    float p_reg[2][4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float *p = &p_reg[e / 2][2 * h + e % 2];
            *p = ex2(s_reg[e / 2][2 * h + e % 2] * factor - m_reg[h]);
            l_reg[h] += *p;
        }
    }
    pack_p<T>(p_reg, packed_reg);
}

template <class T, int D>
__global__ void __launch_bounds__(THREADS, 2) pipelined(struct attention a, float factor) {
    constexpr int K = TILE_KEYS<D>;
    constexpr int STAGE_BYTES = 2 * K * D * 2;
    extern __shared__ __align__(128) char shared_smem[];
    char *q_smem = shared_smem;                 // [TILE][D] of T
    char *stages_smem = q_smem + TILE * D * 2;  // [2][STAGE_BYTES]
    __shared__ struct work w;
    find_work<T, TILE>(&a, &w);
    load_first<T, D, K>(&a, w, q_smem, stages_smem);
    if (a.scale < 0.0f) negate_q<D>(q_smem);

    uint32_t q_strips = shared_address(q_smem) + warp() * STRIPS * STRIP * D * 2;
    float m_reg[STRIPS][2], l_reg[STRIPS][2] = {}, o_reg[STRIPS][D / 8][4] = {};
    for (int s = 0; s < STRIPS; s++) m_reg[s][0] = m_reg[s][1] = LOWEST;
    int stage = 0;  // bytes from the first
    for (int first = 0; first < a.seqlen_k; first += K) {
        cp_async_wait<0>();  // this thread's part of the tile is there
        __syncthreads();     // everybody's is, and nobody still reads the stage that the next lines refill
        uint32_t k_tile = shared_address(stages_smem) + stage;
        stage ^= STAGE_BYTES;
        load_stage<T, D, K>(&a, w, first + K, stages_smem + stage);

        // (To ask whether this warp has queries at all would cost the others more than it saves.)
        float s_reg[STRIPS][K / 8][4] = {};
        multiply_q_k<T, D, K, true>(q_strips, k_tile, s_reg);
        if (a.causal || first + K > a.seqlen_k) mask<STRIPS, K>(&a, w, first, 1.0f, s_reg);
        raise_maximum<D, K>(factor, s_reg, m_reg, l_reg, o_reg);
        // The exponentials of the next keys need no product, so they run while the tensor cores are busy.
#pragma unroll
        for (int n = 0; n < K / 16; n++) {
            uint32_t p_reg[STRIPS][4];
#pragma unroll
            for (int s = 0; s < STRIPS; s++)
                exponentials<T>(factor, &s_reg[s][2 * n], m_reg[s], l_reg[s], p_reg[s]);
            multiply_16_keys<T, D, true>(p_reg, k_tile + (K + n * 16) * D * 2, o_reg);
        }
    }
    cp_async_wait_all();  // also where there was no key, and nobody waited
    for (int s = 0; s < STRIPS; s++)
        for (int h = 0; h < 2; h++) m_reg[s][h] *= 1.0f / LOG2E;
    finish<T, D, STRIPS, true>(&a, w, m_reg, l_reg, o_reg, q_smem);
}

// ---- launches and the table ----

static unsigned blocks_of(const struct attention *a, int tile) {
    return lab_blocks((int64_t)a->batch * a->heads * lab_blocks(a->seqlen_q, tile), 1);
}

template <class T, int D> static void loop_swap_of(struct attention a) {
    constexpr int QUERIES = WARPS * STRIP;
    constexpr int BYTES = ((QUERIES + KEYS) * (D + PADDING) + KEYS * D) * (int)sizeof(float);
    CUDA_CHECK(cudaFuncSetAttribute(loop_swap<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    loop_swap<T, D><<<blocks_of(&a, QUERIES), THREADS, BYTES>>>(a);
}

template <class T, int D, bool SWIZZLED> static void attention_mma_of(struct attention a) {
    constexpr int BYTES = (TILE + 2 * KEYS) * D * 2;
    CUDA_CHECK(cudaFuncSetAttribute(attention_mma<T, D, SWIZZLED>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    attention_mma<T, D, SWIZZLED><<<blocks_of(&a, TILE), THREADS, BYTES>>>(a);
}
template <class T, int D> static void mma_of(struct attention a) { attention_mma_of<T, D, false>(a); }
template <class T, int D> static void swizzle_of(struct attention a) { attention_mma_of<T, D, true>(a); }

template <class T, int D> static void staged_of(struct attention a) {
    constexpr int BYTES = (TILE + 4 * KEYS) * D * 2;
    CUDA_CHECK(cudaFuncSetAttribute(staged<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    staged<T, D><<<blocks_of(&a, TILE), THREADS, BYTES>>>(a);
}

template <class T, int D> static void pipelined_of(struct attention a) {
    constexpr int BYTES = (TILE + 4 * TILE_KEYS<D>)*D * 2;
    CUDA_CHECK(cudaFuncSetAttribute(pipelined<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    pipelined<T, D><<<blocks_of(&a, TILE), THREADS, BYTES>>>(a, lab16_factor(&a));
}

static void launch_loop_swap(struct attention a) { LAB16_LAUNCH(a, loop_swap_of); }
static void launch_mma(struct attention a) { LAB16_LAUNCH(a, mma_of); }
static void launch_swizzle(struct attention a) { LAB16_LAUNCH(a, swizzle_of); }
static void launch_staged(struct attention a) { LAB16_LAUNCH(a, staged_of); }
static void launch_pipelined(struct attention a) { LAB16_LAUNCH(a, pipelined_of); }

constexpr unsigned TYPES = 1u << DTYPE_FP16 | 1u << DTYPE_BF16;
constexpr struct support ANYWHERE = {TYPES, 8, 128, 0, 0, 0};
constexpr struct support NO_HUGE_SCORES = {TYPES, 8, 128, 0, 0, SCORE_MAX};
static const struct kernel kernels[] = {
    {"loop_swap", "a block keeps its queries: O in registers", launch_loop_swap, nullptr, ANYWHERE},
    {"mma", "both products on tensor cores", launch_mma, nullptr, ANYWHERE},
    {"swizzle", "no bank conflicts", launch_swizzle, nullptr, ANYWHERE},
    {"staged", "the next keys arrive during the products", launch_staged, nullptr, ANYWHERE},
    {"pipelined", "cheap exponentials, beside the products", launch_pipelined, nullptr, NO_HUGE_SCORES},
};

static const struct lab lab04 = {
    "lab04_fa2",
    "FlashAttention-2: a block keeps its queries, and tensor cores multiply",
    "lecture 25, sections 4.1-4.4",
    80,                      // min_sm: the oldest GPU that runs it, Ampere
    {1, 2, 2, 256, 64},      // batch, heads, kv_heads, seqlen, head_dim on the cpu backend: a second of work
    {4, 16, 16, 4096, 128},  // and on a GPU: work that fills it
    kernels,
    sizeof kernels / sizeof kernels[0],
    0,  // not causal, unless --causal
};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab04); }
