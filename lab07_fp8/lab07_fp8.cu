// lab07_fp8.cu - FlashAttention-3 in fp8: both products on e4m3 tensor cores, at twice the rate of fp16.
//
// Q, K, V and O are fp16 or bf16. A first kernel, `prepare`, turns Q, K and V into e4m3 with a scale for
// every 128 tokens (common/quantise.h), and a second multiplies them. FlashAttention-3 (Shah et al. 2024),
// section 3.3. The kernels:
//
//     fp8           P, too, becomes e4m3; sums of 128 keys at a time in the tensor cores, promoted to fp32
//     rotated       Q and K through a random rotation before they are rounded: outliers are spread out
//     unpromoted    all keys summed in the tensor cores: faster, and on a GPU less exact the more keys there
//     are
//
// The block. Blocks stay, one on each multiprocessor, and take tile after tile of 128 queries. Warpgroup 0 is
// the producer: one thread, which has TMA load everything. The two others, the consumers, have 64 queries
// each:
//
//     producer     Q, K, V of this tile, then of the next one ...       waits for empty stages
//     consumers    S = Q K^T, softmax, O += P V; the end: O / l         wait for full stages
//
// A consumer's step, tile n of 128 keys; what stands between wgmma and wait runs beside the tensor cores:
//
//     wait K[n + 1]                wgmma  S = Q K[n + 1]^T
//     O += PV * scale of V[n - 1]                                       the promotion, in fp32
//                                  wgmma  PV = P V[n]
//     wait S, free K[n + 1]
//     maximum, P' = 2^(c S - m + 8), row sums
//     wait PV, free V[n]           P = e4m3(P')
//
// The three things that fp8 asks for and fp16 does not:
//   - wgmma takes 8-bit operands only with the summed dimension contiguous. V is [key][column], and P V sums
//     over keys: prepare writes it transposed.
//   - An accumulator of P is not laid out like the operand P, but it is if the keys are renumbered: within
//     every 16, prepare stores V's keys in the order that P's registers have (key_at below).
//   - e4m3 ends at 448 and has four bits: scales, a P of up to 256, and fp32 where sums get long.
//
//     ./lab run 07_fp8         or        build/cpu/lab07_fp8 --causal --kernel rotated --inputs outliers

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <math.h>

#include "common/attention.h"
#include "common/lab.h"
#include "common/lab16.h"
#include "common/ptx.h"
#include "common/quantise.h"
#include "common/tensor_map.h"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;
constexpr int WARPGROUP = 4 * WARP;
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
constexpr int ROWS = 64;                      // queries of a warpgroup: the m of wgmma
constexpr int QUERIES = CONSUMERS * ROWS;     // of a tile
constexpr int KEYS = 128;                     // of a tile
constexpr int PRODUCER_REGISTERS = 24;        // of a thread; of 168 at the launch, 3 * 168 = 24 + 2 * 240
constexpr int CONSUMER_REGISTERS = 240;       // see setmaxnreg
constexpr unsigned Q_STAGES = 2, STAGES = 4;  // of Q; of K, and of V
constexpr int STEP_BYTES = 32;                // of a row that one wgmma multiplies
constexpr int P_STEPS = KEYS / STEP_BYTES;    // in a tile of P
constexpr float LOG2E = 1.44269504f, LN2 = 0.693147181f;
constexpr float LEAST_FACTOR = 1.2e-38f;  // not 0, which -inf, a masked score, is multiplied by
constexpr float SCORE_MAX = 1 << 22;      // beyond, fp32 rounds 2^8 to more than e4m3 holds
static_assert(QUERIES == QUANTISE_BLOCK && KEYS == QUANTISE_BLOCK, "a tile has one scale");

enum step { PROMOTED, UNPROMOTED };

static __device__ int lane() { return threadIdx.x % WARP; }
static __device__ int warp() { return __shfl_sync(ALL_LANES, (int)threadIdx.x / WARP, 0); }

// ---- what prepare leaves for the other kernel ----

struct scratch {
    uint8_t *q;                  // e4m3 [batch * heads][seqlen_q][D]
    uint8_t *k;                  // e4m3 [batch * kv_heads][seqlen_k][D]
    uint8_t *v;                  // e4m3 [batch * kv_heads][D][padded_k]: V^T, the keys in the order of key_at
    float4 *q_scale;             // [batch * heads][q_blocks]: scale, 0, 0, 0
    float4 *k_scale;             // [batch * kv_heads][k_blocks]: scale of K, that of V, log2 and 1 / of V's
    unsigned *drawn;             // tiles of queries that blocks have drawn
    int64_t padded_k;            // seqlen_k up to whole tiles
    int64_t q_blocks, k_blocks;  // blocks of 128 tokens, of a head
    size_t bytes;
};

