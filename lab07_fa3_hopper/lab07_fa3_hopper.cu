// lab07_fa3_hopper.cu - FlashAttention-3: copies, tensor cores and softmax at the same time.
//
// A Hopper multiprocessor has a copy engine (TMA) that fetches whole tiles when one thread asks for them, and
// tensor cores that multiply whole tiles while the warps that asked go on (wgmma). What is left for the
// threads is softmax, and to keep both engines busy meanwhile. The arithmetic is lab 05's. Lecture 25,
// section 5; FlashAttention-3 (arXiv 2407.08608), algorithms 1 and 2. The kernels:
//
//     tma          tiles come by TMA, swizzled, and announce themselves at an mbarrier; products are mma.sync
//     wgmma        both products by a warpgroup's own instructions, P as its left operand in registers
//     specialized  one warp only loads, the warpgroups only compute; a ring of stages between them
//     pingpong     the next scores are computed beside P V, and warpgroups take turns at the tensor cores
//     persistent   a block a multiprocessor that takes tile after tile, the longest first; O leaves by TMA
//     lazy_max     the first maximum of a row stays its reference as long as nothing overflows
//
// For sm_90a alone; the CPU runs it all.
//
//     ./lab run 07         or        build/cpu/lab07_fa3_hopper --causal --kernel lazy_max

#include <cuda.h>
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/attention.h"
#include "common/lab.h"
#include "common/lab16.h"
#include "common/ptx.h"
#include "common/tensor_map.h"
#include "common/trace.h"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;
constexpr int GROUP = 128;  // threads of a warpgroup
constexpr int ROWS = 64;    // queries of a warpgroup: 16 of each warp
constexpr int PANEL = 64;   // columns of a panel: 128 bytes, the longest line that TMA swizzles
constexpr int LINE = 128;   // bytes of a panel's row
constexpr int STAGES = 2;   // tiles of K, and of V, in shared memory: one is multiplied, one comes
constexpr float LN2 = 0.69314718f;
constexpr float LOWEST = -1e30f;  // m before any key: see lab 04, as for the next one
constexpr float SCORE_MAX = 1 << 24;
constexpr float RISE = 8.0f;  // in powers of two: see raise_rarely

template <int D> constexpr int KEYS = 128;                 // in a tile of K or V
template <> constexpr int KEYS<256> = 80;                  // more do not fit into shared memory
template <int D> constexpr int GROUPS = D == 64 ? 3 : 2;   // warpgroups that compute
template <int D> constexpr int QUERIES = GROUPS<D> *ROWS;  // of a block
template <int D> constexpr int Q_BYTES = ROWS *D * 2;      // of a warpgroup
template <int D> constexpr int K_BYTES = KEYS<D> *D * 2;   // of a tile of K or of V

static __device__ int lane() { return threadIdx.x % WARP; }
static __device__ int lane_row() { return lane() / 4; }
static __device__ int lane_column() { return lane() % 4 * 2; }
// The same for all lanes, and the compiler knows it: what steers loops that hold wgmma comes by a shuffle.
static __device__ int uniform(int x) { return __shfl_sync(ALL_LANES, x, 0); }
static __device__ int warp() { return uniform((int)threadIdx.x / WARP); }

// ---- which block does what ----

// How the host has numbered the tiles of queries.
struct order {
    int tiles;          // of queries, of a head
    int pairs;          // (batch, head)
    int longest_first;  // 1: a section of pairs after the other, and of its tiles the last first
    int section;        // pairs whose K and V the L2 cache holds at a time
    int before;         // queries that the first tile lacks, whole warpgroups of them
    unsigned *drawn;    // persistent: how many tiles blocks have drawn, see tile_counter
};

// One of them.
struct work {
    int batch, head, first_query;
};
static __device__ void find_work(const struct attention *a, const struct order *order, int n, int queries,
                                 struct work *w) {
    int pair = n / order->tiles, tile = n - pair * order->tiles;
    if (order->longest_first) {
        int first = n / (order->section * order->tiles) * order->section;
        int pairs = min(order->section, order->pairs - first), within = n - first * order->tiles;
        tile = order->tiles - 1 - within / pairs;
        pair = first + within % pairs;
    }
    w->batch = pair / a->heads;
    w->head = pair % a->heads;
    w->first_query = tile * queries - order->before;
}

// How many keys the last of `queries` queries sees, and so how many at least one does: keys 0, 1, ...
static __device__ int keys_of(const struct attention *a, int first_query, int queries) {
    int end = min(first_query + queries, a->seqlen_q);
    return end > first_query ? visible_keys(a, end - 1) : 0;
}
static __device__ int tiles_of(int keys, int tile) { return (keys + tile - 1) / tile; }

// ---- softmax, on what a lane has of 16 rows ----
//
// Lane 4 g + c has rows g and g + 8 (h = 0, 1); of N / 2 numbers x[4 j + 2 h + e] is column 8 j + 2 c + e. So
// it is for mma.sync and for wgmma. m is in powers of two: p = 2^(factor * s - m), factor = scale * log2(e).

static __device__ float quad_max(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}
static __device__ float quad_sum(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// Numbers M n ... M n + M - 1: M = 4 is eight columns, M = 8 sixteen.
template <int M, int N> static __device__ __forceinline__ float (&part_of(float (&x_reg)[N], int n))[M] {
    return *(float(*)[M]) & x_reg[M * n];
}

// Scores of keys that a query does not see, or that do not exist, become -inf. query: of row g.
template <int N>
static __device__ __forceinline__ void mask(const struct attention *a, int query, int first_key,
                                            float (&s_reg)[N]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int end = visible_keys(a, query + 8 * h) - first_key - lane_column();
#pragma unroll
        for (int e = 0; e < N / 2; e++)
            if (e / 2 * 8 + e % 2 >= end) s_reg[e / 2 * 4 + 2 * h + e % 2] = -INFINITY;
    }
}

// The largest that a lane has of a row, and the largest of the row.
template <int N> static __device__ __forceinline__ float lane_max(const float (&s_reg)[N], int h) {
    float even = s_reg[2 * h], odd = s_reg[2 * h + 1];  // two chains: half as long to wait for
#pragma unroll
    for (int j = 1; j < N / 4; j++) {
        even = fmaxf(even, s_reg[4 * j + 2 * h]);
        odd = fmaxf(odd, s_reg[4 * j + 2 * h + 1]);
    }
    return fmaxf(even, odd);
}
template <int N> static __device__ __forceinline__ float row_max(const float (&s_reg)[N], int h) {
    return quad_max(lane_max(s_reg, h));
}

// P in the place of S; returns the lane's part of its sum.
template <int N>
static __device__ __forceinline__ float exponentials(float (&s_reg)[N], int h, float factor, float m) {
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        float *s = &s_reg[4 * j + 2 * h];
        s[0] = ex2(s[0] * factor - m);
        s[1] = ex2(s[1] * factor - m);
        even += s[0];
        odd += s[1];
    }
    return even + odd;
}

template <int N> static __device__ __forceinline__ void scale_row(float (&x_reg)[N], int h, float by) {
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        x_reg[4 * j + 2 * h] *= by;
        x_reg[4 * j + 2 * h + 1] *= by;
    }
}

// P rounded, as the left operand of P V: 16 keys each.
template <class T>
static __device__ __forceinline__ void pack_p(const float (&s_reg)[8], uint32_t (&p_reg)[4]) {
#pragma unroll
    // BEGIN SOLUTION operand: what a lane has of S as accumulators is what it needs of P as A: pack pairs.
    for (int e = 0; e < 4; e++) p_reg[e] = pack2<T>(s_reg[2 * e], s_reg[2 * e + 1]);
    // STUB for (int e = 0; e < 4; e++) p_reg[e] = 0;
    // STUB (void)s_reg;
    // END SOLUTION
}
template <class T, int N>
static __device__ __forceinline__ void pack_p(float (&s_reg)[N], uint32_t (&p_reg)[N / 8][4]) {
#pragma unroll
    for (int n = 0; n < N / 8; n++) pack_p<T>(part_of<8>(s_reg, n), p_reg[n]);
}

// m of a row follows its largest score, `top`. Returns what was summed before is to be multiplied with.
static __device__ __forceinline__ float follow(float *m_reg, float top) {
    // BEGIN SOLUTION running_maximum: m takes in the largest score; sums so far shrink by 2^(m before - m).
    float before = *m_reg;
    *m_reg = fmaxf(before, top);
    return ex2(before - *m_reg);
    // STUB (void)top, *m_reg = INFINITY;
    // STUB return 0.0f;
    // END SOLUTION
}

