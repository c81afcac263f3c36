// lab05_causal.cu - what a mask saves: tiles that are never loaded, blocks in a better order, no padding.
//
// The kernel is lab 04's `pipelined`. What is new is which tiles a block goes through, and which block does
// what: struct work and find_work below. Lecture 25, section 4.4 and pitfall 07. The kernels:
//
//     masked     every tile is computed, and every score is asked whether its query sees its key
//     skipped    tiles that no query of the block sees are never loaded; only tiles that some query does
//                not see all of are masked
//     balanced   the blocks with the most keys start first, so that no long one is left over at the end
//     packed     sequences of different lengths behind each other, as flash_attn_varlen_func takes them: no
//                padding is stored, loaded or computed
//
// Query i of a sequence stands at key i + seqlen_k - seqlen_q: the last query at the last key. It sees, with
// --causal, no key after its own; with --window L,R, keys from L before to R after its own, both included.
//
//     ./lab run 05         or        build/cpu/lab05_causal --causal --kernel packed --seqlens 17,0,300

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
constexpr int STRIP = 16;                  // rows of an mma
constexpr int STRIPS = 2;                  // of a warp
constexpr int ROWS = STRIPS * STRIP;       // queries of a warp
constexpr int QUERIES = WARPS * ROWS;      // of a block
template <int D> constexpr int KEYS = 64;  // in a tile of K or V
template <> constexpr int KEYS<64> = 128;
constexpr float LOG2E = 1.44269504f;
constexpr float LOWEST = -1e30f;  // m before any key: see lab 04, as for the next one
constexpr float SCORE_MAX = 1 << 24;
constexpr float RISE = 8.0f;  // in powers of two: see raise_maximum

enum step { MASKED, SKIPPED, BALANCED, PACKED };

// Lane 4 g + t has rows g and g + 8 of a strip (h = 0, 1), columns 8n + 2t and 8n + 2t + 1: see lab 04.
static __device__ int warp() { return __shfl_sync(ALL_LANES, (int)threadIdx.x / WARP, 0); }
static __device__ int lane() { return threadIdx.x % WARP; }
static __device__ int lane_row() { return lane() / 4; }
static __device__ int lane_column() { return lane() % 4 * 2; }
static __device__ int row_of(int s, int h) { return warp() * ROWS + s * STRIP + h * 8 + lane_row(); }

