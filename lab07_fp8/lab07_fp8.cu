// lab07_fp8.cu - FlashAttention-3 in fp8: both products on e4m3 tensor cores, at twice the rate of fp16.
//
// Q, K, V and O are fp16 or bf16. One kernel, `prepare`, makes e4m3 of Q, K and V, with a scale for every 128
// tokens (common/quantise.h), and another multiplies. Lecture 25, sections 5.1-5.4; FlashAttention-3 (Shah et
// al. 2024), section 3.3. The table has:
//
//     fp8           P becomes e4m3, too; the tensor cores sum 256 keys, fp32 the rest: the promotion
//     rotated       Q and K are rotated before they are rounded, so that outliers are spread over a row
//     unpromoted    rotated, but the tensor cores sum all keys: fewer instructions, less exact with more keys
//
// What fp8 asks for and fp16 does not:
//   - wgmma takes 8-bit operands only with the summed dimension contiguous. P V sums over keys, and V is
//     [key][column]: prepare writes it transposed.
//   - An accumulator of P is not laid out like an operand of 8 bits, but it is if keys change places: prepare
//     writes V's keys in the order that P's registers have (key_at).
//   - e4m3 has four significant bits, and ends at 448: scales, a P of 32 to 448, promotion.
//   - Tensor cores are through with a tile in as many cycles as the exponentials take, and as most of the
//     instructions. So these are few (the lazy maximum), and hardly one of them stands alone.
//
// A block stays on its multiprocessor and takes one tile of 128 queries after another. One thread, the
// producer, has TMA load everything into rings of stages; two warpgroups, the consumers, have 64 queries
// each. A consumer's step from P of tile n (128 keys) to that of tile n + 1; what stands between wgmma and
// wait runs beside the tensor cores:
//
//     wait for K of n + 1        wgmma  S = Q K^T of n + 1
//     O += PV                    in fp32, every second time: the promotion
//                                wgmma  PV += P V of n
//     wait for S                 K's stage is free
//     P = 2^(S - m + 5), l       in fp32, of half the keys
//     wait for V of n + 1
//     wait for PV                V's stage is free
//     P, l                       of the other half; P to e4m3
//     m                          if P has passed 448, which is rare
//
//     ./lab run lab07_fp8      or        build/cpu/lab07_fp8 --causal --inputs added-outliers

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
constexpr int WARP = 32, WARPGROUP = 4 * WARP;
constexpr int CONSUMERS = 2, READERS = 4 * CONSUMERS;  // warpgroups; warps that read a stage
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
constexpr int ROWS = 64;                               // queries of a warpgroup: the m of wgmma
constexpr int QUERIES = CONSUMERS * ROWS, KEYS = 128;  // of a tile
// Registers of a thread. All have 168 at the launch, and 3 * 168 = 24 + 2 * 240.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
constexpr unsigned Q_STAGES = 2, STAGES = 4;               // of Q; of K, and of V
constexpr int STEP_BYTES = 32, STEPS = KEYS / STEP_BYTES;  // of a row in one wgmma; of those in a tile of P
constexpr float LOG2E = 1.44269504f, LN2 = 0.693147181f;
constexpr float LEAST_FACTOR = 1.2e-38f;  // not 0, which -inf, a masked score, is multiplied by
constexpr float ZERO_V_LOG2 = -90.0f;     // instead of the scale of zeros: below others', yet l has room
constexpr float SCORE_MAX = 1 << 22;      // beyond, m is rounded by so much that P of 256 passes 448
static_assert(QUERIES == QUANTISE_BLOCK && KEYS == QUANTISE_BLOCK, "a tile has one scale");

constexpr int P_EXPONENT = 5;  // what m makes of a row's largest P, as a power of two
constexpr float P_MAX = 1 << P_EXPONENT;
constexpr float P_LIMIT = QUANTISE_MAX;  // and what the sum of eight P may grow to while m stays
constexpr unsigned AGAIN = 1u << 31;  // of a tile's number: with the running maximum, as the lazy one failed
constexpr unsigned SUMMED_TILES = 2;  // of keys, by the tensor cores, before they go into O: 1, 2, 4, ...
// Of a thread's 64 numbers of S: those whose exponentials stand before the wait for P V.
constexpr int BEFORE_WAIT = KEYS / 4;
enum step { PROMOTED, UNPROMOTED };

static __device__ int lane() { return threadIdx.x % WARP; }
static __device__ int warp() { return __shfl_sync(ALL_LANES, (int)threadIdx.x / WARP, 0); }

// ---- what prepare leaves for the other kernel, in the workspace ----

struct scratch {
    uint8_t *q, *k;  // e4m3 [batch * heads][seqlen_q][D], [batch * kv_heads][seqlen_k][D]
    uint8_t *v;      // e4m3 [batch * kv_heads][D][padded_k]: V^T, the keys in the order of key_at
    // Records of 16 bytes, which is what a bulk copy moves. q: the scale, 0, 0, 0. k: the scale of K, that of
    // V, its log2, 1 / it. (For unpromoted the last two: a V of zeros has any scale, and gets a small one, or
    // P of other blocks would be nothing beside its own.)
    float4 *q_scale, *k_scale;   // [batch * heads][q_blocks], [batch * kv_heads][k_blocks]
    unsigned *drawn;             // tiles of queries that blocks have drawn
    int64_t q_blocks, k_blocks;  // of 128 tokens, of a head
    int64_t padded_k;            // seqlen_k up to whole blocks, at least one: a tensor map has columns
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
    int64_t columns = quantise_columns(a->head_dim), record = sizeof(float4);
    char *base = (char *)a->workspace;
    s.q_blocks = quantise_blocks(a->seqlen_q), s.k_blocks = quantise_blocks(a->seqlen_k);
    s.padded_k = (s.k_blocks > 0 ? s.k_blocks : 1) * QUANTISE_BLOCK;
    s.bytes = 0;
    s.q = (uint8_t *)take(base, &s.bytes, q_heads * a->seqlen_q * columns);
    s.k = (uint8_t *)take(base, &s.bytes, k_heads * a->seqlen_k * columns);
    s.v = (uint8_t *)take(base, &s.bytes, k_heads * s.padded_k * columns);
    s.q_scale = (float4 *)take(base, &s.bytes, q_heads * s.q_blocks * record);
    s.k_scale = (float4 *)take(base, &s.bytes, k_heads * s.k_blocks * record);
    s.drawn = (unsigned *)take(base, &s.bytes, sizeof *s.drawn);
    return s;
}
static size_t scratch_bytes(const struct attention *a) { return scratch_of(a).bytes; }