// The running maximum: m follows in every tile. keep: 1 where it did not rise.
template <int N>
static __device__ __forceinline__ void raise_maximum(const float (&s_reg)[N], float factor, float *m_reg,
                                                     float *keep_reg) {
#pragma unroll
    for (int h = 0; h < 2; h++) keep_reg[h] = follow(&m_reg[h], row_max(s_reg, h) * factor);
}

// From pingpong on, as in lab 04: m follows only when some row of the warp has a score that is RISE above it,
// so that P is at most 2^RISE. After the first tile that hardly ever happens, and then no lane asks its
// neighbours, and O and l stay as they are. Returns whether m was raised; if not, keep is not set.
template <int N>
static __device__ __forceinline__ bool raise_rarely(const float (&s_reg)[N], float factor, float *m_reg,
                                                    float *keep_reg) {
    float top_reg[2];
    bool rises = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        top_reg[h] = lane_max(s_reg, h) * factor;
        rises |= top_reg[h] > m_reg[h] + RISE;
    }
    if (!__any_sync(ALL_LANES, rises)) return false;
#pragma unroll
    for (int h = 0; h < 2; h++) keep_reg[h] = follow(&m_reg[h], quad_max(top_reg[h]));
    return true;
}

// ---- results, from registers to global memory ----

// What O of a row is still to be multiplied with. l is no less than 1 nearly always, and never so small or
// large that the fast division (2 units in the last place) would matter.
static __device__ float inverse_of(float l) { return l == 0.0f ? 0.0f : __fdividef(1.0f, l); }

static __device__ void store_lse(const struct attention *a, const struct work *w, int query, float m,
                                 float l) {
    if (lane_column() == 0 && query < a->seqlen_q)
        a->lse[((int64_t)w->batch * a->heads + w->head) * a->seqlen_q + query] =
            l == 0.0f ? -INFINITY : (m + __log2f(l)) * LN2;
}

// Rows of a warp's 16 that have a NaN in O and none in l are computed once more from the keys that they see
// alone: see recompute_row. broken_reg[h]: lanes that found one.
template <class T, int D>
static __device__ void repair_rows(const struct attention *a, const struct work *w, int first_query,
                                   const float *m_reg, const float *inverse_reg, const unsigned *broken_reg) {
#pragma unroll
    for (int h = 0; h < 2; h++)
        for (int g = 0; g < 8; g++) {
            float m = __shfl_sync(ALL_LANES, m_reg[h], g * 4) * LN2;
            float inverse = __shfl_sync(ALL_LANES, inverse_reg[h], g * 4);
            if ((broken_reg[h] >> g * 4 & 15) == 0) continue;
            int i = first_query + 8 * h + g, kv_head = kv_head_of(a, w->head);
            struct span seen = {0, visible_keys(a, i)};
            recompute_row<T, D == 256 ? 4 : 2>(
                row<T>(a->q, w->batch, w->head, i), row<T>(a->k, w->batch, kv_head, 0), a->k.stride_row,
                row<T>(a->v, w->batch, kv_head, 0), a->v.stride_row, row<T>(a->o, w->batch, w->head, i),
                a->head_dim, seen, a->scale, m, inverse);
        }
}

// O and LSE of a warp's 16 queries, `first_query` and so on, each lane its own numbers.
template <class T, int D>
static __device__ __forceinline__ void store_rows(const struct attention *a, const struct work *w,
                                                  int first_query, const float *m_reg, const float *l_reg,
                                                  const float (&o_reg)[D / 2]) {
    float inverse_reg[2];
    unsigned broken_reg[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int query = first_query + 8 * h + lane_row();
        float l = quad_sum(l_reg[h]);
        inverse_reg[h] = inverse_of(l);
        store_lse(a, w, query, m_reg[h], l);
        T *o = row<T>(a->o, w->batch, w->head, query) + lane_column();
        bool has_nan = false;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            float x = o_reg[4 * j + 2 * h] * inverse_reg[h], y = o_reg[4 * j + 2 * h + 1] * inverse_reg[h];
            has_nan |= isnan(x + y);
            if (query < a->seqlen_q && j * 8 < a->head_dim) *(uint32_t *)(o + j * 8) = pack2<T>(x, y);
        }
        broken_reg[h] = __ballot_sync(ALL_LANES, has_nan && !isnan(l) && query < a->seqlen_q);
    }
    if (!a->causal) return;  // every query sees all keys
    __syncwarp();            // O is written before rows of it are written again
    repair_rows<T, D>(a, w, first_query, m_reg, inverse_reg, broken_reg);
}

// ---- tma ----
//
// A tile is one or two panels of 64 columns, [rows][64], each fetched by one instruction. TMA has already
// swizzled them: chunk c of row r lies at c ^ r % 8, as labs 04 and 05 put it, so that ldmatrix finds no bank
// conflicts. It also fills with zeros what lies past the last row or column. One thread asks; the bytes
// arrive at an mbarrier, at which everybody waits.

// What TMA is told of the tensors.
struct maps {
    CUtensorMap q, k, v, o;
};

// Asks for rows first_row ... of a head: the panels of a tile, one behind the other. `bar` is told of the
// bytes, all of them, also of those that do not exist.
template <int D, int TILE_ROWS>
static __device__ __forceinline__ void load_tile(const CUtensorMap *map, int batch, int head, int first_row,
                                                 uint32_t to, uint32_t bar) {
    mbarrier_arrive_expect_tx(bar, TILE_ROWS * D * 2);
#pragma unroll
    for (int c = 0; c < D; c += PANEL)
        tma_load_4d(to + c * TILE_ROWS * 2, map, bar, c, first_row, head, batch);
}

constexpr int TMA_THREADS = 128;
constexpr int TMA_QUERIES = 128;
constexpr int STRIPS = 2;  // of 16 rows, of a warp
constexpr int TMA_KEYS = 64;

// Where a chunk of a panel begins, and the place `steps` times 16 columns to the right of one.
static __device__ uint32_t chunk_at(int r, int chunk) { return r * LINE + (chunk ^ r % 8) * 16; }
static __device__ uint32_t to_the_right(uint32_t place, int steps, int rows) {
    return (place ^ steps % 4 * 32) + steps / 4 * rows * LINE;
}

// Changes the sign of 16-bit numbers in place: scores are multiplied by |scale| only.
static __device__ void negate(char *x_smem, int bytes, int thread, int threads) {
    constexpr uint32_t SIGNS = 0x80008000;
    for (int e = thread; e < bytes / 16; e += threads) {
        uint4 x = ((uint4 *)x_smem)[e];
        ((uint4 *)x_smem)[e] = make_uint4(x.x ^ SIGNS, x.y ^ SIGNS, x.z ^ SIGNS, x.w ^ SIGNS);
    }
}

// S = Q K^T. q_strips: the warp's first row.
template <class T, int D>
static __device__ __forceinline__ void mma_q_k(uint32_t q_strips, uint32_t k_tile,
                                               float (&s_reg)[STRIPS][TMA_KEYS / 2]) {
    uint32_t q_place = chunk_at(lane() % 16, lane() / 16);
    uint32_t k_place = chunk_at(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2);
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t q_reg[STRIPS][4];
        uint32_t q_at = q_strips + to_the_right(q_place, step, TMA_QUERIES);
        uint32_t k_at = k_tile + to_the_right(k_place, step, TMA_KEYS);
#pragma unroll
        for (int s = 0; s < STRIPS; s++) ldmatrix_x4(q_reg[s], q_at + s * 16 * LINE);
#pragma unroll
        for (int n = 0; n < TMA_KEYS / 16; n++) {
            uint32_t k_reg[4];
            ldmatrix_x4(k_reg, k_at + n * 16 * LINE);
            const uint32_t left[2] = {k_reg[0], k_reg[1]}, right[2] = {k_reg[2], k_reg[3]};
#pragma unroll
            for (int s = 0; s < STRIPS; s++) {
                mma_m16n8k16<T>(part_of<4>(s_reg[s], 2 * n), q_reg[s], left);
                mma_m16n8k16<T>(part_of<4>(s_reg[s], 2 * n + 1), q_reg[s], right);
            }
        }
    }
}

// O += P V for 16 keys.
template <class T, int D>
static __device__ __forceinline__ void mma_p_v(const uint32_t (&p_reg)[STRIPS][4], uint32_t v_rows,
                                               float (&o_reg)[STRIPS][D / 2]) {
    uint32_t v_place = chunk_at(lane() % 16, lane() / 16);
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
        uint32_t v_reg[4];
        ldmatrix_x4_trans(v_reg, v_rows + to_the_right(v_place, n, TMA_KEYS));
        const uint32_t left[2] = {v_reg[0], v_reg[1]}, right[2] = {v_reg[2], v_reg[3]};
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            mma_m16n8k16<T>(part_of<4>(o_reg[s], 2 * n), p_reg[s], left);
            mma_m16n8k16<T>(part_of<4>(o_reg[s], 2 * n + 1), p_reg[s], right);
        }
    }
}