static __device__ float quad_max(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}
static __device__ float quad_sum(float x) {
    for (int offset = 1; offset < 4; offset *= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// ---- which block does what ----

// A block's tile of queries and the keys that it goes through, numbered in their own sequence.
struct work {
    const void *q, *k, *v;  // of the sequence and head: [seqlen_q][head_dim], [seqlen_k][head_dim] twice
    void *o;                // [seqlen_q][head_dim]
    float *lse;             // [seqlen_q]
    int seqlen_q, seqlen_k;
    int from, to;              // query i sees keys i + from ... i + to - 1, as far as they exist
    int first_query, queries;  // queries first_query ... first_query + queries - 1; none: nothing to do
    // Its tiles of keys: all of keys.first ... keys.end - 1, of which the last may be cut short. The first
    // left_tiles and the last few lie on an edge of the mask. First come the open ones between them, of which
    // every query sees every key, then those on the right and those on the left.
    struct span keys;
    int tiles, open_tiles, left_tiles;
};

static __device__ int tiles_of(int seqlen_q) { return (seqlen_q + QUERIES - 1) / QUERIES; }

// The keys that a query sees: visible_span in a few instructions.
static __device__ struct span sees(const struct work *w, int query) {
    struct span span = {max(query + w->from, 0), max(query + min(w->to, w->seqlen_k - query), 0)};
    return span;
}
static __device__ void set_window(const struct attention *a, struct work *w) {
    // BEGIN SOLUTION diagonal: query i sees keys i + from to i + to - 1: causal, windowed, or all of them.
    int64_t diagonal = w->seqlen_k - w->seqlen_q, from = -w->seqlen_q, to = w->seqlen_k;
    if (a->window && a->window_left != NO_LIMIT) from = max(from, diagonal - a->window_left);
    if (a->window && a->window_right != NO_LIMIT) to = min(to, diagonal + a->window_right + 1);
    if (a->causal) to = min(to, diagonal + 1);
    w->from = (int)max(from, (int64_t)-INT32_MAX);
    w->to = (int)max(to, (int64_t)-INT32_MAX);
    // STUB (void)a;
    // STUB w->from = w->to = -w->seqlen_q;  // nobody sees anything
    // END SOLUTION
}

// Sequence, head and tile of queries of a block.
struct place {
    int sequence, head, tile;
};

// All sequences are seqlen_q queries long. blockIdx.x counts through [batch][heads][tiles].
static __device__ struct place in_order(const struct attention *a) {
    int tiles = tiles_of(a->seqlen_q), pair = (int)blockIdx.x / tiles;
    struct place at = {pair / a->heads, pair % a->heads, (int)blockIdx.x % tiles};
    return at;
}

// The last tiles, which see the most keys, first.
// blockIdx.x counts through [tiles, from the last][batch][heads].
static __device__ struct place longest_first(const struct attention *a) {
    int pairs = a->batch * a->heads, pair = (int)blockIdx.x % pairs;
    struct place at = {pair / a->heads, pair % a->heads, tiles_of(a->seqlen_q) - 1 - (int)blockIdx.x / pairs};
    return at;
}

// blockIdx.x counts through [sequences][tiles of that sequence, from the last][heads]. One warp looks for the
// sequence, 32 at a time. The launch, which does not know the lengths, has blocks to spare: sequence -1.
static __device__ struct place in_packed_order(const struct attention *a) {
    int before = 0;  // blocks of the sequences before `first`
    for (int first = 0; first < a->sequences; first += WARP) {
        int s = first + lane();
        int tiles = s < a->sequences ? tiles_of(a->cu_seqlens_q[s + 1] - a->cu_seqlens_q[s]) : 0;
        int sum = tiles * a->heads;  // of this lane's sequence and those before it
        for (int offset = 1; offset < WARP; offset *= 2) {
            int other = __shfl_up_sync(ALL_LANES, sum, offset);
            if (lane() >= offset) sum += other;
        }
        unsigned beyond = __ballot_sync(ALL_LANES, before + sum > (int)blockIdx.x);
        if (beyond) {
            int found = __ffs((int)beyond) - 1;
            int within = (int)blockIdx.x - before - __shfl_sync(ALL_LANES, sum - tiles * a->heads, found);
            tiles = __shfl_sync(ALL_LANES, tiles, found);
            struct place at = {first + found, within % a->heads, tiles - 1 - within / a->heads};
            return at;
        }
        before += __shfl_sync(ALL_LANES, sum, WARP - 1);
    }
    struct place nowhere = {-1, 0, 0};
    return nowhere;
}

// *w is in shared memory: the same for all threads, and in no registers.
template <class T, int STEP, int K>
static __device__ void find_work(const struct attention *a, struct work *w) {
    if (warp() == 0) {
        bool packed = STEP == PACKED && a->sequences > 0;
        struct place at = packed ? in_packed_order(a) : STEP >= BALANCED ? longest_first(a) : in_order(a);
        // Where the sequence begins: in a tensor of its batch, or of all tokens.
        int batch = packed ? 0 : at.sequence, q_token = 0, k_token = 0;
        int seqlen_q = a->seqlen_q, seqlen_k = a->seqlen_k;
        if (packed && at.sequence >= 0) {
            // BEGIN SOLUTION packed: where this sequence begins among all tokens, and how long it is.
            q_token = a->cu_seqlens_q[at.sequence];
            k_token = a->cu_seqlens_k[at.sequence];
            seqlen_q = a->cu_seqlens_q[at.sequence + 1] - q_token;
            seqlen_k = a->cu_seqlens_k[at.sequence + 1] - k_token;
            // END SOLUTION
        }
        if (lane() == 0) {
            w->q = row<T>(a->q, batch, at.head, q_token);
            w->k = row<T>(a->k, batch, kv_head_of(a, at.head), k_token);
            w->v = row<T>(a->v, batch, kv_head_of(a, at.head), k_token);
            w->o = row<T>(a->o, batch, at.head, q_token);
            w->lse = a->lse + ((int64_t)batch * a->heads + at.head) * a->seqlen_q + q_token;
            w->seqlen_q = seqlen_q;
            w->seqlen_k = seqlen_k;
            w->first_query = at.tile * QUERIES;
            w->queries = at.sequence < 0 ? 0 : min(QUERIES, seqlen_q - w->first_query);
            set_window(a, w);
            w->keys.first = w->left_tiles = w->open_tiles = 0;
            w->keys.end = seqlen_k;
            if (STEP >= SKIPPED) {
                // BEGIN SOLUTION skipped_tiles: from which key to which, and which tiles need no mask.
                // From query to query a span's ends only grow: the block's keys lie between the first's and
                // the last's ends, and all queries see what is in both spans.
                struct span first = sees(w, w->first_query);
                struct span last = sees(w, w->first_query + w->queries - 1);
                w->keys.first = first.first;
                w->keys.end = last.end;
                w->left_tiles = (last.first - first.first + K - 1) / K;
                w->open_tiles = max((first.end - first.first) / K - w->left_tiles, 0);
                // STUB w->keys.end = 0;
                // END SOLUTION
            }
            w->tiles = (w->keys.end - w->keys.first + K - 1) / K;
            w->left_tiles = min(w->left_tiles, w->tiles);
        }
    }
    __syncthreads();  // *w is written before anybody reads it
}

// The first key of the block's tile number t: the tiles in their order, from the first open one round.
template <int K> static __device__ int key_of_tile(const struct work *w, int t) {
    int tile = w->left_tiles + t;
    return w->keys.first + K * (tile < w->tiles ? tile : tile - w->tiles);
}

// Whether one of the warp's queries sees one of the keys first ... first + K - 1.
template <int K> static __device__ bool warp_sees(const struct work *w, int first) {
    int row = warp() * ROWS;
    if (row >= w->queries) return false;
    int query = w->first_query + row, last = w->first_query + min(row + ROWS, w->queries) - 1;
    return sees(w, query).first < first + K && sees(w, last).end > first;
}

// Scores of keys that a query does not see, or that do not exist, become -inf.
template <int K> static __device__ void mask(const struct work *w, int first_key, float (*s_reg)[K / 8][4]) {
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            // BEGIN SOLUTION mask: scores of keys outside of what the lane's query sees become -inf.
            struct span seen = sees(w, w->first_query + row_of(s, h));
            int from = seen.first - first_key - lane_column();
            int to = seen.end - first_key - lane_column();
#pragma unroll
            for (int e = 0; e < K / 4; e++) {
                int column = e / 2 * 8 + e % 2;
                if (column < from || column >= to) s_reg[s][e / 2][2 * h + e % 2] = -INFINITY;
            }
            // STUB for (int e = 0; e < K / 4; e++) s_reg[s][e / 2][2 * h + e % 2] = -INFINITY;
            // STUB (void)w, (void)first_key;
            // END SOLUTION
        }
}

// ---- the products and the exponentials, as in lab 04 ----

// Where a chunk (16 bytes, 8 numbers) of row r begins, in bytes, in a swizzled tile of rows of D numbers.
template <int D> static __device__ int chunk_at(int r, int chunk) {
    return r * D * 2 + (chunk ^ (r & 7)) * 16;
}

// Starts copying ROWS rows of one head, row `first` and so on, to shared memory; rows from `end` on, and
// columns past head_dim, become 0.
template <class T, int D, int TILE_ROWS>
static __device__ void load_tile(const void *head, int64_t stride_row, int first, int end, int head_dim,
                                 char *tile_smem) {
    constexpr int APART = THREADS / (D / 8);
    int r = threadIdx.x / (D / 8);
    int chunk = threadIdx.x % (D / 8);
    bool inside = chunk * 8 < head_dim;
    const T *from = (const T *)head + (first + r) * stride_row + (inside ? chunk * 8 : 0);
    uint32_t to = shared_address(tile_smem + chunk_at<D>(r, chunk));
    if (first + TILE_ROWS <= end) {  // the usual case, without a question for each row
#pragma unroll
        for (int i = 0; i < TILE_ROWS; i += APART)
            cp_async_16(to + i * D * 2, from + i * stride_row, inside ? 16 : 0);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < TILE_ROWS; i += APART, from += APART * stride_row) {
        bool there = inside && first + r + i < end;
        cp_async_16(to + i * D * 2, there ? from : head, there ? 16 : 0);
    }
}

// Where a lane's row of the four matrices of an ldmatrix begins: by rows for Q and V, by columns for K.
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
static __device__ void multiply_q_k(uint32_t q_strips, uint32_t k_tile, float (*s_reg)[K / 8][4]) {
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t q_reg[STRIPS][4];
        uint32_t q_at = q_strips + to_the_right(place_by_rows<D>(), step);
        uint32_t k_at = k_tile + to_the_right(place_by_columns<D>(), step);
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

// O += P V for 16 keys.
template <class T, int D>
static __device__ void multiply_p_v(const uint32_t (&p_reg)[STRIPS][4], uint32_t v_rows,
                                    float (*o_reg)[D / 8][4]) {
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
        uint32_t v_reg[4];
        ldmatrix_x4_trans(v_reg, v_rows + to_the_right(place_by_rows<D>(), n));
        const uint32_t left[2] = {v_reg[0], v_reg[1]}, right[2] = {v_reg[2], v_reg[3]};
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            mma_m16n8k16<T>(o_reg[s][2 * n], p_reg[s], left);
            mma_m16n8k16<T>(o_reg[s][2 * n + 1], p_reg[s], right);
        }
    }
}

