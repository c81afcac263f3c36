// lab08_flashdecoding.cu - a few queries, many keys: as fast as memory gives K and V.
//
// When text is generated, one token a step (or a few) looks back at all tokens before it. For every byte of K
// and V there is hardly any work: nothing counts but how fast they come. Two things stand in the way. A block
// for each head leaves most of the GPU idle, and query heads that share K and V would each load them again.
// So the keys are split among blocks, each of which attends to its part, and the parts are merged; and the
// rows of a tensor core's tile are all queries that share K and V, of all heads of their group. Lecture 25,
// pitfall 04 and question 8.3-1; Dao et al., "Flash-Decoding for long-context inference", 2023. The kernels:
//
//     unsplit     a block for each query head, as in lab 05
//     split       keys split among blocks, heads of a group together; a second kernel merges the parts
//     one_launch  the block that is done last merges
//     balanced    sequences of any lengths: as many blocks as multiprocessors, each with as many keys
//
// A part is O, not divided by anything, and for each row m and l as in lab 02: numbers to merge parts with,
// in any order of blocks, by the same rule by which tiles merge.
//
//     ./lab run 08    or    build/cpu/lab08_flashdecoding --seqlen-q 1 --seqlen-k 3000 --heads 8 --kv-heads 2

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/attention.h"
#include "common/growth.h"
#include "common/lab.h"
#include "common/lab16.h"
#include "common/ptx.h"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * WARP;
constexpr int STRIP = 16;  // rows of an mma
constexpr int TILE = 128;  // keys of a tile of K or V
// Two ways to share a tile among the warps. Up to 16 rows: each warp has all rows and a quarter of the keys,
// loads these itself and waits for nobody. More: each warp has 16 rows and all keys.
template <bool WIDE> constexpr int ROWS = WIDE ? WARPS *STRIP : STRIP;  // of a block
template <bool WIDE> constexpr int KEYS = WIDE ? TILE : TILE / WARPS;   // of a warp, in each tile
template <int D> constexpr int HALF_STAGE = TILE *D * 2;                // bytes of K, or of V, in a stage
template <int D> constexpr int MOST_STAGES = 384 / D;                   // together 192 KB
template <int D> constexpr int SUMS_STRIDE = D + 8;                     // of rows of fp32: no bank conflicts
constexpr int MOST_SPLITS = 128;
constexpr int MOST_ROUNDS = 1 << 16;  // of blocks that count themselves: see done_counters
constexpr int PLAN_THREADS = 256;
constexpr float LOG2E = 1.44269504f;
constexpr float LOWEST = -1e30f;  // m before any key: see lab 04, as for the next one
constexpr float SCORE_MAX = 1 << 24;
constexpr float RISE = 8.0f;  // in powers of two: see raise_maximum

enum step { UNSPLIT, SPLIT, ONE_LAUNCH, BALANCED };

// Lane 4 g + t has rows g and g + 8 of a strip (h = 0, 1), columns 8n + 2t and 8n + 2t + 1: see lab 04.
static __device__ int warp() { return __shfl_sync(ALL_LANES, (int)threadIdx.x / WARP, 0); }
static __device__ int lane() { return threadIdx.x % WARP; }
static __device__ int lane_row() { return lane() / 4; }
static __device__ int lane_column() { return lane() % 4 * 2; }