static void *take(char *base, size_t *offset, int64_t bytes) {
    void *here = base + *offset;
    *offset += (size_t)(bytes + 255) / 256 * 256;
    return here;
}
static struct scratch scratch_of(const struct attention *a) {
    struct scratch s;
    int64_t q_heads = (int64_t)a->batch * a->heads, k_heads = (int64_t)a->batch * a->kv_heads;
    int64_t columns = quantise_columns(a->head_dim);
    char *base = (char *)a->workspace;
    s.q_blocks = quantise_blocks(a->seqlen_q), s.k_blocks = quantise_blocks(a->seqlen_k);
    s.padded_k = s.k_blocks * QUANTISE_BLOCK;
    s.bytes = 0;
    s.drawn = (unsigned *)take(base, &s.bytes, sizeof *s.drawn);
    s.q = (uint8_t *)take(base, &s.bytes, q_heads * a->seqlen_q * columns);
    s.k = (uint8_t *)take(base, &s.bytes, k_heads * a->seqlen_k * columns);
    s.v = (uint8_t *)take(base, &s.bytes, k_heads * s.padded_k * columns);
    s.q_scale = (float4 *)take(base, &s.bytes, q_heads * s.q_blocks * (int64_t)sizeof(float4));
    s.k_scale = (float4 *)take(base, &s.bytes, k_heads * s.k_blocks * (int64_t)sizeof(float4));
    return s;
}
static size_t scratch_bytes(const struct attention *a) { return scratch_of(a).bytes; }

// ---- prepare: fp16 or bf16 to e4m3 ----

// P's accumulators (common/ptx/wgmma.h, D): of 16 keys, the lane with c = lane % 4 has 2c, 2c + 1, 2c + 8 and
// 2c + 9. As a left operand (A) it has to have numbers 4c ... 4c + 3. So V's keys change places: number n of
// a tile is key key_at(n), and it is P's registers that are right as they are.
static __device__ int key_at(int n) { return n / 16 * 16 + (n / 2 % 2) * 8 + n / 4 % 4 * 2 + n % 2; }
static __device__ int place_of_key(int key) {
    return key / 16 * 16 + key / 2 % 4 * 4 + key / 8 % 2 * 2 + key % 2;
}

// Rotates a row of which D / 8 neighbouring lanes have 8 columns each, from column 8 * chunk on:
// quantise_rotate of common/quantise.h, with shuffles for the butterflies between lanes.
template <int D> static __device__ void rotate(float (&x_reg)[8], int chunk) {
#pragma unroll
    for (int e = 0; e < 8; e++) x_reg[e] *= quantise_sign(chunk * 8 + e) * quantise_rotation_factor(D);
#pragma unroll
    for (int step = 1; step < 8; step *= 2)
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (!(e & step)) {
                float low = x_reg[e], high = x_reg[e + step];
                x_reg[e] = low + high, x_reg[e + step] = low - high;
            }
#pragma unroll
    for (int step = 1; step < D / 8; step *= 2)
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float other = __shfl_xor_sync(ALL_LANES, x_reg[e], step);
            x_reg[e] = chunk & step ? other - x_reg[e] : other + x_reg[e];
        }
}

constexpr int PREPARE_THREADS = 256;
enum which { IS_Q, IS_K, IS_V };

// A block of threads quantises a block of 128 tokens: of Q, K or V, in this order of blockIdx.x.
template <class T, int D, bool ROTATES>
__global__ void __launch_bounds__(PREPARE_THREADS) prepare(struct attention a, struct scratch s) {
    constexpr int CHUNKS = D / 8;  // of a row: 8 numbers each, 16 bytes of T
    // A thread has one or two units: a chunk of the four tokens that are neighbours in key_at.
    constexpr int UNITS = QUANTISE_BLOCK / 4 * CHUNKS / PREPARE_THREADS;
    __shared__ float amax_smem[PREPARE_THREADS / WARP];
    __shared__ uint32_t v_smem[D][QUANTISE_BLOCK / 4];  // V^T, four keys a word
    if (blockIdx.x == 0 && threadIdx.x == 0) *s.drawn = 0;

    int64_t block = blockIdx.x, of_q = (int64_t)a.batch * a.heads * s.q_blocks;
    int64_t of_k = (int64_t)a.batch * a.kv_heads * s.k_blocks;
    enum which which = block < of_q ? IS_Q : block < of_q + of_k ? IS_K : IS_V;
    block -= which == IS_Q ? 0 : which == IS_K ? of_q : of_q + of_k;
    struct tensor tensor = which == IS_Q ? a.q : which == IS_K ? a.k : a.v;
    int heads = which == IS_Q ? a.heads : a.kv_heads, seqlen = which == IS_Q ? a.seqlen_q : a.seqlen_k;
    int64_t blocks = which == IS_Q ? s.q_blocks : s.k_blocks, head = block / blocks;
    int64_t first = block % blocks * QUANTISE_BLOCK;

    float x_reg[UNITS][4][8], amax = 0.0f;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        int quad = ((int)threadIdx.x + u * PREPARE_THREADS) / CHUNKS, chunk = (int)threadIdx.x % CHUNKS;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            int64_t token = first + key_at(4 * quad + t);
            uint4 packed = make_uint4(0, 0, 0, 0);
            if (token < seqlen && chunk * 8 < a.head_dim)
                packed = *(const uint4 *)(row<T>(tensor, head / heads, head % heads, token) + chunk * 8);
            const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float2 pair = unpack2<T>(words[e]);
                x_reg[u][t][2 * e] = pair.x, x_reg[u][t][2 * e + 1] = pair.y;
            }
        }
    }
#pragma unroll
    for (int u = 0; u < UNITS; u++)