// Changes the sign of the warp's rows of Q, in place: scores are multiplied by |scale| only.
template <int D> static __device__ void negate_q(char *q_smem) {
    uint4 *rows = (uint4 *)(q_smem + warp() * ROWS * D * 2);
    constexpr uint32_t SIGNS = 0x80008000;
    for (int e = lane(); e < ROWS * D * 2 / 16; e += WARP) {
        uint4 x = rows[e];
        rows[e] = make_uint4(x.x ^ SIGNS, x.y ^ SIGNS, x.z ^ SIGNS, x.w ^ SIGNS);
    }
    __syncwarp();  // the rows are whole before the warp's lanes read them
}

// m, in powers of two, follows a row's largest score only when that is RISE above it in some row of the warp.
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

// O = O / l, LSE = m + ln l. o_smem: room for the block's rows of O, which go out in whole chunks.
template <class T, int D>
static __device__ void finish(const struct attention *a, const struct work *w, const float (*m_reg)[2],
                              float (*l_reg)[2], float (*o_reg)[D / 8][4], char *o_smem) {
    unsigned broken[STRIPS][2];  // lanes that have a NaN in O, and none in l: see recompute_row
    __syncthreads();             // nobody still reads the queries that O takes the place of
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float l = quad_sum(l_reg[s][h]);
            float inverse = l == 0.0f ? 0.0f : 1.0f / l;
            l_reg[s][h] = inverse;
            int r = row_of(s, h);
            bool has_nan = false;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                float x = o_reg[s][n][2 * h] * inverse;
                float y = o_reg[s][n][2 * h + 1] * inverse;
                has_nan |= isnan(x + y);
                *(uint32_t *)(o_smem + chunk_at<D>(r, n) + lane_column() * 2) = pack2<T>(x, y);
            }
            broken[s][h] = __ballot_sync(ALL_LANES, has_nan && !isnan(l) && r < w->queries);
            if (lane_column() == 0 && r < w->queries)
                w->lse[w->first_query + r] = l == 0.0f ? -INFINITY : m_reg[s][h] + logf(l);
        }
    __syncwarp();  // the warp's rows are whole before its lanes read them in another order
    T *o = (T *)w->o + w->first_query * a->o.stride_row;
    for (int e = lane(); e < ROWS * (D / 8); e += WARP) {
        int r = warp() * ROWS + e / (D / 8);
        int chunk = e % (D / 8);
        if (r < w->queries && chunk * 8 < a->head_dim)
            *(uint4 *)(o + r * a->o.stride_row + chunk * 8) =
                *(const uint4 *)(o_smem + chunk_at<D>(r, chunk));
    }
    if (!a->causal && !a->window) return;  // every query sees all keys
    __syncwarp();                          // O is written before rows of it are written again
