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
//     balanced    sequences of any lengths: pieces that take equally long, one a block, or whole items, drawn
//
// A part is O, not divided by anything, and for each row m and l as in lab 02: numbers to merge parts with,
// in any order of blocks, by the same rule by which tiles merge.
//
//     ./lab run 08    or    build/cpu/lab08_flashdecoding --seqlen-q 1 --seqlen-k 3000 --heads 8 --kv-heads 2

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <limits.h>
#include <math.h>

#include "common/attention.h"
#include "common/growth.h"
#include "common/lab.h"
#include "common/lab16.h"
#include "common/ptx.h"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;
constexpr int STRIP = 16;  // rows of an mma
constexpr int TILE = 128;  // keys of a tile of K or V
constexpr int PANEL = 64;  // columns of K, V or Q that lie behind each other in shared memory: see chunk_at
// A block has R rows, 16, 32 or 64, and each of its warps a strip of them and a share of each tile's keys.
// Warps with the same share load it together and meet at a barrier of their own; where there is only one, it
// loads for itself and waits for nobody. With 64 rows they are a warpgroup, and multiply as one.
template <int R> constexpr int WARPS = R == STRIP ? 4 : 8;
template <int R> constexpr int THREADS = WARPS<R> *WARP;
template <int R> constexpr int SHARERS = R / STRIP;  // warps with the same share
template <int R> constexpr bool IS_WARPGROUP = SHARERS<R> == 4;
template <int R> constexpr int SHARES = WARPS<R> / SHARERS<R>;
template <int R> constexpr int KEYS = TILE / SHARES<R>;   // of a warp, in each tile
template <int D> constexpr int HALF_STAGE = TILE *D * 2;  // bytes of K, or of V, in a stage
template <int D> constexpr int MOST_STAGES = 384 / D;     // together 192 KB
template <int D> constexpr int SUMS_STRIDE = D + 8;  // of rows of fp32: no bank conflicts; m and l behind
constexpr int MOST_SPLITS = 128;
constexpr int MERGE_WARPS = 8;        // of a block of `merge`
constexpr int SETUP = 2;              // tiles that take as long as a block's beginning and end
constexpr int MOST_ROUNDS = 1 << 16;  // of blocks that count themselves: see done_counters
constexpr int PLAN_THREADS = 256, TOKEN_THREADS = 128;
constexpr float LOG2E = 1.44269504f;
constexpr float LOWEST = -1e30f;  // m before any key: see lab 04, as for the next one
constexpr float SCORE_MAX = 1 << 24;
constexpr float RISE = 8.0f;  // in powers of two: see raise_maximum

enum step { UNSPLIT, SPLIT, ONE_LAUNCH, BALANCED };

// Lane 4 g + t has rows g and g + 8 of a strip (h = 0, 1), columns 8n + 2t and 8n + 2t + 1: see lab 04.
static __device__ int warp() { return __shfl_sync(ALL_LANES, (int)threadIdx.x / WARP, 0); }
static __device__ int lane() { return threadIdx.x % WARP; }
template <int R> static __device__ int strip() { return warp() % SHARERS<R>; }
template <int R> static __device__ int share() { return warp() / SHARERS<R>; }
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
    int pieces;             // of `balanced`: at most so many pieces of work
    int stages;             // of the ring of tiles in shared memory
    float *sums;            // parts: O before it is divided [slots][rows of a block][D]
    float2 *statistics;     // m, in powers of two, and l [slots][rows of a block]
    int64_t *units_before;  // the plan, where sequences are packed: see make_plan [sequences + 1]
    int *first_sequence;    // [pieces]
    unsigned *done;         // parts that are done, of each item; 0 between launches
    unsigned *drawn;        // `balanced`: pieces that are drawn; 0 between launches
    int group;              // query heads of an item
};

// An item is what K and V are read for once: a sequence, a head of K and V, and a tile of rows. Row n of a
// head of K and V is token n / group, query head n % group of its group: tokens outside, so that the rows of
// a tile see nearly the same keys. `unsplit` has a query head where the others have a group.
template <int STEP> static int group_of(const struct attention *a) {
    return STEP == UNSPLIT ? 1 : a->heads / a->kv_heads;
}
__host__ __device__ static int64_t ceil_divide(int64_t x, int64_t y) { return (x + y - 1) / y; }
// x / y for x >= 0 and y > 0; a GPU divides 32 bits without a sign in a third of the time, and until a block
// has divided it loads nothing.
static __device__ int64_t quotient(int64_t x, int64_t y) {
    return ((uint64_t)x | (uint64_t)y) <= UINT32_MAX ? (unsigned)x / (unsigned)y : x / y;
}
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

// An item's sequence, head and tile of rows.
struct place {
    int sequence, head, tile;
};

// What a block works on: one item, or a part of it.
struct work {
    struct place at;
    const void *q, *k, *v;  // of the sequence and the first query head of the group, or the head of K and V
    void *o;
    float *lse;
    int seqlen_q, seqlen_k;
    int group;            // query heads
    int token, head;      // of the tile's first row
    int rows;             // in the tile; 0: nothing to do
    int keys, open_keys;  // seen by the last of them, and by the first
    int tile, end_tile;   // tiles of keys of this part; those behind `keys` are left out
    int parts, part;      // how many there are of the item, and which this is
    int64_t slot;         // where part 0 is kept, and with it the others: see slot_of
    int64_t round;        // which counter counts the parts
    int64_t piece, unit;  // `balanced`: the piece that has this part; the first unit behind the part
    int64_t end_unit;     // and behind the piece
};

// Token and query head (of the group) of row r of the tile.
struct row_place {
    int token, head;
};
static __device__ struct row_place row_at(const struct work *w, int r) {
    unsigned n = (unsigned)(w->head + r), group = (unsigned)w->group, token = n / group;
    struct row_place at = {w->token + (int)token, (int)(n - token * group)};
    return at;
}
// Keys that a token sees, all from key 0 on. (token < seqlen_q: no overflow.)
static __device__ int sees(const struct attention *a, const struct work *w, int token) {
    return a->causal ? max(token - w->seqlen_q + 1 + w->seqlen_k, 0) : w->seqlen_k;
}
// Where a part is kept, if `slot` is w->slot. A piece of `balanced` has two slots, and `slot` is the first
// one of the piece that has part 0: the first for an item that it ends or goes on with, of which it has a
// later part, the second for an item that it begins, of which it has part 0.
template <int STEP> static __device__ int64_t slot_of(int64_t slot, int part) {
    if (STEP == BALANCED) return slot + 2 * part + (part == 0 ? 1 : 0);
    return slot + part;
}

template <int STEP> __host__ __device__ static int heads_of(const struct attention *a) {
    return STEP == UNSPLIT ? a->heads : a->kv_heads;
}
template <int R> static __device__ int row_tiles(int64_t seqlen_q, int group) {
    return (int)((seqlen_q * group + R - 1) / R);
}

// Item number `item` of [sequences][tiles of rows][heads].
template <int STEP, int R>
static __device__ struct place in_order(const struct attention *a, const struct division *how, int item) {
    unsigned heads = heads_of<STEP>(a), tiles = row_tiles<R>(a->seqlen_q, how->group);
    unsigned before = item / heads, sequence = before / tiles;
    struct place at = {(int)sequence, (int)(item - before * heads), (int)(before - sequence * tiles)};
    return at;
}