template <class T, int D>
__global__ void __launch_bounds__(TMA_THREADS, 2)
    tma_tiles(const __grid_constant__ struct maps maps, struct attention a, struct order order,
              float factor) {
    extern __shared__ __align__(1024) char shared_smem[];  // the swizzle goes by address bits 7 to 9
    __shared__ uint64_t q_full_smem, full_smem[STAGES];
    constexpr int K = TMA_KEYS, TILE = K * D * 2;
    char *q_smem = shared_smem;                                       // [panels][TMA_QUERIES][64]
    uint32_t k_tiles = shared_address(q_smem + TMA_QUERIES * D * 2);  // [STAGES][panels][K][64]
    uint32_t v_tiles = k_tiles + STAGES * TILE;                       // the same
    uint32_t q_full = shared_address(&q_full_smem), full = shared_address(full_smem);  // 8 bytes each
    struct work w;
    find_work(&a, &order, blockIdx.x, TMA_QUERIES, &w);
    int kv_head = kv_head_of(&a, w.head), tiles = tiles_of(keys_of(&a, w.first_query, TMA_QUERIES), K);
    if (threadIdx.x == 0) {
        mbarrier_init(q_full, 1);
        for (int i = 0; i < STAGES; i++) mbarrier_init(full + 8 * i, 2);  // K and V arrive
        fence_mbarrier_init();
        if (tiles > 0) {
            load_tile<D, TMA_QUERIES>(&maps.q, w.batch, w.head, w.first_query, shared_address(q_smem),
                                      q_full);
            load_tile<D, K>(&maps.k, w.batch, kv_head, (tiles - 1) * K, k_tiles, full);
            load_tile<D, K>(&maps.v, w.batch, kv_head, (tiles - 1) * K, v_tiles, full);
        }
    }
    __syncthreads();  // the mbarriers are there before anybody waits at them
    int first_row = warp() * STRIPS * 16, open_tiles = visible_keys(&a, w.first_query) / K;
    float m_reg[STRIPS][2], l_reg[STRIPS][2] = {}, o_reg[STRIPS][D / 2] = {};
    for (int s = 0; s < STRIPS; s++) m_reg[s][0] = m_reg[s][1] = LOWEST;
    if (tiles > 0) mbarrier_wait(q_full, 0);
    if (tiles > 0 && a.scale < 0.0f) {
        negate(q_smem, TMA_QUERIES * D * 2, threadIdx.x, TMA_THREADS);
        __syncthreads();  // all of Q is negated before anybody multiplies it
    }
    for (int i = 0; i < tiles; i++) {
        int tile = tiles - 1 - i, stage = i % STAGES;  // the last first: masks are done with early
        if (threadIdx.x == 0 && tile > 0) {
            int next = (i + 1) % STAGES;
            load_tile<D, K>(&maps.k, w.batch, kv_head, (tile - 1) * K, k_tiles + next * TILE,
                            full + 8 * next);
            load_tile<D, K>(&maps.v, w.batch, kv_head, (tile - 1) * K, v_tiles + next * TILE,
                            full + 8 * next);
        }
        mbarrier_wait(full + 8 * stage, i / STAGES % 2);  // the tile is there
        float s_reg[STRIPS][K / 2] = {};
        mma_q_k<T, D>(shared_address(q_smem) + first_row * LINE, k_tiles + stage * TILE, s_reg);
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            if (tile >= open_tiles)
                mask(&a, w.first_query + first_row + s * 16 + lane_row(), tile * K, s_reg[s]);
            float keep_reg[2];
            raise_maximum(s_reg[s], factor, m_reg[s], keep_reg);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                l_reg[s][h] *= keep_reg[h];
                scale_row(o_reg[s], h, keep_reg[h]);
            }
        }
#pragma unroll
        for (int n = 0; n < K / 16; n++) {
            uint32_t p_reg[STRIPS][4];
#pragma unroll
            for (int s = 0; s < STRIPS; s++) {
                float(&part_reg)[8] = part_of<8>(s_reg[s], n);
#pragma unroll
                for (int h = 0; h < 2; h++) l_reg[s][h] += exponentials(part_reg, h, factor, m_reg[s][h]);
                pack_p<T>(part_reg, p_reg[s]);
            }
            mma_p_v<T, D>(p_reg, v_tiles + stage * TILE + n * 16 * LINE, o_reg);
        }
        __syncthreads();  // nobody still reads the stage that the next round refills
    }
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
        store_rows<T, D>(&a, &w, w.first_query + first_row + s * 16, m_reg[s], l_reg[s], o_reg[s]);
}

// ---- wgmma ----
//
// A warpgroup has 64 queries, a warp 16 of them. Q and K are read as they lie; V as well, since the
// descriptor says that its lines are keys ("MN-major"); P comes from registers, as it was computed there.
// A product is issued and runs on its own: wgmma_wait says when its sums may be read, and its operands
// written.

// Q of a warpgroup and a tile of K, both K-major: a line runs along the sum; a tile of V. A step of 16
// columns or keys is 32 bytes within a line, or 16 lines on. A descriptor counts in 16 bytes.
template <class T, int D>
static __device__ __forceinline__ void issue_q_k(uint64_t q, uint64_t k, float (&s_reg)[KEYS<D> / 2]) {
    // BEGIN SOLUTION steps: a wgmma for each 16 columns, in panels of 64; the first one begins the sum.
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint64_t q_at = q + (step / 4 * ROWS * LINE + step % 4 * 32) / 16;
        uint64_t k_at = k + (step / 4 * KEYS<D> * LINE + step % 4 * 32) / 16;
        if (step == 0)
            wgmma_ss<T, KEYS<D>, 0, false, false>(s_reg, q_at, k_at);
        else
            wgmma_ss<T, KEYS<D>, 1, false, false>(s_reg, q_at, k_at);
    }
    // STUB wgmma_ss<T, KEYS<D>, 0, false, false>(s_reg, q, k);
    // END SOLUTION
    wgmma_commit();
}
template <class T, int D>
static __device__ __forceinline__ void issue_p_v(const uint32_t (&p_reg)[KEYS<D> / 16][4], uint64_t v,
                                                 float (&o_reg)[D / 2]) {
#pragma unroll
    for (int step = 0; step < KEYS<D> / 16; step++)
        wgmma_rs<T, D, 1, true>(o_reg, p_reg[step], v + step * 16 * LINE / 16);
    wgmma_commit();
}
static __device__ __forceinline__ uint64_t by_rows(uint32_t tile) {
    return wgmma_descriptor(tile, 16, 8 * LINE, LINE);
}
template <int D> static __device__ __forceinline__ uint64_t by_columns(uint32_t tile) {
    return wgmma_descriptor(tile, KEYS<D> * LINE, 8 * LINE, LINE);
}

// Stages of the rings of specialized and what follows, of Q and of K and V. Where there is room for more than
// the least, warpgroups need not keep in step: one ends its tile of queries and begins the next while others
// multiply.
template <int D> constexpr int Q_DEPTH = D == 64 ? 2 : 1;
template <int D> constexpr int DEPTH = D == 64 ? 4 : 2;

// The place of Q, K and V in shared memory, from a multiple of 1024 bytes on.
template <int D> constexpr int K_AT = Q_DEPTH<D> *GROUPS<D> *Q_BYTES<D>;  // [DEPTH] tiles of K; Q before them
template <int D> constexpr int V_AT = K_AT<D> + DEPTH<D> *K_BYTES<D>;
template <int D> constexpr int END_OF_V = V_AT<D> + DEPTH<D> *K_BYTES<D>;