#pragma unroll
        for (int t = 0; t < 4; t++) {
            if (ROTATES && which != IS_V) rotate<D>(x_reg[u][t], (int)threadIdx.x % CHUNKS);
#pragma unroll
            for (int e = 0; e < 8; e++) amax = quantise_amax(amax, x_reg[u][t][e]);
        }
    for (int offset = 1; offset < WARP; offset *= 2)
        amax = fmaxf(amax, __shfl_xor_sync(ALL_LANES, amax, offset));
    if (lane() == 0) amax_smem[threadIdx.x / WARP] = amax;
    __syncthreads();  // all warps' maxima are there
    for (int w = 0; w < PREPARE_THREADS / WARP; w++) amax = fmaxf(amax, amax_smem[w]);
    if (threadIdx.x == 0) {
        float scale = quantise_scale(amax);
        float4 *record = (which == IS_Q ? s.q_scale : s.k_scale) + block;
        if (which == IS_Q) *record = make_float4(scale, 0.0f, 0.0f, 0.0f);
        if (which == IS_K) record->x = scale;
        if (which == IS_V) record->y = scale, record->z = log2f(scale), record->w = 1.0f / scale;
    }
    // The kernel multiplies scores by |scale|, so that the largest is the largest before it, too.
    float inverse = which == IS_Q && a.scale < 0.0f ? -quantise_inverse(amax) : quantise_inverse(amax);
    uint8_t *rows = (which == IS_Q ? s.q : s.k) + (head * seqlen + first) * D;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        int quad = ((int)threadIdx.x + u * PREPARE_THREADS) / CHUNKS, chunk = (int)threadIdx.x % CHUNKS;
#pragma unroll
        for (int t = 0; t < 4; t++)
#pragma unroll
            for (int e = 0; e < 8; e++) x_reg[u][t][e] = quantise_scaled(x_reg[u][t][e], inverse);
        if (which == IS_V) {
#pragma unroll
            for (int e = 0; e < 8; e++)  // words exchanged so that a warp's lie in 32 banks
                v_smem[chunk * 8 + e][quad ^ chunk * (WARP / CHUNKS)] =
                    pack4_e4m3(x_reg[u][0][e], x_reg[u][1][e], x_reg[u][2][e], x_reg[u][3][e]);
            continue;
        }
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const float *x = x_reg[u][t];
            int token = key_at(4 * quad + t);
            if (first + token < seqlen)
                *(uint2 *)(rows + (int64_t)token * D + chunk * 8) =
                    make_uint2(pack4_e4m3(x[0], x[1], x[2], x[3]), pack4_e4m3(x[4], x[5], x[6], x[7]));
        }
    }
    if (which != IS_V) return;
    __syncthreads();  // V^T is whole before it is read by rows
    for (int d = warp(); d < D; d += PREPARE_THREADS / WARP)
        ((uint32_t *)(s.v + (head * D + d) * s.padded_k + first))[lane()] =
            v_smem[d][lane() ^ d / 8 * (WARP / CHUNKS)];
}

// ---- what the threads of a block share ----

// K and V have a ring of stages each, so that K is free as soon as S is there; Q has one, too. Tile number n
// of a block, counted from its first, lies in stage n % stages, and both barriers of that stage are then in
// phase n / stages. A consumer waits for that phase of `full`. The producer waits for the one before it of
// `empty`: a fresh barrier lets that pass.
struct rings {
    uint64_t q_full[Q_STAGES], q_empty[Q_STAGES];
    uint64_t k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
};
template <int D> struct shared {
    uint8_t q[Q_STAGES][QUERIES][D];  // as TMA stores them: 128-byte swizzle, 64 if D = 64
    uint8_t k[STAGES][KEYS][D];
    uint8_t v[STAGES][D][KEYS];                        // 128-byte swizzle
    char o[CONSUMERS * WARPGROUP / WARP][16 * D * 2];  // of a warp: rows on their way to O
    float4 q_scale[Q_STAGES], k_scale[STAGES];         // records of struct scratch
    struct rings rings;
    unsigned tile[Q_STAGES];  // which queries lie in q
};

static __device__ __forceinline__ void await_full(const uint64_t *bars, unsigned stages, unsigned n) {
    mbarrier_wait(shared_address(&bars[n % stages]), n / stages % 2);
}
static __device__ __forceinline__ void await_empty(const uint64_t *bars, unsigned stages, unsigned n) {
    mbarrier_wait(shared_address(&bars[n % stages]), n / stages % 2 ^ 1);
}
// A warp is done with the stage, which is empty when all warps of the consumers are.
static __device__ __forceinline__ void release(const uint64_t *bars, unsigned stages, unsigned n) {
    __syncwarp();  // all lanes have read
    if (elect_one()) mbarrier_arrive(shared_address(&bars[n % stages]));
}

static __device__ void make_barriers(struct rings *r) {
    if (threadIdx.x == 0) {
        constexpr int READERS = CONSUMERS * WARPGROUP / WARP;  // warps
        for (unsigned i = 0; i < Q_STAGES; i++) {
            mbarrier_init(shared_address(&r->q_full[i]), 1);
            mbarrier_init(shared_address(&r->q_empty[i]), READERS);
        }
        for (unsigned i = 0; i < STAGES; i++) {
            mbarrier_init(shared_address(&r->k_full[i]), 1);
            mbarrier_init(shared_address(&r->v_full[i]), 1);
            mbarrier_init(shared_address(&r->k_empty[i]), READERS);
            mbarrier_init(shared_address(&r->v_empty[i]), READERS);
        }
        fence_mbarrier_init();
    }
    __syncthreads();  // the barriers are there before anybody uses them
}

// ---- which block does what ----

struct problem {
    struct attention a;
    struct scratch s;
    float factor;    // |scale| * log2(e)
    unsigned tiles;  // of queries, of all heads
    // Heads that take turns: with a mask the longest tiles of several heads come first, but of no more heads
    // than have their K and V in L2.
    int abreast;
};