static __device__ float quad_max(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}
static __device__ float quad_sum(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// ---- how the keys are divided: said by the host, and by the plan of `balanced` ----

struct division {
    int splits;             // at most so many parts of an item
    int blocks;             // of `balanced`
    int stages;             // of the ring of tiles in shared memory
    float *sums;            // parts: O before it is divided [slots][rows of a block][D]
    float2 *statistics;     // m, in powers of two, and l [slots][rows of a block]
    int64_t *units_before;  // the plan, where sequences are packed: see make_plan [sequences + 1]
    int *first_sequence;    // [blocks]
    unsigned *done;         // parts that are done, of each item; 0 between launches
};

// An item is what K and V are read for once: a sequence, a head of K and V, and a tile of rows. Row n of a
// head of K and V is token n / group, query head n % group of its group: tokens outside, so that the rows of
// a tile see nearly the same keys. `unsplit` has a query head where the others have a group.
template <int STEP> __host__ __device__ static int group_of(const struct attention *a) {
    return STEP == UNSPLIT ? 1 : a->heads / a->kv_heads;
}
__host__ __device__ static int64_t ceil_divide(int64_t x, int64_t y) { return (x + y - 1) / y; }
// Tiles of keys, at least one: also a query without keys has an O.
__host__ __device__ static int key_tiles(int seqlen_k) {
    return (int)max(ceil_divide(seqlen_k, TILE), (int64_t)1);
}

// Sequence n. Where sequences grow, the keys that it has by now.
static __device__ struct sequence sequence_by_now(const struct attention *a, int n) {
    struct sequence s = sequence_at(a, n);
    if (a->seqused_k) s.seqlen_k = a->seqused_k[n];
    return s;
}

// What a block works on: one item, or a part of it.
struct work {
    const void *q, *k, *v;  // of the sequence and the first query head of the group, or the head of K and V
    void *o;
    float *lse;
    int seqlen_q, seqlen_k;
    int group;                            // query heads
    int token, head;                      // of the tile's first row
    int rows;                             // in the tile; 0: nothing to do
    int keys, open_keys;                  // seen by the last of them, and by the first
    int tile, end_tile;                   // tiles of keys of this part; those behind `keys` are left out
    int parts, part;                      // how many there are of the item, and which this is
    int64_t first_slot, slot, slot_step;  // where part 0 is kept; part p > 0 is in slot + p * slot_step
    int64_t round;                        // which counter counts the parts
    int64_t unit;                         // `balanced`: the first one behind this part, and its sequence
    int sequence;
};

// Token and query head (of the group) of row r of the tile.
struct row_place {
    int token, head;
};
static __device__ struct row_place row_at(const struct work *w, int r) {
    int n = w->head + r;
    struct row_place at = {w->token + n / w->group, n % w->group};
    return at;
}
// Keys that a token sees, all from key 0 on. (token < seqlen_q: no overflow.)
static __device__ int sees(const struct attention *a, const struct work *w, int token) {
    return a->causal ? max(token - w->seqlen_q + 1 + w->seqlen_k, 0) : w->seqlen_k;
}
static __device__ int64_t slot_of(const struct work *w, int part) {
    return part == 0 ? w->first_slot : w->slot + part * w->slot_step;
}

// An item's sequence, head and tile of rows.
struct place {
    int sequence, head, tile;
};

template <int STEP> __host__ __device__ static int heads_of(const struct attention *a) {
    return STEP == UNSPLIT ? a->heads : a->kv_heads;
}
template <int STEP, int R>
__host__ __device__ static int row_tiles(const struct attention *a, int64_t seqlen_q) {
    return (int)ceil_divide(seqlen_q * group_of<STEP>(a), R);
}

// Item number `item` of [sequences][tiles of rows][heads].
template <int STEP, int R> static __device__ struct place in_order(const struct attention *a, int item) {
    int heads = heads_of<STEP>(a), tiles = row_tiles<STEP, R>(a, a->seqlen_q);
    struct place at = {item / heads / tiles, item % heads, item / heads % tiles};
    return at;
}

// The same where each sequence has a number of tiles of its own; a warp looks for the sequence, 32 at a time.
// The launch, which does not know the lengths, has blocks to spare: sequence -1.
template <int STEP, int R>
static __device__ struct place in_packed_order(const struct attention *a, int item) {
    int heads = heads_of<STEP>(a), before = 0;  // items of the sequences before `first`
    for (int first = 0; first < a->sequences; first += WARP) {
        int s = first + lane();
        int items =
            s < a->sequences ? row_tiles<STEP, R>(a, a->cu_seqlens_q[s + 1] - a->cu_seqlens_q[s]) * heads : 0;
        int sum = items;  // of this lane's sequence and those before it
        for (int offset = 1; offset < WARP; offset *= 2) {
            int other = __shfl_up_sync(ALL_LANES, sum, offset);
            if (lane() >= offset) sum += other;
        }
        unsigned beyond = __ballot_sync(ALL_LANES, before + sum > item);
        if (beyond) {
            int found = __ffs((int)beyond) - 1;
            int within = item - before - __shfl_sync(ALL_LANES, sum - items, found);
            struct place at = {first + found, within % heads, within / heads};
            return at;
        }
        before += __shfl_sync(ALL_LANES, sum, WARP - 1);
    }
    struct place nowhere = {-1, 0, 0};
    return nowhere;
}

// Everything in *w that is of the item, not of the part.
template <class T, int STEP, int R>
static __device__ void set_item(const struct attention *a, struct place at, struct work *w) {
    struct sequence s = sequence_by_now(a, at.sequence);
    int batch = a->sequences > 0 ? 0 : at.sequence;
    w->group = group_of<STEP>(a);
    int first_head = at.head * w->group, kv_head = kv_head_of(a, first_head);
    w->q = row<T>(a->q, batch, first_head, s.first_query);
    w->k = row<T>(a->k, batch, kv_head, s.first_key);
    w->v = row<T>(a->v, batch, kv_head, s.first_key);
    w->o = row<T>(a->o, batch, first_head, s.first_query);
    w->lse = a->lse + ((int64_t)batch * a->heads + first_head) * a->seqlen_q + s.first_query;
    w->seqlen_q = s.seqlen_q;
    w->seqlen_k = s.seqlen_k;
    int64_t first_row = (int64_t)at.tile * R;
    w->rows = (int)min((int64_t)R, (int64_t)s.seqlen_q * w->group - first_row);
    w->token = (int)(first_row / w->group);
    w->head = (int)(first_row % w->group);
    w->open_keys = sees(a, w, w->token);
    w->keys = sees(a, w, row_at(w, w->rows - 1).token);
}

// Part number `part` of item number `item`, of equal parts: those of one item differ by a tile at most.
// Called by a whole warp; *w is in shared memory.
template <class T, int STEP, int R>
static __device__ void find_part(const struct attention *a, const struct division *how, int item, int part,
                                 struct work *w) {
    struct place at = a->sequences > 0 ? in_packed_order<STEP, R>(a, item) : in_order<STEP, R>(a, item);
    if (lane() > 0) return;
    if (at.sequence < 0) {
        w->rows = 0;
        return;
    }
    set_item<T, STEP, R>(a, at, w);
    int tiles = key_tiles(w->seqlen_k);
    w->parts = min(how->splits, tiles);
    w->part = part;
    if (part >= w->parts) w->rows = 0;
    // BEGIN SOLUTION parts: which tiles of keys this part has, of w->parts equal ones.
    w->tile = (int)((int64_t)tiles * part / w->parts);
    w->end_tile = (int)((int64_t)tiles * (part + 1) / w->parts);
    // STUB w->tile = 0;
    // STUB w->end_tile = tiles;
    // END SOLUTION
    w->first_slot = w->slot = (int64_t)item * how->splits;
    w->slot_step = 1;
    w->round = item;
}

// ---- the plan of `balanced` ----
// A unit is a tile of keys of an item. All units, [sequences][tiles of rows][heads][tiles of keys], are cut
// into how->blocks equal pieces, whatever lies on their borders: a block may have the end of one item, some
// that it has alone, and the beginning of another.

template <int STEP, int R> static __device__ int64_t units_of(const struct attention *a, struct sequence s) {
    return (int64_t)row_tiles<STEP, R>(a, s.seqlen_q) * heads_of<STEP>(a) * key_tiles(s.seqlen_k);
}
// No block without a unit: there would be a part that nobody makes.
static __device__ int blocks_with_work(int64_t units, int blocks) { return (int)min(units, (int64_t)blocks); }
static __device__ int64_t first_unit(int64_t units, int blocks, int block) { return units * block / blocks; }
static __device__ int block_of(int64_t units, int blocks, int64_t unit) {
    return (int)(((unit + 1) * blocks - 1) / units);
}

// For packed sequences: how many units lie before each, and with which sequence each block begins. It is made
// on the GPU because the lengths are there, where the step before has made them: a host that asked for them
// would have to wait for all that is enqueued, and could not be captured in a graph. One block.
template <int R>
__global__ void __launch_bounds__(PLAN_THREADS) make_plan(struct attention a, struct division how) {
    __shared__ int64_t sums_smem[PLAN_THREADS / WARP];
    int me = warp();
    int64_t before = 0;  // units of the sequences before `first`
    for (int first = 0; first < a.sequences; first += PLAN_THREADS) {
        int s = first + (int)threadIdx.x;
        int64_t units = s < a.sequences ? units_of<BALANCED, R>(&a, sequence_by_now(&a, s)) : 0;
        int64_t sum = units;
        for (int offset = 1; offset < WARP; offset *= 2) {
            int64_t other = __shfl_up_sync(ALL_LANES, sum, offset);
            if (lane() >= offset) sum += other;
        }
        if (lane() == WARP - 1) sums_smem[me] = sum;
        __syncthreads();  // the sums of all warps are there
        int64_t all = 0;
        for (int n = 0; n < PLAN_THREADS / WARP; n++) {
            if (n < me) sum += sums_smem[n];
            all += sums_smem[n];
        }
        if (s < a.sequences) how.units_before[s] = before + sum - units;
        before += all;
        __syncthreads();  // all have read the sums
    }
    if (threadIdx.x == 0) how.units_before[a.sequences] = before;
    __syncthreads();  // everybody sees all of units_before
    int blocks = blocks_with_work(before, how.blocks);
    for (int block = (int)threadIdx.x; block < blocks; block += PLAN_THREADS) {
        int64_t unit = first_unit(before, blocks, block);
        int low = 0, high = a.sequences;  // the last sequence that does not begin after it
        while (high - low > 1) {
            int middle = low + (high - low) / 2;
            if (how.units_before[middle] <= unit)
                low = middle;
            else
                high = middle;
        }
        how.first_sequence[block] = low;
    }
}

// The block's next part, from the first one on (is_first). One thread.
template <class T, int R>
static __device__ void next_part(const struct attention *a, const struct division *how, bool is_first,
                                 struct work *w) {
    int block = (int)blockIdx.x;
    bool packed = a->sequences > 0;
    int64_t each = packed ? 0 : units_of<BALANCED, R>(a, sequence_by_now(a, 0));  // units of a sequence
    int64_t units = packed ? how->units_before[a->sequences] : each * a->batch;
    int blocks = blocks_with_work(units, how->blocks);
    w->rows = 0;
    if (block >= blocks) return;
    int64_t end = first_unit(units, blocks, block + 1);
    if (is_first) w->unit = first_unit(units, blocks, block);
    if (w->unit >= end) return;
    if (is_first) w->sequence = packed ? how->first_sequence[block] : (int)(w->unit / each);
    while (w->unit >= (packed ? how->units_before[w->sequence + 1] : each * (w->sequence + 1))) w->sequence++;
    int64_t within = w->unit - (packed ? how->units_before[w->sequence] : each * w->sequence);
    int tiles = key_tiles(sequence_by_now(a, w->sequence).seqlen_k);
    int heads = heads_of<BALANCED>(a);
    int64_t item = within / tiles;
    struct place at = {w->sequence, (int)(item % heads), (int)(item / heads)};
    set_item<T, BALANCED, R>(a, at, w);
    w->tile = (int)(within % tiles);
    w->end_tile = (int)min((int64_t)tiles, w->tile + end - w->unit);
    // The blocks of this item: all but the first begin in the midst of it. So a block has two slots: one for
    // an item that it ends or goes on with, one for an item that it begins.
    int64_t item_unit = w->unit - w->tile;
    int first_block = block_of(units, blocks, item_unit);
    w->parts = block_of(units, blocks, item_unit + tiles - 1) - first_block + 1;
    w->part = block - first_block;
    w->first_slot = 2 * (int64_t)first_block + 1;
    w->slot = 2 * (int64_t)first_block;
    w->slot_step = 2;
    w->round = first_block;
    w->unit += w->end_tile - w->tile;
}

// ---- the products and the exponentials, as in lab 05, of one strip ----

// Where a chunk (16 bytes, 8 numbers) of row r begins, in bytes, in a swizzled tile of rows of D numbers.
template <int D> static __device__ int chunk_at(int r, int chunk) {
    return r * D * 2 + (chunk ^ (r & 7)) * 16;
}

// Starts copying COUNT rows of a head, row `first` and so on, to shared memory; rows from `end` on, and
// columns past head_dim, become 0. By LOADERS threads, of which this is number `me`.
template <class T, int D, int LOADERS, int COUNT>
static __device__ void load_rows(const void *head, int64_t stride_row, int first, int end, int head_dim,
                                 int me, uint32_t to) {
    constexpr int APART = LOADERS / (D / 8);  // rows between two of a thread
    int r = me / (D / 8);
    int chunk = me % (D / 8);
    bool inside = chunk * 8 < head_dim;
    const T *from = (const T *)head + (first + r) * stride_row + (inside ? chunk * 8 : 0);
    uint32_t place = to + chunk_at<D>(r, chunk);
#pragma unroll
    for (int i = 0; i < COUNT; i += APART) {
        bool there = inside && first + r + i < end;
        // (r + i) & 7 is r ^ (i & 7) where APART < 8, and r & 7 elsewhere.
        cp_async_16((place ^ i % 8 * 16) + i * D * 2, there ? from + i * stride_row : head, there ? 16 : 0);
    }
}

// Where a lane's row of the four matrices of an ldmatrix begins: by rows for V, by columns for K.
template <int D> static __device__ int place_by_rows() { return chunk_at<D>(lane() % 16, lane() / 16); }
template <int D> static __device__ int place_by_columns() {
    return chunk_at<D>(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2);
}
// The same, `steps` times 16 columns to the right.
static __device__ uint32_t to_the_right(uint32_t place, int steps) {
    return (place ^ steps % 4 * 32) + steps / 4 * 128;
}

// S = Q K^T for K keys.
template <class T, int D, int K>
static __device__ void multiply_q_k(const uint32_t (*q_reg)[4], uint32_t k_rows, float (*s_reg)[4]) {
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t k_at = k_rows + to_the_right(place_by_columns<D>(), step);
#pragma unroll
        for (int n = 0; n < K / 16; n++) {
            uint32_t k_reg[4], q[4] = {q_reg[step][0], q_reg[step][1], q_reg[step][2], q_reg[step][3]};
            ldmatrix_x4(k_reg, k_at + n * 16 * D * 2);
            const uint32_t left[2] = {k_reg[0], k_reg[1]}, right[2] = {k_reg[2], k_reg[3]};
            mma_m16n8k16<T>(s_reg[2 * n], q, left);
            mma_m16n8k16<T>(s_reg[2 * n + 1], q, right);
        }
    }
}