template <class T, int D>
__global__ void __launch_bounds__(GROUPS<D> *GROUP, 1)
    wgmma_tiles(const __grid_constant__ struct maps maps, struct attention a, struct order order,
                float factor) {
    extern __shared__ __align__(1024) char shared_smem[];
    __shared__ uint64_t q_full_smem, full_smem[STAGES];
    constexpr int K = KEYS<D>;
    uint32_t q_tiles = shared_address(shared_smem), k_tiles = q_tiles + K_AT<D>, v_tiles = q_tiles + V_AT<D>;
    uint32_t q_full = shared_address(&q_full_smem), full = shared_address(full_smem);
    struct work w;
    find_work(&a, &order, blockIdx.x, QUERIES<D>, &w);
    int kv_head = kv_head_of(&a, w.head), tiles = tiles_of(keys_of(&a, w.first_query, QUERIES<D>), K);
    if (threadIdx.x == 0) {
        mbarrier_init(q_full, GROUPS<D>);
        for (int i = 0; i < STAGES; i++) mbarrier_init(full + 8 * i, 2);  // K and V arrive
        fence_mbarrier_init();
        if (tiles > 0) {
            for (int g = 0; g < GROUPS<D>; g++)
                load_tile<D, ROWS>(&maps.q, w.batch, w.head, w.first_query + g * ROWS,
                                   q_tiles + g * Q_BYTES<D>, q_full);
            load_tile<D, K>(&maps.k, w.batch, kv_head, (tiles - 1) * K, k_tiles, full);
            load_tile<D, K>(&maps.v, w.batch, kv_head, (tiles - 1) * K, v_tiles, full);
        }
    }
    __syncthreads();  // the mbarriers are there before anybody waits at them
    int group = uniform((int)threadIdx.x / GROUP), first_query = w.first_query + group * ROWS;
    int query = first_query + warp() % 4 * 16 + lane_row(), open_tiles = visible_keys(&a, first_query) / K;
    float m_reg[2] = {LOWEST, LOWEST}, l_reg[2] = {}, s_reg[K / 2], o_reg[D / 2] = {};
    uint32_t p_reg[K / 16][4];
    if (tiles > 0) mbarrier_wait(q_full, 0);
    if (tiles > 0 && a.scale < 0.0f) {
        negate(shared_smem, GROUPS<D> * Q_BYTES<D>, threadIdx.x, GROUPS<D> * GROUP);
        fence_proxy_async();  // wgmma is to see what ordinary stores wrote
        __syncthreads();      // all of Q is negated before anybody multiplies it
    }
    for (int i = 0; i < tiles; i++) {
        int tile = tiles - 1 - i, stage = i % STAGES;
        if (threadIdx.x == 0 && tile > 0) {
            int next = (i + 1) % STAGES;
            load_tile<D, K>(&maps.k, w.batch, kv_head, (tile - 1) * K, k_tiles + next * K_BYTES<D>,
                            full + 8 * next);
            load_tile<D, K>(&maps.v, w.batch, kv_head, (tile - 1) * K, v_tiles + next * K_BYTES<D>,
                            full + 8 * next);
        }
        mbarrier_wait(full + 8 * stage, i / STAGES % 2);  // the tile is there
        wgmma_fence();
        issue_q_k<T, D>(by_rows(q_tiles + group * Q_BYTES<D>), by_rows(k_tiles + stage * K_BYTES<D>), s_reg);
        wgmma_wait<0>();
        wgmma_pin(s_reg);
        if (tile >= open_tiles) mask(&a, query, tile * K, s_reg);
        float keep_reg[2];
        raise_maximum(s_reg, factor, m_reg, keep_reg);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            l_reg[h] = l_reg[h] * keep_reg[h] + exponentials(s_reg, h, factor, m_reg[h]);
            scale_row(o_reg, h, keep_reg[h]);
        }
        pack_p<T>(s_reg, p_reg);
        wgmma_pin(o_reg);
        wgmma_fence();
        issue_p_v<T, D>(p_reg, by_columns<D>(v_tiles + stage * K_BYTES<D>), o_reg);
        wgmma_wait<0>();
        wgmma_pin(o_reg);
        __syncthreads();  // nobody still reads the stage that the next round refills
    }
    store_rows<T, D>(&a, &w, query - lane_row(), m_reg, l_reg, o_reg);
}

// ---- specialized, and what follows it: a producer and consumers ----
//
// One warpgroup of the block does nothing but ask for tiles, and gives its registers away; in fact one thread
// of it. The others compute. Between them is a ring for K and one for V: the producer fills a stage when
// every consumer has left it, and a consumer waits for no one but the producer.

enum step { SPECIALIZED, PINGPONG, PERSISTENT, LAZY_MAX };

// For --trace: the roles of a block and the phases that they mark (common/trace.h).
enum { PRODUCER, CONSUMER };  // and CONSUMER + 1, ...
enum { WAIT_NEWS, WAIT_EMPTY, LOAD, WAIT_Q, WAIT_K, WAIT_S, SOFTMAX, WAIT_O, STORE };
[[maybe_unused]] static const struct trace_names phases = {
    {"producer", "consumer 0", "consumer 1", "consumer 2"},
    {"wait for a tile of queries", "wait for an empty stage", "ask for a tile", "wait for Q", "wait for K",
     "S = Q K^T (and O += P V), wait for S", "softmax", "wait for V and O += P V", "O / l, store"},
    128};  // at 256 no registers are left for it

template <int D> constexpr int THREADS = (1 + GROUPS<D>)*GROUP;
// Together no more than at the start, when each thread has as many as fit: 168, or 128 if D = 64.
template <int D> constexpr int PRODUCER_REGISTERS = D == 64 ? 32 : 40;
template <int D> constexpr int CONSUMER_REGISTERS = D == 64 ? 160 : 232;

// Where O waits for TMA to store it: behind V. At head_dim 256 only Q's place is left, and the next Q has to
// wait. A tile of queries that see no key loads no Q, but its O, all zeros, needs the place as well: so it is
// a use of Q like any other, in which nothing comes.
template <int D, int STEP> constexpr bool O_IN_Q = D == 256 && STEP >= PERSISTENT;

// Use number n of a ring takes its stage n % DEPTH, for the n / DEPTH-th time, of which the mbarrier of the
// stage knows the parity. The producer waits for the end of the use before with the opposite one, which a
// fresh mbarrier lets pass.
template <int D> struct ring { uint64_t full[DEPTH<D>], empty[DEPTH<D>]; };
template <int D> static __device__ uint32_t full(struct ring<D> *ring, int n) {
    return shared_address(&ring->full[n % DEPTH<D>]);
}
template <int D> static __device__ uint32_t empty(struct ring<D> *ring, int n) {
    return shared_address(&ring->empty[n % DEPTH<D>]);
}
template <int D> static __device__ int parity(int n) { return n / DEPTH<D> % 2; }
template <int D> static __device__ void make_ring(struct ring<D> *ring, int fills, int leaves) {
    for (int i = 0; i < DEPTH<D>; i++) {
        mbarrier_init(full(ring, i), fills);
        mbarrier_init(empty(ring, i), leaves);
    }
}

// What the producer tells the consumers: the next tile of queries. In shared memory, and so in no registers.
struct news {
    int tile;  // its number, or one of those below
    struct work work;
    int tiles;       // of keys that one of its queries sees
    unsigned again;  // the warpgroups (bits) that do it once more, with the running maximum; 0: all, as usual
};
constexpr int NOTHING = -1;  // no tile; more may come
constexpr int THE_END = -2;

template <int D> struct shared_state {
    struct ring<D> k, v, message;
    uint64_t q_full[Q_DEPTH<D> * GROUPS<D>], q_empty[Q_DEPTH<D> * GROUPS<D>];
    struct news news[DEPTH<D>];
    int doubtful[DEPTH<D>];  // lazy_max: the last tiles, if they may have to be done again, ...
    int overflow[DEPTH<D>][GROUPS<D> * 4];  // ... and whether a warp found that they have
};
template <int D>
static __device__ void set_news(const struct attention *a, const struct order *order, int tile,
                                unsigned again, struct news *news) {
    news->tile = tile;
    news->again = again;
    if (tile < 0) return;
    find_work(a, order, tile, QUERIES<D>, &news->work);
    news->tiles = tiles_of(keys_of(a, news->work.first_query, QUERIES<D>), KEYS<D>);
}

// Which tile of Q in shared memory, and which pair of mbarriers, use n of a warpgroup's Q takes.
template <int D> static __device__ int q_place(int n, int group) {
    return n % Q_DEPTH<D> * GROUPS<D> + group;
}
template <int D> static __device__ int q_parity(int n) { return n / Q_DEPTH<D> % 2; }

// How many stages have been used so far. Producer and consumers count alike.
struct uses {
    int kv, q;
};