// ---- prepare: fp16 or bf16 to e4m3 ----

// P's accumulators (D in common/ptx/wgmma.h): of 16 keys, the lane with c = lane % 4 has 2c, 2c + 1, 2c + 8
// and 2c + 9. As a left operand (A) it has to have numbers 4c ... 4c + 3. So V's keys change places: number n
// of a tile is key key_at(n), and P's registers are right as they are.
static __device__ unsigned key_at(unsigned n) {
    // BEGIN SOLUTION key_order: the key that number n of a tile is, so that P's accumulators are its operand.
    return n / 16 * 16 + n / 2 % 2 * 8 + n / 4 % 4 * 2 + n % 2;
    // STUB return n;
    // END SOLUTION
}
static __device__ int number_of(int key) {  // key_at the other way round
    return key / 16 * 16 + key / 2 % 4 * 4 + key / 8 % 2 * 2 + key % 2;
}

// A block of threads has 128 tokens. A thread has 8 columns, a chunk, of four tokens, a quad, which are
// neighbours in key_at. A row's chunks are in neighbouring lanes. So each number is read once, 16 bytes at a
// time, and stays in registers between the maximum and the rounding.
constexpr int QUAD = 4;
template <int D> constexpr int CHUNKS = D / 8;
template <int D> constexpr int PREPARE_THREADS = QUANTISE_BLOCK / QUAD *CHUNKS<D>;
template <int D> static __device__ int chunk() { return threadIdx.x % CHUNKS<D>; }
template <int D> static __device__ int quad() { return threadIdx.x / CHUNKS<D>; }
// Row n of the thread. (key_at moves bits of a number, so it does so in parts.)
template <int D> static __device__ int token(int n) { return key_at(QUAD * quad<D>()) + key_at(n); }

// Tokens from `count` on and columns from head_dim on are 0. first: the block's first token. All loads are on
// their way before the first is waited for: a load, a conversion, and the next load would be four waits.
template <class T, int D>
static __device__ void load_rows(const T *first, int64_t stride, int count, int head_dim,
                                 float (&x_reg)[QUAD][8]) {
    uint4 packed_reg[QUAD];
    const T *at = first + token<D>(0) * stride + chunk<D>() * 8;
    int rows = chunk<D>() * 8 < head_dim ? count - token<D>(0) : 0;
#pragma unroll
    for (int n = 0; n < QUAD; n++) {
        const uint4 *here = (const uint4 *)(at + (int)key_at(n) * stride);
        packed_reg[n] = make_uint4(0, 0, 0, 0);
        if ((int)key_at(n) < rows) packed_reg[n] = *here;
    }
#pragma unroll
    for (int n = 0; n < QUAD; n++) {
        const uint32_t words[4] = {packed_reg[n].x, packed_reg[n].y, packed_reg[n].z, packed_reg[n].w};
#pragma unroll
        for (int e = 0; e < 8; e += 2) {
            float2 pair = unpack2<T>(words[e / 2]);
            x_reg[n][e] = pair.x, x_reg[n][e + 1] = pair.y;
        }
    }
}

// quantise_rotate of common/quantise.h for a chunk: butterflies within a thread, then between lanes.
template <int D> static __device__ void rotate(float (&x_reg)[8]) {
#pragma unroll
    for (int e = 0; e < 8; e++) x_reg[e] *= quantise_sign(chunk<D>() * 8 + e);
#pragma unroll
    for (int n = 0; n < 12; n++) {
        int step = 1 << n / 4, e = n % 4 / step * 2 * step + n % 4 % step;  // numbers e without that bit
        float low = x_reg[e], high = x_reg[e + step];
        x_reg[e] = low + high, x_reg[e + step] = low - high;
    }
#pragma unroll
    for (int step = 1; step < CHUNKS<D>; step *= 2)
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float other = __shfl_xor_sync(ALL_LANES, x_reg[e], step);
            x_reg[e] = chunk<D>() & step ? other - x_reg[e] : other + x_reg[e];
        }
#pragma unroll
    for (int e = 0; e < 8; e++) x_reg[e] *= quantise_rotation_factor(D);  // last, as there: ties round alike
}

// The largest |x| of the block's 128 tokens. fmaxf passes over a NaN: other rows need a scale all the same.
template <int D> static __device__ float block_max(const float (&x_reg)[QUAD][8], float *max_smem) {
    float top = 0.0f;
#pragma unroll
    for (int n = 0; n < QUAD * 8; n++) top = fmaxf(top, fabsf(x_reg[n / 8][n % 8]));
    for (int offset = 1; offset < WARP; offset *= 2)
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, offset));
    if (lane() == 0) max_smem[threadIdx.x / WARP] = top;
    __syncthreads();  // the maxima of all warps are there
#pragma unroll
    for (int w = 0; w < PREPARE_THREADS<D> / WARP; w++) top = fmaxf(top, max_smem[w]);
    return top;
}