#pragma unroll
    for (int n = 0; n < STRIPS * 2; n++) {
        int s = n / 2, h = n % 2;
        for (int g = 0; g < 8; g++) {
            float m = __shfl_sync(ALL_LANES, m_reg[s][h], g * 4);
            float inverse = __shfl_sync(ALL_LANES, l_reg[s][h], g * 4);
            int r = warp() * ROWS + s * STRIP + h * 8 + g;
            if (broken[s][h] >> g * 4 & 15)
                recompute_row<T>((const T *)w->q + (w->first_query + r) * a->q.stride_row, (const T *)w->k,
                                 a->k.stride_row, (const T *)w->v, a->v.stride_row, o + r * a->o.stride_row,
                                 a->head_dim, sees(w, w->first_query + r), a->scale, m, inverse);
        }
    }
}

// ---- the kernel ----

template <int D> constexpr int STAGE_BYTES = 2 * KEYS<D> *D * 2;  // a stage: K [K][D], V [K][D]

// Starts the copies of tile number t of K and V, if there is one, to one of the two stages.
template <class T, int D>
static __device__ void load_k_v(const struct attention *a, const struct work *w, int t, char *stages_smem) {
    constexpr int K = KEYS<D>;
    if (t < w->tiles) {
        int first = key_of_tile<K>(w, t);
        char *k_smem = stages_smem + t % 2 * STAGE_BYTES<D>;
        load_tile<T, D, K>(w->k, a->k.stride_row, first, w->keys.end, a->head_dim, k_smem);
        load_tile<T, D, K>(w->v, a->v.stride_row, first, w->keys.end, a->head_dim, k_smem + K * D * 2);
    }
    cp_async_commit();
}