// O += P V for 16 keys.
template <class T, int D>
static __device__ void multiply_p_v(const uint32_t (&p_reg)[4], uint32_t v_rows, float (*o_reg)[4]) {
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
        uint32_t v_reg[4];
        ldmatrix_x4_trans(v_reg, v_rows + to_the_right(place_by_rows<D>(), n));
        const uint32_t left[2] = {v_reg[0], v_reg[1]}, right[2] = {v_reg[2], v_reg[3]};
        mma_m16n8k16<T>(o_reg[2 * n], p_reg, left);
        mma_m16n8k16<T>(o_reg[2 * n + 1], p_reg, right);
    }
}

// m, in powers of two, follows a row's largest score only when that is RISE above it in some row of the warp.
template <int D, int K>
static __device__ void raise_maximum(float factor, const float (*s_reg)[4], float *m_reg, float *l_reg,
                                     float (*o_reg)[4]) {
    float top_reg[2];  // of this lane's scores
    bool rises = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = s_reg[0][2 * h];
#pragma unroll
        for (int e = 1; e < K / 4; e++) top = fmaxf(top, s_reg[e / 2][2 * h + e % 2]);
        top_reg[h] = top * factor;
        rises |= top_reg[h] > m_reg[h] + RISE;
    }
    if (!__any_sync(ALL_LANES, rises)) return;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float m = fmaxf(m_reg[h], quad_max(top_reg[h]));
        float keep = ex2(m_reg[h] - m);
        m_reg[h] = m;
        l_reg[h] *= keep;