// What a block of threads has: 128 tokens of Q, K or V, in this order of blockIdx.x.
enum which { IS_Q, IS_K, IS_V };
struct part {
    enum which which;
    struct tensor tensor;
    unsigned block, head;  // of 128 tokens, of all heads; of all batches
    int heads, seqlen, first;
};
static __device__ struct part find_part(const struct attention *a, const struct scratch *s) {
    unsigned block = blockIdx.x, of_q = (unsigned)(a->batch * a->heads) * (unsigned)s->q_blocks;
    unsigned of_k = (unsigned)(a->batch * a->kv_heads) * (unsigned)s->k_blocks;
    struct part p;
    p.which = block < of_q ? IS_Q : block < of_q + of_k ? IS_K : IS_V;
    p.block = block - (p.which == IS_Q ? 0 : p.which == IS_K ? of_q : of_q + of_k);
    p.tensor = p.which == IS_Q ? a->q : p.which == IS_K ? a->k : a->v;
    p.heads = p.which == IS_Q ? a->heads : a->kv_heads;
    p.seqlen = p.which == IS_Q ? a->seqlen_q : a->seqlen_k;
    unsigned blocks = (unsigned)(p.which == IS_Q ? s->q_blocks : s->k_blocks);
    p.head = p.block / blocks;
    p.first = (int)(p.block - p.head * blocks) * QUANTISE_BLOCK;
    return p;
}

static __device__ void store_scale(const struct scratch *s, const struct part *p, float amax) {
    float scale = quantise_scale(amax);
    float4 *record = (p->which == IS_Q ? s->q_scale : s->k_scale) + p->block;
    if (p->which == IS_Q) *record = make_float4(scale, 0.0f, 0.0f, 0.0f);
    if (p->which == IS_K) record->x = scale;
    if (p->which == IS_V) {
        float log2_scale = amax < QUANTISE_SMALLEST ? ZERO_V_LOG2 : log2f(scale);
        record->y = scale, record->z = log2_scale, record->w = ex2(-log2_scale);
    }
}

template <class T, int D, bool ROTATES>
__global__ void __launch_bounds__(PREPARE_THREADS<D>, 1024 / PREPARE_THREADS<D>)
    prepare(struct attention a, struct scratch s) {
    __shared__ uint32_t v_smem[D][QUANTISE_BLOCK / QUAD];  // V^T, four keys a word
    __shared__ float max_smem[PREPARE_THREADS<D> / WARP];
    if (blockIdx.x == 0 && threadIdx.x == 0) *s.drawn = 0;
    struct part p = find_part(&a, &s);
    float x_reg[QUAD][8], amax;
    load_rows<T, D>(row<T>(p.tensor, p.head / p.heads, p.head % p.heads, p.first), p.tensor.stride_row,
                    p.seqlen - p.first, a.head_dim, x_reg);
#pragma unroll
    for (int n = 0; n < QUAD; n++)
        if (ROTATES && p.which != IS_V) rotate<D>(x_reg[n]);
    while ((amax = block_max<D>(x_reg, max_smem)) == INFINITY) {  // rare. e4m3 has no infinity, but a NaN
#pragma unroll
        for (int n = 0; n < QUAD * 8; n++)
            if (isinf(x_reg[n / 8][n % 8])) x_reg[n / 8][n % 8] = NAN;
        __syncthreads();  // everybody has read the maxima
    }
    if (threadIdx.x == 0) store_scale(&s, &p, amax);
    // The other kernel multiplies scores by |scale|, so that their order is that of q . k.
    // BEGIN SOLUTION scale: by which amax becomes 448, the largest e4m3, with the sign that it needs.
    float inverse = p.which == IS_Q && a.scale < 0.0f ? -quantise_inverse(amax) : quantise_inverse(amax);
    // STUB float inverse = 1.0f;
    // END SOLUTION
#pragma unroll
    for (int n = 0; n < QUAD * 8; n++) x_reg[n / 8][n % 8] *= inverse;
    if (p.which != IS_V) {
        uint8_t *rows = (p.which == IS_Q ? s.q : s.k) + ((int64_t)p.head * p.seqlen + p.first) * D;
#pragma unroll
        for (int n = 0; n < QUAD; n++) {
            const float *x = x_reg[n];
            uint2 packed = make_uint2(pack4_e4m3(x[0], x[1], x[2], x[3]), pack4_e4m3(x[4], x[5], x[6], x[7]));
            if (p.first + token<D>(n) < p.seqlen)
                *(uint2 *)(rows + token<D>(n) * D + chunk<D>() * 8) = packed;
        }
        return;
    }
    constexpr int APART = WARP / CHUNKS<D>;  // words change places, so that those of a warp lie in 32 banks
#pragma unroll
    for (int e = 0; e < 8; e++)
        v_smem[chunk<D>() * 8 + e][quad<D>() ^ chunk<D>() * APART] =
            pack4_e4m3(x_reg[0][e], x_reg[1][e], x_reg[2][e], x_reg[3][e]);
    __syncthreads();  // V^T is whole before it is read by rows, half a warp a row
    unsigned pair = threadIdx.x % (WARP / 2) * 2;
    uint8_t *columns = s.v + (int64_t)p.head * D * s.padded_k + p.first + pair * QUAD;
#pragma unroll
    for (unsigned n = 0; n < D * WARP / 2; n += PREPARE_THREADS<D>) {
        unsigned d = (n + threadIdx.x) / (WARP / 2);
        *(uint2 *)(columns + d * s.padded_k) = *(const uint2 *)&v_smem[d][pair ^ d / 8 * APART];
    }
}

// ---- what a block's threads share ----

// K and V have a ring of stages each, so that a stage of K is free as soon as S is there; so has Q. Tile
// number n of a block, counted from its first, lies in stage n % stages, and both barriers of that stage are
// then in phase n / stages. A consumer waits for that phase of `full`, the producer for the one before it of
// `empty`: a fresh barrier lets that pass.
template <int D> struct shared {
    // As TMA writes them, with the 128-byte swizzle; 64 for Q and K of D = 64.
    uint8_t q[Q_STAGES][QUERIES][D], k[STAGES][KEYS][D], v[STAGES][D][KEYS];
    char o[READERS][16 * D * 2];                // of a warp: rows on their way to O
    float4 q_scale[Q_STAGES], k_scale[STAGES];  // records of struct scratch
    unsigned tile[Q_STAGES];                    // which tile's queries lie in q
    int overflow[Q_STAGES][READERS];            // of that tile's warps
    uint64_t q_full[Q_STAGES], q_empty[Q_STAGES];
    uint64_t k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
};