// The same where each sequence has a number of tiles of its own; a warp looks for the sequence, 32 at a time.
// The launch, which does not know the lengths, has blocks to spare: sequence -1.
template <int STEP, int R>
static __device__ struct place in_packed_order(const struct attention *a, const struct division *how,
                                               int item) {
    int heads = heads_of<STEP>(a), before = 0;  // items of the sequences before `first`
    for (int first = 0; first < a->sequences; first += WARP) {
        int s = first + lane(), items = 0;
        if (s < a->sequences)
            items = row_tiles<R>(a->cu_seqlens_q[s + 1] - a->cu_seqlens_q[s], how->group) * heads;
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

// What *w has of the item at `at`: what Q, K and V are loaded by ...
template <class T, int STEP, int R>
static __device__ void set_keys(const struct attention *a, const struct division *how, struct place at,
                                struct work *w) {
    struct sequence s = sequence_by_now(a, at.sequence);
    int batch = a->sequences > 0 ? 0 : at.sequence;
    int kv_head = STEP == UNSPLIT ? kv_head_of(a, at.head) : at.head;
    w->at = at;
    w->q = row<T>(a->q, batch, at.head * how->group, s.first_query);
    w->k = row<T>(a->k, batch, kv_head, s.first_key);
    w->v = row<T>(a->v, batch, kv_head, s.first_key);
    w->seqlen_q = s.seqlen_q;
    w->seqlen_k = s.seqlen_k;
    w->group = how->group;
    int64_t first_row = (int64_t)at.tile * R;
    w->rows = (int)min((int64_t)R, (int64_t)s.seqlen_q * w->group - first_row);
    w->token = (int)quotient(first_row, w->group);
    w->head = (int)(first_row - (int64_t)w->token * w->group);
    w->open_keys = sees(a, w, w->token);
    w->keys = a->causal ? sees(a, w, row_at(w, w->rows - 1).token) : w->open_keys;
}
// ... and the rest, for which there is time while they come. (With LOADS_AHEAD it is set at once: next_head
// wants all of the part before.)
template <class T> static __device__ void set_rows(const struct attention *a, struct work *w) {
    int first_query = sequence_at(a, w->at.sequence).first_query;
    int batch = a->sequences > 0 ? 0 : w->at.sequence, first_head = w->at.head * w->group;
    w->o = row<T>(a->o, batch, first_head, first_query);
    w->lse = a->lse + ((int64_t)batch * a->heads + first_head) * a->seqlen_q + first_query;
}

// Part number `part` of item number `item`, of equal parts: those of one item differ by a tile at most.
// Called by a whole warp; *w is in shared memory, and lane 0 is told whether the item is there.
template <class T, int STEP, int R>
static __device__ bool find_part(const struct attention *a, const struct division *how, int item, int part,
                                 struct work *w) {
    struct place at =
        a->sequences > 0 ? in_packed_order<STEP, R>(a, how, item) : in_order<STEP, R>(a, how, item);
    if (lane() > 0) return false;
    if (at.sequence < 0) {
        w->rows = 0;
        return false;
    }
    set_keys<T, STEP, R>(a, how, at, w);
    int tiles = key_tiles(w->seqlen_k);
    w->parts = min(how->splits, tiles);
    w->part = part;
    if (part >= w->parts) w->rows = 0;
    // BEGIN SOLUTION parts: which tiles of keys this part has, of w->parts equal ones.
    w->tile = (int)((unsigned)tiles * part / w->parts);  // (tiles <= 2^24, parts <= 2^7: no overflow)
    w->end_tile = (int)((unsigned)tiles * (part + 1) / w->parts);
    // STUB w->tile = 0;
    // STUB w->end_tile = tiles;
    // END SOLUTION
    w->slot = (int64_t)item * how->splits;
    w->round = item;
    return true;
}

// ---- the plan of `balanced` ----
// A unit is a tile of keys of an item, or as much time: an item has SETUP of them before its tiles, for what
// a block does before and after. All units, [sequences][tiles of rows][heads][units of an item], are cut into
// pieces of `each` units, whatever lies on their borders: a piece may have the end of one item, some that it
// has alone, and the beginning of another. There is one for each block, or, drawn, one for each item: see
// sizes_of.

// Of sequences of one length, of which each block has about as many parts, items have none.
__host__ __device__ static int setup_units(const struct attention *a) { return a->sequences > 0 ? SETUP : 0; }
template <int R>
static __device__ int64_t units_of(const struct attention *a, const struct division *how, struct sequence s) {
    return (int64_t)row_tiles<R>(s.seqlen_q, how->group) * a->kv_heads *
           (setup_units(a) + key_tiles(s.seqlen_k));
}
static __device__ int64_t units_of_piece(const struct division *how, int64_t units) {
    return max(quotient(units + how->pieces - 1, how->pieces), (int64_t)1);
}

// For packed sequences: how many units lie before each, and with which sequence each piece begins. It is made
// on the GPU because the lengths are there, where the step before has made them: a host that asked for them
// would have to wait for all that is enqueued, and could not be captured in a graph. One block.
template <int R>
__global__ void __launch_bounds__(PLAN_THREADS) make_plan(struct attention a, struct division how) {
    __shared__ int64_t sums_smem[PLAN_THREADS / WARP];
    int me = warp();
    int64_t before = 0;  // units of the sequences before `first`
    for (int first = 0; first < a.sequences; first += PLAN_THREADS) {
        int s = first + (int)threadIdx.x;
        int64_t units = s < a.sequences ? units_of<R>(&a, &how, sequence_by_now(&a, s)) : 0;
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
    int64_t each = units_of_piece(&how, before);
    for (int piece = (int)threadIdx.x; piece * each < before; piece += PLAN_THREADS) {
        int64_t unit = piece * each;
        int low = 0, high = a.sequences;  // the last sequence that does not begin after it
        while (high - low > 1) {
            int middle = low + (high - low) / 2;
            if (how.units_before[middle] <= unit)
                low = middle;
            else
                high = middle;
        }
        how.first_sequence[piece] = low;
    }
}

// The next head of K and V of the same sequence, if the piece has all of it: nothing is divided or asked of
// global memory, as one thread does it while the others wait. *before is complete. Returns whether it is so.
template <class T>
static __device__ bool next_head(const struct attention *a, const struct work *before, struct work *w) {
    int tiles = key_tiles(before->seqlen_k);
    // (If *before is not the end of its item, it is that of the piece.)
    if (before->at.head + 1 == a->kv_heads || before->unit + setup_units(a) + tiles > before->end_unit)
        return false;
    *w = *before;
    w->at.head++;
    w->k = (const T *)w->k + a->k.stride_head;
    w->v = (const T *)w->v + a->v.stride_head;
    w->q = (const T *)w->q + w->group * a->q.stride_head;
    w->o = (T *)w->o + w->group * a->o.stride_head;
    w->lse += (int64_t)w->group * a->seqlen_q;
    w->tile = 0;
    w->end_tile = tiles;
    w->parts = 1;
    w->part = 0;
    w->unit += setup_units(a) + tiles;
    return true;
}

// The block's part after *before, which may be *w itself, or its first one (a null pointer). One thread.
template <class T, int R>
static __device__ void next_part(const struct attention *a, const struct division *how,
                                 const struct work *before, struct work *w) {
    bool packed = a->sequences > 0, is_new = !before;  // is_new: the piece
    int setup = setup_units(a);
    int64_t of_one = packed ? 0 : units_of<R>(a, how, sequence_by_now(a, 0));  // units of a sequence
    int64_t units = packed ? how->units_before[a->sequences] : of_one * a->batch;
    int64_t each = units_of_piece(how, units), pieces = quotient(units + each - 1, each);
    int64_t piece = before ? before->piece : blockIdx.x, unit = before ? before->unit : piece * each;
    int sequence = before ? before->at.sequence : 0, tiles, tile, end_tile;
    int64_t item, item_unit;
    w->rows = 0;
    // Once, or again where all that a piece still has is the setup of an item, whose tiles the next one has.
    do {
        if (!is_new && unit >= min((piece + 1) * each, units)) {
            // Each block that has had a piece draws until there are no more; the last one to draw sets
            // `drawn` back.
            piece = pieces > gridDim.x ? gridDim.x + count_round(how->drawn, (unsigned)pieces - 1) : pieces;
            unit = piece * each;
            is_new = true;
        }
        if (piece >= pieces) return;
        if (is_new) sequence = packed ? how->first_sequence[piece] : (int)quotient(unit, of_one);
        is_new = false;
        while (unit >= (packed ? how->units_before[sequence + 1] : of_one * (sequence + 1))) sequence++;
        int64_t within = unit - (packed ? how->units_before[sequence] : of_one * sequence);
        tiles = key_tiles(sequence_by_now(a, sequence).seqlen_k);
        item = quotient(within, setup + tiles);
        item_unit = unit - within + item * (setup + tiles);
        int64_t end = min(min((piece + 1) * each, units), item_unit + setup + tiles);
        tile = (int)max(unit - item_unit - setup, (int64_t)0);
        end_tile = (int)(end - item_unit) - setup;
        unit = end;
    } while (tile >= end_tile);
    int64_t row_tile = quotient(item, a->kv_heads), first_tile = item_unit + setup;
    struct place at = {sequence, (int)(item - row_tile * a->kv_heads), (int)row_tile};
    set_keys<T, BALANCED, R>(a, how, at, w);
    w->tile = tile;
    w->end_tile = end_tile;
    int64_t first_piece = quotient(first_tile, each);
    w->parts = (int)(quotient(first_tile + tiles - 1, each) - first_piece) + 1;
    w->part = (int)(piece - first_piece);
    w->slot = 2 * first_piece;
    w->round = first_piece;
    w->piece = piece;
    w->unit = unit;
    w->end_unit = min((piece + 1) * each, units);
}

// ---- the products and the exponentials, as in lab 05, of one strip ----

// Where a chunk (16 bytes, 8 numbers) of row r begins, in bytes, among COUNT rows: in panels of 64 columns,
// swizzled, as the products of a warpgroup want it (common/ptx/wgmma.h).
template <int COUNT> static __device__ int chunk_at(int r, int chunk) {
    return (chunk / 8 * COUNT + r) * PANEL * 2 + (chunk % 8 ^ r % 8) * 16;
}

// Starts copying COUNT rows of a head, row `first` and so on, to shared memory; rows from `end` on, and
// columns past head_dim, become 0. By LOADERS threads, of which this is number `me`.
template <class T, int D, int LOADERS, int COUNT>
static __device__ void load_rows(const void *head, int64_t stride_row, int first, int end, int head_dim,
                                 int me, uint32_t to) {
    constexpr int APART = LOADERS / (D / 8);  // rows between two of a thread
    int r = me / (D / 8);
    int chunk = me % (D / 8);
    int bytes = chunk * 8 < head_dim ? 16 : 0;
    const T *from = (const T *)head + (bytes ? (first + r) * stride_row + chunk * 8 : 0);
    int64_t step = bytes ? APART * stride_row : 0;
    uint32_t place = to + chunk_at<COUNT>(r, chunk);
    // (r + i) % 8 is r ^ i % 8 where APART < 8, and r % 8 elsewhere.
    if (end - first >= COUNT) {  // nearly always: an addition for each copy, and nobody asks where it ends
#pragma unroll
        for (int i = 0; i < COUNT; i += APART, from += step)
            cp_async_16_once((place ^ i % 8 * 16) + i * PANEL * 2, from, bytes);
    } else {
#pragma unroll 1
        for (int i = 0; i < COUNT; i += APART, from += step) {
            bool there = first + r + i < end;
            // (Not cp_async_16_once: of it ptxas 13.0 has made an instruction here that no GPU knows.)
            cp_async_16((place ^ i % 8 * 16) + i * PANEL * 2, there ? from : head, there ? bytes : 0);
        }
    }
}

// Where a lane's row of the four matrices of an ldmatrix begins: by rows for Q and V, by columns for K.
static __device__ int place_by_rows() { return chunk_at<STRIP>(lane() % 16, lane() / 16); }
static __device__ int place_by_columns() {
    return chunk_at<STRIP>(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2);
}
// The same, `steps` times 16 columns to the right, among COUNT rows.
template <int COUNT> static __device__ uint32_t to_the_right(uint32_t place, int steps) {
    return (place ^ steps % 4 * 32) + steps / 4 * COUNT * PANEL * 2;
}

// S = Q K^T of a warp's strip for K keys.
template <class T, int D, int K>
static __device__ void multiply_q_k(const uint32_t (&q_reg)[D / 16][4], uint32_t k_rows,
                                    float (&s_reg)[K / 8][4]) {
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t k_at = k_rows + to_the_right<K>(place_by_columns(), step);
#pragma unroll
        for (int n = 0; n < K / 16; n++) {
            uint32_t k_reg[4];
            ldmatrix_x4(k_reg, k_at + n * 16 * PANEL * 2);
            const uint32_t left[2] = {k_reg[0], k_reg[1]}, right[2] = {k_reg[2], k_reg[3]};
            mma_m16n8k16<T>(s_reg[2 * n], q_reg[step], left);
            mma_m16n8k16<T>(s_reg[2 * n + 1], q_reg[step], right);
        }
    }
}

// O += P V for 16 of K keys.
template <class T, int D, int K>
static __device__ void multiply_p_v(const uint32_t (&p_reg)[4], uint32_t v_rows, float (&o_reg)[D / 8][4]) {
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
        uint32_t v_reg[4];
        ldmatrix_x4_trans(v_reg, v_rows + to_the_right<K>(place_by_rows(), n));
        const uint32_t left[2] = {v_reg[0], v_reg[1]}, right[2] = {v_reg[2], v_reg[3]};
        mma_m16n8k16<T>(o_reg[2 * n], p_reg, left);
        mma_m16n8k16<T>(o_reg[2 * n + 1], p_reg, right);
    }
}

// Both of them as a warpgroup, 64 rows at a time: K and V come from shared memory once, not once for each
// strip (lab 07). The fragments of its warps are those of the mma.
template <class T, int D, int K>
static __device__ void multiply_q_k_together(const uint32_t (&q_reg)[D / 16][4], uint32_t k_rows,
                                             float (&s_reg)[K / 2]) {
    uint64_t k = wgmma_descriptor(k_rows, 16, 8 * PANEL * 2, 128);
    wgmma_pin(s_reg);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < D / 16; step++)
        wgmma_rs<T, K, 1, false>(s_reg, q_reg[step], k + to_the_right<K>(0, step) / 16);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(s_reg);
}
template <class T, int D, int K>
static __device__ void multiply_p_v_together(uint32_t (&p_reg)[K / 16][4], uint32_t v_rows,
                                             float (&o_reg)[D / 2]) {
    uint64_t v = wgmma_descriptor(v_rows, K * PANEL * 2, 8 * PANEL * 2, 128);
    wgmma_pin(o_reg);
    wgmma_fence();
#pragma unroll
    for (int m = 0; m < K / 16; m++) wgmma_rs<T, D, 1, true>(o_reg, p_reg[m], v + m * 16 * PANEL * 2 / 16);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(o_reg);
    wgmma_pin(p_reg);
}