// Waits for tile number t and starts the one after it.
template <class T, int D>
static __device__ void next_tile(const struct attention *a, const struct work *w, int t, char *stages_smem) {
    cp_async_wait<0>();  // this thread's part of the tile is there
    __syncthreads();     // everybody's is, and nobody still reads the stage that the next line refills
    load_k_v<T, D>(a, w, t + 1, stages_smem);
}

// Whether open tiles have code of their own, without the mask: faster at head_dim 128, too many registers
// at 64.
template <int D> constexpr bool TWO_COPIES = D == 128;

// One tile: S = Q K^T, masked if it is not open; P; O += P V.
template <class T, int D, bool MASKS>
static __device__ void compute_tile(const struct work *w, int t, float factor, uint32_t q_strips,
                                    uint32_t stages, float (*m_reg)[2], float (*l_reg)[2],
                                    float (*o_reg)[D / 8][4]) {
    constexpr int K = KEYS<D>;
    uint32_t k_tile = stages + t % 2 * STAGE_BYTES<D>;
    float s_reg[STRIPS][K / 8][4] = {};
    multiply_q_k<T, D, K>(q_strips, k_tile, s_reg);
    if (MASKS && t >= w->open_tiles) mask<K>(w, key_of_tile<K>(w, t), s_reg);
    raise_maximum<D, K>(factor, s_reg, m_reg, l_reg, o_reg);
#pragma unroll
    for (int n = 0; n < K / 16; n++) {
        uint32_t p_reg[STRIPS][4];
#pragma unroll
        for (int s = 0; s < STRIPS; s++)
            exponentials<T>(factor, &s_reg[s][2 * n], m_reg[s], l_reg[s], p_reg[s]);
        multiply_p_v<T, D>(p_reg, k_tile + (K + n * 16) * D * 2, o_reg);
    }
}

// factor: |scale| * log2 e, for exponentials to the base 2.
template <class T, int D, int STEP>
__global__ void __launch_bounds__(THREADS, 2) attention_tiles(struct attention a, float factor) {
    extern __shared__ __align__(128) char shared_smem[];
    __shared__ struct work w;
    find_work<T, STEP, KEYS<D>>(&a, &w);
    if (w.queries == 0) return;
    char *q_smem = shared_smem;                    // [QUERIES][D] of T
    char *stages_smem = q_smem + QUERIES * D * 2;  // [2][STAGE_BYTES]
    load_tile<T, D, QUERIES>(w.q, a.q.stride_row, w.first_query, w.seqlen_q, a.head_dim, q_smem);
    cp_async_commit();
    load_k_v<T, D>(&a, &w, 0, stages_smem);
    cp_async_wait<1>();  // this thread's part of Q is there
    __syncthreads();     // everybody's is
    if (a.scale < 0.0f) negate_q<D>(q_smem);

    uint32_t q_strips = shared_address(q_smem) + warp() * ROWS * D * 2;
    uint32_t stages = shared_address(stages_smem);
    float m_reg[STRIPS][2], l_reg[STRIPS][2] = {}, o_reg[STRIPS][D / 8][4] = {};
    for (int s = 0; s < STRIPS; s++) m_reg[s][0] = m_reg[s][1] = LOWEST;
    for (int t = 0; t < w.tiles; t++) {
        next_tile<T, D>(&a, &w, t, stages_smem);
        bool is_open = t < w.open_tiles;
        if (TWO_COPIES<D> && is_open) {
            compute_tile<T, D, false>(&w, t, factor, q_strips, stages, m_reg, l_reg, o_reg);
        } else {
            bool sees_some = STEP == MASKED || is_open || warp_sees<KEYS<D>>(&w, key_of_tile<KEYS<D>>(&w, t));
            // Else the warp only helps loading. (All lanes say the same; the vote lets the compiler know.)
            if (__any_sync(ALL_LANES, sees_some))
                compute_tile<T, D, true>(&w, t, factor, q_strips, stages, m_reg, l_reg, o_reg);
        }
    }
    cp_async_wait_all();  // also where there was no key, and nobody waited
    for (int s = 0; s < STRIPS; s++)
        for (int h = 0; h < 2; h++) m_reg[s][h] *= 1.0f / LOG2E;
    finish<T, D>(&a, &w, m_reg, l_reg, o_reg, q_smem);
}