static __device__ __forceinline__ void await_full(const uint64_t *bars, unsigned stages, unsigned n) {
    mbarrier_wait(shared_address(&bars[n % stages]), n / stages % 2);
}
static __device__ __forceinline__ void await_empty(const uint64_t *bars, unsigned stages, unsigned n) {
    mbarrier_wait(shared_address(&bars[n % stages]), n / stages % 2 ^ 1);
}
// This warp is done with the stage.
static __device__ __forceinline__ void release(const uint64_t *bars, unsigned stages, unsigned n) {
    __syncwarp();  // all lanes have read
    if (elect_one()) mbarrier_arrive(shared_address(&bars[n % stages]));
}

static __device__ void make_barriers(uint64_t *full, uint64_t *empty, unsigned stages) {
    for (unsigned i = 0; i < stages; i++) {
        mbarrier_init(shared_address(&full[i]), 1);  // the producer
        mbarrier_init(shared_address(&empty[i]), READERS);
    }
}

// ---- which block does what ----

struct problem {
    struct attention a;
    struct scratch s;
    float factor;    // |scale| * log2(e)
    unsigned tiles;  // of queries, of all heads
    int abreast;     // heads that take turns: see find_work
};

// A tile of queries, and the tiles of keys that it goes through, from the last to the first. Of those before
// `settled` every query sees every key, and every query has seen a key before.
struct work {
    int head, kv_head;  // of all batches: batch * heads + head, as struct scratch counts
    int first_query, tiles, settled;
};

// What scores of a tile of queries are multiplied by, up to the scale of K. Where Q is zero every --scale is
// right: but 0 times infinity would be NaN.
static __device__ float factor_of(const struct problem *p, float q_scale) {
    constexpr float LARGEST = 0x1p100f;
    return fminf(p->factor * q_scale, LARGEST);
}

// The last queries, which see the most keys, come first. With a mask several heads take turns, so that the
// long tiles of all come first, but no more heads than have their K and V in L2.
static __device__ struct work find_work(const struct problem *p, unsigned tile) {
    const struct attention *a = &p->a;
    int q_tiles = (int)p->s.q_blocks, heads = a->batch * a->heads;
    int first_head = (int)(tile / (unsigned)(p->abreast * q_tiles)) * p->abreast;  // of those that take turns
    int turn = (int)tile - first_head * q_tiles, taking = min(p->abreast, heads - first_head);
    struct work w;
    w.head = first_head + turn % taking;
    w.kv_head = w.head / (a->heads / a->kv_heads);
    w.first_query = (q_tiles - 1 - turn / taking) * QUERIES;
    w.tiles = (visible_keys(a, min(w.first_query + QUERIES, a->seqlen_q) - 1) + KEYS - 1) / KEYS;
    w.settled = (visible_keys(a, w.first_query) - 1) / KEYS;
    return w;
}

// ---- the producer ----

template <int D>
static __device__ void load_k(const struct problem *p, const CUtensorMap *map, const struct work *w, int t,
                              unsigned n, struct shared<D> *it) {
    uint32_t full = shared_address(&it->k_full[n % STAGES]);
    await_empty(it->k_empty, STAGES, n);
    mbarrier_arrive_expect_tx(full, KEYS * D + sizeof(float4));
    tma_load_4d(shared_address(it->k[n % STAGES]), map, full, 0, t * KEYS, w->kv_head, 0);
    bulk_load(shared_address(&it->k_scale[n % STAGES]), p->s.k_scale + w->kv_head * p->s.k_blocks + t,
              sizeof(float4), full);
}
template <int D>
static __device__ void load_v(const CUtensorMap *map, const struct work *w, int t, unsigned n,
                              struct shared<D> *it) {
    uint32_t full = shared_address(&it->v_full[n % STAGES]);
    await_empty(it->v_empty, STAGES, n);
    mbarrier_arrive_expect_tx(full, KEYS * D);
    tma_load_4d(shared_address(it->v[n % STAGES]), map, full, t * KEYS, 0, w->kv_head, 0);
}

// Whether a warp found that the lazy maximum does not do for the tile of this stage. Says so once.
template <int D> static __device__ bool take_overflow(struct shared<D> *it, unsigned stage) {
    int any = 0;
    for (int i = 0; i < READERS; i++) {
        any |= it->overflow[stage][i];
        it->overflow[stage][i] = 0;
    }
    return any != 0;
}

template <int D>
static __device__ void produce(const struct problem *p, const CUtensorMap *q_map, const CUtensorMap *k_map,
                               const CUtensorMap *v_map, struct shared<D> *it) {
    unsigned fresh = blockIdx.x, n = 0;  // the first of each block, then whichever nobody has drawn
    for (unsigned turn = 0;; turn++) {
        unsigned stage = turn % Q_STAGES, other = 1 - stage, tile = fresh;
        uint32_t full = shared_address(&it->q_full[stage]);
        await_empty(it->q_empty, Q_STAGES, turn);
        if (take_overflow<D>(it, stage)) {
            tile = it->tile[stage] | AGAIN;
        } else if (fresh < p->tiles) {
            fresh = gridDim.x + atomicAdd(p->s.drawn, 1u);  // on its way during the loads
        } else {  // there is no more, unless of what consumers have just now
            await_empty(it->q_empty, Q_STAGES, turn + 1);
            if (take_overflow<D>(it, other)) tile = it->tile[other] | AGAIN;
        }
        it->tile[stage] = tile;
        if ((tile & ~AGAIN) >= p->tiles) {  // the consumers end, too
            mbarrier_arrive(full);
            return;
        }
        struct work w = find_work(p, tile & ~AGAIN);
        mbarrier_arrive_expect_tx(full, QUERIES * D + sizeof(float4));
        tma_load_4d(shared_address(it->q[stage]), q_map, full, 0, w.first_query, w.head, 0);
        bulk_load(shared_address(&it->q_scale[stage]),
                  p->s.q_scale + w.head * p->s.q_blocks + w.first_query / QUERIES, sizeof(float4), full);
        if (w.tiles > 0) load_k<D>(p, k_map, &w, w.tiles - 1, n, it);
        for (int t = w.tiles - 1; t >= 0; t--, n++) {  // in the order in which they are needed
            if (t > 0) load_k<D>(p, k_map, &w, t - 1, n + 1, it);
            load_v<D>(v_map, &w, t, n, it);
        }
    }
}