// Loads Q, and all tiles of K and V that one of the queries sees. K of a tile comes before V of the tile
// before it: so they are needed.
template <int D, int STEP, bool TRACE>
static __device__ __forceinline__ void
load_work(const struct maps *maps, const struct attention *a, const struct news *news, uint32_t smem,
          struct shared_state<D> *state, struct uses *uses, tracer<TRACE> *trace) {
    constexpr int K = KEYS<D>;
    const struct work *w = &news->work;
    int kv_head = kv_head_of(a, w->head), tiles = news->tiles;
    if (tiles == 0 && O_IN_Q<D, STEP>) {
        for (int g = 0; g < GROUPS<D>; g++) {
            mbarrier_wait(shared_address(&state->q_empty[q_place<D>(uses->q, g)]),
                          q_parity<D>(uses->q) ^ 1);  // O and Q before are gone
            mbarrier_arrive(shared_address(&state->q_full[q_place<D>(uses->q, g)]));
        }
        uses->q++;
    }
    if (tiles == 0) return;
#pragma unroll 1
    for (int i = 0; i <= tiles; i++) {
        if (i < tiles) {
            int n = uses->kv + i;
            trace_mark(trace, WAIT_EMPTY);
            mbarrier_wait(empty(&state->k, n), parity<D>(n) ^ 1);  // nobody still reads the stage
            trace_mark(trace, LOAD);
            load_tile<D, K>(&maps->k, w->batch, kv_head, (tiles - 1 - i) * K,
                            smem + K_AT<D> + n % DEPTH<D> * K_BYTES<D>, full(&state->k, n));
        }
        for (int g = 0; i == 0 && g < GROUPS<D>; g++) {
            trace_mark(trace, WAIT_EMPTY);
            mbarrier_wait(shared_address(&state->q_empty[q_place<D>(uses->q, g)]),
                          q_parity<D>(uses->q) ^ 1);  // nobody still reads it
            trace_mark(trace, LOAD);
            load_tile<D, ROWS>(&maps->q, w->batch, w->head, w->first_query + g * ROWS,
                               smem + q_place<D>(uses->q, g) * Q_BYTES<D>,
                               shared_address(&state->q_full[q_place<D>(uses->q, g)]));
        }
        if (i > 0) {
            int n = uses->kv + i - 1;
            trace_mark(trace, WAIT_EMPTY);
            mbarrier_wait(empty(&state->v, n), parity<D>(n) ^ 1);  // nobody still reads the stage
            trace_mark(trace, LOAD);
            load_tile<D, K>(&maps->v, w->batch, kv_head, (tiles - i) * K,
                            smem + V_AT<D> + n % DEPTH<D> * K_BYTES<D>, full(&state->v, n));
        }
    }
    uses->kv += tiles;
    uses->q++;
}

// What a consumer warpgroup has at hand.
template <int D> struct consumer {
    struct shared_state<D> *state;
    int group;         // from 0
    uint64_t q, k, v;  // descriptors of stage 0: its Q, K and V
    struct uses uses;
};
template <int D> static __device__ uint64_t stage_of(uint64_t first, int n) {
    return first + n % DEPTH<D> * (K_BYTES<D> / 16);
}
template <int D> static __device__ uint64_t this_q(const struct consumer<D> *c) {
    return c->q + (c->uses.q - 1) % Q_DEPTH<D> * (GROUPS<D> * Q_BYTES<D> / 16);
}
template <int D> static __device__ __forceinline__ void sync_group(int group) {
    bar_sync(1 + GROUPS<D> + group, GROUP);
}
// One thread says for the warpgroup that it has left a stage. Nobody of it still reads the stage, or waits
// for it: a product is the warpgroup's, and when it has ended for one warp, all have begun it and it is over.
static __device__ __forceinline__ void leave(uint32_t bar) {
    if (threadIdx.x % GROUP == 0) mbarrier_arrive(bar);
}

// pingpong: a warpgroup issues its products when it is its turn, and then lets the next one. So one's
// softmax runs while the other's products do. Barrier 1 + group is where a group waits for the one before it.
template <int D> static __device__ __forceinline__ void begin_turn(int group) {
    bar_sync(1 + group, 2 * GROUP);  // the group before this one has issued its products
}
template <int D> static __device__ __forceinline__ void end_turn(int group, bool is_last) {
    if (!is_last || group + 1 < GROUPS<D>) bar_arrive(1 + (group + 1) % GROUPS<D>, 2 * GROUP);
}

// specialized: one tile of keys after the other, each product waited for.
template <class T, int D, bool TRACE>
static __device__ __forceinline__ void compute_in_order(const struct attention *a, int query, int seen,
                                                        int open, float factor, struct consumer<D> *c,
                                                        float *m_reg, float *l_reg, float (&o_reg)[D / 2],
                                                        tracer<TRACE> *trace) {
    float s_reg[KEYS<D> / 2], keep_reg[2];
    uint32_t p_reg[KEYS<D> / 16][4];
#pragma unroll 1
    for (int tile = seen - 1; tile >= 0; tile--) {
        int n = c->uses.kv++;
        trace_mark(trace, WAIT_K);
        mbarrier_wait(full(&c->state->k, n), parity<D>(n));  // K is there
        trace_mark(trace, WAIT_S);
        wgmma_fence();
        issue_q_k<T, D>(c->q, stage_of<D>(c->k, n), s_reg);
        wgmma_wait<0>();
        wgmma_pin(s_reg);
        trace_mark(trace, SOFTMAX);
        leave(empty(&c->state->k, n));
        if (tile >= open) mask(a, query, tile * KEYS<D>, s_reg);
        raise_maximum(s_reg, factor, m_reg, keep_reg);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            l_reg[h] = l_reg[h] * keep_reg[h] + exponentials(s_reg, h, factor, m_reg[h]);
            scale_row(o_reg, h, keep_reg[h]);
        }
        pack_p<T>(s_reg, p_reg);
        trace_mark(trace, WAIT_O);
        mbarrier_wait(full(&c->state->v, n), parity<D>(n));  // V is there
        wgmma_pin(o_reg);
        wgmma_fence();
        issue_p_v<T, D>(p_reg, stage_of<D>(c->v, n), o_reg);
        wgmma_wait<0>();
        wgmma_pin(o_reg);
        leave(empty(&c->state->v, n));
    }
}

// lazy_max: softmax is the same for any m, as long as nothing overflows:
//
//     exp(s - m) / sum of exp(s' - m)   is one number for all m.
//
// So m of a row's first keys stays, and nobody looks for a larger one. What falls away is 64 maxima a tile,
// of some 390 instructions; and while the tensor cores work, instructions are what limits (README.md). p may
// then exceed 2^RISE, which fp32 holds up to 2^127, but P in fp16 ends at 65504. When a lane's part of a sum
// passes 2^15, the warp divides p, l and O of the row by its largest p, and m grows by the logarithm. (Not by
// a power of two, though that would be exact: where one key has nearly all the weight, its p is 1 then, which
// no rounding to 16 bits changes, and O is its V to the bit.) And a jump of more than 2^127 leaves an
// infinity in l: then the tile of queries is done once more with the running maximum. lower_p returns whether
// it changed p.
template <int D>
static __device__ __forceinline__ bool lower_p(const float *sum_reg, float (&s_reg)[KEYS<D> / 2],
                                               float *m_reg, float *l_reg, float (&o_reg)[D / 2]) {
    // BEGIN SOLUTION lazy: l takes the sums in; where one passed LARGE, all of the row goes to a larger m.
    constexpr float LARGE = 1 << 15;
    l_reg[0] += sum_reg[0];
    l_reg[1] += sum_reg[1];
    if (!__any_sync(ALL_LANES, fmaxf(sum_reg[0], sum_reg[1]) > LARGE)) return false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        // By 2^120 at most, as ex2 ends at 2^-126; P of 2^8 has room.
        float m = m_reg[h] + fminf(log2f(fmaxf(row_max(s_reg, h), 1.0f)), 120.0f);
        float by = ex2(m_reg[h] - m);  // of m as it is after rounding, so that later tiles agree with it
        scale_row(s_reg, h, by);
        scale_row(o_reg, h, by);
        l_reg[h] *= by;
        m_reg[h] = m;
    }
    return true;
    // STUB (void)sum_reg, (void)s_reg, (void)m_reg, (void)l_reg, (void)o_reg;
    // STUB return false;
    // END SOLUTION
}