#pragma unroll
        for (int e = 0; e < D / 4; e++) o_reg[e / 2][2 * h + e % 2] *= keep;
    }
}

// P = 2^(factor * S - m) of 16 columns, packed as the left operand of P V, and their sum into l.
template <class T>
static __device__ void exponentials(float factor, const float (*s_reg)[4], const float *m_reg, float *l_reg,
                                    uint32_t (&packed_reg)[4]) {
    float p_reg[2][4];
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float *p = &p_reg[e / 2][2 * h + e % 2];
            *p = ex2(s_reg[e / 2][2 * h + e % 2] * factor - m_reg[h]);
            l_reg[h] += *p;
        }
#pragma unroll
    for (int e = 0; e < 4; e++)  // rows g and g + 8 of columns 2t, 2t + 1, then of 2t + 8, 2t + 9
        packed_reg[e] = pack2<T>(p_reg[e / 2][e % 2 * 2], p_reg[e / 2][e % 2 * 2 + 1]);
}

// ---- one part: O, m and l of its rows and keys ----

// Those that share a ring of stages meet: after it all see what each has waited for, and nobody still reads
// what comes next.
template <bool WIDE> static __device__ void meet() {
    if (WIDE)
        __syncthreads();
    else
        __syncwarp();
}

// Waits until all but the newest 2 * stages - 1 groups of copies are there.
template <int MOST> static __device__ void wait_for_oldest(int stages) {
    if constexpr (MOST > 1)
        if (stages < MOST) return wait_for_oldest<MOST - 1>(stages);
    cp_async_wait<2 * MOST - 1>();
}

// The warp's rows of Q, from memory to the fragments of an mma, with the sign of the scale.
template <class T, int D>
static __device__ void load_q(const struct attention *a, const struct work *w, int first_row,
                              uint32_t (*q_reg)[4]) {
    uint32_t signs = a->scale < 0.0f ? 0x80008000 : 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = first_row + h * 8 + lane_row();
        struct row_place at = row_at(w, r);
        const T *q =
            (const T *)w->q + at.token * a->q.stride_row + at.head * a->q.stride_head + lane_column();
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            q_reg[n / 2][n % 2 * 2 + h] =
                r < w->rows && n * 8 < a->head_dim ? *(const uint32_t *)(q + n * 8) ^ signs : 0;
    }
}

// Starts the copies of tile number i of the part, of K or V, if there is one.
template <class T, int D, bool WIDE>
static __device__ void load_part(const struct attention *a, const struct work *w, bool is_v, int tile,
                                 int end, uint32_t stage) {
    int first = WIDE ? 0 : warp() * KEYS<WIDE>;  // of the tile's keys
    if (tile < end) {
        const struct tensor *t = is_v ? &a->v : &a->k;
        load_rows<T, D, WIDE ? THREADS : WARP, KEYS<WIDE>>(
            is_v ? w->v : w->k, t->stride_row, tile * TILE + first, w->keys, a->head_dim,
            WIDE ? (int)threadIdx.x : lane(), stage + (is_v ? HALF_STAGE<D> : 0) + first * D * 2);
    }
    cp_async_commit();  // without a tile an empty group: the count stays right
}

// Scores of keys that a row does not see, or that do not exist, become -inf.
template <int K> static __device__ void mask(const int *until, int first_key, float (*s_reg)[4]) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int e = 0; e < K / 4; e++)
            if (first_key + e / 2 * 8 + lane_column() + e % 2 >= until[h])
                s_reg[e / 2][2 * h + e % 2] = -INFINITY;
}