// m, in powers of two, follows a row's largest score only when that is RISE above it in some row of the warp.
// is_half: the strip has at most eight rows, so that there is none with h = 1.
template <int D, int K>
static __device__ void raise_maximum(float factor, bool is_half, const float (*s_reg)[4], float *m_reg,
                                     float *l_reg, float (*o_reg)[4]) {
    float top_reg[2] = {LOWEST, LOWEST};  // of this lane's scores
    bool rises = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (h == 1 && is_half) continue;
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

// P = 2^(factor * S - m) of 16 columns, packed as the left operand of P V, and their sum into l. packed_reg
// is 0 before: with is_half that stays so for rows that are not there.
template <class T>
static __device__ void exponentials(float factor, bool is_half, const float (*s_reg)[4], const float *m_reg,
                                    float *l_reg, uint32_t (&packed_reg)[4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (h == 1 && is_half) continue;
        float p_reg[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            p_reg[e] = ex2(s_reg[e / 2][2 * h + e % 2] * factor - m_reg[h]);
            l_reg[h] += p_reg[e];
        }
        packed_reg[h] = pack2<T>(p_reg[0], p_reg[1]);      // columns 2t, 2t + 1
        packed_reg[2 + h] = pack2<T>(p_reg[2], p_reg[3]);  // columns 2t + 8, 2t + 9
    }
}

// ---- one part: O, m and l of its rows and keys ----

// Those that share a ring of stages meet: after it all see what each has waited for, and nobody still reads
// what comes next.
template <int R> static __device__ void meet() {
    if (R == STRIP)
        __syncwarp();
    else
        bar_sync(1 + share<R>(), SHARERS<R> * WARP);
}

// Waits until all but the newest 2 * stages - 1 groups of copies are there.
template <int MOST> static __device__ void wait_for_oldest(int stages) {
    if constexpr (MOST > 1)
        if (stages < MOST) return wait_for_oldest<MOST - 1>(stages);
    cp_async_wait<2 * MOST - 1>();
}

// Starts copying a part's rows of Q, by all threads, to shared memory ...
template <class T, int D, int R>
static __device__ void copy_q(const struct attention *a, const struct work *w, uint32_t to) {
#pragma unroll
    for (int i = 0; i < R * D / 8 / THREADS<R>; i++) {
        int n = i * THREADS<R> + (int)threadIdx.x, r = n / (D / 8), chunk = n % (D / 8);
        struct row_place at = row_at(w, r);
        bool there = r < w->rows && chunk * 8 < a->head_dim;
        const T *q = (const T *)w->q + at.token * a->q.stride_row + at.head * a->q.stride_head + chunk * 8;
        cp_async_16(to + chunk_at<R>(r, chunk), there ? (const void *)q : w->q, there ? 16 : 0);
    }
}
// ... and takes the warp's strip from there, as the fragments of an mma, with the sign of the scale.
template <int D, int R> static __device__ void take_q(float scale, uint32_t q, uint32_t (&q_reg)[D / 16][4]) {
    uint32_t signs = scale < 0.0f ? 0x80008000 : 0, rows = q + strip<R>() * STRIP * PANEL * 2;
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        ldmatrix_x4(q_reg[step], rows + to_the_right<R>(place_by_rows(), step));
#pragma unroll
        for (int e = 0; e < 4; e++) q_reg[step][e] ^= signs;
    }
}