// A tile of queries, and the tiles of keys that it goes through, from the last to the first: of those from
// `open` on, some query does not see some key.
struct work {
    int head, kv_head;  // of all batches: batch * heads + head, as it is numbered in struct scratch
    int first_query, tiles, open;
};
static __device__ struct work find_work(const struct problem *p, unsigned tile) {
    const struct attention *a = &p->a;
    int q_tiles = (int)p->s.q_blocks, heads = a->batch * a->heads;
    int first_head = (int)(tile / (unsigned)(p->abreast * q_tiles)) * p->abreast;  // of those that take turns
    int turn = (int)tile - first_head * q_tiles, taking = min(p->abreast, heads - first_head);
    struct work w;
    w.head = first_head + turn % taking;
    w.kv_head = w.head / (a->heads / a->kv_heads);
    w.first_query = (q_tiles - 1 - turn / taking) * QUERIES;
    int last_query = min(w.first_query + QUERIES, a->seqlen_q) - 1;
    w.tiles = (visible_keys(a, last_query) + KEYS - 1) / KEYS;
    w.open = visible_keys(a, w.first_query) / KEYS;
    return w;
}

// ---- the producer ----

template <int D>
static __device__ void produce(const struct problem *p, const CUtensorMap *q_map, const CUtensorMap *k_map,
                               const CUtensorMap *v_map, struct shared<D> *it) {
    constexpr uint32_t RECORD = sizeof(float4);
    struct rings *r = &it->rings;
    unsigned tile = blockIdx.x;  // then whichever comes next
    for (unsigned turn = 0, n = 0;; turn++) {
        unsigned stage = turn % Q_STAGES;
        uint32_t q_full = shared_address(&r->q_full[stage]);
        await_empty(r->q_empty, Q_STAGES, turn);
        it->tile[stage] = tile;
        if (tile >= p->tiles) {
            mbarrier_arrive(q_full);
            return;
        }
        unsigned next = gridDim.x + atomicAdd(p->s.drawn, 1u);  // on its way during the loads
        struct work w = find_work(p, tile);
        mbarrier_arrive_expect_tx(q_full, QUERIES * D + RECORD);
        tma_load_4d(shared_address(it->q[stage]), q_map, q_full, 0, w.first_query, w.head, 0);
        bulk_load(shared_address(&it->q_scale[stage]),
                  p->s.q_scale + w.head * p->s.q_blocks + w.first_query / QUERIES, RECORD, q_full);
        // K[0], K[1], V[0], K[2], V[1], ...: the order in which they are needed.
        for (int i = 0; i <= w.tiles; i++) {
            if (i < w.tiles) {
                int key_tile = w.tiles - 1 - i, at = (int)((n + i) % STAGES);
                await_empty(r->k_empty, STAGES, n + i);
                uint32_t full = shared_address(&r->k_full[at]);
                mbarrier_arrive_expect_tx(full, KEYS * D + RECORD);
                tma_load_4d(shared_address(it->k[at]), k_map, full, 0, key_tile * KEYS, w.kv_head, 0);
                bulk_load(shared_address(&it->k_scale[at]),
                          p->s.k_scale + w.kv_head * p->s.k_blocks + key_tile, RECORD, full);
            }
            if (i > 0) {
                int key_tile = w.tiles - i, at = (int)((n + i - 1) % STAGES);
                await_empty(r->v_empty, STAGES, n + i - 1);
                uint32_t full = shared_address(&r->v_full[at]);
                mbarrier_arrive_expect_tx(full, KEYS * D);
                tma_load_4d(shared_address(it->v[at]), v_map, full, key_tile * KEYS, 0, w.kv_head, 0);
            }
        }
        n += w.tiles;
        tile = next;
    }
}

// ---- the consumers: S = Q K^T and P V ----

// A lane of a consumer has numbers x[i] of a row of S, P or O: of row lane / 4, or that + 8 if i / 2 is odd
// (h = 0, 1), and column 8 (i / 4) + 2 (lane % 4) + i % 2. Four neighbouring lanes share two whole rows.
static __device__ int lane_row() { return lane() / 4; }
static __device__ int lane_column() { return lane() % 4 * 2; }
static __device__ __forceinline__ float quad_max(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}
static __device__ float quad_sum(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// Starts S = Q K^T for a tile of keys. q, k: descriptors of rows of D bytes.
template <int D>
static __device__ __forceinline__ void multiply_q_k(uint64_t q, uint64_t k, float (&s_reg)[KEYS / 2]) {
    wgmma_ss<__nv_fp8_e4m3, KEYS, 0, false, false>(s_reg, q, k);
#pragma unroll
    for (int step = 1; step < D / STEP_BYTES; step++)
        wgmma_ss<__nv_fp8_e4m3, KEYS, 1, false, false>(s_reg, q + step * STEP_BYTES / 16,
                                                       k + step * STEP_BYTES / 16);
    wgmma_commit();
}

// Starts P V of a tile of keys: added to pv_reg, or, if not ADDS, in its place.
template <int D, int ADDS>
static __device__ __forceinline__ void multiply_p_v(const uint32_t (&p_reg)[P_STEPS][4], uint64_t v,
                                                    float (&pv_reg)[D / 2]) {
    wgmma_rs<__nv_fp8_e4m3, D, ADDS, false>(pv_reg, p_reg[0], v);
#pragma unroll
    for (int step = 1; step < P_STEPS; step++)
        wgmma_rs<__nv_fp8_e4m3, D, 1, false>(pv_reg, p_reg[step], v + step * STEP_BYTES / 16);
    wgmma_commit();
}

// The promotion. A tensor core adds e4m3 products with fewer bits than fp32 has (common/ptx/wgmma.h), and
// what is small beside the sum so far gets lost. So it sums 128 keys only, and O is summed here.
template <int D>
static __device__ __forceinline__ void promote(const float (&pv_reg)[D / 2], const float (&weight)[2],
                                               float (&o_reg)[D / 2]) {
#pragma unroll
    for (int i = 0; i < D / 2; i++) o_reg[i] += pv_reg[i] * weight[i / 2 % 2];
}

// ---- softmax ----

// Scores of keys that a query does not see, or that do not exist, become -inf. until: of the lane's two
// queries, which keys they see, counted from the tile's first.
static __device__ __forceinline__ void mask(const int (&until)[2], float (&s_reg)[KEYS / 2]) {
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++)
        if (i / 4 * 8 + i % 2 >= until[i / 2 % 2] - lane_column()) s_reg[i] = -INFINITY;
}