// K and V come in groups of copies of their own, through a ring of stages: the place of a K is filled again
// as soon as S is there, so that a whole ring is always on its way.
template <class T, int D, bool WIDE>
static __device__ void attend(const struct attention *a, const struct work *w, int stages, float factor,
                              uint32_t ring, float *m_reg, float *l_reg, float (*o_reg)[4]) {
    constexpr int K = KEYS<WIDE>;
    int end = min(w->end_tile, (w->keys + TILE - 1) / TILE);
    for (int s = 0; s < stages; s++)
        for (int v = 0; v < 2; v++)
            load_part<T, D, WIDE>(a, w, v == 1, w->tile + s, end, ring + s * 2 * HALF_STAGE<D>);
    int first_row = WIDE ? warp() * STRIP : 0;
    uint32_t q_reg[D / 16][4];
    load_q<T, D>(a, w, first_row, q_reg);
    int until[2];
    for (int h = 0; h < 2; h++) {
        int r = first_row + h * 8 + lane_row();
        until[h] = r < w->rows ? sees(a, w, row_at(w, r).token) : w->keys;
    }
    int stage = 0;
    for (int tile = w->tile; tile < end; tile++) {
        uint32_t k_rows = ring + stage * 2 * HALF_STAGE<D> + (WIDE ? 0 : warp() * K * D * 2);
        int first_key = tile * TILE + (WIDE ? 0 : warp() * K);
        bool is_some = first_key < w->keys && first_row < w->rows;  // else the warp only loads
        float s_reg[K / 8][4] = {};
        wait_for_oldest<MOST_STAGES<D>>(stages);  // K is there
        meet<WIDE>();
        if (is_some) multiply_q_k<T, D, K>(q_reg, k_rows, s_reg);
        meet<WIDE>();  // nobody still reads K
        load_part<T, D, WIDE>(a, w, false, tile + stages, end, ring + stage * 2 * HALF_STAGE<D>);
        if (is_some) {
            if (first_key + K > w->open_keys) mask<K>(until, first_key, s_reg);
            raise_maximum<D, K>(factor, s_reg, m_reg, l_reg, o_reg);
        }
        wait_for_oldest<MOST_STAGES<D>>(stages);  // V is there
        meet<WIDE>();
        if (is_some)
#pragma unroll
            for (int n = 0; n < K / 16; n++) {
                uint32_t p_reg[4];
                exponentials<T>(factor, &s_reg[2 * n], m_reg, l_reg, p_reg);
                multiply_p_v<T, D>(p_reg, k_rows + HALF_STAGE<D> + n * 16 * D * 2, o_reg);
            }
        meet<WIDE>();  // nobody still reads V
        load_part<T, D, WIDE>(a, w, true, tile + stages, end, ring + stage * 2 * HALF_STAGE<D>);
        stage = stage + 1 < stages ? stage + 1 : 0;
    }
    cp_async_wait_all();
}

// ---- merging ----
// A lane has the pairs of columns `lane` and, at D = 128, `lane` + 32 of a row.
template <int D> constexpr int PAIRS = D / 64;

// A row of the result: O = sums / l, LSE = m + ln l; m in powers of two. By a warp.
template <class T, int D>
static __device__ void store_row(const struct attention *a, const struct work *w, int r, float m, float l,
                                 const float2 *sums) {
    struct row_place at = row_at(w, r);
    T *o = (T *)w->o + at.token * a->o.stride_row + at.head * a->o.stride_head;
    float inverse = l == 0.0f ? 0.0f : 1.0f / l;
    m *= 1.0f / LOG2E;
    bool has_nan = false;
#pragma unroll
    for (int e = 0; e < PAIRS<D>; e++) {
        float x = sums[e].x * inverse, y = sums[e].y * inverse;
        has_nan |= isnan(x + y);
        if (2 * (lane() + e * WARP) < a->head_dim) ((uint32_t *)o)[lane() + e * WARP] = pack2<T>(x, y);
    }
    if (lane() == 0) w->lse[(int64_t)at.head * a->seqlen_q + at.token] = l == 0.0f ? -INFINITY : m + logf(l);
    if (!a->causal) return;  // every query sees all keys
    if (!__any_sync(ALL_LANES, has_nan && !isnan(l))) return;
    struct span seen = {0, sees(a, w, at.token)};
    __syncwarp();  // O is written before it is written again
    recompute_row<T>((const T *)w->q + at.token * a->q.stride_row + at.head * a->q.stride_head,
                     (const T *)w->k, a->k.stride_row, (const T *)w->v, a->v.stride_row, o, a->head_dim, seen,
                     a->scale, m, inverse);
}

// Merges the parts of row r, in their order, whoever made them: the same bits each time. By a warp.
template <class T, int D, int R>
static __device__ void merge_row(const struct attention *a, const struct division *how, const struct work *w,
                                 int r) {
    // BEGIN SOLUTION merge_parts: m, l and the sums of O over the parts, each weighed by its own maximum.
    float m = LOWEST, l = 0.0f;
    for (int p = lane(); p < w->parts; p += WARP) m = fmaxf(m, how->statistics[slot_of(w, p) * R + r].x);
    for (int offset = 1; offset < WARP; offset *= 2) m = fmaxf(m, __shfl_xor_sync(ALL_LANES, m, offset));
    float2 sums[PAIRS<D>] = {};
    for (int first = 0; first < w->parts; first += WARP) {
        int p = first + lane();
        float2 part = p < w->parts ? how->statistics[slot_of(w, p) * R + r] : make_float2(LOWEST, 0.0f);
        float weight = ex2(part.x - m);  // of this lane's part
        l += weight * part.y;
        // The addresses of sums wait for nothing: many loads are on their way together.
#pragma unroll 8
        for (int n = 0; n < min(WARP, w->parts - first); n++) {
            const float2 *from = (const float2 *)(how->sums + (slot_of(w, first + n) * R + r) * D);
            float scale = __shfl_sync(ALL_LANES, weight, n);
#pragma unroll
            for (int e = 0; e < PAIRS<D>; e++) {
                float2 x = from[lane() + e * WARP];
                sums[e].x += scale * x.x;
                sums[e].y += scale * x.y;
            }
        }
    }
    for (int offset = 1; offset < WARP; offset *= 2) l += __shfl_xor_sync(ALL_LANES, l, offset);
    // STUB float m = LOWEST, l = 0.0f;
    // STUB float2 sums[PAIRS<D>] = {};
    // STUB (void)how;
    // END SOLUTION
    store_row<T, D>(a, w, r, m, l, sums);
}