// Where the tiles of a part are.
struct source {
    const void *k, *v;
    int keys, tile, end;
};
static __device__ struct source source_of(const struct work *w) {
    struct source from = {w->k, w->v, w->keys, w->tile, min(w->end_tile, (w->keys + TILE - 1) / TILE)};
    return from;
}

// Starts the copies of tile number n of a part, if there is one, to a stage's K or V.
template <class T, int D, int R>
static __device__ void load_tile(const struct attention *a, const struct source *from, bool is_v, int n,
                                 uint32_t stage) {
    constexpr int LOADERS = SHARERS<R> * WARP;
    int first = share<R>() * KEYS<R>;  // of the tile's keys
    uint32_t to = stage + (is_v ? HALF_STAGE<D> : 0) + first * D * 2;
    if (n < from->end - from->tile)
        load_rows<T, D, LOADERS, KEYS<R>>(is_v ? from->v : from->k, is_v ? a->v.stride_row : a->k.stride_row,
                                          (from->tile + n) * TILE + first, from->keys, a->head_dim,
                                          strip<R>() * WARP + lane(), to);
    cp_async_commit();  // without a tile an empty group: the count stays right
}

// Scores of keys that a row does not see, or that do not exist, become -inf. (Rows that do not exist see what
// the last one does.)
template <int K>
static __device__ void mask(const struct attention *a, const struct work *w, int first_row, int first_key,
                            float (*s_reg)[4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int until = sees(a, w, row_at(w, min(first_row + h * 8 + lane_row(), w->rows - 1)).token);
#pragma unroll
        for (int e = 0; e < K / 4; e++)
            if (first_key + e / 2 * 8 + lane_column() + e % 2 >= until)
                s_reg[e / 2][2 * h + e % 2] = -INFINITY;
    }
}

// `balanced` has Q and the first tiles of what comes next on their way while it works on a part: all that is
// asked of a busy memory takes some 6 us, three tiles' time. (Not with more rows: it merges where the ring
// is.)
template <int R, int STEP> constexpr bool LOADS_AHEAD = STEP == BALANCED &&R == STRIP;

// The first tile's K and V to the L2 cache, before it is known that the kernel before has ended: nothing is
// read yet, and nothing waits. (More would come in Q's way. And a layout with gaps between rows would need a
// request for each.) One thread.
template <class T> static __device__ void fetch_to_l2(const struct attention *a, const struct work *w) {
    struct source from = source_of(w);
    int first = from.tile * TILE, keys = min(from.keys - first, TILE);
    if (from.end <= from.tile || a->k.stride_row != a->head_dim || a->v.stride_row != a->head_dim) return;
    bulk_prefetch_l2((const T *)from.k + (int64_t)first * a->head_dim, keys * a->head_dim * 2);
    bulk_prefetch_l2((const T *)from.v + (int64_t)first * a->head_dim, keys * a->head_dim * 2);
}

// K and V come in groups of copies of their own, through a ring of stages: the place of a K is filled again
// as soon as S is there, so that a whole ring is always on its way. What is loaded is a ring ahead of what is
// computed. Behind a part's last tile come, with LOADS_AHEAD, the tiles of the parts that follow it in
// `works`, a ring too, as far as they are known.
struct loader {
    struct source from;
    int part, tile;  // the next to be loaded: a tile of `from`, the source of this part
    bool is_dry;     // nothing more was known: from here on nothing is loaded until a part begins anew
};
template <int D, int R, int STEP> constexpr int WORKS = LOADS_AHEAD<R, STEP> ? MOST_STAGES<D> + 1 : 1;
template <int D, int R> constexpr int Q_BYTES = R *D * 2;

// Number of the tile to load next, or one that does not exist.
template <int PARTS> static __device__ int next_tile(const struct work *works, int known, struct loader *at) {
    while (PARTS > 1 && !at->is_dry && at->tile >= at->from.end - at->from.tile) {
        const struct work *w = works + (at->part + 1) % PARTS;
        at->is_dry = at->part == known || w->rows == 0;
        if (at->is_dry) break;
        at->part++;
        at->tile = 0;
        at->from.k = w->k, at->from.v = w->v, at->from.keys = w->keys;
        at->from.tile = w->tile, at->from.end = source_of(w).end;
    }
    return at->is_dry ? INT_MAX : at->tile;
}

// Starts the copies of K of the tile that next_tile gave, and before a part's first of its Q: what was asked
// for later would come later, when the whole ring has come.
template <class T, int D, int R, int PARTS>
static __device__ void load_k(const struct attention *a, const struct work *works, const struct loader *at,
                              int tile, uint32_t q_ring, uint32_t stage) {
    int place = at->part % PARTS;
    if (tile == 0) copy_q<T, D, R>(a, works + place, q_ring + place * Q_BYTES<D, R>);
    load_tile<T, D, R>(a, &at->from, false, tile, stage);
}

// Fills the ring from the beginning of part `part` on.
template <class T, int D, int R, int PARTS>
static __device__ void fill_ring(const struct attention *a, const struct work *works, int part, int known,
                                 int stages, uint32_t ring, uint32_t q_ring, struct loader *at) {
    at->from = source_of(works + part % PARTS);
    at->part = part;
    at->tile = 0;
    at->is_dry = false;
    for (int n = 0; n < stages; n++, at->tile++) {
        int tile = next_tile<PARTS>(works, known, at);
        load_k<T, D, R, PARTS>(a, works, at, tile, q_ring, ring + n * 2 * HALF_STAGE<D>);
        load_tile<T, D, R>(a, &at->from, true, tile, ring + n * 2 * HALF_STAGE<D>);
    }
}