// P = 2^(factor * S + shift - m + 8), and its sum of the lane's own keys into l; m, the largest factor * S +
// shift of the row so far, is first brought up to date, and keep is what everything before shrinks by.
// fmaxf passes over a NaN. The sum does not, and through it the NaN reaches O and LSE.
static __device__ __forceinline__ void softmax(float factor, float shift, float share,
                                               float (&s_reg)[KEYS / 2], float (&m_reg)[2], float (&l_reg)[2],
                                               float (&keep)[2]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = fmaxf(s_reg[2 * h], s_reg[2 * h + 1]);
#pragma unroll
        for (int i = 2 * h + 4; i < KEYS / 2; i += 4) top = fmaxf(top, fmaxf(s_reg[i], s_reg[i + 1]));
        float m = fmaxf(m_reg[h], quad_max(top) * factor + shift);
        float base = m == -INFINITY ? 0.0f : m;  // no key yet: every P is 2^-inf
        keep[h] = ex2(m_reg[h] - base);
        m_reg[h] = m;
        float offset = shift + QUANTISE_P_EXPONENT - base, sum = 0.0f;
#pragma unroll
        for (int i = 2 * h; i < KEYS / 2; i += 4) {
            s_reg[i] = ex2(s_reg[i] * factor + offset);
            s_reg[i + 1] = ex2(s_reg[i + 1] * factor + offset);
            sum += s_reg[i] + s_reg[i + 1];
        }
        l_reg[h] = l_reg[h] * keep[h] + sum * share;
    }
}

// P as the left operand of P V: registers in the order of key_at.
static __device__ __forceinline__ void pack(const float (&s_reg)[KEYS / 2], uint32_t (&p_reg)[P_STEPS][4]) {
#pragma unroll
    for (int i = 0; i < P_STEPS * 4; i++) {
        const float *s = &s_reg[i / 2 * 8 + i % 2 * 2];
        p_reg[i / 4][i % 4] = pack4_e4m3(s[0], s[1], s[4], s[5]);
    }
}

// ---- the end of a tile: O = O / l, LSE = m + ln l ----

// Where a chunk (16 bytes, 8 numbers) of row r begins, in bytes, in a swizzled tile of rows of D numbers.
template <int D> static __device__ int chunk_at(int r, int chunk) {
    return r * D * 2 + (chunk ^ (r & 7)) * 16;
}

// One row of O again, by one warp, from the keys that its query sees alone, as recompute_row of lab16.h does
// and for its reason: of a key that is not seen P is 0, but 0 times a NaN in V is NaN. From the numbers that
// the tensor cores had, for which m and l hold. `inverse`: 1 / l.
template <class T, int D>
static __device__ __forceinline__ void recompute_row_e4m3(const struct problem *p, int head, int kv_head,
                                                          int query, float m, float inverse) {
    const struct attention *a = &p->a;
    const struct scratch *s = &p->s;
    const __nv_fp8_e4m3 *q = (const __nv_fp8_e4m3 *)s->q + ((int64_t)head * a->seqlen_q + query) * D;
    const __nv_fp8_e4m3 *k = (const __nv_fp8_e4m3 *)s->k + (int64_t)kv_head * a->seqlen_k * D;
    const __nv_fp8_e4m3 *v = (const __nv_fp8_e4m3 *)s->v + kv_head * s->padded_k * D;
    float q_scale = s->q_scale[head * s->q_blocks + query / QUERIES].x;
    int end = visible_keys(a, query);
    float sum_reg[D / WARP] = {};  // of columns `lane`, lane + 32, ...
#pragma unroll 1
    for (int first = 0; first < end; first += WARP) {
        int key = min(first + lane(), end - 1);
        float x = 0.0f;
#pragma unroll 1
        for (int c = 0; c < D; c++) x += (float)q[c] * (float)k[(int64_t)key * D + c];
        float4 scale = s->k_scale[kv_head * s->k_blocks + first / KEYS];
        float factor = fmaxf(p->factor * q_scale * scale.x, LEAST_FACTOR);
        float weight = ex2(x * factor - (m == -INFINITY ? 0.0f : m)) * scale.y;
#pragma unroll 1
        for (int n = 0; n < min(WARP, end - first); n++) {
            float weight_n = __shfl_sync(ALL_LANES, weight, n);
            int64_t at = first / KEYS * KEYS + place_of_key(first % KEYS + n);
#pragma unroll
            for (int e = 0; e < D / WARP; e++)
                sum_reg[e] += weight_n * (float)v[(lane() + e * WARP) * s->padded_k + at];
        }
    }
    T *o = row<T>(a->o, head / a->heads, head % a->heads, query);
#pragma unroll
    for (int e = 0; e < D / WARP; e++)
        if (lane() + e * WARP < a->head_dim) o[lane() + e * WARP] = (T)(sum_reg[e] * inverse);
}