// pingpong: S of a tile and O of the tile before it, whose P is at hand, are computed side by side, and
// softmax begins when S is there. LAZY: see lazy_max.
template <class T, int D, int STEP, bool LAZY, bool TRACE>
static __device__ __forceinline__ void
compute_overlapped(const struct attention *a, int query, int tile, int open, float factor,
                   struct consumer<D> *c, float (&s_reg)[KEYS<D> / 2], uint32_t (&p_reg)[KEYS<D> / 16][4],
                   float *m_reg, float *l_reg, float (&o_reg)[D / 2], tracer<TRACE> *trace) {
    int n = c->uses.kv++, next = n + 1;
    trace_mark(trace, WAIT_K);
    mbarrier_wait(full(&c->state->k, next), parity<D>(next));  // K is there; V of use n was waited for
    if (STEP == PINGPONG) begin_turn<D>(c->group);
    trace_mark(trace, WAIT_S);
    wgmma_fence();
    issue_q_k<T, D>(this_q<D>(c), stage_of<D>(c->k, next), s_reg);
    issue_p_v<T, D>(p_reg, stage_of<D>(c->v, n), o_reg);
    if (STEP == PINGPONG) end_turn<D>(c->group, tile == 0);
    wgmma_wait<1>();  // S is there; O is on its way
    wgmma_pin(s_reg);
    trace_mark(trace, SOFTMAX);
    leave(empty(&c->state->k, next));
    if (LAZY) {
        float sum_reg[2];
#pragma unroll
        for (int h = 0; h < 2; h++) sum_reg[h] = exponentials(s_reg, h, factor, m_reg[h]);
        // ptxas moves wgmma_wait up to the last branch before it, which would end the overlap. Waiting for V
        // has a branch, so it stands here.
        trace_mark(trace, WAIT_O);
        mbarrier_wait(full(&c->state->v, next), parity<D>(next));  // the next round's V is there
        wgmma_wait<0>();                                           // O is there, and nobody reads P any more
        wgmma_pin(o_reg);
        wgmma_pin(p_reg);
        trace_mark(trace, SOFTMAX);
        leave(empty(&c->state->v, n));
        // Before it is known whether P is too large: else, at D = 64, ptxas adds the sums up here, behind the
        // wait, and rounds after that, while the units for exponentials stand idle.
        pack_p<T>(s_reg, p_reg);
        if (lower_p<D>(sum_reg, s_reg, m_reg, l_reg, o_reg)) pack_p<T>(s_reg, p_reg);
    } else {
        float keep_reg[2];
        if (tile >= open) mask(a, query, tile * KEYS<D>, s_reg);
        // The last branch before wgmma_wait is that of the vote, behind the maxima: they are taken while P V
        // runs. (Without it nearly all would come after O: behind the mask's.)
        bool rises = raise_rarely(s_reg, factor, m_reg, keep_reg);
        trace_mark(trace, WAIT_O);
        wgmma_wait<0>();  // O is there, and nobody reads P any more
        wgmma_pin(o_reg);
        wgmma_pin(p_reg);
        trace_mark(trace, SOFTMAX);
        leave(empty(&c->state->v, n));
        if (rises) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                l_reg[h] *= keep_reg[h];
                scale_row(o_reg, h, keep_reg[h]);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) l_reg[h] += exponentials(s_reg, h, factor, m_reg[h]);
        pack_p<T>(s_reg, p_reg);
        mbarrier_wait(full(&c->state->v, next), parity<D>(next));  // V is there, for the next round
    }
}

// P of the tile of keys with which a tile of queries begins, or of as much of it as somebody sees.
template <int N>
static __device__ __forceinline__ void first_p(const struct attention *a, int query, int first_key,
                                               bool masked, float factor, float (&s_reg)[N], float *m_reg,
                                               float *l_reg) {
    if (masked) mask(a, query, first_key, s_reg);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        m_reg[h] = fmaxf(LOWEST, row_max(s_reg, h) * factor);
        l_reg[h] = exponentials(s_reg, h, factor, m_reg[h]);
    }
}

// All tiles of keys of a tile of queries, the last first: O, l and m of the warpgroup's.
//   tiles: of the block; seen: of which a query of this warpgroup sees some key; running: no lazy maximum
template <class T, int D, int STEP, bool TRACE>
static __device__ __forceinline__ void compute_work(const struct attention *a, int first_query, int tiles,
                                                    int seen, bool running, float factor, char *q_smem,
                                                    struct consumer<D> *c, float *m_reg, float *l_reg,
                                                    float (&o_reg)[D / 2], tracer<TRACE> *trace) {
    constexpr int K = KEYS<D>;
    struct shared_state<D> *state = c->state;
    int query = first_query + warp() % 4 * 16 + lane_row(), keys = visible_keys(a, first_query);
    int open = keys / K;  // tiles 0 ... open - 1 need no mask
#pragma unroll
    for (int i = 0; i < D / 2; i++) o_reg[i] = 0.0f;
    c->uses.kv = uniform(c->uses.kv), c->uses.q = uniform(c->uses.q);
    m_reg[0] = m_reg[1] = LOWEST;
    l_reg[0] = l_reg[1] = 0.0f;
    if (tiles == 0 && !O_IN_Q<D, STEP>) return;
    trace_mark(trace, WAIT_Q);
    int use = c->uses.q++;
    uint32_t q_empty = shared_address(&state->q_empty[q_place<D>(use, c->group)]);
    mbarrier_wait(shared_address(&state->q_full[q_place<D>(use, c->group)]),
                  q_parity<D>(use));  // Q is there, or its place free
    if (tiles == 0) return;
    if (a->scale < 0.0f) {
        negate(q_smem + use % Q_DEPTH<D> * GROUPS<D> * Q_BYTES<D>, Q_BYTES<D>, threadIdx.x % GROUP, GROUP);
        fence_proxy_async();      // wgmma is to see what ordinary stores wrote
        sync_group<D>(c->group);  // all of the group's Q is negated
    }
#pragma unroll 1
    for (int tile = tiles - 1; tile >= seen; tile--) {  // tiles that only other groups see
        int n = c->uses.kv++;
        trace_mark(trace, WAIT_K);
        mbarrier_wait(full(&state->k, n), parity<D>(n));  // one use cannot be left before it has begun, ...
        mbarrier_wait(full(&state->v, n), parity<D>(n));
        sync_group<D>(c->group);  // ... nor before all have waited for it
        leave(empty(&state->k, n));
        leave(empty(&state->v, n));
        if (STEP == PINGPONG) {
            begin_turn<D>(c->group);
            end_turn<D>(c->group, tile == 0);
        }
    }
    if (seen == 0 || STEP == SPECIALIZED) {
        if (STEP == SPECIALIZED)
            compute_in_order<T, D>(a, query, seen, open, factor, c, m_reg, l_reg, o_reg, trace);
        if (!O_IN_Q<D, STEP>) leave(q_empty);
        return;
    }
    float s_reg[K / 2];
    uint32_t p_reg[K / 16][4];
    int tile = seen - 1, n = c->uses.kv;
    trace_mark(trace, WAIT_K);
    mbarrier_wait(full(&state->k, n), parity<D>(n));  // K is there; nothing to overlap with yet
    if (STEP == PINGPONG) begin_turn<D>(c->group);
    trace_mark(trace, WAIT_S);
    wgmma_fence();
    issue_q_k<T, D>(this_q<D>(c), stage_of<D>(c->k, n), s_reg);
    if (STEP == PINGPONG) end_turn<D>(c->group, tile == 0);
    wgmma_wait<0>();
    wgmma_pin(s_reg);
    trace_mark(trace, SOFTMAX);
    leave(empty(&state->k, n));
    // Under a causal mask every other warpgroup sees half of its last tile, or less.
    if (keys_of(a, first_query, ROWS) - tile * K <= K / 2) {
        first_p(a, query, tile * K, true, factor, part_of<K / 4>(s_reg, 0), m_reg, l_reg);
#pragma unroll
        for (int e = K / 4; e < K / 2; e++) s_reg[e] = 0.0f;
    } else {
        first_p(a, query, tile * K, tile >= open, factor, s_reg, m_reg, l_reg);
    }
    mbarrier_wait(full(&state->v, n), parity<D>(n));  // V is there
    pack_p<T>(s_reg, p_reg);

    // The lazy maximum begins when every row has seen a key, and no masks are left.
    int settled = STEP == LAZY_MAX && !running ? (keys - 1) / K : 0;
    for (tile--; tile >= settled; tile--)
        compute_overlapped<T, D, STEP, false>(a, query, tile, open, factor, c, s_reg, p_reg, m_reg, l_reg,
                                              o_reg, trace);
    if (STEP == LAZY_MAX)
#pragma unroll 1
        for (; tile >= 0; tile--)
            compute_overlapped<T, D, STEP, true>(a, query, tile, open, factor, c, s_reg, p_reg, m_reg, l_reg,
                                                 o_reg, trace);
    if (!O_IN_Q<D, STEP>) leave(q_empty);  // S of all tiles is computed
    n = c->uses.kv++;
    trace_mark(trace, WAIT_O);
    wgmma_fence();
    issue_p_v<T, D>(p_reg, stage_of<D>(c->v, n), o_reg);
    wgmma_wait<0>();
    wgmma_pin(o_reg);
    leave(empty(&state->v, n));
}