// Part number `part`, whose tiles are in the ring from *stage on, and *at behind them.
template <class T, int D, int R, int PARTS>
static __device__ void attend(const struct attention *a, const struct work *works, int part, int known,
                              int stages, float factor, uint32_t ring, uint32_t q_ring,
                              const uint32_t (&q_reg)[D / 16][4], int *stage, struct loader *at,
                              float (&m_reg)[2], float (&l_reg)[2], float (&o_reg)[D / 8][4]) {
    constexpr int K = KEYS<R>;
    const struct work *w = works + part % PARTS;
    // Not to be asked of shared memory again for each tile: a warp that waits has nobody to step in.
    struct source mine = PARTS == 1 ? at->from : source_of(w);
    int open_keys = w->open_keys, rows = w->rows, tiles = mine.end - mine.tile;
    int first_row = strip<R>() * STRIP;
    bool is_half = rows - first_row <= STRIP / 2;  // no row has h = 1
    for (int n = 0; n < tiles; n++) {
        uint32_t k_tile = ring + *stage * 2 * HALF_STAGE<D>, k_rows = k_tile + share<R>() * K * D * 2;
        uint32_t v_rows = k_rows + HALF_STAGE<D>;
        int first_key = (mine.tile + n) * TILE + share<R>() * K;
        // Else the warp only loads. (A warpgroup multiplies rows, too, that are not there.)
        bool is_some = first_key < mine.keys && (first_row < rows || IS_WARPGROUP<R>);
        float s_reg[K / 8][4] = {};
        wait_for_oldest<MOST_STAGES<D>>(stages);   // K is there
        if (IS_WARPGROUP<R>) fence_proxy_async();  // K is for wgmma, too
        meet<R>();                                 // for all that share it
        if (is_some) {
            if constexpr (IS_WARPGROUP<R>)
                multiply_q_k_together<T, D, K>(q_reg, k_rows, (float(&)[K / 2]) s_reg);
            else
                multiply_q_k<T, D, K>(q_reg, k_rows, s_reg);
        }
        meet<R>();  // nobody still reads K
        int to_load = next_tile<PARTS>(works, known, at);
        if (PARTS > 1)
            load_k<T, D, R, PARTS>(a, works, at, to_load, q_ring, k_tile);
        else  // a part alone has its Q since fill_ring
            load_tile<T, D, R>(a, &at->from, false, to_load, k_tile);
        if (is_some) {
            if (first_key + K > open_keys) mask<K>(a, w, first_row, first_key, s_reg);
            raise_maximum<D, K>(factor, is_half, s_reg, m_reg, l_reg, o_reg);
        }
        wait_for_oldest<MOST_STAGES<D>>(stages);   // V is there
        if (IS_WARPGROUP<R>) fence_proxy_async();  // V is for wgmma, too
        meet<R>();                                 // for all that share it
        if (is_some) {
            uint32_t p_reg[K / 16][4] = {};
#pragma unroll
            for (int m = 0; m < K / 16; m++) {
                exponentials<T>(factor, is_half, &s_reg[2 * m], m_reg, l_reg, p_reg[m]);
                if (!IS_WARPGROUP<R>) multiply_p_v<T, D, K>(p_reg[m], v_rows + m * 16 * PANEL * 2, o_reg);
            }
            if constexpr (IS_WARPGROUP<R>)
                multiply_p_v_together<T, D, K>(p_reg, v_rows, (float(&)[D / 2]) o_reg);
        }
        meet<R>();  // nobody still reads V
        load_tile<T, D, R>(a, &at->from, true, to_load, k_tile);
        at->tile++;
        *stage = *stage + 1 < stages ? *stage + 1 : 0;
    }
    if (PARTS == 1) cp_async_wait_all();  // what comes next takes the ring's place
}

// ---- merging ----
// A lane has columns 4 * lane and on (at D = 64: 2 * lane) of a row.
template <int D> struct columns { float x[D / WARP]; };
template <int D> static __device__ struct columns<D> columns_of(float4 x) {
    struct columns<D> c;
    c.x[0] = x.x, c.x[1] = x.y, c.x[2] = x.z, c.x[3] = x.w;
    return c;
}
// Of a row of 64.
template <int D>
static __device__ struct columns<D> columns_of(float2 x) {
    struct columns<D> c;
    c.x[0] = x.x, c.x[1] = x.y;
    return c;
}
// As what a lane loads them.
template <int D>
using lane_columns = std::conditional_t<D == 128, float4, float2>;
// From shared memory.
template <int D> static __device__ struct columns<D> load_columns(const float *row) {
    return columns_of<D>(((const lane_columns<D> *)row)[lane()]);
}
// The same from global memory, for rows that are to be on their way at the same time: see load_relaxed.
template <int D>
static __device__ struct columns<D> load_columns_ahead(const float *row) {
    return columns_of<D>(load_relaxed((const lane_columns<D> *)row + lane()));
}
// The way back, to shared or global memory.
template <int D>
static __device__ void store_columns(float *row, const struct columns<D> *c) {
    if constexpr (D == 128)
        ((float4 *)row)[lane()] = make_float4(c->x[0], c->x[1], c->x[2], c->x[3]);
    else
        ((float2 *)row)[lane()] = make_float2(c->x[0], c->x[1]);
}
template <int D>
static __device__ void add_columns(struct columns<D> *sums, float weight, const struct columns<D> *c) {
#pragma unroll
    for (int e = 0; e < D / WARP; e++) sums->x[e] += weight * c->x[e];
}