// ---- launches and the table ----

template <class T, int D, int STEP> static void attention_tiles_of(struct attention a) {
    constexpr int BYTES = (QUERIES + 4 * KEYS<D>)*D * 2;
    CUDA_CHECK(cudaFuncSetAttribute(attention_tiles<T, D, STEP>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    BYTES));
    // Packed sequences: each may have a last tile that is not full.
    int64_t tiles = a.sequences > 0 ? ((int64_t)a.seqlen_q + (int64_t)a.sequences * (QUERIES - 1)) / QUERIES
                                    : (int64_t)a.batch * lab_blocks(a.seqlen_q, QUERIES);
    attention_tiles<T, D, STEP><<<lab_blocks(a.heads * tiles, 1), THREADS, BYTES>>>(a, lab16_factor(&a));
}
template <class T, int D> static void masked_of(struct attention a) { attention_tiles_of<T, D, MASKED>(a); }
template <class T, int D> static void skipped_of(struct attention a) { attention_tiles_of<T, D, SKIPPED>(a); }
template <class T, int D> static void balanced_of(struct attention a) {
    attention_tiles_of<T, D, BALANCED>(a);
}
template <class T, int D> static void packed_of(struct attention a) { attention_tiles_of<T, D, PACKED>(a); }

static void launch_masked(struct attention a) { LAB16_LAUNCH(a, masked_of); }
static void launch_skipped(struct attention a) { LAB16_LAUNCH(a, skipped_of); }
static void launch_balanced(struct attention a) { LAB16_LAUNCH(a, balanced_of); }
static void launch_packed(struct attention a) { LAB16_LAUNCH(a, packed_of); }

constexpr unsigned TYPES = 1u << DTYPE_FP16 | 1u << DTYPE_BF16;
constexpr struct support ANY_MASK = {TYPES, 8, 128, 0, FEATURE_WINDOW, SCORE_MAX};
constexpr struct support ANY_LENGTHS = {TYPES, 8, 128, 0, FEATURE_WINDOW | FEATURE_PACKED, SCORE_MAX};
static const struct kernel kernels[] = {
    {"masked", "every tile computed, every score masked", launch_masked, nullptr, ANY_MASK},
    {"skipped", "tiles that nobody sees are not loaded", launch_skipped, nullptr, ANY_MASK},
    {"balanced", "the longest rows first", launch_balanced, nullptr, ANY_MASK},
    {"packed", "sequences of any lengths, no padding", launch_packed, nullptr, ANY_LENGTHS},
};

static const struct lab lab05 = {
    "lab05_causal",
    "masks: what nobody sees is not computed; sequences of any lengths are not padded",
    "lecture 25, section 4.4 and pitfall 07",
    80,                      // min_sm: the oldest GPU that runs it, Ampere
    {1, 2, 2, 256, 64},      // batch, heads, kv_heads, seqlen, head_dim on the cpu backend: a second of work
    {4, 16, 16, 4096, 128},  // and on a GPU: work that fills it
    kernels,
    sizeof kernels / sizeof kernels[0],
    1,  // causal, unless --full
};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab05); }