// ---- the consumers: products ----

// What a lane of a consumer has of its tile. Of S, P and O (64 rows of a warpgroup, 16 of a warp) it has x[i]
// in row lane / 4, or that + 8 if i / 2 is odd (h = 0, 1), and column 8 (i / 4) + 2 (lane % 4) + i % 2. Four
// neighbouring lanes share two whole rows.
template <int D> struct registers {
    float s[KEYS / 2];          // S, then P before it is rounded
    uint32_t p[STEPS][4];       // P
    float pv[D / 2], o[D / 2];  // P V of some tiles, and the sum of such sums
    float m[2], l[2];           // the row's maximum, as a power of two; the sum of the lane's own P
};
static __device__ int lane_row() { return lane() / 4; }
static __device__ int lane_column() { return lane() % 4 * 2; }
static __device__ __forceinline__ float quad_max(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}
static __device__ __forceinline__ float quad_sum(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// Starts S = Q K^T. Rows of D bytes, of queries and of keys.
template <int D>
static __device__ __forceinline__ void start_q_k(const uint8_t (*q_smem)[D], const uint8_t (*k_smem)[D],
                                                 struct registers<D> &reg) {
    uint64_t q = wgmma_descriptor(shared_address(q_smem), 16, 8 * D, D);
    uint64_t k = wgmma_descriptor(shared_address(k_smem), 16, 8 * D, D);
    wgmma_fence();  // ordinary code has used the registers of S
    wgmma_ss<__nv_fp8_e4m3, KEYS, 0, false, false>(reg.s, q, k);
#pragma unroll
    for (int at = STEP_BYTES; at < D; at += STEP_BYTES)
        wgmma_ss<__nv_fp8_e4m3, KEYS, 1, false, false>(reg.s, q + at / 16, k + at / 16);
    wgmma_commit();
}

// The promotion. Of a sum of e4m3 products a tensor core keeps fewer bits than fp32 has (common/ptx/wgmma.h),
// so that what is small beside the sum gets lost. It sums SUMMED_TILES tiles of keys, and this adds up.
template <int D> static __device__ __forceinline__ void promote(struct registers<D> &reg) {
    // BEGIN SOLUTION promotion: O += PV in fp32.
#pragma unroll
    for (int i = 0; i < D / 2; i++) reg.o[i] += reg.pv[i];
    // STUB (void)reg;
    // END SOLUTION
}

// Starts the product of P and V of tile t: PV += P V, or PV = P V when the old sum has gone into O. That is a
// matter of t, and not of how many tiles the block has had: O is the same, whichever it has drawn before.
template <int D, enum step STEP>
static __device__ __forceinline__ void start_p_v(const uint8_t (*v_smem)[KEYS], int t,
                                                 struct registers<D> &reg) {
    uint64_t v = wgmma_descriptor(shared_address(v_smem), 16, 8 * KEYS, KEYS);
    bool adds = STEP == UNPROMOTED || t % SUMMED_TILES != SUMMED_TILES - 1;
    if (!adds) promote(reg);
    wgmma_fence();  // P is written; ordinary code has used PV
    wgmma_rs_adding<__nv_fp8_e4m3, D, false>(reg.pv, reg.p[0], v, adds);
#pragma unroll
    for (int step = 1; step < STEPS; step++)
        wgmma_rs<__nv_fp8_e4m3, D, 1, false>(reg.pv, reg.p[step], v + step * STEP_BYTES / 16);
    wgmma_commit();
}

// ---- the consumers: softmax ----

// Scores of keys that a query does not see, or that do not exist, become -inf. until: of the lane's two
// queries, which keys they see, counted from the tile's first.
static __device__ __forceinline__ void mask(const int (&until)[2], float (&s_reg)[KEYS / 2]) {
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++)
        if (i / 4 * 8 + i % 2 >= until[i / 2 % 2] - lane_column()) s_reg[i] = -INFINITY;
}

// P = 2^(factor * S + shift - m + P_EXPONENT) takes the place of S. shift: the logarithm of V's scale. What
// is summed over tiles cannot be multiplied by a scale of each tile afterwards. So P is, for one addition in
// the exponent, and l, which is to be without that scale, is divided by it. scale: the tile's record;
// factor_q: |scale| log2(e) times the scale of Q.
struct exponent {
    float factor, shift;
};
static __device__ __forceinline__ struct exponent exponent_of(float4 scale, float factor_q) {
    struct exponent e = {fmaxf(factor_q * scale.x, LEAST_FACTOR), scale.z};
    return e;
}

// With the running maximum: m, the row's largest factor * S + shift, is brought up to date before, and keep
// is what everything so far shrinks by. fmaxf passes over a NaN. The sum l does not, and through it the NaN
// reaches O and LSE.
template <int D>
static __device__ __forceinline__ void softmax(float4 scale, float factor_q, struct registers<D> &reg,
                                               float (&keep)[2]) {
    struct exponent e = exponent_of(scale, factor_q);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = fmaxf(reg.s[2 * h], reg.s[2 * h + 1]), sum = 0.0f;
#pragma unroll
        for (int i = 2 * h + 4; i < KEYS / 2; i += 4) top = fmaxf(top, fmaxf(reg.s[i], reg.s[i + 1]));
        float m = fmaxf(reg.m[h], quad_max(top) * e.factor + e.shift);
        float base = m == -INFINITY ? 0.0f : m;  // no key yet: every P is 2^-inf
        keep[h] = ex2(reg.m[h] - base);
        reg.m[h] = m;
        float offset = e.shift - base + P_EXPONENT;
#pragma unroll
        for (int i = 2 * h; i < KEYS / 2; i += 4) {
            reg.s[i] = ex2(reg.s[i] * e.factor + offset);
            reg.s[i + 1] = ex2(reg.s[i + 1] * e.factor + offset);
            sum += reg.s[i] + reg.s[i + 1];
        }
        reg.l[h] = reg.l[h] * keep[h] + sum * scale.w;
    }
}