// o_smem: room for the warp's 16 rows of O, which go out in whole chunks. first_row: the first of them.
template <class T, int D>
static __device__ __forceinline__ void finish(const struct problem *p, const struct work *w, int first_row,
                                              const float (&m_reg)[2], const float (&l_reg)[2],
                                              const float (&o_reg)[D / 2], char *o_smem) {
    const struct attention *a = &p->a;
    unsigned broken[2];  // lanes that have a NaN in O, and none in l: see recompute_row_e4m3
    float inverse[2], top[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float l = quad_sum(l_reg[h]);
        top[h] = m_reg[h] - QUANTISE_P_EXPONENT;  // what l is relative to: P was 256 times as large
        inverse[h] = l == 0.0f ? 0.0f : 1.0f / l;
        int r = h * 8 + lane_row(), query = first_row + r;
        bool has_nan = false;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            float x = o_reg[4 * n + 2 * h] * inverse[h], y = o_reg[4 * n + 2 * h + 1] * inverse[h];
            has_nan |= isnan(x + y);
            *(uint32_t *)(o_smem + chunk_at<D>(r, n) + lane_column() * 2) = pack2<T>(x, y);
        }
        broken[h] = __ballot_sync(ALL_LANES, has_nan && !isnan(l) && query < a->seqlen_q);
        if (lane_column() == 0 && query < a->seqlen_q)
            a->lse[(int64_t)w->head * a->seqlen_q + query] =
                l == 0.0f ? -INFINITY : (top[h] + log2f(l)) * LN2;
    }
    __syncwarp();  // the rows are whole before the warp's lanes read them in another order
    T *o = row<T>(a->o, w->head / a->heads, w->head % a->heads, first_row);
    for (int e = lane(); e < 16 * (D / 8); e += WARP) {
        int r = e / (D / 8), chunk = e % (D / 8);
        if (first_row + r < a->seqlen_q && chunk * 8 < a->head_dim)
            *(uint4 *)(o + r * a->o.stride_row + chunk * 8) =
                *(const uint4 *)(o_smem + chunk_at<D>(r, chunk));
    }
    __syncwarp();  // O is written before rows of it are written again, o_smem read before the next tile
    if (!a->causal) return;  // every query sees all keys
    for (int r = 0; r < 16; r++) {
        float m = __shfl_sync(ALL_LANES, r < 8 ? top[0] : top[1], r % 8 * 4);
        float by = __shfl_sync(ALL_LANES, r < 8 ? inverse[0] : inverse[1], r % 8 * 4);
        if ((r < 8 ? broken[0] : broken[1]) >> r % 8 * 4 & 15)
            recompute_row_e4m3<T, D>(p, w->head, w->kv_head, first_row + r, m, by);
    }
}

// ---- the consumers' loop, and the kernel ----

// What a lane of a consumer has of its tile; see lane_row for the order.
template <int D> struct registers {
    float s[KEYS / 2];           // S, then P before it is rounded
    uint32_t p[P_STEPS][4];      // P
    float pv[D / 2], weight[2];  // a product P V that is not yet in O; what it is multiplied by there
    float o[D / 2];
    float m[2], l[2];  // the row's maximum, in powers of two; the sum of the lane's own P
    float v_scale;     // of the tile that P is of
    bool has_pv;
};

template <int D> static __device__ uint64_t rows_of(const uint8_t (*rows)[D]) {  // of Q or K
    return wgmma_descriptor(shared_address(rows), 16, 8 * D, D);
}

// S of tile n is there: makes P of it, and lets the stage go. factor_q: factor * scale of Q.
template <int D, enum step STEP, bool MASKS>
static __device__ __forceinline__ void softmax_of_tile(struct shared<D> *it, unsigned n, float factor_q,
                                                       const int (&until)[2], struct registers<D> &reg,
                                                       float (&keep)[2], float *v_scale) {
    float4 scale = it->k_scale[n % STAGES];
    release(it->rings.k_empty, STAGES, n);
    if (MASKS) mask(until, reg.s);
    float factor = fmaxf(factor_q * scale.x, LEAST_FACTOR);
    // What the tensor cores sum over tiles cannot be multiplied by a scale of each tile. So P is: the largest
    // P * scale of V becomes 256, and l, which is without that scale, is divided by it.
    if (STEP == UNPROMOTED)
        softmax(factor, scale.z, scale.w, reg.s, reg.m, reg.l, keep);
    else
        softmax(factor, 0.0f, 1.0f, reg.s, reg.m, reg.l, keep);
    *v_scale = scale.y;
    wgmma_pin(reg.s);  // not after what follows
}