// persistent: O of a warp's 16 queries by way of shared memory, which TMA stores while the next tile is
// computed; it leaves out rows and columns that do not exist. o_smem: [panels][16][64] of the warp alone.
template <class T, int D>
static __device__ __forceinline__ void
send_rows(const struct maps *maps, const struct attention *a, const struct work *w, int first_query,
          bool again, const float *m_reg, const float *l_reg, const float (&o_reg)[D / 2], uint32_t o_smem) {
    float sum_reg[2], inverse_reg[2];
    unsigned broken_reg[2];
    if (lane() == 0) {
        if (again)
            bulk_wait<0>();  // the same rows, sent in vain, are written before they are written again
        else
            bulk_wait_read<0>();  // the store before has left the buffer
    }
    __syncwarp();  // it has, for all lanes
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = 0.0f;
        sum_reg[h] = quad_sum(l_reg[h]);
        inverse_reg[h] = inverse_of(sum_reg[h]);
#pragma unroll
        for (int j = 0; j < D / 8; j++) sum += o_reg[4 * j + 2 * h] + o_reg[4 * j + 2 * h + 1];
        broken_reg[h] = __ballot_sync(ALL_LANES, isnan(sum) && !isnan(sum_reg[h]) &&
                                                     first_query + 8 * h + lane_row() < a->seqlen_q);
    }
    int r = lane() % 8 + lane() / 8 % 2 * 8;  // the row and half of 16 columns whose place the lane gives
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
        const float *o = &o_reg[8 * n];
        const uint32_t packed_reg[4] = {pack2<T>(o[0] * inverse_reg[0], o[1] * inverse_reg[0]),
                                        pack2<T>(o[2] * inverse_reg[1], o[3] * inverse_reg[1]),
                                        pack2<T>(o[4] * inverse_reg[0], o[5] * inverse_reg[0]),
                                        pack2<T>(o[6] * inverse_reg[1], o[7] * inverse_reg[1])};
        stmatrix_x4(o_smem + to_the_right(chunk_at(r, lane() / 16), n, 16), packed_reg);
    }
    fence_proxy_async();  // TMA is to see what stmatrix wrote
    __syncwarp();         // all lanes have written
    if (lane() == 0 && first_query < a->seqlen_q) {
#pragma unroll
        for (int c = 0; c < D; c += PANEL)
            tma_store_4d(&maps->o, o_smem + c * 16 * 2, c, first_query, w->head, w->batch);
        bulk_commit();
    }
    // Only now, as the fence may wait until they are on their way.
#pragma unroll
    for (int h = 0; h < 2; h++) store_lse(a, w, first_query + 8 * h + lane_row(), m_reg[h], sum_reg[h]);
    if (!a->causal || !(broken_reg[0] | broken_reg[1])) return;
    if (lane() == 0) bulk_wait<0>();  // O is written before rows of it are written again
    __syncwarp();                     // it is, for all lanes
    repair_rows<T, D>(a, w, first_query, m_reg, inverse_reg, broken_reg);
}

template <class T, int D, int STEP, bool TRACE>
static __device__ __forceinline__ void consume(const struct maps *maps, const struct attention *a,
                                               float factor, char *shared_smem,
                                               struct shared_state<D> *state) {
    int group = warp() / 4 - 1;
    char *q_smem = shared_smem + group * Q_BYTES<D>;
    uint32_t smem = shared_address(shared_smem);
    struct consumer<D> c = {
        state, group, by_rows(shared_address(q_smem)), by_rows(smem + K_AT<D>), by_columns<D>(smem + V_AT<D>),
        {
            0, 0
        }
    };
    tracer<TRACE> trace = trace_begin<TRACE>(a->trace, CONSUMER + group, threadIdx.x % GROUP == 0);
    if (STEP == PINGPONG && group == GROUPS<D> - 1) bar_arrive(1, 2 * GROUP);  // group 0 begins
    for (int n = 0;; n++) {
        const struct news *news = &state->news[n % DEPTH<D>];
        trace_mark(&trace, WAIT_NEWS);
        if (STEP >= PERSISTENT) mbarrier_wait(full(&state->message, n), parity<D>(n));  // the tile is known
        int tile = uniform(lane() == 0 ? news->tile : 0);  // lane 0 reads, which says below that it has
        if (tile == THE_END) break;
        if (tile != NOTHING) {
            int first_query = uniform(news->work.first_query) + group * ROWS, tiles = uniform(news->tiles);
            unsigned again = (unsigned)uniform((int)news->again);
            bool mine = first_query >= 0 && (!again || (again >> group & 1));
            int seen = mine ? tiles_of(keys_of(a, first_query, ROWS), KEYS<D>) : 0;
            float m_reg[2], l_reg[2], o_reg[D / 2];
            compute_work<T, D, STEP>(a, first_query, tiles, seen, again != 0, factor, q_smem, &c, m_reg,
                                     l_reg, o_reg, &trace);
            trace_mark(&trace, STORE);
            // (`again` once more from the news, by lane 0: to keep it would take a register.)
            bool overflow = STEP == LAZY_MAX && !uniform(lane() == 0 ? (int)news->again : 0) &&
                            __any_sync(ALL_LANES, !(l_reg[0] < INFINITY && l_reg[1] < INFINITY));
            if (STEP == LAZY_MAX && lane() == 0)
                state->overflow[n % DEPTH<D>][threadIdx.x / WARP - 4] = overflow;
            first_query += warp() % 4 * 16;
            uint32_t o_smem =
                smem + (O_IN_Q<D, STEP> ? 0 : END_OF_V<D>)+((int)threadIdx.x / WARP - 4) * (Q_BYTES<D> / 4);
            if (STEP < PERSISTENT)
                store_rows<T, D>(a, &news->work, first_query, m_reg, l_reg, o_reg);
            else if (mine && !overflow)
                send_rows<T, D>(maps, a, &news->work, first_query, news->again != 0, m_reg, l_reg, o_reg,
                                o_smem);
            if (O_IN_Q<D, STEP> && lane() == 0) {
                bulk_wait_read<0>();  // O has left the place of Q
                mbarrier_arrive(shared_address(&state->q_empty[q_place<D>(c.uses.q - 1, group)]));
            }
        }
        if (STEP < PERSISTENT) break;
        __syncwarp();  // no lane still reads the news, or waits for them
        if (lane() == 0) mbarrier_arrive(empty(&state->message, n));
    }
    if (STEP >= PERSISTENT && lane() == 0) bulk_wait_read<0>();  // shared memory ends with the block
    trace_end(&trace);
}

// The warpgroups (bits) whose warps found an overflow.
template <int D> static __device__ unsigned overflowed(const int (&overflow)[GROUPS<D> * 4]) {
    unsigned groups = 0;
    for (int i = 0; i < GROUPS<D> * 4; i++)
        if (overflow[i]) groups |= 1u << i / 4;
    return groups;
}

// Whether one of the tiles before number n may have to be done again.
template <int D> static __device__ bool is_any_doubtful(const int (&doubtful)[DEPTH<D>], int n) {
    bool is_any = false;
    for (int i = 1; i < DEPTH<D>; i++) is_any |= doubtful[(n + i) % DEPTH<D>] != NOTHING;
    return is_any;
}

// One thread. Persistent blocks take the tiles as they come, from a counter in global memory.
template <int D, int STEP, bool TRACE>
static __device__ __forceinline__ void produce(const struct maps *maps, const struct attention *a,
                                               const struct order *order, uint32_t smem,
                                               struct shared_state<D> *state) {
    tracer<TRACE> trace = trace_begin<TRACE>(a->trace, PRODUCER, true);
    struct uses uses = {0, 0};
    int all = order->tiles * order->pairs, free = (int)blockIdx.x;
    if (STEP < PERSISTENT) load_work<D, STEP>(maps, a, &state->news[0], smem, state, &uses, &trace);
    for (int n = 0; STEP >= PERSISTENT; n++) {
        struct news *news = &state->news[n % DEPTH<D>];
        trace_mark(&trace, WAIT_NEWS);
        mbarrier_wait(empty(&state->message, n), parity<D>(n) ^ 1);  // tile n - DEPTH is done
        int *doubtful = &state->doubtful[n % DEPTH<D>];              // that one, if it is lazy
        int tile = NOTHING;
        unsigned again =
            STEP == LAZY_MAX && *doubtful != NOTHING ? overflowed<D>(state->overflow[n % DEPTH<D>]) : 0;
        if (again) {
            tile = *doubtful;
        } else if (free < all) {
            tile = free;
            free = atomicInc(order->drawn, all - 1) + gridDim.x;  // comes while the tile is loaded
        } else if (STEP != LAZY_MAX || !is_any_doubtful<D>(state->doubtful, n)) {
            tile = THE_END;
        }
        *doubtful = again ? NOTHING : tile;
        set_news<D>(a, order, tile, again, news);
        mbarrier_arrive(full(&state->message, n));
        if (tile == THE_END) break;
        if (tile != NOTHING) load_work<D, STEP>(maps, a, news, smem, state, &uses, &trace);
    }
    trace_end(&trace);
}