// With the lazy one, as in lab07_fa3_hopper: m stays as it is, and P may pass P_MAX, but not P_LIMIT, where
// e4m3 ends. What is compared is sums of eight P, which l needs anyway: an eighth of the maxima, and the
// first exponential waits for none of them. Returns whether one has passed. Numbers FROM to TO - 1 of S.
template <int D, int FROM, int TO>
static __device__ __forceinline__ bool lazy_softmax(float4 scale, float factor_q, struct registers<D> &reg) {
    struct exponent e = exponent_of(scale, factor_q);
    float top = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float offset = e.shift - reg.m[h] + P_EXPONENT, sum = 0.0f;
#pragma unroll
        for (int i = FROM + 2 * h; i < TO; i += 16) {
            float part_reg[4];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float *s = &reg.s[i + 4 * n];
                s[0] = ex2(s[0] * e.factor + offset);
                s[1] = ex2(s[1] * e.factor + offset);
                part_reg[n] = s[0] + s[1];
            }
            float part = (part_reg[0] + part_reg[1]) + (part_reg[2] + part_reg[3]);
            top = fmaxf(top, part);
            sum += part;
        }
        reg.l[h] += sum * scale.w;
    }
    return __any_sync(ALL_LANES, top > P_LIMIT);
}

// A sum has passed the limit: m becomes the maximum of all that was seen, and what was made with the old one
// is divided. (By 2^120 at most, as ex2 ends at 2^-126. A P that is infinite stays so, and so does l: see
// consume.)
template <int D> static __device__ __forceinline__ void lower_p(struct registers<D> &reg) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = P_MAX;
#pragma unroll
        for (int i = 2 * h; i < KEYS / 2; i += 4) top = fmaxf(top, fmaxf(reg.s[i], reg.s[i + 1]));
        float m = reg.m[h] + fminf(log2f(quad_max(top) * (1.0f / P_MAX)), 120.0f);
        float by = ex2(reg.m[h] - m);  // of m as it is after rounding, so that later tiles agree with it
#pragma unroll
        for (int i = 2 * h; i < KEYS / 2; i += 4) reg.s[i] *= by, reg.s[i + 1] *= by;
#pragma unroll
        for (int i = 2 * h; i < D / 2; i += 4) {
            reg.o[i] *= by, reg.o[i + 1] *= by;
            reg.pv[i] *= by, reg.pv[i + 1] *= by;
        }
        reg.l[h] *= by;
        reg.m[h] = m;
    }
}

// P as the left operand of P V: its registers in the order of key_at.
template <int D> static __device__ __forceinline__ void round_p(struct registers<D> &reg) {
#pragma unroll
    for (int i = 0; i < STEPS * 4; i++) {
        const float *s = &reg.s[i / 2 * 8 + i % 2 * 2];
        reg.p[i / 4][i % 4] = pack4_e4m3(s[0], s[1], s[4], s[5]);
    }
}

// ---- the consumers: the end of a tile: O = O / l, LSE = m + ln l ----

// Where a chunk (16 bytes, 8 numbers) of row r begins, in bytes, in a swizzled tile of rows of D numbers.
template <int D> static __device__ int chunk_at(int r, int chunk) {
    return r * D * 2 + (chunk ^ (r & 7)) * 16;
}

// One row of O again, by one warp, from the keys that its query sees alone, for the reason of recompute_row
// in lab16.h: of a key that is not seen P is 0, but 0 times a NaN in V is NaN. From the numbers that the
// tensor cores had, for which m and l hold. `inverse`: 1 / l.
//
// (No call and no lane that skips a round: with either, the compiler no longer knows that a warp's loops are
// the same for its lanes, and moves every descriptor of the main loop through registers of theirs.)
template <class T, int D>
static __device__ __forceinline__ void recompute_e4m3(const struct problem *p, const struct work *w,
                                                      int query, float m, float inverse) {
    const struct attention *a = &p->a;
    const struct scratch *s = &p->s;
    const __nv_fp8_e4m3 *q = (const __nv_fp8_e4m3 *)s->q + ((int64_t)w->head * a->seqlen_q + query) * D;
    const __nv_fp8_e4m3 *k = (const __nv_fp8_e4m3 *)s->k + (int64_t)w->kv_head * a->seqlen_k * D;
    const __nv_fp8_e4m3 *v = (const __nv_fp8_e4m3 *)s->v + w->kv_head * s->padded_k * D;
    float factor_q = factor_of(p, s->q_scale[w->head * s->q_blocks + query / QUERIES].x),
          sum_reg[D / WARP] = {};
    int end = visible_keys(a, query);
#pragma unroll 1
    for (int first = 0; first < end; first += WARP) {
        float4 scale = s->k_scale[w->kv_head * s->k_blocks + first / KEYS];
        int64_t key = min(first + lane(), end - 1);  // of the lane
        float x = 0.0f;
#pragma unroll 1
        for (int c = 0; c < D; c++) x += (float)q[c] * (float)k[key * D + c];
        x = ex2(x * fmaxf(factor_q * scale.x, LEAST_FACTOR) - m) * scale.y;
#pragma unroll 1
        for (int n = 0; n < min(WARP, end - first); n++) {
            float x_n = __shfl_sync(ALL_LANES, x, n);
            int64_t at = first / KEYS * KEYS + number_of(first % KEYS + n);
#pragma unroll
            for (int e = 0; e < D / WARP; e++)  // columns lane, lane + 32, ...
                sum_reg[e] += x_n * (float)v[(lane() + e * WARP) * s->padded_k + at];
        }
    }
    T *o = row<T>(a->o, w->head / a->heads, w->head % a->heads, query);
#pragma unroll
    for (int e = 0; e < D / WARP; e++)
        if (lane() + e * WARP < a->head_dim) o[lane() + e * WARP] = (T)(sum_reg[e] * inverse);
}