// The end of a part: the warps' sums to shared memory, merged there if they are of the same rows, and from
// there to the result if this is all of the item, else to the part's slot.
template <class T, int D, bool WIDE>
static __device__ void finish(const struct attention *a, const struct division *how, const struct work *w,
                              const float *m_reg, const float *l_reg, const float (*o_reg)[4],
                              float *sums_smem, float2 (*statistics_smem)[STRIP]) {
    int me = warp();
    constexpr int R = ROWS<WIDE>, SHARES = WIDE ? 1 : WARPS;  // of a row
    __syncthreads();  // nobody still reads K and V, whose place it takes
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = h * 8 + lane_row();
        float l = quad_sum(l_reg[h]);
        if (lane_column() == 0) statistics_smem[me][r] = make_float2(m_reg[h], l);
        float *sums = sums_smem + (me * STRIP + r) * SUMS_STRIDE<D> + lane_column();
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *(float2 *)(sums + n * 8) = make_float2(o_reg[n][2 * h], o_reg[n][2 * h + 1]);
    }
    __syncthreads();  // all of it is there
    for (int r = me; r < w->rows; r += WARPS) {
        // BEGIN SOLUTION merge_warps: the same for what the block's warps, SHARES of them, have of this row.
        int first = WIDE ? r / STRIP : 0;  // of the warps that have the row
        float m = LOWEST, l = 0.0f;
        float2 sums[PAIRS<D>] = {};
#pragma unroll
        for (int n = first; n < first + SHARES; n++) m = fmaxf(m, statistics_smem[n][r % STRIP].x);
#pragma unroll
        for (int n = first; n < first + SHARES; n++) {
            float2 share = statistics_smem[n][r % STRIP];
            float weight = ex2(share.x - m);
            l += weight * share.y;
            const float2 *from = (const float2 *)(sums_smem + (n * STRIP + r % STRIP) * SUMS_STRIDE<D>);
#pragma unroll
            for (int e = 0; e < PAIRS<D>; e++) {
                float2 x = from[lane() + e * WARP];
                sums[e].x += weight * x.x;
                sums[e].y += weight * x.y;
            }
        }
        // STUB float m = LOWEST, l = 0.0f;
        // STUB float2 sums[PAIRS<D>] = {};
        // STUB (void)SHARES;
        // END SOLUTION
        if (w->parts == 1) {
            store_row<T, D>(a, w, r, m, l, sums);
            continue;
        }
        int64_t at = slot_of(w, w->part) * R + r;
#pragma unroll
        for (int e = 0; e < PAIRS<D>; e++) ((float2 *)(how->sums + at * D))[lane() + e * WARP] = sums[e];
        if (lane() == 0) how->statistics[at] = make_float2(m, l);
    }
}

// ---- the kernels ----

template <class T, int D, bool WIDE, int STEP>
__global__ void __launch_bounds__(THREADS, 1) decode(struct attention a, struct division how, float factor) {
    extern __shared__ __align__(128) char shared_smem[];  // the ring: stages of K [TILE][D], V [TILE][D]
    __shared__ float2 statistics_smem[WARPS][STRIP];
    __shared__ struct work w;
    __shared__ bool is_last;  // of the blocks of an item
    constexpr int R = ROWS<WIDE>;
    for (bool is_first = true;; is_first = false) {
        if (STEP == BALANCED) {
            if (threadIdx.x == 0) next_part<T, R>(&a, &how, is_first, &w);
        } else if (warp() == 0) {
            find_part<T, STEP, R>(&a, &how, (int)blockIdx.x / how.splits, (int)blockIdx.x % how.splits, &w);
        }
        __syncthreads();  // *w is written before anybody reads it
        if (w.rows == 0) return;
        float m_reg[2] = {LOWEST, LOWEST}, l_reg[2] = {}, o_reg[D / 8][4] = {};
        attend<T, D, WIDE>(&a, &w, how.stages, factor, shared_address(shared_smem), m_reg, l_reg, o_reg);
        finish<T, D, WIDE>(&a, &how, &w, m_reg, l_reg, o_reg, (float *)shared_smem, statistics_smem);
        if (STEP >= ONE_LAUNCH && w.parts > 1) {
            __syncthreads();  // the part is written before it is counted
            if (threadIdx.x == 0)
                is_last = count_round(how.done + w.round, w.parts - 1) == (unsigned)w.parts - 1;
            __syncthreads();  // all know, and what thread 0 has seen of others they see now
            if (is_last)
                for (int r = warp(); r < w.rows; r += WARPS) merge_row<T, D, R>(&a, &how, &w, r);
        }
        if (STEP != BALANCED) return;
        __syncthreads();  // nobody still reads *w or shared memory
    }
}

// The second kernel of `split`: a warp for each row of each item that has several parts.
template <class T, int D, bool WIDE>
__global__ void __launch_bounds__(THREADS) merge(struct attention a, struct division how) {
    constexpr int R = ROWS<WIDE>, BLOCKS = R / WARPS;  // of an item
    __shared__ struct work w;
    if (warp() == 0) find_part<T, SPLIT, R>(&a, &how, (int)blockIdx.x / BLOCKS, 0, &w);
    __syncthreads();  // *w is written before anybody reads it
    int r = (int)blockIdx.x % BLOCKS * WARPS + warp();
    if (r < w.rows && w.parts > 1) merge_row<T, D, R>(&a, &how, &w, r);
}

// ---- a token more, for --generate (common/growth.h) ----

// All heads of a token, from a table where they lie behind each other to row `at` of a packed tensor.
static __device__ void copy_token(struct tensor to, int64_t at, const void *table, int64_t token, int heads,
                                  int head_dim) {
    int pieces = head_dim / 8;  // of 16 bytes
    const uint4 *from = (const uint4 *)table + token * heads * pieces;
    for (int n = (int)threadIdx.x; n < heads * pieces; n += THREADS)
        *(uint4 *)(row<uint16_t>(to, 0, n / pieces, at) + n % pieces * 8) = from[n];
}