// A row of the result: O = sums / l, LSE = m + ln l; m in powers of two. By a warp.
template <class T, int D>
static __device__ void store_row(const struct attention *a, const struct work *w, int r, float m, float l,
                                 const struct columns<D> *sums) {
    struct row_place at = row_at(w, r);
    T *o = (T *)w->o + at.token * a->o.stride_row + at.head * a->o.stride_head;
    float inverse = l == 0.0f ? 0.0f : 1.0f / l;
    m *= 1.0f / LOG2E;
    bool has_nan = false;
    uint32_t packed[D / WARP / 2];
#pragma unroll
    for (int e = 0; e < D / WARP; e += 2) {
        float x = sums->x[e] * inverse, y = sums->x[e + 1] * inverse;
        has_nan |= isnan(x + y);
        packed[e / 2] = pack2<T>(x, y);
    }
    if (lane() * (D / WARP) < a->head_dim) {
        if constexpr (D == 128)
            ((uint2 *)o)[lane()] = make_uint2(packed[0], packed[1]);
        else
            ((uint32_t *)o)[lane()] = packed[0];
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

static __device__ float warp_max(float x) {
    for (int offset = 1; offset < WARP; offset *= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}
static __device__ float warp_sum(float x) {
    for (int offset = 1; offset < WARP; offset *= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// What is kept of a row: where it is in slot w->slot, from which on the slots of its parts are counted.
struct kept {
    const float *sums;         // from slot to slot R * D further
    const float2 *statistics;  // R further
    int parts;
};
template <int D, int R>
static __device__ struct kept kept_of(const struct division *how, const struct work *w, int r) {
    int64_t at = w->slot * R + r;
    struct kept row = {how->sums + at * D, how->statistics + at, w->parts};
    return row;
}

// Merges the parts of a row, whoever made them: m and l of all, and the sums of O of parts `first`,
// first + APART and so on, each weighed by its own maximum. Always in the same order: the same bits each
// time. By a warp: of O its lanes share the columns, and of m and l the parts.
template <int D, int R, int STEP, int APART>
static __device__ void merge_parts(const struct kept *row, int first, float *m, float *l,
                                   struct columns<D> *sums) {
    // BEGIN SOLUTION merge_parts: m, l and the sums of O over the parts, each weighed by its own maximum.
    // All loads for CHUNK parts are on their way before m is known or anything else is used: m and l of all
    // of them, and AHEAD rows of O, this warp's. (Beside the products for 64 rows there are registers for 8.)
    constexpr int AHEAD = R == 64 && STEP != SPLIT ? 8 : 16, CHUNK = AHEAD * APART;
    constexpr int OF_LANE = (CHUNK + WARP - 1) / WARP;
    int parts = row->parts;
    for (int chunk = 0; chunk < parts; chunk += CHUNK) {
        struct columns<D> ahead[AHEAD] = {};
        float2 part[OF_LANE];
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            int p = chunk + first + n * APART;
            if (p < parts) ahead[n] = load_columns_ahead<D>(row->sums + slot_of<STEP>(0, p) * R * D);
        }
#pragma unroll
        for (int n = 0; n < OF_LANE; n++) {
            int p = n * WARP + lane();
            bool is_there = p < CHUNK && chunk + p < parts;
            part[n] = make_float2(LOWEST, 0.0f);
            if (is_there) part[n] = load_relaxed(row->statistics + slot_of<STEP>(0, chunk + p) * R);
        }
        float top = *m, sum = 0.0f;
#pragma unroll
        for (int n = 0; n < OF_LANE; n++) top = fmaxf(top, part[n].x);
        top = warp_max(top);
        float keep = ex2(*m - top);  // of the chunks before
#pragma unroll
        for (int n = 0; n < OF_LANE; n++) {
            part[n].x = ex2(part[n].x - top);  // from now on the part's weight
            sum += part[n].x * part[n].y;
        }
        *m = top;
        *l = *l * keep + warp_sum(sum);
#pragma unroll
        for (int e = 0; e < D / WARP; e++) sums->x[e] *= keep;
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            float weight = __shfl_sync(ALL_LANES, part[n * APART / WARP].x, n * APART % WARP + first);
            add_columns<D>(sums, weight, &ahead[n]);  // a part that is not there has sums of 0
        }
    }
    // STUB (void)row, (void)first, (void)m, (void)l, (void)sums;
    // STUB (void)warp_max, (void)warp_sum;
    // END SOLUTION
}

// How many rows of a strip are merged at a time: all, or, beside a ring that goes on, half of them.
template <int R, int STEP> constexpr int AT_ONCE = LOADS_AHEAD<R, STEP> ? STRIP / 2 : STRIP;

// Merges what the block's warps have in shared memory of their strips' rows from `first` on, a row per warp,
// and stores it: to the result if this is all of the item, else to the part's slot.
template <class T, int D, int R, int STEP>
static __device__ void merge_strips(const struct attention *a, const struct division *how,
                                    const struct work *w, int first, const float *sums_smem) {
    constexpr int ROWS = AT_ONCE<R, STEP>;
    for (int n = warp(); n < SHARERS<R> * ROWS; n += WARPS<R>) {
        int r = n / ROWS * STRIP + first + n % ROWS;
        if (r >= w->rows) continue;
        // BEGIN SOLUTION merge_warps: m, l and the sums of row r over the warps that share it, SHARES<R> of
        // them.
        constexpr int APART = SHARERS<R> * ROWS * SUMS_STRIDE<D>;  // shares
        const float *row = sums_smem + n * SUMS_STRIDE<D>;
        float m = LOWEST, l = 0.0f;
        struct columns<D> sums = {};
#pragma unroll
        for (int k = 0; k < SHARES<R>; k++) m = fmaxf(m, row[k * APART + D]);
#pragma unroll
        for (int k = 0; k < SHARES<R>; k++) {
            float2 share = *(const float2 *)(row + k * APART + D);
            float weight = ex2(share.x - m);
            l += weight * share.y;
            struct columns<D> c = load_columns<D>(row + k * APART);
            add_columns<D>(&sums, weight, &c);
        }
        // STUB float m = LOWEST, l = 0.0f;
        // STUB struct columns<D> sums = {};
        // STUB (void)sums_smem;
        // END SOLUTION
        if (w->parts == 1) {
            store_row<T, D>(a, w, r, m, l, &sums);
            continue;
        }
        int64_t at = slot_of<STEP>(w->slot, w->part) * R + r;
        store_columns<D>(how->sums + at * D, &sums);
        if (lane() == 0) how->statistics[at] = make_float2(m, l);
    }
}

// The end of a part: the warps' sums to shared memory, where they are merged and go on from.
template <class T, int D, int R, int STEP>
static __device__ void finish(const struct attention *a, const struct division *how, const struct work *w,
                              const float (&m_reg)[2], const float (&l_reg)[2],
                              const float (&o_reg)[D / 8][4], float *sums_smem) {
    constexpr int ROWS = AT_ONCE<R, STEP>;
#pragma unroll
    for (int first = 0; first < STRIP; first += ROWS) {
        if (first >= w->rows) continue;
        __syncthreads();  // nobody still reads K and V, whose place it takes, or the rows before
#pragma unroll
        for (int h = first / 8; h < (first + ROWS) / 8; h++) {
            if (strip<R>() * STRIP + h * 8 >= w->rows) continue;
            float *row = sums_smem + (warp() * ROWS + h * 8 - first + lane_row()) * SUMS_STRIDE<D>;
            float l = quad_sum(l_reg[h]);
            if (lane_column() == 0) *(float2 *)(row + D) = make_float2(m_reg[h], l);
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                *(float2 *)(row + n * 8 + lane_column()) = make_float2(o_reg[n][2 * h], o_reg[n][2 * h + 1]);
        }
        __syncthreads();  // all of it is there
        merge_strips<T, D, R, STEP>(a, how, w, first, sums_smem);
    }
}

// ---- the kernels ----

// Finds the parts after part n, of which those up to `known` are, until they fill a ring while n is worked
// on, or there is no more place or part. Returns the last that is known. One thread.
template <class T, int R, int PARTS>
static __device__ int look_ahead(const struct attention *a, const struct division *how, struct work *works,
                                 int n, int known) {
    int tiles = 0;
    for (int p = n; works[p % PARTS].rows > 0; p++) {
        if (p > n) tiles += max(source_of(works + p % PARTS).end - works[p % PARTS].tile, 0);
        if (p < known) continue;
        if (tiles >= how->stages || p + 1 == n + PARTS) break;
        const struct work *before = works + p % PARTS;
        struct work *found = works + (p + 1) % PARTS;
        if (!next_head<T>(a, before, found)) {
            next_part<T, R>(a, how, before, found);
            if (found->rows > 0) set_rows<T>(a, found);
        }
        known = p + 1;
    }
    return known;
}

template <class T, int D, int R, int STEP>
__global__ void __launch_bounds__(THREADS<R>, 1)
    decode(struct attention a, struct division how, float factor) {
    constexpr int PARTS = WORKS<D, R, STEP>;
    extern __shared__ __align__(1024) char shared_smem[];  // the ring: stages of K, V (see load_tile)
    __shared__ struct work works[PARTS];                   // part n is in place n % PARTS
    __shared__ int last_found;                             // part
    __shared__ bool is_last;                               // of the blocks of an item
    uint32_t ring = shared_address(shared_smem), q_ring = ring + how.stages * 2 * HALF_STAGE<D>;
    // Behind the ring is Q of PARTS parts and, with LOADS_AHEAD, the warps' sums, which else take the ring's
    // place.
    float *sums_smem =
        (float *)(shared_smem + (PARTS > 1 ? how.stages * 2 * HALF_STAGE<D> + PARTS * Q_BYTES<D, R> : 0));
    struct loader at = {{}, -1, 0, true};
    int stage = 0, known = 0;
    if (a.sequences > 0) griddepcontrol_wait();  // the lengths and the plan are there
    for (int n = 0;; n++) {
        struct work *w = works + n % PARTS;
        if (n == 0 || PARTS == 1) {
            if (STEP == BALANCED) {
                if (threadIdx.x == 0) {
                    next_part<T, R>(&a, &how, n == 0 ? nullptr : w, w);
                    if (PARTS > 1 && w->rows > 0) set_rows<T>(&a, w);
                }
            } else if (warp() == 0) {
                find_part<T, STEP, R>(&a, &how, (int)blockIdx.x, (int)blockIdx.y, w);
            }
            __syncthreads();  // what Q, K and V are loaded by is written
            known = n;
        }
        if (n == 0 && threadIdx.x == 0 && w->rows > 0) fetch_to_l2<T>(&a, w);
        if (n == 0) griddepcontrol_wait();  // K, V and Q are there, and nobody still needs the parts before
        if (w->rows == 0) return;
        if (PARTS == 1 || (at.is_dry && n > at.part)) {
            stage = 0;
            fill_ring<T, D, R, PARTS>(&a, works, n, known, how.stages, ring, q_ring, &at);
        }
        griddepcontrol_launch_dependents();
        if (PARTS == 1 && threadIdx.x == 0) set_rows<T>(&a, w);
        if (PARTS > 1 && threadIdx.x == 0) last_found = look_ahead<T, R, PARTS>(&a, &how, works, n, known);
        wait_for_oldest<MOST_STAGES<D>>(how.stages);  // what the warp has copied of Q, before K, is there
        __syncthreads();                              // all of Q, and what thread 0 has written
        if (PARTS > 1) known = last_found;
        uint32_t q_reg[D / 16][4] = {};
        if (source_of(w).end > w->tile) take_q<D, R>(a.scale, q_ring + n % PARTS * Q_BYTES<D, R>, q_reg);
        float m_reg[2] = {LOWEST, LOWEST}, l_reg[2] = {}, o_reg[D / 8][4] = {};
        attend<T, D, R, PARTS>(&a, works, n, known, how.stages, factor, ring, q_ring, q_reg, &stage, &at,
                               m_reg, l_reg, o_reg);
        finish<T, D, R, STEP>(&a, &how, w, m_reg, l_reg, o_reg, sums_smem);
        if (STEP >= ONE_LAUNCH && w->parts > 1) {
            __syncthreads();  // the part is written before it is counted
            if (threadIdx.x == 0)
                is_last = count_round(how.done + w->round, w->parts - 1) == (unsigned)w->parts - 1;
            __syncthreads();  // all know, and what thread 0 has seen of others they see now
            if (is_last)
                for (int r = warp(); r < w->rows; r += WARPS<R>) {
                    float m = LOWEST, l = 0.0f;
                    struct columns<D> sums = {};
                    struct kept row = kept_of<D, R>(&how, w, r);
                    merge_parts<D, R, STEP, 1>(&row, 0, &m, &l, &sums);
                    store_row<T, D>(&a, w, r, m, l, &sums);
                }
        }
        if (STEP != BALANCED) return;
        __syncthreads();  // nobody still reads *w or shared memory, or what was found
    }
}

// The second kernel of `split`: a row of an item for each SHARE warps, which share its parts. It begins while
// the first one still runs, up to the wait.
template <class T, int D, int R, int SHARE>
__global__ void __launch_bounds__(MERGE_WARPS *WARP) merge(struct attention a, struct division how) {
    __shared__ struct work w;
    __shared__ __align__(16) float sums_smem[MERGE_WARPS][D];
    int r = (int)blockIdx.y * (MERGE_WARPS / SHARE) + warp() / SHARE, me = warp() % SHARE;
    if (warp() == 0 && find_part<T, SPLIT, R>(&a, &how, (int)blockIdx.x, 0, &w)) set_rows<T>(&a, &w);
    __syncthreads();  // *w is written before anybody reads it
    griddepcontrol_launch_dependents();
    bool is_merged = r < w.rows && w.parts > 1;
    struct kept row = {};
    if (is_merged) row = kept_of<D, R>(&how, &w, r);
    griddepcontrol_wait();  // all parts are there; who has nothing to merge waits, too: see ptx/grid.h
    if (!is_merged) return;
    float m = LOWEST, l = 0.0f;
    struct columns<D> sums = {};
    merge_parts<D, R, SPLIT, SHARE>(&row, me, &m, &l, &sums);
    float(*mine_smem)[D] = sums_smem + warp() - me;
    store_columns<D>(mine_smem[me], &sums);
    bar_sync(1 + warp() / SHARE, SHARE * WARP);  // the sums of all warps that share the row are there
    if (me > 0) return;
#pragma unroll
    for (int n = 1; n < SHARE; n++) {
        struct columns<D> c = load_columns<D>(mine_smem[n]);
        add_columns<D>(&sums, 1.0f, &c);
    }
    store_row<T, D>(&a, &w, r, m, l, &sums);
}

// ---- a token more, for --generate (common/growth.h) ----

// All heads of a token, from a table where they lie behind each other to row `at` of a packed tensor.
static __device__ void copy_token(struct tensor to, int64_t at, const void *table, int64_t token, int heads,
                                  int head_dim) {
    int pieces = head_dim / 8;  // of 16 bytes
    const uint4 *from = (const uint4 *)table + token * heads * pieces;
    for (int n = (int)threadIdx.x; n < heads * pieces; n += TOKEN_THREADS)
        *(uint4 *)(row<uint16_t>(to, 0, n / pieces, at) + n % pieces * 8) = from[n];
}

// A block for each sequence.
__global__ void __launch_bounds__(TOKEN_THREADS) append_token(struct attention a, struct tokens tokens) {
    int s = (int)blockIdx.x;
    int64_t token = (int64_t)s * tokens.steps + *tokens.step;
    int64_t at = (int64_t)a.cu_seqlens_k[s] + a.seqused_k[s] - 1;
    copy_token(a.q, s, tokens.q, token, a.heads, a.head_dim);
    copy_token(a.k, at, tokens.k, token, a.kv_heads, a.head_dim);
    copy_token(a.v, at, tokens.v, token, a.kv_heads, a.head_dim);
}

__global__ void __launch_bounds__(TOKEN_THREADS) advance_sequences(struct attention a, struct tokens tokens) {
    int s = (int)(blockIdx.x * TOKEN_THREADS + threadIdx.x);
    if (s < a.sequences) tokens.seqused_k[s]++;
    if (s == 0) (*tokens.step)++;
}

// ---- launches and the table ----

static cudaStream_t stream_of(const struct attention *a) { return (cudaStream_t)a->stream; }

static int attribute(enum cudaDeviceAttr which, int otherwise) {
    int value = 0;
    return cudaDeviceGetAttribute(&value, which, 0) == cudaSuccess ? value : otherwise;
}

// Whether what this GPU runs of this program was compiled for sm_90a: elsewhere there is no wgmma.
static bool has_warpgroups() {
    static int has = -1;
    struct cudaFuncAttributes found = {};
    if (has < 0) {
        CUDA_CHECK(cudaFuncGetAttributes(&found, decode<__half, 64, 64, SPLIT>));
        has = attribute(cudaDevAttrComputeCapabilityMajor, 0) == 9 && found.ptxVersion >= 90;
    }
    return has == 1;
}

// Queries of a sequence, their mean if there are several lengths, which the host does not know.
static int64_t usual_seqlen_q(const struct attention *a) {
    return a->sequences > 0 ? ceil_divide(a->seqlen_q, a->sequences) : a->seqlen_q;
}
// Rows of a block: no more than there usually are.
template <int STEP> static int rows_of(const struct attention *a) {
    int64_t rows = usual_seqlen_q(a) * group_of<STEP>(a);
    return rows <= 16 ? 16 : rows <= 32 || !has_warpgroups() ? 32 : 64;
}

// The most items that there can be: packed sequences may each have a last tile that is not full.
template <int STEP> static int64_t most_items(const struct attention *a) {
    int64_t rows = rows_of<STEP>(a), group = group_of<STEP>(a);
    int64_t tiles = a->sequences > 0 ? (a->seqlen_q * group + a->sequences * (rows - 1)) / rows
                                     : a->batch * ceil_divide(a->seqlen_q * group, rows);
    return tiles * heads_of<STEP>(a);
}

// How many parts: the smallest number that takes at most 5 % longer than the best one, if blocks come in
// waves, one a multiprocessor, and each takes as long as its tiles and one more, for what it does before and
// after. No more than fill 20 waves (then one part does as well), which bounds the workspace, and no more
// than tiles.
template <int STEP> static int choose_splits(const struct attention *a, int multiprocessors) {
    int64_t rows = rows_of<STEP>(a);
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
    int64_t blocks, pieces;
    int64_t slots;  // parts that are kept
    size_t sums_bytes, statistics_bytes, plan_bytes;
};
template <int STEP> static struct sizes sizes_of(const struct attention *a) {
    struct sizes s = {1, 0, 0, 0, 0, 0, 0};
    int64_t items = most_items<STEP>(a), rows = rows_of<STEP>(a);
    int multiprocessors = max(attribute(cudaDevAttrMultiProcessorCount, 1), 1);
    if (STEP == SPLIT || STEP == ONE_LAUNCH) {
        s.splits = a->splits > 0 ? a->splits : choose_splits<STEP>(a, multiprocessors);
        s.splits = min(s.splits, key_tiles(a->seqlen_k));
        if (STEP == ONE_LAUNCH && items > MOST_ROUNDS) s.splits = 1;  // enough blocks as it is
        s.slots = s.splits > 1 ? items * s.splits : 0;
    }
    s.blocks = items * s.splits;
    if (STEP == BALANCED) {
        int64_t most = min(items * (setup_units(a) + key_tiles(a->seqlen_k)), (int64_t)MOST_ROUNDS);
        s.blocks = min(a->splits > 0 ? items * a->splits : multiprocessors, most);
        // A piece for each block. Or each item is one, so that nobody has to merge parts, if sequences are
        // equally long and items fill the waves of blocks to 95 %.
        int64_t waves = ceil_divide(items, max(s.blocks, (int64_t)1));
        bool are_whole = a->splits == 0 && a->sequences == 0 && 100 * items >= 95 * waves * s.blocks;
        s.pieces = are_whole ? min(items, most) : s.blocks;
        s.slots = are_whole && items <= most ? 0 : 2 * s.pieces;
        if (a->sequences > 0) s.plan_bytes = (a->sequences + 1) * sizeof(int64_t) + s.pieces * sizeof(int);
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

// The counters of parts that are done, and one of pieces that are drawn. They are 0 when a launch begins and,
// because the last of a round sets its counter back, when it ends: nobody has to clear them, but they need
// memory that keeps. Two launches at the same time, in two streams, would need two sets.
static unsigned *done_counters() {
    static unsigned *counters;
    if (!counters) {
        CUDA_CHECK(cudaMalloc(&counters, (MOST_ROUNDS + 1) * sizeof(unsigned)));
        CUDA_CHECK(cudaMemset(counters, 0, (MOST_ROUNDS + 1) * sizeof(unsigned)));
    }
    return counters;
}

// Stages to have at most. Where blocks of 16 rows come in more than three waves, one: then two blocks share a
// multiprocessor, and while one begins or ends the other loads. (On an H200 477.7 instead of 487 us for 1024
// blocks of 32 tiles. A single wave, as of `balanced`, needs all stages: 66 us, and 86 with one.)
template <int R, int STEP> static int stages_of(const struct sizes *s) {
    int multiprocessors = max(attribute(cudaDevAttrMultiProcessorCount, 1), 1);
    return STEP != BALANCED && R == STRIP && s->blocks > 3 * (int64_t)multiprocessors ? 1 : INT_MAX;
}

// What of the division has its place in the workspace.
template <int STEP> static struct division division_of(const struct attention *a, const struct sizes *s) {
    struct division how = {};
    how.splits = s->splits;
    how.pieces = (int)s->pieces;
    how.group = group_of<STEP>(a);
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
    struct division how = division_of<BALANCED>(&a, &s);
    int rows = rows_of<BALANCED>(&a);
    auto *kernel = rows == 16 ? make_plan<16> : rows == 32 ? make_plan<32> : make_plan<64>;
    kernel<<<1, PLAN_THREADS, 0, stream_of(&a)>>>(a, how);
    CUDA_CHECK(cudaGetLastError());
}

// Programmatic dependent launch (CUDA C++ Programming Guide): blocks come to multiprocessors as soon as all
// of the kernel before have begun and said so, and griddepcontrol_wait waits for what it has written.
template <class... Parameters>
static void launch_early(void (*kernel)(struct attention, Parameters...), dim3 grid, int threads, int shared,
                         const struct attention &a, Parameters... more) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream_of(&a);
    config.attrs = &early;
    config.numAttrs = attribute(cudaDevAttrComputeCapabilityMajor, 0) >= 9 ? 1 : 0;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, a, more...));
}

template <class T, int D, int R, int STEP> static void launch(struct attention a) {
    struct sizes s = sizes_of<STEP>(&a);
    struct division how = division_of<STEP>(&a, &s);
    if (STEP == BALANCED || (STEP == ONE_LAUNCH && s.slots > 0))
        how.done = done_counters(), how.drawn = how.done + MOST_ROUNDS;
    // As many stages as fit into the shared memory of this GPU, beside the kernel's variables, Q and, with
    // LOADS_AHEAD, the warps' sums.
    constexpr int STAGE = 2 * HALF_STAGE<D>, VARIABLES = LOADS_AHEAD<R, STEP> && D == 128 ? 1024 : 2048;
    constexpr int SUMS = WARPS<R> * AT_ONCE<R, STEP> * SUMS_STRIDE<D> * (int)sizeof(float);
    constexpr int BESIDE = WORKS<D, R, STEP> * Q_BYTES<D, R> + (LOADS_AHEAD<R, STEP> ? SUMS : 0);
    int most = (int)lab_shared_bytes(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    most -= VARIABLES + BESIDE;
    how.stages = min(min(most / STAGE, MOST_STAGES<D>), stages_of<R, STEP>(&s));
    int bytes = max(how.stages * STAGE + BESIDE, SUMS);
    CUDA_CHECK(how.stages > 0 ? cudaSuccess : cudaErrorNotSupported);
    CUDA_CHECK(
        cudaFuncSetAttribute(decode<T, D, R, STEP>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    float factor = lab16_factor(&a);
    if (STEP == BALANCED && !a.planned) plan_balanced(a);
    dim3 grid(lab_blocks(s.blocks / s.splits, 1), s.splits);
    launch_early(decode<T, D, R, STEP>, grid, THREADS<R>, bytes, a, how, factor);
    if (STEP != SPLIT || s.splits == 1) return;
    int64_t rows = a.sequences > 0 ? R : min((int64_t)R, (int64_t)a.seqlen_q * how.group);
    // Many rows of a few parts have two warps each: fewer blocks, which all have come before the first kernel
    // ends.
    constexpr int FEW = 2;
    bool has_many =
        s.splits <= 16 && most_items<STEP>(&a) * rows > attribute(cudaDevAttrMultiProcessorCount, 1);
    int64_t of_block = has_many ? MERGE_WARPS / FEW : 1;
    dim3 of_rows(lab_blocks(most_items<STEP>(&a), 1), (unsigned)ceil_divide(rows, of_block));
    launch_early(has_many ? merge<T, D, R, FEW> : merge<T, D, R, MERGE_WARPS>, of_rows, MERGE_WARPS * WARP, 0,
                 a, how);
}
template <class T, int D, int STEP> static void launch_step(struct attention a) {
    int rows = rows_of<STEP>(&a);
    rows == 16   ? launch<T, D, 16, STEP>(a)
    : rows == 32 ? launch<T, D, 32, STEP>(a)
                 : launch<T, D, 64, STEP>(a);
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
    append_token<<<lab_blocks(a.sequences, 1), TOKEN_THREADS, 0, stream_of(&a)>>>(a, tokens);
}
static void advance(struct attention a, struct tokens tokens) {
    advance_sequences<<<lab_blocks(a.sequences, TOKEN_THREADS), TOKEN_THREADS, 0, stream_of(&a)>>>(a, tokens);
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
    {"balanced", "pieces that take equally long, or whole items", launch_balanced, workspace_of<BALANCED>,
     IN_PARTS, nullptr, nullptr, nullptr, blocks_of<BALANCED>, plan_balanced},
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