// base + log2(l). The two may be large and cancel: so most of base goes into l before the logarithm, as much
// as leaves it in range.
static __device__ __forceinline__ float log2_sum(float base, float l) {
    constexpr float LARGEST = 60.0f;
    float part = fmaxf(fminf(base, l < 1.0f ? LARGEST : 0.0f), -LARGEST);
    return base - part + log2f(l * ex2(part));
}

// o_smem: room for the warp's 16 rows of O, which go out in whole chunks. first: the first of their queries.
template <class T, int D>
static __device__ __forceinline__ void finish(const struct problem *p, const struct work *w, int first,
                                              const struct registers<D> &reg, char *o_smem) {
    const struct attention *a = &p->a;
    unsigned broken[2];  // lanes that have a NaN in O, and none in l: see recompute_e4m3
    float inverse[2], base[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float l = quad_sum(reg.l[h]);
        base[h] = reg.m[h] - P_EXPONENT;  // l is the sum of 2^(score - base)
        inverse[h] = l == 0.0f ? 0.0f : 1.0f / l;
        int r = h * 8 + lane_row();
        bool has_nan = false;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            float x = reg.o[4 * n + 2 * h] * inverse[h], y = reg.o[4 * n + 2 * h + 1] * inverse[h];
            has_nan |= isnan(x + y);
            *(uint32_t *)(o_smem + chunk_at<D>(r, n) + lane_column() * 2) = pack2<T>(x, y);
        }
        broken[h] = __ballot_sync(ALL_LANES, has_nan && !isnan(l) && first + r < a->seqlen_q);
        if (lane_column() == 0 && first + r < a->seqlen_q)
            a->lse[(int64_t)w->head * a->seqlen_q + first + r] =
                l == 0.0f ? -INFINITY : log2_sum(base[h], l) * LN2;
    }
    __syncwarp();  // the rows are whole before the warp's lanes read them in another order
    T *o = row<T>(a->o, w->head / a->heads, w->head % a->heads, first);
    for (int e = lane(); e < 16 * (D / 8); e += WARP) {
        int r = e / (D / 8), chunk = e % (D / 8);
        if (first + r < a->seqlen_q && chunk * 8 < a->head_dim)
            *(uint4 *)(o + r * a->o.stride_row + chunk * 8) =
                *(const uint4 *)(o_smem + chunk_at<D>(r, chunk));
    }
    __syncwarp();  // O is written before rows of it are once more, o_smem read before the next tile comes
    if (!a->causal) return;  // every query sees all keys
    for (int r = 0; r < 16; r++) {
        float m = __shfl_sync(ALL_LANES, r < 8 ? base[0] : base[1], r % 8 * 4);
        float by = __shfl_sync(ALL_LANES, r < 8 ? inverse[0] : inverse[1], r % 8 * 4);
        if ((r < 8 ? broken[0] : broken[1]) >> r % 8 * 4 & 15) recompute_e4m3<T, D>(p, w, first + r, m, by);
    }
}

// ---- the consumers: the loop ----

// Waits for the product of P and tile n of V, and lets V's stage go.
template <int D>
static __device__ __forceinline__ void end_p_v(struct shared<D> *it, unsigned n, struct registers<D> &reg) {
    wgmma_wait<0>();
    release(it->v_empty, STAGES, n);
    wgmma_pin(reg.pv);
    wgmma_pin(reg.p);
}

// From P of tile n to P of tile n + 1, of keys t * KEYS ...
//
// Where the branches are decides what runs beside what: ptxas moves arithmetic forward and back within a
// stretch without a branch, and wgmma_wait to its beginning. That of the promotion keeps it behind Q K^T;
// that of the wait for V keeps the wait for P V behind the first exponentials, together with the vote about
// them, which is not moved across a branch.
template <int D, enum step STEP, bool LAZY>
static __device__ __forceinline__ void next_tile(struct shared<D> *it, const uint8_t (*q_smem)[D], unsigned n,
                                                 float factor_q, const int (&until)[2], int t,
                                                 struct registers<D> &reg) {
    await_full(it->k_full, STAGES, n + 1);  // K is there; V of tile n was waited for
    start_q_k<D>(q_smem, it->k[(n + 1) % STAGES], reg);
    start_p_v<D, STEP>(it->v[n % STAGES], t + 1, reg);
    wgmma_wait<1>();
    wgmma_pin(reg.s);
    float4 scale = it->k_scale[(n + 1) % STAGES];
    release(it->k_empty, STAGES, n + 1);
    if (LAZY) {
        bool passes = lazy_softmax<D, 0, BEFORE_WAIT>(scale, factor_q, reg);
        await_full(it->v_full, STAGES, n + 1);  // V is there, for the next step
        end_p_v<D>(it, n, reg);
        passes |= lazy_softmax<D, BEFORE_WAIT, KEYS / 2>(scale, factor_q, reg);
        round_p(reg);
        if (!passes) return;
        lower_p<D>(reg);
    } else {
        const int until_here[2] = {until[0] - t * KEYS, until[1] - t * KEYS};
        mask(until_here, reg.s);
        float keep[2];
        softmax<D>(scale, factor_q, reg, keep);
        // Most tiles change no maximum of a warp's rows. (A NaN in l changes nothing.)
        bool changes =
            __any_sync(ALL_LANES, keep[0] != 1.0f || keep[1] != 1.0f || isnan(reg.l[0] + reg.l[1]));
        await_full(it->v_full, STAGES, n + 1);  // the same
        end_p_v<D>(it, n, reg);
        if (changes)
#pragma unroll
            for (int i = 0; i < D / 2; i++) reg.o[i] *= keep[i / 2 % 2], reg.pv[i] *= keep[i / 2 % 2];
    }
    round_p(reg);
}