// Starts the product of P and tile n of V, and ends it: in PV, or unpromoted in O.
template <int D, enum step STEP>
static __device__ __forceinline__ void start_p_v(struct shared<D> *it, unsigned n, struct registers<D> &reg) {
    uint64_t v = wgmma_descriptor(shared_address(it->v[n % STAGES]), 16, 1024, 128);
    wgmma_fence();  // P is written; PV or O has been used by ordinary code
    if (STEP == PROMOTED)
        multiply_p_v<D, 0>(reg.p, v, reg.pv);
    else
        multiply_p_v<D, 1>(reg.p, v, reg.o);
}
template <int D, enum step STEP>
static __device__ __forceinline__ void end_p_v(struct shared<D> *it, unsigned n, struct registers<D> &reg) {
    wgmma_wait<0>();
    wgmma_pin(STEP == PROMOTED ? reg.pv : reg.o);
    wgmma_pin(reg.s);  // the next P takes the registers of this one
    release(it->rings.v_empty, STAGES, n);
}

// From P of tile n to that of tile n + 1; O is then that of tiles before n, and PV that of tile n.
template <int D, enum step STEP, bool MASKS>
static __device__ __forceinline__ void next_tile(struct shared<D> *it, uint64_t q, unsigned n, float factor_q,
                                                 const int (&until)[2], struct registers<D> &reg) {
    await_full(it->rings.k_full, STAGES, n + 1);
    wgmma_fence();  // P' has been read from the registers of S
    multiply_q_k<D>(q, rows_of<D>(it->k[(n + 1) % STAGES]), reg.s);
    if (STEP == PROMOTED && reg.has_pv) promote<D>(reg.pv, reg.weight, reg.o);
    start_p_v<D, STEP>(it, n, reg);
    wgmma_wait<1>();
    wgmma_pin(reg.s);
    float keep[2], v_scale;
    softmax_of_tile<D, STEP, MASKS>(it, n + 1, factor_q, until, reg, keep, &v_scale);
    bool any = __any_sync(ALL_LANES, keep[0] != 1.0f || keep[1] != 1.0f || isnan(reg.l[0] + reg.l[1]));
    if (STEP == PROMOTED && any)
#pragma unroll
        for (int i = 0; i < D / 2; i++) reg.o[i] *= keep[i / 2 % 2];
    await_full(it->rings.v_full, STAGES, n + 1);
    end_p_v<D, STEP>(it, n, reg);
    if (STEP == UNPROMOTED && any)
#pragma unroll
        for (int i = 0; i < D / 2; i++) reg.o[i] *= keep[i / 2 % 2];
    pack(reg.s, reg.p);
#pragma unroll
    for (int h = 0; h < 2; h++) reg.weight[h] = reg.v_scale * keep[h];
    reg.v_scale = v_scale;
    reg.has_pv = true;
}

template <class T, int D, enum step STEP>
static __device__ __forceinline__ void consume(const struct problem *p, struct shared<D> *it) {
    int warp_of_consumers = warp() - WARPGROUP / WARP, row = warp_of_consumers * 16;
    const struct attention *a = &p->a;
    for (unsigned turn = 0, n = 0;; turn++) {  // n: tiles of keys so far, of all turns
        unsigned stage = turn % Q_STAGES;
        await_full(it->rings.q_full, Q_STAGES, turn);
        unsigned tile = __shfl_sync(ALL_LANES, it->tile[stage], 0);
        if (tile >= p->tiles) return;
        struct work w = find_work(p, tile);
        float factor_q = p->factor * it->q_scale[stage].x;
        uint64_t q = rows_of<D>(&it->q[stage][row / ROWS * ROWS]);
        int query = w.first_query + row + lane_row();
        int until[2] = {visible_keys(a, query), visible_keys(a, query + 8)}, until_here[2];

        struct registers<D> reg;
#pragma unroll
        for (int i = 0; i < D / 2; i++) reg.o[i] = 0.0f;
        reg.has_pv = false;
#pragma unroll
        for (int h = 0; h < 2; h++) reg.m[h] = -INFINITY, reg.l[h] = reg.weight[h] = 0.0f;
        if (w.tiles > 0) {
            int t = w.tiles - 1;
            float keep[2];
            await_full(it->rings.k_full, STAGES, n);
            wgmma_fence();  // S has been used by ordinary code
            multiply_q_k<D>(q, rows_of<D>(it->k[n % STAGES]), reg.s);
            wgmma_wait<0>();
            wgmma_pin(reg.s);
            for (int h = 0; h < 2; h++) until_here[h] = until[h] - t * KEYS;
            softmax_of_tile<D, STEP, true>(it, n, factor_q, until_here, reg, keep, &reg.v_scale);
            pack(reg.s, reg.p);
            await_full(it->rings.v_full, STAGES, n);
#pragma unroll 1
            for (t--; t >= w.open; t--, n++) {
                for (int h = 0; h < 2; h++) until_here[h] = until[h] - t * KEYS;
                next_tile<D, STEP, true>(it, q, n, factor_q, until_here, reg);
            }
#pragma unroll 1
            for (; t >= 0; t--, n++) next_tile<D, STEP, false>(it, q, n, factor_q, until, reg);
        }
        release(it->rings.q_empty, Q_STAGES, turn);
        if (w.tiles > 0) {
            if (STEP == PROMOTED && reg.has_pv) promote<D>(reg.pv, reg.weight, reg.o);
            start_p_v<D, STEP>(it, n, reg);
            end_p_v<D, STEP>(it, n, reg);
            n++;
            const float weight[2] = {reg.v_scale, reg.v_scale};
            if (STEP == PROMOTED) promote<D>(reg.pv, weight, reg.o);
        }
        finish<T, D>(p, &w, w.first_query + row, reg.m, reg.l, reg.o, it->o[warp_of_consumers]);
    }
}