// A block for each sequence.
__global__ void __launch_bounds__(THREADS) append_token(struct attention a, struct tokens tokens) {
    int s = (int)blockIdx.x;
    int64_t token = (int64_t)s * tokens.steps + *tokens.step;
    int64_t at = (int64_t)a.cu_seqlens_k[s] + a.seqused_k[s] - 1;
    copy_token(a.q, s, tokens.q, token, a.heads, a.head_dim);
    copy_token(a.k, at, tokens.k, token, a.kv_heads, a.head_dim);
    copy_token(a.v, at, tokens.v, token, a.kv_heads, a.head_dim);
}

__global__ void __launch_bounds__(THREADS) advance_sequences(struct attention a, struct tokens tokens) {
    int s = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (s < a.sequences) tokens.seqused_k[s]++;
    if (s == 0) (*tokens.step)++;
}

// ---- launches and the table ----

static cudaStream_t stream_of(const struct attention *a) { return (cudaStream_t)a->stream; }

static int attribute(enum cudaDeviceAttr which, int otherwise) {
    int value = 0;
    return cudaDeviceGetAttribute(&value, which, 0) == cudaSuccess ? value : otherwise;
}

// Queries of a sequence, their mean if there are several lengths, which the host does not know.
static int64_t usual_seqlen_q(const struct attention *a) {
    return a->sequences > 0 ? ceil_divide(a->seqlen_q, a->sequences) : a->seqlen_q;
}
template <int STEP> static bool is_wide(const struct attention *a) {
    return usual_seqlen_q(a) * group_of<STEP>(a) > ROWS<false>;
}

// The most items that there can be: packed sequences may each have a last tile that is not full.
template <int STEP> static int64_t most_items(const struct attention *a) {
    int64_t rows = is_wide<STEP>(a) ? ROWS<true> : ROWS<false>, group = group_of<STEP>(a);
    int64_t tiles = a->sequences > 0 ? (a->seqlen_q * group + a->sequences * (rows - 1)) / rows
                                     : a->batch * ceil_divide(a->seqlen_q * group, rows);
    return tiles * heads_of<STEP>(a);
}

// How many parts: the smallest number that takes at most 5 % longer than the best one, if blocks come in
// waves, one a multiprocessor, and each takes as long as its tiles and one more, for what it does before and
// after. No more than fill 20 waves (then one part does as well), which bounds the workspace, and no more
// than tiles.
template <int STEP> static int choose_splits(const struct attention *a, int multiprocessors) {
    int64_t rows = is_wide<STEP>(a) ? ROWS<true> : ROWS<false>;
    int64_t sequences = a->sequences > 0 ? a->sequences : a->batch;
    int64_t items = sequences * heads_of<STEP>(a) * ceil_divide(usual_seqlen_q(a) * group_of<STEP>(a), rows);
    int tiles = key_tiles((int)ceil_divide(a->seqlen_k, max(a->sequences, 1)));
    int64_t waves = 20 * (int64_t)multiprocessors / max(most_items<STEP>(a), (int64_t)1);
    int most = (int)max(min(min((int64_t)tiles, (int64_t)MOST_SPLITS), waves), (int64_t)1);
    int64_t best = INT64_MAX;
    for (int pass = 0; pass < 2; pass++)
        for (int splits = 1; splits <= most; splits++) {
            int64_t time = ceil_divide(items * splits, multiprocessors) * (ceil_divide(tiles, splits) + 1);
            if (pass == 0) best = min(best, time);
            if (pass == 1 && 100 * time <= 105 * best) return splits;
        }
    return 1;
}

struct sizes {
    int splits;
    int64_t blocks;
    int64_t slots;  // parts that are kept
    size_t sums_bytes, statistics_bytes, plan_bytes;
};
template <int STEP> static struct sizes sizes_of(const struct attention *a) {
    struct sizes s = {1, 0, 0, 0, 0, 0};
    int64_t items = most_items<STEP>(a), rows = is_wide<STEP>(a) ? ROWS<true> : ROWS<false>;
    int multiprocessors = max(attribute(cudaDevAttrMultiProcessorCount, 1), 1);
    if (STEP == SPLIT || STEP == ONE_LAUNCH) {
        s.splits = a->splits > 0 ? a->splits : choose_splits<STEP>(a, multiprocessors);
        s.splits = min(s.splits, key_tiles(a->seqlen_k));
        if (STEP == ONE_LAUNCH && items > MOST_ROUNDS) s.splits = 1;  // enough blocks as it is
        s.slots = s.splits > 1 ? items * s.splits : 0;
    }
    s.blocks = items * s.splits;
    if (STEP == BALANCED) {
        int64_t blocks = a->splits > 0 ? items * a->splits : multiprocessors;
        s.blocks = min(min(blocks, items * key_tiles(a->seqlen_k)), (int64_t)MOST_ROUNDS);
        s.slots = 2 * s.blocks;
        if (a->sequences > 0) s.plan_bytes = (a->sequences + 1) * sizeof(int64_t) + s.blocks * sizeof(int);
    }
    s.statistics_bytes = s.slots * rows * sizeof(float2);
    s.sums_bytes = s.slots * rows * (a->head_dim <= 64 ? 64 : 128) * sizeof(float);
    return s;
}
template <int STEP> static size_t workspace_of(const struct attention *a) {
    struct sizes s = sizes_of<STEP>(a);
    return s.sums_bytes + s.statistics_bytes + s.plan_bytes;
}
template <int STEP> static int64_t blocks_of(const struct attention *a) { return sizes_of<STEP>(a).blocks; }

// The counters of parts that are done. They are 0 when a launch begins and, because the last part of a round
// sets its counter back, when it ends: nobody has to clear them, but they need memory that keeps. Two
// launches at the same time, in two streams, would need two sets.
static unsigned *done_counters() {
    static unsigned *counters;
    if (!counters) {
        CUDA_CHECK(cudaMalloc(&counters, MOST_ROUNDS * sizeof(unsigned)));
        CUDA_CHECK(cudaMemset(counters, 0, MOST_ROUNDS * sizeof(unsigned)));
    }
    return counters;
}