// All tiles of keys, from the last to the first: O, m and l. n: tiles of keys so far, of all turns.
template <int D, enum step STEP>
static __device__ __forceinline__ void
go_through_keys(struct shared<D> *it, const struct work *w, unsigned turn, bool again, float factor_q,
                const int (&until)[2], unsigned *n_now, int reader, struct registers<D> &reg) {
    const uint8_t(*q_smem)[D] = &it->q[turn % Q_STAGES][reader * 16 / ROWS * ROWS];
    unsigned n = *n_now;
    int t = w->tiles - 1, settled = again ? 0 : w->settled;
    float keep[2];
    await_full(it->k_full, STAGES, n);  // K is there
    start_q_k<D>(q_smem, it->k[n % STAGES], reg);
    wgmma_wait<0>();
    wgmma_pin(reg.s);
    float4 scale = it->k_scale[n % STAGES];
    release(it->k_empty, STAGES, n);
    const int until_here[2] = {until[0] - t * KEYS, until[1] - t * KEYS};
    mask(until_here, reg.s);
    softmax<D>(scale, factor_q, reg, keep);
    round_p(reg);
    await_full(it->v_full, STAGES, n);  // V is there
#pragma unroll 1
    for (t--; t >= settled; t--, n++) next_tile<D, STEP, false>(it, q_smem, n, factor_q, until, t, reg);
#pragma unroll 1
    for (; t >= 0; t--, n++) next_tile<D, STEP, true>(it, q_smem, n, factor_q, until, t, reg);
    start_p_v<D, STEP>(it->v[n % STAGES], 0, reg);
    end_p_v<D>(it, n, reg);
    promote(reg);
    *n_now = n + 1;
}

template <class T, int D, enum step STEP>
static __device__ __forceinline__ void consume(const struct problem *p, struct shared<D> *it) {
    int reader = warp() - WARPGROUP / WARP;
    for (unsigned turn = 0, n = 0;; turn++) {
        unsigned stage = turn % Q_STAGES;
        await_full(it->q_full, Q_STAGES, turn);  // Q is there, and which tile it is
        unsigned tile =
            __shfl_sync(ALL_LANES, it->tile[stage], 0);  // the same in all lanes, for the compiler too
        bool again = tile & AGAIN;
        tile &= ~AGAIN;
        if (tile >= p->tiles) return;
        struct work w = find_work(p, tile);
        float factor_q = factor_of(p, it->q_scale[stage].x);
        int first = w.first_query + reader * 16;
        const int until[2] = {visible_keys(&p->a, first + lane_row()),
                              visible_keys(&p->a, first + lane_row() + 8)};
        struct registers<D> reg;
#pragma unroll
        for (int i = 0; i < D / 2; i++) reg.o[i] = reg.pv[i] = 0.0f;
        for (int h = 0; h < 2; h++) reg.m[h] = -INFINITY, reg.l[h] = 0.0f;
        if (w.tiles > 0) go_through_keys<D, STEP>(it, &w, turn, again, factor_q, until, &n, reader, reg);
        // An infinite l (or a NaN): a score rose by more than the lazy maximum has room for.
        bool overflow = !again && __any_sync(ALL_LANES, !(reg.l[0] < INFINITY && reg.l[1] < INFINITY));
        if (lane() == 0) it->overflow[stage][reader] = overflow;
        release(it->q_empty, Q_STAGES, turn);
        if (!overflow) finish<T, D>(p, &w, first, reg, it->o[reader]);
    }
}

template <class T, int D, enum step STEP>
__global__ void __launch_bounds__(THREADS, 1)
    attention_e4m3(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map, const __grid_constant__ struct problem p) {
    extern __shared__ __align__(1024) char shared_smem[];
    struct shared<D> *it = (struct shared<D> *)shared_smem;
    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < Q_STAGES * READERS; i++) it->overflow[i / READERS][i % READERS] = 0;
        make_barriers(it->q_full, it->q_empty, Q_STAGES);
        make_barriers(it->k_full, it->k_empty, STAGES);
        make_barriers(it->v_full, it->v_empty, STAGES);
        fence_mbarrier_init();
    }
    __syncthreads();  // the barriers are there before anybody uses them
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
    struct tensor t = {data, 0, (rows > 0 ? rows : 1) * columns, columns};
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
    double head_bytes = 2.0 * D * (double)p.s.padded_k;
    int kv_abreast = (int)fmin(kv_heads, fmax(1.0, L2_BYTES / head_bytes));
    p.abreast = a.causal ? kv_abreast * (a.heads / a.kv_heads) : 1;

    unsigned parts = lab_blocks(heads * p.s.q_blocks + 2 * kv_heads * p.s.k_blocks, 1);
    prepare<T, D, ROTATES><<<parts, (PREPARE_THREADS<D>)>>>(a, p.s);
    CUDA_CHECK(cudaGetLastError());
    CUtensorMap q_map = map_of("Q in e4m3", p.s.q, heads, a.seqlen_q, D, QUERIES, D);
    CUtensorMap k_map = map_of("K in e4m3", p.s.k, kv_heads, a.seqlen_k, D, KEYS, D);
    CUtensorMap v_map = map_of("V in e4m3", p.s.v, kv_heads, D, p.s.padded_k, D, KEYS);
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
    "lecture 25, sections 5.1-5.4",
    90,                      // min_sm: Hopper, for TMA, wgmma and setmaxnreg
    {1, 2, 2, 256, 64},      // batch, heads, kv_heads, seqlen, head_dim on the cpu backend: a second of work
    {4, 16, 16, 4096, 128},  // and on a GPU: work that fills it
    kernels,
    sizeof kernels / sizeof kernels[0],
    0,
};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab07_fp8); }