template <class T, int D, int STEP, bool TRACE>
__global__ void __launch_bounds__(THREADS<D>, 1)
    specialized_tiles(const __grid_constant__ struct maps maps, struct attention a, struct order order,
                      float factor) {
    extern __shared__ __align__(1024) char shared_smem[];
    __shared__ struct shared_state<D> state;
    if (threadIdx.x == 0) {
        tma_prefetch_map(&maps.k), tma_prefetch_map(&maps.q), tma_prefetch_map(&maps.v);
        make_ring(&state.k, 1, GROUPS<D>);
        make_ring(&state.v, 1, GROUPS<D>);
        make_ring(&state.message, 1, GROUPS<D> * 4);
        for (int i = 0; i < Q_DEPTH<D> * GROUPS<D>; i++) {
            mbarrier_init(shared_address(&state.q_full[i]), 1);
            mbarrier_init(shared_address(&state.q_empty[i]), O_IN_Q<D, STEP> ? 4 : 1);
        }
        fence_mbarrier_init();
        for (int i = 0; i < DEPTH<D>; i++) state.doubtful[i] = NOTHING;
        if (STEP < PERSISTENT) set_news<D>(&a, &order, blockIdx.x, 0, &state.news[0]);
    }
    __syncthreads();  // the mbarriers are there before anybody uses them
    if (warp() < 4) {
        setmaxnreg_dec<PRODUCER_REGISTERS<D>>();
        if (threadIdx.x == 0) produce<D, STEP, TRACE>(&maps, &a, &order, shared_address(shared_smem), &state);
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS<D>>();
        consume<T, D, STEP, TRACE>(&maps, &a, factor, shared_smem, &state);
    }
}

// ---- launches and the table ----

template <class T> static struct maps maps_of(const struct attention *a, int q_rows, int k_rows, int o_rows) {
    struct maps maps;
    int refused = tensor_map_make(&maps.q, "Q", &a->q, a->dtype, a->batch, a->heads, a->seqlen_q, a->head_dim,
                                  q_rows, PANEL) |
                  tensor_map_make(&maps.k, "K", &a->k, a->dtype, a->batch, a->kv_heads, a->seqlen_k,
                                  a->head_dim, k_rows, PANEL) |
                  tensor_map_make(&maps.v, "V", &a->v, a->dtype, a->batch, a->kv_heads, a->seqlen_k,
                                  a->head_dim, k_rows, PANEL) |
                  tensor_map_make(&maps.o, "O", &a->o, a->dtype, a->batch, a->heads, a->seqlen_q, a->head_dim,
                                  o_rows, PANEL);
    if (refused) exit(LAB_USAGE);  // it has said why
    return maps;
}
static struct order order_of(const struct attention *a, int queries) {
    struct order order = {(int)lab_blocks(a->seqlen_q, queries), a->batch * a->heads, 0, 1, 0, nullptr};
    return order;
}
// For each tile that a block takes it draws the next one's number, so that a launch has as many draws as
// tiles, and the last one sets the counter back to 0. So nobody has to clear it before a launch, which would
// be one more operation of the GPU, of some 2 us. In return it is memory that lives as long as the program,
// and launches that run at the same time would need one each.
static unsigned *tile_counter() {
    static unsigned *counter;
    if (!counter) {
        CUDA_CHECK(cudaMalloc(&counter, sizeof *counter));
        CUDA_CHECK(cudaMemset(counter, 0, sizeof *counter));
    }
    return counter;
}
static int multiprocessors() {
    int device, count;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
}
// Causal: of as many heads as the L2 cache holds K and V of (about 32 MB of it), the tiles with the most keys
// first. And if the queries do not fill all tiles, what is missing is missing in the first tile, where a
// warpgroup without queries stands idle for a tile of keys or two; in the last one it would for all of them.
// Without a mask all tiles are alike, and blocks at neighbouring tiles of a head share its K and V.
static void set_sections(const struct attention *a, int queries, struct order *order) {
    constexpr double L2_BYTES = 32 << 20;
    double bytes = 4.0 * a->seqlen_k * a->head_dim;  // K and V of a head
    int group = a->heads / a->kv_heads;              // heads that share them
    double heads = fmax(1.0, floor(L2_BYTES / fmax(bytes, 1.0))) * group;
    order->longest_first = a->causal;
    order->section = (int)fmin(heads, order->pairs);
    if (a->causal) order->before = (order->tiles * queries - a->seqlen_q) / ROWS * ROWS;
}

template <class T, int D> static void tma_of(struct attention a) {
    constexpr int BYTES = (TMA_QUERIES + 2 * STAGES * TMA_KEYS) * D * 2;
    CUDA_CHECK(cudaFuncSetAttribute(tma_tiles<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    struct order order = order_of(&a, TMA_QUERIES);
    tma_tiles<T, D><<<lab_blocks((int64_t)order.pairs * order.tiles, 1), TMA_THREADS, BYTES>>>(
        maps_of<T>(&a, TMA_QUERIES, TMA_KEYS, ROWS), a, order, lab16_factor(&a));
}
template <class T, int D, int STEP, bool TRACE> static void specialized_tiles_of(struct attention a) {
    constexpr int BYTES = END_OF_V<D> + (STEP >= PERSISTENT && !O_IN_Q<D, STEP> ? GROUPS<D> * Q_BYTES<D> : 0);
    CUDA_CHECK(cudaFuncSetAttribute(specialized_tiles<T, D, STEP, TRACE>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    struct order order = order_of(&a, QUERIES<D>);
    unsigned blocks = lab_blocks((int64_t)order.pairs * order.tiles, 1);
    if (STEP >= PERSISTENT) {
        set_sections(&a, QUERIES<D>, &order);
        blocks = min(blocks, (unsigned)multiprocessors());
        order.drawn = tile_counter();
    }
    specialized_tiles<T, D, STEP, TRACE><<<blocks, THREADS<D>, BYTES>>>(
        maps_of<T>(&a, ROWS, KEYS<D>, STEP >= PERSISTENT ? 16 : ROWS), a, order, lab16_factor(&a));
}
template <class T, int D> static void wgmma_of(struct attention a) {
    constexpr int BYTES = END_OF_V<D>;
    CUDA_CHECK(cudaFuncSetAttribute(wgmma_tiles<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    struct order order = order_of(&a, QUERIES<D>);
    wgmma_tiles<T, D><<<lab_blocks((int64_t)order.pairs * order.tiles, 1), GROUPS<D> * GROUP, BYTES>>>(
        maps_of<T>(&a, ROWS, KEYS<D>, ROWS), a, order, lab16_factor(&a));
}
// The kernels that have a producer.
template <int STEP, bool TRACE> struct stepped {
    template <class T, int D> static void of(struct attention a) {
        specialized_tiles_of<T, D, STEP, TRACE>(a);
    }
    static void launch(struct attention a) {
        if constexpr (TRACE)
            LAB16_LAUNCH(a, of);
        else
            LAB16_LAUNCH_WIDE(a, of);
    }
};
#ifdef LAB16_HALF_ONLY
#define TRACED(STEP) nullptr, nullptr
#else
#define TRACED(STEP) stepped<STEP, true>::launch, &phases
#endif
static void launch_tma(struct attention a) { LAB16_LAUNCH(a, tma_of); }
static void launch_wgmma(struct attention a) { LAB16_LAUNCH_WIDE(a, wgmma_of); }

constexpr unsigned TYPES = 1u << DTYPE_FP16 | 1u << DTYPE_BF16;
constexpr struct support NARROW = {TYPES, 8, 128, 0, 0, SCORE_MAX};  // O of 256 columns has no registers
constexpr struct support ANY = {TYPES, 8, 256, 0, 0, SCORE_MAX};
static const struct kernel kernels[] = {
    {"tma", "tiles fetched by the copy engine", launch_tma, nullptr, NARROW},
    {"wgmma", "products of whole warpgroups", launch_wgmma, nullptr, ANY},
    {"specialized", "a warp that loads, warpgroups that compute", stepped<SPECIALIZED, false>::launch,
     nullptr, ANY, nullptr, TRACED(SPECIALIZED)},
    {"pingpong", "softmax beside the products", stepped<PINGPONG, false>::launch, nullptr, ANY, nullptr,
     TRACED(PINGPONG)},
    {"persistent", "a block a multiprocessor, longest first", stepped<PERSISTENT, false>::launch, nullptr,
     ANY, nullptr, TRACED(PERSISTENT)},
    {"lazy_max", "a maximum that stays while it can", stepped<LAZY_MAX, false>::launch, nullptr, ANY, nullptr,
     TRACED(LAZY_MAX)},
};

static const struct lab lab07 = {
    "lab07_fa3_hopper",
    "copies, tensor cores and softmax at the same time, on Hopper",
    "lecture 25, section 5",
    90,                      // min_sm: Hopper, and by -gencode nothing else
    {1, 2, 2, 320, 64},      // batch, heads, kv_heads, seqlen, head_dim on the cpu backend: a second of work
    {4, 16, 16, 4096, 128},  // and on a GPU: work that fills it
    kernels,
    sizeof kernels / sizeof kernels[0],
    0,
};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab07); }