// What of the division has its place in the workspace.
static struct division division_of(const struct attention *a, const struct sizes *s) {
    struct division how = {s->splits, (int)s->blocks, 0, nullptr, nullptr, nullptr, nullptr, nullptr};
    char *workspace = (char *)a->workspace;
    how.sums = (float *)workspace;
    how.statistics = (float2 *)(workspace + s->sums_bytes);
    how.units_before = (int64_t *)(workspace + s->sums_bytes + s->statistics_bytes);
    how.first_sequence = (int *)(how.units_before + a->sequences + 1);
    return how;
}

// It depends on lengths alone, so that layers of one step need it once.
static void plan_balanced(struct attention a) {
    if (a.sequences == 0) return;
    struct sizes s = sizes_of<BALANCED>(&a);
    struct division how = division_of(&a, &s);
    if (is_wide<BALANCED>(&a))
        make_plan<ROWS<true>><<<1, PLAN_THREADS, 0, stream_of(&a)>>>(a, how);
    else
        make_plan<ROWS<false>><<<1, PLAN_THREADS, 0, stream_of(&a)>>>(a, how);
    CUDA_CHECK(cudaGetLastError());
}

template <class T, int D, bool WIDE, int STEP> static void launch(struct attention a) {
    struct sizes s = sizes_of<STEP>(&a);
    struct division how = division_of(&a, &s);
    if (STEP >= ONE_LAUNCH && s.slots > 0) how.done = done_counters();
    // As many stages as fit into the shared memory of this GPU, beside the kernel's variables.
    constexpr int STAGE = 2 * HALF_STAGE<D>, VARIABLES = 2048;
    int most = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) - VARIABLES;
    how.stages = min(most / STAGE, MOST_STAGES<D>);
    CUDA_CHECK(how.stages > 0 ? cudaSuccess : cudaErrorNotSupported);
    CUDA_CHECK(cudaFuncSetAttribute(decode<T, D, WIDE, STEP>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    how.stages * STAGE));
    float factor = lab16_factor(&a);
    if (STEP == BALANCED && !a.planned) plan_balanced(a);
    decode<T, D, WIDE, STEP>
        <<<lab_blocks(s.blocks, 1), THREADS, how.stages * STAGE, stream_of(&a)>>>(a, how, factor);
    CUDA_CHECK(cudaGetLastError());
    if constexpr (STEP == SPLIT)
        if (s.splits > 1)
            merge<T, D, WIDE>
                <<<lab_blocks(most_items<STEP>(&a) * (ROWS<WIDE> / WARPS), 1), THREADS, 0, stream_of(&a)>>>(
                    a, how);
}
template <class T, int D, int STEP> static void launch_step(struct attention a) {
    if (is_wide<STEP>(&a))
        launch<T, D, true, STEP>(a);
    else
        launch<T, D, false, STEP>(a);
}
template <class T, int D> static void unsplit_of(struct attention a) { launch_step<T, D, UNSPLIT>(a); }
template <class T, int D> static void split_of(struct attention a) { launch_step<T, D, SPLIT>(a); }
template <class T, int D> static void one_launch_of(struct attention a) { launch_step<T, D, ONE_LAUNCH>(a); }
template <class T, int D> static void balanced_of(struct attention a) { launch_step<T, D, BALANCED>(a); }

static void launch_unsplit(struct attention a) { LAB16_LAUNCH(a, unsplit_of); }
static void launch_split(struct attention a) { LAB16_LAUNCH(a, split_of); }
static void launch_one_launch(struct attention a) { LAB16_LAUNCH(a, one_launch_of); }
static void launch_balanced(struct attention a) { LAB16_LAUNCH(a, balanced_of); }

static void append(struct attention a, struct tokens tokens) {
    append_token<<<lab_blocks(a.sequences, 1), THREADS, 0, stream_of(&a)>>>(a, tokens);
}
static void advance(struct attention a, struct tokens tokens) {
    advance_sequences<<<lab_blocks(a.sequences, THREADS), THREADS, 0, stream_of(&a)>>>(a, tokens);
}
static const struct growth growth = {append, advance};

constexpr unsigned TYPES = 1u << DTYPE_FP16 | 1u << DTYPE_BF16;
constexpr unsigned FEATURES = FEATURE_PACKED | FEATURE_GROWING;
constexpr struct support WHOLE = {TYPES, 8, 128, 0, FEATURES, SCORE_MAX};
constexpr struct support IN_PARTS = {TYPES, 8, 128, 0, FEATURES | FEATURE_SPLITS, SCORE_MAX};
static const struct kernel kernels[] = {
    {"unsplit", "a block for each query head", launch_unsplit, nullptr, WHOLE, nullptr, nullptr, nullptr,
     blocks_of<UNSPLIT>},
    {"split", "keys split among blocks, heads of a group together", launch_split, workspace_of<SPLIT>,
     IN_PARTS, nullptr, nullptr, nullptr, blocks_of<SPLIT>},
    {"one_launch", "the last block merges", launch_one_launch, workspace_of<ONE_LAUNCH>, IN_PARTS, nullptr,
     nullptr, nullptr, blocks_of<ONE_LAUNCH>},
    {"balanced", "as many keys for each multiprocessor", launch_balanced, workspace_of<BALANCED>, IN_PARTS,
     nullptr, nullptr, nullptr, blocks_of<BALANCED>, plan_balanced},
};

static const struct lab lab08 = {
    "lab08_flashdecoding",
    "decoding: few queries, many keys, split over the whole GPU and read once",
    "lecture 25, pitfall 04 and question 8.3-1",
    80,                      // min_sm: the oldest GPU that runs it, Ampere
    {1, 8, 2, 1000, 64, 1},  // batch, heads, kv_heads, seqlen (keys), head_dim, seqlen_q on the cpu backend
    {1, 32, 8, 65536, 128, 1},  // and on a GPU: one token of a long text
    kernels,
    sizeof kernels / sizeof kernels[0],
    0,  // not causal
    &growth,
};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab08); }