template <class T, int D, enum step STEP>
__global__ void __launch_bounds__(THREADS, 1)
    attention_e4m3(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map, const __grid_constant__ struct problem p) {
    extern __shared__ __align__(1024) char shared_smem[];
    struct shared<D> *it = (struct shared<D> *)shared_smem;
    make_barriers(&it->rings);
    if (warp() < WARPGROUP / WARP) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce<D>(&p, &q_map, &k_map, &v_map, it);
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        consume<T, D, STEP>(&p, it);
    }
}

// ---- launches and the table ----

// The map of e4m3 rows [heads][rows][columns] in boxes of box_rows rows.
static CUtensorMap map_of(const char *name, uint8_t *data, int heads, int64_t rows, int64_t columns,
                          int box_rows, int box_columns) {
    CUtensorMap map;
    struct tensor t = {data, 0, rows * columns, columns};
    if (tensor_map_make(&map, name, &t, DTYPE_E4M3, 1, heads, (int)rows, (int)columns, box_rows, box_columns))
        exit(LAB_WRONG);
    return map;
}

constexpr double L2_BYTES = 32e6;  // of K and V that stay in an H200's L2 of 50 MB, with room for others

template <class T, int D, bool ROTATES, enum step STEP> static void attention_e4m3_of(struct attention a) {
    struct problem p;
    p.a = a;
    p.s = scratch_of(&a);
    p.factor = fabsf(a.scale) * LOG2E;
    int heads = a.batch * a.heads, kv_heads = a.batch * a.kv_heads;
    p.tiles = lab_blocks(heads * p.s.q_blocks, 1);
    double head_bytes = 2.0 * D * (double)(p.s.padded_k > 0 ? p.s.padded_k : 1);
    int kv_abreast = (int)fmin(kv_heads, fmax(1.0, L2_BYTES / head_bytes));
    p.abreast = a.causal ? kv_abreast * (a.heads / a.kv_heads) : 1;

    prepare<T, D, ROTATES>
        <<<lab_blocks(heads * p.s.q_blocks + 2 * kv_heads * p.s.k_blocks, 1), PREPARE_THREADS>>>(a, p.s);
    CUDA_CHECK(cudaGetLastError());
    CUtensorMap q_map = map_of("Q in e4m3", p.s.q, heads, a.seqlen_q, D, QUERIES, D);
    CUtensorMap k_map = map_of("K in e4m3", p.s.k, kv_heads, a.seqlen_k, D, KEYS, D);
    int64_t padded_k = a.seqlen_k > 0 ? p.s.padded_k : KEYS;  // a map has columns, even if nobody loads them
    CUtensorMap v_map = map_of("V in e4m3", p.s.v, kv_heads, D, padded_k, D, KEYS);
    int multiprocessors = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    unsigned blocks = p.tiles < (unsigned)multiprocessors ? p.tiles : (unsigned)multiprocessors;
    CUDA_CHECK(cudaFuncSetAttribute(attention_e4m3<T, D, STEP>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)sizeof(struct shared<D>)));
    attention_e4m3<T, D, STEP><<<blocks, THREADS, sizeof(struct shared<D>)>>>(q_map, k_map, v_map, p);
    CUDA_CHECK(cudaGetLastError());
}
template <class T, int D> static void fp8_of(struct attention a) {
    attention_e4m3_of<T, D, false, PROMOTED>(a);
}
template <class T, int D> static void rotated_of(struct attention a) {
    attention_e4m3_of<T, D, true, PROMOTED>(a);
}
template <class T, int D> static void unpromoted_of(struct attention a) {
    attention_e4m3_of<T, D, true, UNPROMOTED>(a);
}

static void launch_fp8(struct attention a) { LAB16_LAUNCH(a, fp8_of); }
static void launch_rotated(struct attention a) { LAB16_LAUNCH(a, rotated_of); }
static void launch_unpromoted(struct attention a) { LAB16_LAUNCH(a, unpromoted_of); }

constexpr unsigned TYPES = 1u << DTYPE_FP16 | 1u << DTYPE_BF16;
constexpr struct support E4M3 = {TYPES, 8, 128, 0, 0, SCORE_MAX, 0, QUANTISED_E4M3};
constexpr struct support E4M3_ROTATED = {TYPES, 8, 128, 0, 0, SCORE_MAX, 0, QUANTISED_E4M3_ROTATED};
static const struct kernel kernels[] = {
    {"fp8", "e4m3 with a scale for 128 tokens, sums promoted to fp32", launch_fp8, scratch_bytes, E4M3},
    {"rotated", "Q and K rotated before they are rounded", launch_rotated, scratch_bytes, E4M3_ROTATED},
    {"unpromoted", "all keys summed in the tensor cores", launch_unpromoted, scratch_bytes, E4M3_ROTATED},
};

static const struct lab lab07_fp8 = {
    "lab07_fp8",
    "FlashAttention-3 in fp8: e4m3 products at twice the rate, and what it takes to stay exact",
    "lecture 25, section 4.3; FlashAttention-3 (2024), section 3.3",
    90,                      // min_sm: Hopper, for TMA, wgmma and setmaxnreg
    {1, 2, 2, 256, 64},      // batch, heads, kv_heads, seqlen, head_dim on the cpu backend: a second of work
    {4, 16, 16, 4096, 128},  // and on a GPU: work that fills it
    kernels,
    sizeof kernels / sizeof kernels[0],
    0,
};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab07_fp8); }
