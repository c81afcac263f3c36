// lab06_backward.cu - gradients without the N x N matrix: the backward pass computes P again.
//
// With L = sum(O * dO), from Q, K, V, O, LSE and dO:
//
//     P = exp(scale Q K^T - LSE)    dV = P^T dO    dP = dO V^T    dS = P * (dP - D), D = rowsum(dO * O)
//     dQ = scale dS K               dK = scale dS^T Q
//
// FlashAttention (Dao et al. 2022), section 3.1 and appendix B.2; FlashAttention-2 (Dao 2023), algorithm 2;
// lecture 25, section 3.3. The kernels:
//
//     stored                P is kept from the forward pass, dP and dS are written and read: what
//                           recomputation replaces
//     separate              P again, tile by tile: a kernel whose blocks keep keys makes dK and dV, another
//                           whose blocks keep queries makes dQ; seven products
//     fused                 dQ in the first kernel, too, by atomic additions: five products
//     fused_deterministic   the blocks add to dQ in a fixed order: the same bits in every run
//
//     ./lab run 06         or        build/cpu/lab06_backward --causal --kernel fused --heads 6 --kv-heads 2

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/attention.h"
#include "common/lab.h"
#include "common/lab16.h"
#include "common/lab16_gradients.h"
#include "common/ptx.h"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;
constexpr int STRIP = 16;  // rows of an mma
constexpr float LOG2E = 1.44269504f;

// Lane 4 g + t has rows g and g + 8 of a strip (h = 0, 1), columns 8n + 2t and 8n + 2t + 1: see lab 04.
static __device__ int warp() { return __shfl_sync(ALL_LANES, (int)threadIdx.x / WARP, 0); }
static __device__ int lane() { return threadIdx.x % WARP; }
static __device__ int lane_row() { return lane() / 4; }
static __device__ int lane_column() { return lane() % 4 * 2; }

// ---- kernels in which a warp has a row ----

constexpr int ROW_THREADS = 256;
static __device__ int64_t row_of_warp() { return ((int64_t)blockIdx.x * ROW_THREADS + threadIdx.x) / WARP; }
static unsigned row_blocks(int64_t rows) { return lab_blocks(rows, ROW_THREADS / WARP); }

// ---- the workspace: fp32 dQ before it is scaled and rounded, D, and the order of fused_deterministic ----

// Columns of a row of the fp32 dQ.
static __host__ __device__ int dq_columns(const struct attention *a) { return (a->head_dim + 15) / 16 * 16; }

struct scratch {
    float *dq;     // [batch][heads][seqlen_q][dq_columns]; only of the fused kernels
    float *delta;  // D [batch][heads][seqlen_q]
    int *done;    // [batch][heads][seqlen_q]: at a tile's first query, how many blocks have added to the tile
    int *ticket;  // how many blocks have begun
};
static __host__ __device__ struct scratch scratch_of(const struct attention *a, bool has_dq) {
    int64_t queries = query_count(a);
    struct scratch s;
    s.dq = (float *)a->workspace;
    s.delta = s.dq + (has_dq ? queries * dq_columns(a) : 0);
    s.done = (int *)(s.delta + queries);
    s.ticket = s.done + queries;
    return s;
}
static size_t delta_bytes(const struct attention *a) { return (size_t)query_count(a) * sizeof(float); }
static size_t fused_bytes(const struct attention *a) { return delta_bytes(a) * (1 + (size_t)dq_columns(a)); }
static size_t deterministic_bytes(const struct attention *a) {
    return fused_bytes(a) + delta_bytes(a) + sizeof(int);
}

// ---- stored: the textbook, with P and dP (later dS) in memory ----
//
// P comes from the forward pass. In place of a library, one kernel for all products, on CUDA cores.

constexpr int SIDE = 16;  // a block is SIDE x SIDE threads ...
constexpr int EACH = 4;   // ... each with EACH x EACH elements, SIDE apart in both directions
constexpr int TILE = SIDE * EACH;
constexpr int DEPTH = 32;  // terms of the sums that are in shared memory at a time
constexpr int STORED_THREADS = SIDE * SIDE;

// A matrix of each (batch, head), any way round: its element (i, j) is i * row + j * column elements on.
struct matrix {
    void *data;
    int64_t batch, head, row, column;
    int rows, columns;
};
static struct matrix matrix_of(struct tensor t, int rows, int columns) {
    struct matrix m = {t.data, t.stride_batch, t.stride_head, t.stride_row, 1, rows, columns};
    return m;
}
static struct matrix transposed(struct matrix m) {
    struct matrix t = {m.data, m.batch, m.head, m.column, m.row, m.columns, m.rows};
    return t;
}
// P (0), and dP, which becomes dS (1): [batch][heads][seqlen_q][seqlen_k] of T, behind D.
template <class T> static __host__ __device__ T *stored_matrix(const struct attention *a, int which) {
    return (T *)(scratch_of(a, false).delta + query_count(a)) + which * query_count(a) * a->seqlen_k;
}
template <class T> static struct matrix stored_of(const struct attention *a, int which) {
    int64_t row = a->seqlen_k, head = row * a->seqlen_q;
    struct matrix m = {stored_matrix<T>(a, which), head * a->heads, head, row, 1, a->seqlen_q, a->seqlen_k};
    return m;
}
static size_t stored_bytes(const struct attention *a) {
    return delta_bytes(a) + 2 * (size_t)query_count(a) * (size_t)a->seqlen_k * sizeof(half);
}

template <class T>
static __device__ void load_part(const struct matrix *m, int64_t at, int first_row, int first_column,
                                 int rows, int columns, float *to, int to_row, int to_column) {
    bool by_columns = m->column == 1;  // neighbouring threads, neighbouring addresses
#pragma unroll 1
    for (int e = threadIdx.x; e < rows * columns; e += STORED_THREADS) {
        int r = by_columns ? e / columns : e % rows, c = by_columns ? e % columns : e / rows;
        bool there = first_row + r < m->rows && first_column + c < m->columns;
        const T *from = (const T *)m->data + at + (first_row + r) * m->row + (first_column + c) * m->column;
        to[r * to_row + c * to_column] = there ? (float)*from : 0.0f;
    }
}

// C = factor * A B. Head h of C is the sum over `summed` heads h * summed + r of A and B, and head i of A
// belongs to head i / shared of B.
// IS_P: C is P, from scores: what a query does not see is 0.
template <class T, bool IS_P>
__global__ void __launch_bounds__(STORED_THREADS)
    product(struct attention a, struct matrix left, struct matrix right, struct matrix out, float factor,
            int heads, int summed, int shared) {
    __shared__ float left_smem[TILE][DEPTH + 1];  // one more: no bank conflicts when columns are written
    __shared__ float right_smem[DEPTH][TILE + 1];
    int across = (out.columns + TILE - 1) / TILE, down = (out.rows + TILE - 1) / TILE;
    int number = (int)blockIdx.x, pair = number / across / down;
    int first_column = number % across * TILE, first_row = number / across % down * TILE;
    int batch = pair / heads, head = pair % heads;
    int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    float sum_reg[EACH][EACH] = {};
    for (int r = 0; r < summed; r++) {
        int left_head = head * summed + r, right_head = left_head / shared;
#pragma unroll 1
        for (int k = 0; k < left.columns; k += DEPTH) {
            __syncthreads();  // nobody still reads the parts that the next ones replace
            load_part<T>(&left, batch * left.batch + left_head * left.head, first_row, k, TILE, DEPTH,
                         &left_smem[0][0], DEPTH + 1, 1);
            load_part<T>(&right, batch * right.batch + right_head * right.head, k, first_column, DEPTH, TILE,
                         &right_smem[0][0], TILE + 1, 1);
            __syncthreads();  // both parts are whole
            for (int d = 0; d < DEPTH; d++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++)
                        sum_reg[i][j] += left_smem[y + i * SIDE][d] * right_smem[d][x + j * SIDE];
        }
    }
    T *to = (T *)out.data + batch * out.batch + head * out.head;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int r = first_row + y + i * SIDE, c = first_column + x + j * SIDE;
            if (r >= out.rows || c >= out.columns) continue;
            float value = sum_reg[i][j] * factor;
            if (IS_P) {
                float lse = a.lse[((int64_t)batch * a.heads + head) * a.seqlen_q + r];
                value = c < visible_keys(&a, r) ? expf(value - lse) : 0.0f;
            }
            to[r * out.row + c * out.column] = (T)value;
        }
}
template <class T, bool IS_P = false>
static void multiply(struct attention a, struct matrix left, struct matrix right, struct matrix out,
                     float factor, int heads, int summed, int shared) {
    int64_t across = (out.columns + TILE - 1) / TILE, down = (out.rows + TILE - 1) / TILE;
    int64_t tiles = across * down * a.batch * heads;
    if (tiles == 0) return;
    product<T, IS_P>
        <<<lab_blocks(tiles, 1), STORED_THREADS>>>(a, left, right, out, factor, heads, summed, shared);
    CUDA_CHECK(cudaGetLastError());
}

// dP becomes dS = P * (dP - D), with D from its first meaning: rowsum(P * dP). A warp has a row.
template <class T> __global__ void __launch_bounds__(ROW_THREADS) stored_ds(struct attention a) {
    int64_t query = row_of_warp();
    if (query >= query_count(&a)) return;
    // BEGIN SOLUTION stored_ds: dS = P * (dP - sum), sum = rowsum(P * dP); 0 for keys that are not seen.
    const T *p = stored_matrix<T>(&a, 0) + query * a.seqlen_k;
    T *ds = stored_matrix<T>(&a, 1) + query * a.seqlen_k;
    int visible = visible_keys(&a, position_of(&a, query).i);
    float sum = 0.0f;
    for (int key = lane(); key < visible; key += WARP) sum += (float)p[key] * (float)ds[key];
    for (int offset = WARP / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, offset);
    for (int key = lane(); key < a.seqlen_k; key += WARP)
        ds[key] = (T)(key < visible ? (float)p[key] * ((float)ds[key] - sum) : 0.0f);
    // STUB float sum = 0.0f;
    // END SOLUTION
    if (lane() == 0) scratch_of(&a, false).delta[query] = sum;
}

// Rows with a NaN or an infinity once more: products multiply them by the zeros of what is not seen.
template <class T> static __device__ bool is_broken_row(const T *x, int head_dim) {
    bool is_broken = false;
    for (int c = lane(); c < head_dim; c += WARP) is_broken |= !isfinite((float)x[c]);
    return __any_sync(ALL_LANES, is_broken);
}
template <class T> __global__ void __launch_bounds__(ROW_THREADS) repair(struct attention a) {
    const float *delta = scratch_of(&a, false).delta;
    int64_t r = row_of_warp(), queries = query_count(&a);
    if (r < queries) {
        struct position at = position_of(&a, r);
        if (is_broken_row(row<T>(a.dq, at.batch, at.head, at.i), a.head_dim))
            recompute_dq_row<T>(&a, at.batch, at.head, at.i, delta);
    } else if (r - queries < key_count(&a)) {
        int64_t key = (r - queries) % a.seqlen_k, pair = (r - queries) / a.seqlen_k;
        int64_t batch = pair / a.kv_heads, kv_head = pair % a.kv_heads;
        if (is_broken_row(row<T>(a.dk, batch, kv_head, key), a.head_dim) ||
            is_broken_row(row<T>(a.dv, batch, kv_head, key), a.head_dim))
            recompute_dk_dv_row<T>(&a, (int)batch, (int)kv_head, key, delta);
    }
}

// ---- D, and dQ that begins at zero ----

// D = rowsum(dO * O). dP - D is what the softmax passes back: sum_j P_ij dP_ij = sum_j P_ij (dO_i . V_j)
// = dO_i . O_i, so that D needs no row of P.
template <class T, bool HAS_DQ> __global__ void __launch_bounds__(ROW_THREADS) prepare(struct attention a) {
    struct scratch scratch = scratch_of(&a, HAS_DQ);
    int64_t query = row_of_warp();
    if (query >= query_count(&a)) return;
    // BEGIN SOLUTION delta: sum is this lane's part of the row's dO . O: four columns at a time.
    struct position at = position_of(&a, query);
    const T *o = row<T>(a.o, at.batch, at.head, at.i);
    const T *d_o = row<T>(a.d_o, at.batch, at.head, at.i);
    float sum = 0.0f;
    for (int c = lane() * 4; c < a.head_dim; c += 4 * WARP) {
        uint2 x = *(const uint2 *)(o + c);
        uint2 y = *(const uint2 *)(d_o + c);
        float2 x0 = unpack2<T>(x.x), x1 = unpack2<T>(x.y), y0 = unpack2<T>(y.x), y1 = unpack2<T>(y.y);
        sum += x0.x * y0.x + x0.y * y0.y + x1.x * y1.x + x1.y * y1.y;
    }
    // STUB float sum = 0.0f;
    // END SOLUTION
    for (int offset = WARP / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, offset);
    if (lane() == 0) scratch.delta[query] = sum;
    if (!HAS_DQ) return;
    float4 *dq = (float4 *)(scratch.dq + query * dq_columns(&a));
    for (int c = lane() * 4; c < dq_columns(&a); c += 4 * WARP) dq[c / 4] = make_float4(0, 0, 0, 0);
}

// ---- which block does what ----

// Sequence (or batch), head and tile of a block.
struct place {
    int sequence, head, tile;
};

// Block `number` of all sequences, heads and tiles, the tiles innermost: blocks that run together are of few
// heads, whose tensors stay in the L2 cache. Packed sequences have tiles each to their own length: a warp
// looks for the sequence, 32 at a time. The launch does not know the lengths and has blocks to spare, which
// find sequence -1.
static __device__ struct place find_place(const struct attention *a, const int *cu_seqlens, int seqlen,
                                          int tile_rows, int heads, int number) {
    if (a->sequences == 0) {
        int tiles = (seqlen + tile_rows - 1) / tile_rows;
        struct place at = {number / tiles / heads, number / tiles % heads, number % tiles};
        return at;
    }
    int before = 0;  // blocks of the sequences before `first`
    for (int first = 0; first < a->sequences; first += WARP) {
        int s = first + lane();
        int tiles = s < a->sequences ? (cu_seqlens[s + 1] - cu_seqlens[s] + tile_rows - 1) / tile_rows : 0;
        int sum = tiles * heads;  // of this lane's sequence and those before it
        for (int offset = 1; offset < WARP; offset *= 2) {
            int other = __shfl_up_sync(ALL_LANES, sum, offset);
            if (lane() >= offset) sum += other;
        }
        unsigned beyond = __ballot_sync(ALL_LANES, before + sum > number);
        if (beyond) {
            int found = __ffs((int)beyond) - 1;
            int within = number - before - __shfl_sync(ALL_LANES, sum - tiles * heads, found);
            tiles = __shfl_sync(ALL_LANES, tiles, found);
            struct place at = {first + found, within / tiles, within % tiles};
            return at;
        }
        before += __shfl_sync(ALL_LANES, sum, WARP - 1);
    }
    struct place nowhere = {-1, 0, 0};
    return nowhere;
}

// Blocks for all of it; packed, each sequence may have a last tile that is not full.
static unsigned tile_blocks(const struct attention *a, int heads, int seqlen, int tile_rows) {
    int64_t tiles = a->sequences > 0 ? ((int64_t)seqlen + (int64_t)a->sequences * (tile_rows - 1)) / tile_rows
                                     : (int64_t)a->batch * lab_blocks(seqlen, tile_rows);
    return lab_blocks(heads * tiles, 1);
}

// What a block works on: in shared memory, the same for all threads. Tokens are numbered in their sequence.
struct work {
    int batch, head;             // its head: of K and V for a tile of keys, of Q for a tile of queries
    int first_query, first_key;  // where the sequence begins in its tensors
    int seqlen_q, seqlen_k;
    int diagonal;  // query i sees keys 0 ... i + diagonal, or all: seqlen_k
    int tile;      // its first row is row tile * tile_rows
    int rows;      // 0: the block has nothing to do
};

template <bool OF_KEYS>
static __device__ void find_work(const struct attention *a, int tile_rows, int number, bool last_first,
                                 struct work *w) {
    if (warp() == 0) {
        struct place at = OF_KEYS
                              ? find_place(a, a->cu_seqlens_k, a->seqlen_k, tile_rows, a->kv_heads, number)
                              : find_place(a, a->cu_seqlens_q, a->seqlen_q, tile_rows, a->heads, number);
        if (lane() == 0) {
            struct sequence s = {0, 0, 0, 0};
            if (at.sequence >= 0) s = sequence_at(a, a->sequences ? at.sequence : 0);
            int length = OF_KEYS ? s.seqlen_k : s.seqlen_q, tiles = (length + tile_rows - 1) / tile_rows;
            w->batch = a->sequences ? 0 : at.sequence;
            w->head = at.head;
            w->first_query = s.first_query, w->first_key = s.first_key;
            w->seqlen_q = s.seqlen_q, w->seqlen_k = s.seqlen_k;
            w->diagonal = a->causal ? s.seqlen_k - s.seqlen_q : s.seqlen_k;
            w->tile = last_first ? tiles - 1 - at.tile : at.tile;
            w->rows = at.sequence < 0 ? 0 : min(tile_rows, length - w->tile * tile_rows);
        }
    }
    __syncthreads();  // *w is written before anybody reads it
}

// The keys 0 ... end - 1 that query i of the sequence sees.
static __device__ int sees_until(const struct work *w, int query) {
    return max(min(query + 1 + min(w->diagonal, w->seqlen_k), w->seqlen_k), 0);
}

// ---- tiles and products, as in labs 04 and 05 ----

// Where a chunk (16 bytes, 8 numbers) of row r begins, in bytes, in a swizzled tile of rows of D numbers.
template <int D> static __device__ int chunk_at(int r, int chunk) {
    return r * D * 2 + (chunk ^ (r & 7)) * 16;
}

// Starts copying TILE_ROWS rows of one head, row `first` and so on, to shared memory; rows from `end` on, and
// columns past head_dim, become 0. `head` is row 0.
template <class T, int D, int TILE_ROWS, int THREADS>
static __device__ void load_tile(const T *head, int64_t stride_row, int first, int end, int head_dim,
                                 char *tile_smem) {
    constexpr int APART = THREADS / (D / 8);
    int r = threadIdx.x / (D / 8);
    int chunk = threadIdx.x % (D / 8);
    bool inside = chunk * 8 < head_dim;
    const T *from = head + (first + r) * stride_row + (inside ? chunk * 8 : 0);
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

// Where a lane's row of the four matrices of an ldmatrix begins, in a tile of D columns.
template <int D> static __device__ int place_by_rows() { return chunk_at<D>(lane() % 16, lane() / 16); }
template <int D> static __device__ int place_by_columns() {
    return chunk_at<D>(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2);
}
// The same, `steps` times 16 columns to the right.
static __device__ uint32_t to_the_right(uint32_t place, int steps) {
    return (place ^ steps % 4 * 32) + steps / 4 * 128;
}

// C += A B^T over D columns: A is STRIPS strips, B is ROWS rows, both in shared memory.
template <class T, int D, int STRIPS, int ROWS>
static __device__ void multiply_rows(uint32_t a_strips, uint32_t b_rows, float (*c_reg)[ROWS / 8][4]) {
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t a_reg[STRIPS][4];
        uint32_t a_at = a_strips + to_the_right(place_by_rows<D>(), step);
        uint32_t b_at = b_rows + to_the_right(place_by_columns<D>(), step);
#pragma unroll
        for (int s = 0; s < STRIPS; s++) ldmatrix_x4(a_reg[s], a_at + s * STRIP * D * 2);
#pragma unroll
        for (int n = 0; n < ROWS / 16; n++) {
            uint32_t b_reg[4];
            ldmatrix_x4(b_reg, b_at + n * 16 * D * 2);
            const uint32_t left[2] = {b_reg[0], b_reg[1]}, right[2] = {b_reg[2], b_reg[3]};
#pragma unroll
            for (int s = 0; s < STRIPS; s++) {
                mma_m16n8k16<T>(c_reg[s][2 * n], a_reg[s], left);
                mma_m16n8k16<T>(c_reg[s][2 * n + 1], a_reg[s], right);
            }
        }
    }
}

// C += A B for 16 columns of A, in registers, and 16 rows of B, in shared memory, of which N columns of the
// D.
template <class T, int D, int STRIPS, int N>
static __device__ void multiply_columns(const uint32_t (&a_reg)[STRIPS][4], uint32_t b_rows,
                                        float (*c_reg)[N / 8][4]) {
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
        uint32_t b_reg[4];
        ldmatrix_x4_trans(b_reg, b_rows + to_the_right(place_by_rows<D>(), n));
        const uint32_t left[2] = {b_reg[0], b_reg[1]}, right[2] = {b_reg[2], b_reg[3]};
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            mma_m16n8k16<T>(c_reg[s][2 * n], a_reg[s], left);
            mma_m16n8k16<T>(c_reg[s][2 * n + 1], a_reg[s], right);
        }
    }
}

// 16 columns of fp32 accumulators as the left operand of the next product.
template <class T> static __device__ void pack_operand(const float (*c_reg)[4], uint32_t (&packed_reg)[4]) {
#pragma unroll
    for (int e = 0; e < 4; e++)  // rows g and g + 8 of columns 2t, 2t + 1, then of 2t + 8, 2t + 9
        packed_reg[e] = pack2<T>(c_reg[e / 2][e % 2 * 2], c_reg[e / 2][e % 2 * 2 + 1]);
}

// LSE in powers of two, as P = 2^(factor * S - it) needs it. A query that sees nothing has LSE -inf and no P.
static __device__ float log2_sum(float lse) { return lse == -INFINITY ? INFINITY : lse * LOG2E; }

// Sends a warp's strip of results out in whole chunks, by way of shared memory that nobody else uses:
// rows `first` and so on of a head, up to `end`. Returns for h = 0, 1 the lanes that have a NaN or an
// infinity in row g + 8 h.
template <class T, int D>
static __device__ void store_strip(float (*c_reg)[4], float factor, char *strip_smem, T *head,
                                   int64_t stride_row, int first, int end, int head_dim, unsigned *broken) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        bool is_broken = false;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            float x = c_reg[n][2 * h] * factor, y = c_reg[n][2 * h + 1] * factor;
            is_broken |= !isfinite(x + y);
            *(uint32_t *)(strip_smem + chunk_at<D>(h * 8 + lane_row(), n) + lane_column() * 2) =
                pack2<T>(x, y);
        }
        broken[h] |= __ballot_sync(ALL_LANES, is_broken && first + h * 8 + lane_row() < end);
    }
    __syncwarp();  // the strip is whole before its lanes read it in another order
    for (int e = lane(); e < STRIP * (D / 8); e += WARP) {
        int r = e / (D / 8), chunk = e % (D / 8);
        if (first + r < end && chunk * 8 < head_dim)
            *(uint4 *)(head + (first + r) * stride_row + chunk * 8) =
                *(const uint4 *)(strip_smem + chunk_at<D>(r, chunk));
    }
    __syncwarp();  // and read before the next one takes its place
}

// ---- a block that keeps queries: the forward pass, and dQ of `separate` ----

enum pass { FORWARD, GRADIENT_OF_Q };
constexpr int QUERY_WARPS = 4;
constexpr int QUERY_THREADS = QUERY_WARPS * WARP;
constexpr int QUERY_TILE = QUERY_WARPS * STRIP;  // a strip for each warp
constexpr int KEY_STEP = 64;                     // keys that pass by at a time

// Whether the query of this lane's row h sees key first_key + column.
static __device__ bool is_seen(const int (&until)[2], int h, int first_key, int n, int e) {
    return first_key + n * 8 + lane_column() + e < until[h];
}

// P of a tile, from its scores: online softmax (lab 02) in powers of two.
template <int D>
static __device__ void softmax_step(float factor, const int (&until)[2], int first_key, float (*s_reg)[4],
                                    float *m_reg, float *l_reg, float (*o_reg)[4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float m = m_reg[h];
#pragma unroll
        for (int n = 0; n < KEY_STEP / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float *s = &s_reg[n][2 * h + e];
                *s = is_seen(until, h, first_key, n, e) ? *s * factor : -INFINITY;
                m = fmaxf(m, *s);
            }
        for (int offset = 1; offset < 4; offset *= 2) m = fmaxf(m, __shfl_xor_sync(ALL_LANES, m, offset));
        float base = m == -INFINITY ? 0.0f : m;
        float keep = ex2(m_reg[h] - base);
        m_reg[h] = m;
        l_reg[h] *= keep;
#pragma unroll
        for (int n = 0; n < D / 8; n++) o_reg[n][2 * h] *= keep, o_reg[n][2 * h + 1] *= keep;
#pragma unroll
        for (int n = 0; n < KEY_STEP / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) l_reg[h] += s_reg[n][2 * h + e] = ex2(s_reg[n][2 * h + e] - base);
    }
}

// Starts loading keys `first` and so on.
template <class T, int D>
static __device__ void load_keys(const struct attention *a, const struct work *w, int first, char *k_smem) {
    int kv_head = kv_head_of(a, w->head);
    load_tile<T, D, KEY_STEP, QUERY_THREADS>(row<T>(a->k, w->batch, kv_head, w->first_key), a->k.stride_row,
                                             first, w->seqlen_k, a->head_dim, k_smem);
    load_tile<T, D, KEY_STEP, QUERY_THREADS>(row<T>(a->v, w->batch, kv_head, w->first_key), a->v.stride_row,
                                             first, w->seqlen_k, a->head_dim, k_smem + KEY_STEP * D * 2);
}

template <class T, int D, enum pass PASS>
__global__ void __launch_bounds__(QUERY_THREADS, 2) query_tiles(struct attention a) {
    extern __shared__ __align__(128) char shared_smem[];
    __shared__ struct work w;
    find_work<false>(&a, QUERY_TILE, (int)blockIdx.x, a.causal, &w);
    if (w.rows == 0) return;
    char *q_smem = shared_smem;                    // [QUERY_TILE][D] of T
    char *d_o_smem = q_smem + QUERY_TILE * D * 2;  // the same
    char *k_smem = d_o_smem + QUERY_TILE * D * 2;  // [KEY_STEP][D]
    char *v_smem = k_smem + KEY_STEP * D * 2;      // the same
    int first = w.tile * QUERY_TILE;               // the block's first query
    load_tile<T, D, QUERY_TILE, QUERY_THREADS>(row<T>(a.q, w.batch, w.head, w.first_query), a.q.stride_row,
                                               first, w.seqlen_q, a.head_dim, q_smem);
    if (PASS == GRADIENT_OF_Q)
        load_tile<T, D, QUERY_TILE, QUERY_THREADS>(row<T>(a.d_o, w.batch, w.head, w.first_query),
                                                   a.d_o.stride_row, first, w.seqlen_q, a.head_dim, d_o_smem);

    float factor = a.scale * LOG2E;
    int64_t rows_before = ((int64_t)w.batch * a.heads + w.head) * a.seqlen_q + w.first_query;
    int query[2], until[2];             // this lane's queries, which see keys 0 ... until - 1
    float m_reg[2], l_reg[2] = {0, 0};  // of the forward pass
    float lse_reg[2], delta_reg[2];     // of the backward pass
    for (int h = 0; h < 2; h++) {
        query[h] = first + warp() * STRIP + h * 8 + lane_row();
        until[h] = query[h] < w.seqlen_q ? sees_until(&w, query[h]) : 0;
        m_reg[h] = -INFINITY;
        bool there = PASS == GRADIENT_OF_Q && query[h] < w.seqlen_q;
        lse_reg[h] = there ? log2_sum(a.lse[rows_before + query[h]]) : INFINITY;
        delta_reg[h] = there ? scratch_of(&a, false).delta[rows_before + query[h]] : 0.0f;
    }
    uint32_t strip = warp() * STRIP * D * 2;
    float c_reg[1][D / 8][4] = {};  // O, or dQ
    int end = sees_until(&w, first + w.rows - 1);
    for (int first_key = 0; first_key < end; first_key += KEY_STEP) {
        __syncthreads();  // nobody still reads the keys whose place the next ones take
        load_keys<T, D>(&a, &w, first_key, k_smem);
        cp_async_wait_all();
        __syncthreads();  // everybody's part of the tiles is there
        float s_reg[1][KEY_STEP / 8][4] = {}, dp_reg[1][KEY_STEP / 8][4] = {};
        multiply_rows<T, D, 1, KEY_STEP>(shared_address(q_smem) + strip, shared_address(k_smem), s_reg);
        if (PASS == FORWARD) {
            softmax_step<D>(factor, until, first_key, s_reg[0], m_reg, l_reg, c_reg[0]);
        } else {
            multiply_rows<T, D, 1, KEY_STEP>(shared_address(d_o_smem) + strip, shared_address(v_smem),
                                             dp_reg);
#pragma unroll
            for (int n = 0; n < KEY_STEP / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float p = ex2(s_reg[0][n][e] * factor - lse_reg[e / 2]);
                    float ds = p * (dp_reg[0][n][e] - delta_reg[e / 2]);
                    s_reg[0][n][e] = is_seen(until, e / 2, first_key, n, e % 2) ? ds : 0.0f;
                }
        }
        uint32_t right = shared_address(PASS == FORWARD ? v_smem : k_smem);
#pragma unroll
        for (int n = 0; n < KEY_STEP / 16; n++) {
            uint32_t left_reg[1][4];
            pack_operand<T>(&s_reg[0][2 * n], left_reg[0]);
            multiply_columns<T, D, 1, D>(left_reg, right + n * 16 * D * 2, c_reg);
        }
    }
    cp_async_wait_all();  // also where there was no key
    __syncthreads();      // nobody still reads Q, whose place the results take
    unsigned broken[2] = {0, 0};
    float inverse[2];
    for (int h = 0; h < 2 && PASS == FORWARD; h++) {
        for (int offset = 1; offset < 4; offset *= 2)
            l_reg[h] += __shfl_xor_sync(ALL_LANES, l_reg[h], offset);
        inverse[h] = l_reg[h] == 0.0f ? 0.0f : 1.0f / l_reg[h];
        m_reg[h] *= 1.0f / LOG2E;
        if (lane_column() == 0 && query[h] < w.seqlen_q)
            a.lse[rows_before + query[h]] = l_reg[h] == 0.0f ? -INFINITY : m_reg[h] + logf(l_reg[h]);
        for (int n = 0; n < D / 8; n++)
            c_reg[0][n][2 * h] *= inverse[h], c_reg[0][n][2 * h + 1] *= inverse[h];
    }
    struct tensor out = PASS == FORWARD ? a.o : a.dq;
    int first_row = first + warp() * STRIP;
    store_strip<T, D>(c_reg[0], PASS == FORWARD ? 1.0f : a.scale, q_smem + strip,
                      row<T>(out, w.batch, w.head, w.first_query), out.stride_row, first_row, w.seqlen_q,
                      a.head_dim, broken);
#pragma unroll
    for (int r = 0; r < STRIP; r++) {
        if (!(broken[r / 8] >> r % 8 * 4 & 15)) continue;
        struct span seen = {0, sees_until(&w, first_row + r)};
        int64_t i = (int64_t)w.first_query + first_row + r;
        if (PASS == GRADIENT_OF_Q) {
            recompute_dq_row<T>(&a, w.batch, w.head, i, scratch_of(&a, false).delta);
        } else {
            int kv_head = kv_head_of(&a, w.head);
            float m = __shfl_sync(ALL_LANES, m_reg[r / 8], r % 8 * 4);
            float l = __shfl_sync(ALL_LANES, inverse[r / 8], r % 8 * 4);
            recompute_row<T>(row<T>(a.q, w.batch, w.head, i), row<T>(a.k, w.batch, kv_head, w.first_key),
                             a.k.stride_row, row<T>(a.v, w.batch, kv_head, w.first_key), a.v.stride_row,
                             row<T>(a.o, w.batch, w.head, i), a.head_dim, seen, a.scale, m, l);
        }
    }
}

// ---- a block that keeps keys: dK and dV, and dQ of the fused kernels ----
//
// Its products are transposed: S^T = K Q^T, so that P^T and dS^T, accumulators, are the left operands of
// dV = P^T dO and dK = dS^T Q as they lie in their registers. Only dS^T goes to shared memory, for dQ.

enum step { SEPARATE, FUSED, DETERMINISTIC };

constexpr int KEY_TILE = 128;
constexpr int QUERY_STEP = 64;  // queries that pass by at a time
constexpr int STRIPS = 2;       // of keys, of a warp
constexpr int PART = 32;        // queries whose scores a warp has in registers at a time
constexpr int COLUMNS = 64;     // of dK and dV that it has in registers
// With 64 columns a warp has both parts of a step for itself. With 128, two warps share their keys: each has
// the scores of one part and half of the columns, and gets P and dS of the other part by way of shared
// memory.
template <int D> constexpr int SHARE = D / COLUMNS;
template <int D> constexpr int KEY_WARPS = KEY_TILE / (STRIPS * STRIP) * SHARE<D>;
template <int D> constexpr int KEY_THREADS = KEY_WARPS<D> *WARP;
template <int D> constexpr int BLOCKS = 8 / KEY_WARPS<D>;            // on a multiprocessor
template <int D> constexpr int STAGE_BYTES = 2 * QUERY_STEP *D * 2;  // Q [QUERY_STEP][D], dO the same
template <int D> constexpr int KEYS_BYTES = KEY_TILE *D * 2;
constexpr int PAIRS_BYTES = KEY_TILE * QUERY_STEP * 2;  // P^T or dS^T [KEY_TILE][QUERY_STEP]

// The queries that pass by in one step. A block goes through the heads that share its keys, and in each
// through the tiles of queries, from the first that sees one of its keys.
struct queries {
    int head, first, count;  // count 0: there is no such step
    int64_t row;             // of the first, among all queries of all heads
};
static __device__ void find_queries(const struct attention *a, const struct work *w, int step,
                                    struct queries *q) {
    int group = a->heads / a->kv_heads, first_tile = max(w->tile * KEY_TILE - w->diagonal, 0) / QUERY_STEP;
    int tiles = max((w->seqlen_q + QUERY_STEP - 1) / QUERY_STEP - first_tile, 0);
    q->count = 0;
    if (step >= tiles * group) return;
    q->head = w->head * group + step / tiles;
    q->first = (first_tile + step % tiles) * QUERY_STEP;
    q->count = min(QUERY_STEP, w->seqlen_q - q->first);
    q->row = ((int64_t)w->batch * a->heads + q->head) * a->seqlen_q + w->first_query + q->first;
}

template <class T, int D>
static __device__ void load_queries(const struct attention *a, const struct work *w, const struct queries *q,
                                    char *q_smem) {
    if (q->count > 0) {
        load_tile<T, D, QUERY_STEP, KEY_THREADS<D>>(row<T>(a->q, w->batch, q->head, w->first_query),
                                                    a->q.stride_row, q->first, w->seqlen_q, a->head_dim,
                                                    q_smem);
        load_tile<T, D, QUERY_STEP, KEY_THREADS<D>>(row<T>(a->d_o, w->batch, q->head, w->first_query),
                                                    a->d_o.stride_row, q->first, w->seqlen_q, a->head_dim,
                                                    q_smem + QUERY_STEP * D * 2);
    }
    cp_async_commit();
}

// LSE (in powers of two) or D of one query of a step: threads 0 ... 63 have LSE, 64 ... 127 D.
static __device__ float load_statistic(const struct attention *a, const struct queries *q,
                                       const float *delta) {
    int i = threadIdx.x % QUERY_STEP;
    bool is_lse = threadIdx.x < QUERY_STEP;
    if (i >= q->count || threadIdx.x >= 2 * QUERY_STEP) return is_lse ? INFINITY : 0.0f;
    return is_lse ? log2_sum(a->lse[q->row + i]) : delta[q->row + i];
}

// Scores of pairs that are not seen, or do not exist, become the infinity that makes P = 2^(factor * S - LSE)
// 0.
static __device__ void mask(const struct work *w, int first_key, int first_query, float factor,
                            float (*s_reg)[PART / 8][4]) {
    float hidden = factor < 0.0f ? INFINITY : -INFINITY;
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int key = first_key + s * STRIP + h * 8 + lane_row();
            // Columns of queries that see the key: from this one on.
            int from = key < w->seqlen_k ? key - w->diagonal - first_query - lane_column() : QUERY_STEP;
#pragma unroll
            for (int n = 0; n < PART / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (n * 8 + e < from) s_reg[s][n][2 * h + e] = hidden;
        }
}

// Writes 16 columns of a strip of P^T or dS^T to shared memory [KEY_TILE][QUERY_STEP].
static __device__ void store_pairs(const uint32_t (&pairs_reg)[4], int first_row, int first_column,
                                   char *pairs_smem) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int r = first_row + e % 2 * 8 + lane_row(), chunk = first_column / 8 + e / 2;
        *(uint32_t *)(pairs_smem + chunk_at<QUERY_STEP>(r, chunk) + lane_column() * 2) = pairs_reg[e];
    }
}

// P^T = 2^(factor * S^T - LSE), and dS^T = P^T * (dP^T - D), of eight columns: LSE and D of the lane's two.
static __device__ void probabilities(float factor, float2 lse, float (&p_reg)[4]) {
#pragma unroll
    // BEGIN SOLUTION recompute: P from the scores and LSE in powers of two, without a maximum and a sum.
    for (int e = 0; e < 4; e++) p_reg[e] = ex2(p_reg[e] * factor - (e % 2 ? lse.y : lse.x));
    // STUB for (int e = 0; e < 4; e++) p_reg[e] = 0.0f;
    // STUB (void)factor, (void)lse;
    // END SOLUTION
}
static __device__ void gradients(float2 delta, const float (&p_reg)[4], float (&ds_reg)[4]) {
#pragma unroll
    // BEGIN SOLUTION ds: dS = P * (dP - D); ds_reg holds dP.
    for (int e = 0; e < 4; e++) ds_reg[e] = p_reg[e] * (ds_reg[e] - (e % 2 ? delta.y : delta.x));
    // STUB for (int e = 0; e < 4; e++) ds_reg[e] = 0.0f;
    // STUB (void)delta, (void)p_reg;
    // END SOLUTION
}

// One part of a step: P^T and dS^T of the warp's keys and PART queries, dV += P^T dO, dK += dS^T Q. Writes
// P^T and dS^T to p_smem and ds_smem, if there are such, for others. `row`: the warp's first row in these;
// `columns`: where its columns of dK and dV begin, in bytes; `part`: the part's first query in the step.
template <class T, int D>
static __device__ void compute_part(const struct work *w, int first_key, int first_query, int row, int part,
                                    float factor, uint32_t k_strips, uint32_t v_strips, uint32_t q_rows,
                                    uint32_t columns, const float *statistics_smem, char *p_smem,
                                    char *ds_smem, float (*dk_reg)[COLUMNS / 8][4],
                                    float (*dv_reg)[COLUMNS / 8][4]) {
    uint32_t d_o_rows = q_rows + QUERY_STEP * D * 2;
    const float *lse_smem = statistics_smem + part + lane_column(), *delta_smem = lse_smem + QUERY_STEP;
    float p_reg[STRIPS][PART / 8][4] = {}, ds_reg[STRIPS][PART / 8][4] = {};
    multiply_rows<T, D, STRIPS, PART>(k_strips, q_rows + part * D * 2, p_reg);  // S^T
    if (first_key + KEY_TILE > sees_until(w, first_query))  // else everybody sees everything
        mask(w, first_key + row, first_query + part, factor, p_reg);
    multiply_rows<T, D, STRIPS, PART>(v_strips, d_o_rows + part * D * 2, ds_reg);  // dP^T
#pragma unroll
    for (int n = 0; n < PART / 16; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float2 lse = *(const float2 *)(lse_smem + n * 16 + e * 8);
            float2 delta = *(const float2 *)(delta_smem + n * 16 + e * 8);
#pragma unroll
            for (int s = 0; s < STRIPS; s++) {
                probabilities(factor, lse, p_reg[s][2 * n + e]);
                gradients(delta, p_reg[s][2 * n + e], ds_reg[s][2 * n + e]);
            }
        }
        uint32_t p_left[STRIPS][4], ds_left[STRIPS][4];
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            pack_operand<T>(&p_reg[s][2 * n], p_left[s]);
            pack_operand<T>(&ds_reg[s][2 * n], ds_left[s]);
            if (p_smem) store_pairs(p_left[s], row + s * STRIP, part + n * 16, p_smem);
            if (ds_smem) store_pairs(ds_left[s], row + s * STRIP, part + n * 16, ds_smem);
        }
        multiply_columns<T, D, STRIPS, COLUMNS>(p_left, d_o_rows + columns + (part + n * 16) * D * 2, dv_reg);
        multiply_columns<T, D, STRIPS, COLUMNS>(ds_left, q_rows + columns + (part + n * 16) * D * 2, dk_reg);
    }
}

// C += A B of the part that the warp's partner has computed: A is P^T or dS^T, of the warp's keys; B dO or Q.
template <class T, int D>
static __device__ void add_part(uint32_t pairs_rows, uint32_t b_rows, int part,
                                float (*c_reg)[COLUMNS / 8][4]) {
#pragma unroll
    for (int n = 0; n < PART / 16; n++) {
        uint32_t left_reg[STRIPS][4];
#pragma unroll
        for (int s = 0; s < STRIPS; s++)
            ldmatrix_x4(left_reg[s], pairs_rows + s * STRIP * QUERY_STEP * 2 +
                                         to_the_right(place_by_rows<QUERY_STEP>(), part / 16 + n));
        multiply_columns<T, D, STRIPS, COLUMNS>(left_reg, b_rows + (part + n * 16) * D * 2, c_reg);
    }
}

// ---- fused: dQ of the same step ----

// The order of the fp32 dQ in memory: eight rows lie together, and of them 16 columns, in which a lane's four
// numbers (columns 2t, 2t + 1, 2t + 8 and 2t + 9 of its row, as an accumulator has them) are neighbours. So
// a warp writes 512 bytes without a gap, and a tile of 64 rows is one piece of memory. Where row i of `rows`
// has them, of the 16 columns from `column` on:
static __device__ int64_t dq_at(int rows, int columns, int64_t i, int column, int t) {
    int64_t first = i / 8 * 8;
    return first * columns + column * min((int64_t)8, rows - first) + i % 8 * 16 + t * 4;
}

// dQ of a step, dS K, as a tile in shared memory. Each warp has 32 queries and a part of the columns.
template <class T, int D>
static __device__ void compute_dq(uint32_t ds_rows, uint32_t k_rows, int queries, int columns,
                                  float *tile_smem) {
    constexpr int ACROSS = KEY_WARPS<D> / 2;  // warps side by side
    constexpr int WIDTH = D / ACROSS;
    int query = warp() % 2 * 32, column = warp() / 2 * WIDTH;
    float c_reg[2][WIDTH / 8][4] = {};
#pragma unroll
    for (int n = 0; n < KEY_TILE / 16; n++) {
        uint32_t a_reg[2][4];
#pragma unroll
        for (int s = 0; s < 2; s++)
            ldmatrix_x4_trans(a_reg[s], ds_rows + n * 16 * QUERY_STEP * 2 +
                                            to_the_right(place_by_columns<QUERY_STEP>(), query / 16 + s));
#pragma unroll
        for (int m = 0; m < WIDTH / 16; m++) {
            uint32_t b_reg[4];
            ldmatrix_x4_trans(b_reg,
                              k_rows + n * 16 * D * 2 + to_the_right(place_by_rows<D>(), column / 16 + m));
            const uint32_t left[2] = {b_reg[0], b_reg[1]}, right[2] = {b_reg[2], b_reg[3]};
#pragma unroll
            for (int s = 0; s < 2; s++) {
                mma_m16n8k16<T>(c_reg[s][2 * m], a_reg[s], left);
                mma_m16n8k16<T>(c_reg[s][2 * m + 1], a_reg[s], right);
            }
        }
    }
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int i = query + s * STRIP + h * 8 + lane_row();
            if (i >= queries) continue;
#pragma unroll
            for (int m = 0; m < WIDTH / 16; m++)
                if (column + m * 16 < columns)
                    *(float4 *)(tile_smem + dq_at(queries, columns, i, column + m * 16, lane() % 4)) =
                        make_float4(c_reg[s][2 * m][2 * h], c_reg[s][2 * m][2 * h + 1],
                                    c_reg[s][2 * m + 1][2 * h], c_reg[s][2 * m + 1][2 * h + 1]);
        }
    fence_proxy_async();  // add_tile reads what is written here by another path
}

// ---- fused_deterministic: one block after the other ----

// The order of fused_deterministic. First to add to a tile of queries is the last tile of keys that it sees:
// under a causal mask that block begins with it, and nobody waits long. Blocks take their work by ticket, the
// last tiles of keys first, so the one that a block waits for has always begun. Waits until `before` blocks
// have added; `counted` is what the counter said at a look ahead.
static __device__ void await_turn(const int *done, int before, int counted) {
    while (counted != before) counted = load_acquire(done);
}

// How many blocks add to a tile of queries before the one that has tile w->tile of the keys.
static __device__ int tiles_after(const struct work *w, const struct queries *q) {
    return (sees_until(w, q->first + q->count - 1) - 1) / KEY_TILE - w->tile;
}

// Block `number` when the tiles of `abreast` heads take turns, the last tiles first: as find_place counts.
static __device__ int take_turns(const struct attention *a, int tiles, int abreast, int number) {
    int first = number / (abreast * tiles) * abreast;  // of the heads that take turns
    int heads = min(abreast, a->batch * a->kv_heads - first), turn = number - first * tiles;
    return (first + turn % heads) * tiles + turn / heads;
}

static __global__ void __launch_bounds__(ROW_THREADS) clear_order(struct attention a) {
    struct scratch scratch = scratch_of(&a, true);
    int64_t query = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    if (query < query_count(&a)) scratch.done[query] = 0;
    if (query == 0) *scratch.ticket = 0;
}

// ---- the kernel of both, and of `separate` ----

// Adds a tile of dQ in shared memory, whole, to the sums in global memory, in its turn if there are turns.
// Whoever wrote the tile did fence_proxy_async, then came a barrier. wait_for_sum before it is written anew.
static __device__ void add_tile(float *sums, const float *tile_smem, int floats, const int *done, int before,
                                int counted) {
    if (threadIdx.x > 0) return;
    if (done) await_turn(done, before, counted);
    bulk_reduce_add_f32(sums, shared_address(tile_smem), floats * (int)sizeof(float));
    bulk_commit();
}
static __device__ void wait_for_sum() {
    if (threadIdx.x == 0) bulk_wait<0>();
}

template <class T, int D, int STEP>
__global__ void __launch_bounds__(KEY_THREADS<D>, BLOCKS<D>)
    key_tiles(struct attention a, float factor, int abreast) {
    extern __shared__ __align__(128) char shared_smem[];
    __shared__ struct work w;
    __shared__ float statistics_smem[2][2 * QUERY_STEP];  // of a stage: LSE, then D
    __shared__ int number;
    struct scratch scratch = scratch_of(&a, STEP != SEPARATE);
    if (STEP == DETERMINISTIC) {
        if (threadIdx.x == 0) number = atomicAdd(scratch.ticket, 1);
        __syncthreads();  // the ticket is drawn before anybody looks at it
    }
    int block = STEP == DETERMINISTIC ? number : (int)blockIdx.x;
    if (STEP == DETERMINISTIC && a.sequences == 0)
        block = take_turns(&a, (a.seqlen_k + KEY_TILE - 1) / KEY_TILE, abreast, number);
    find_work<true>(&a, KEY_TILE, block, STEP == DETERMINISTIC, &w);
    if (w.rows == 0) return;
    char *k_smem = shared_smem;                             // [KEY_TILE][D] of T
    char *v_smem = k_smem + KEYS_BYTES<D>;                  // the same
    char *stages_smem = v_smem + KEYS_BYTES<D>;             // [2][STAGE_BYTES]
    char *p_smem = stages_smem + 2 * STAGE_BYTES<D>;        // P^T [KEY_TILE][QUERY_STEP], if warps share keys
    char *ds_smem = p_smem + (SHARE<D> - 1) * PAIRS_BYTES;  // dS^T [KEY_TILE][QUERY_STEP]
    float *dq_smem = (float *)(ds_smem + PAIRS_BYTES);  // dQ of a step [QUERY_STEP][D], in the order of dq_at
    int first_key = w.tile * KEY_TILE, columns = dq_columns(&a);
    load_tile<T, D, KEY_TILE, KEY_THREADS<D>>(row<T>(a.k, w.batch, w.head, w.first_key), a.k.stride_row,
                                              first_key, w.seqlen_k, a.head_dim, k_smem);
    load_tile<T, D, KEY_TILE, KEY_THREADS<D>>(row<T>(a.v, w.batch, w.head, w.first_key), a.v.stride_row,
                                              first_key, w.seqlen_k, a.head_dim, v_smem);
    __shared__ struct queries queries_smem[4];  // of the step before, this one and the next two
    if (threadIdx.x == 0)
        for (int step = 0; step < 2; step++) find_queries(&a, &w, step, &queries_smem[step]);
    __syncthreads();  // they are written before anybody reads them
    load_queries<T, D>(&a, &w, &queries_smem[0], stages_smem);
    float statistic = load_statistic(&a, &queries_smem[0], scratch.delta);
    if (threadIdx.x < 2 * QUERY_STEP) statistics_smem[0][threadIdx.x] = statistic;

    int row = warp() / SHARE<D> * STRIPS * STRIP, side = warp() % SHARE<D>;
    uint32_t columns_at = side * COLUMNS * 2;  // of the warp, in bytes from the start of a row
    uint32_t k_strips = shared_address(k_smem) + row * D * 2, v_strips = shared_address(v_smem) + row * D * 2;
    float dk_reg[STRIPS][COLUMNS / 8][4] = {}, dv_reg[STRIPS][COLUMNS / 8][4] = {};
    int counted = 0;
    int *done = nullptr;  // where this block's turn is counted, if there are turns
    for (int step = 0;; step++) {
        const struct queries *now = &queries_smem[step % 4], *next = &queries_smem[(step + 1) % 4];
        const struct queries *last = &queries_smem[(step + 3) % 4];
        cp_async_wait<0>();  // this thread's part of the queries is there
        __syncthreads();  // everybody's is, and dQ of the step before; nobody still reads the other stage, P
                          // or dS
        if (STEP == DETERMINISTIC && step > 0) done = scratch.done + last->row;
        if (STEP != SEPARATE && step > 0)
            add_tile(scratch.dq + last->row * columns, dq_smem, last->count * columns, done,
                     done ? tiles_after(&w, last) : 0, counted);
        if (now->count == 0) break;
        if (threadIdx.x == 0) find_queries(&a, &w, step + 2, &queries_smem[(step + 2) % 4]);
        load_queries<T, D>(&a, &w, next, stages_smem + (step + 1) % 2 * STAGE_BYTES<D>);
        statistic = load_statistic(&a, next, scratch.delta);  // on its way during the products
        uint32_t q_rows = shared_address(stages_smem + step % 2 * STAGE_BYTES<D>);
#pragma unroll(STEP == SEPARATE ? 1 : 2)  // two copies need registers that SEPARATE does not have
        for (int part = 0; part < QUERY_STEP; part += PART * SHARE<D>)
            compute_part<T, D>(&w, first_key, now->first, row, part + side * PART, factor, k_strips, v_strips,
                               q_rows, columns_at, statistics_smem[step % 2],
                               SHARE<D> == 2 ? p_smem : nullptr,
                               SHARE<D> == 2 || STEP != SEPARATE ? ds_smem : nullptr, dk_reg, dv_reg);
        if (threadIdx.x < 2 * QUERY_STEP) statistics_smem[(step + 1) % 2][threadIdx.x] = statistic;
        if (STEP != SEPARATE) wait_for_sum();  // of the step before
        __syncthreads();                       // all of P and dS is there, and nobody still reads dq_smem
        if (SHARE<D> == 2) {
            int other = PART - side * PART;
            uint32_t pairs = row * QUERY_STEP * 2;
            add_part<T, D>(shared_address(p_smem) + pairs, q_rows + QUERY_STEP * D * 2 + columns_at, other,
                           dv_reg);
            add_part<T, D>(shared_address(ds_smem) + pairs, q_rows + columns_at, other, dk_reg);
        }
        if (STEP == DETERMINISTIC) {
            if (done && threadIdx.x == WARP) add_release(done, 1);
            if (threadIdx.x == 0) counted = load_acquire(scratch.done + now->row);  // a look ahead
        }
        if (STEP != SEPARATE)
            compute_dq<T, D>(shared_address(ds_smem), shared_address(k_smem), now->count, columns, dq_smem);
    }
    if (STEP != SEPARATE) wait_for_sum();
    cp_async_wait_all();
    __syncthreads();  // nobody still reads K and V, whose places the results take
    if (done && threadIdx.x == 0) add_release(done, 1);
    unsigned broken[STRIPS][2] = {};
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
        char *strip_smem = k_smem + (warp() * STRIPS + s) * STRIP * COLUMNS * 2;
        int first = first_key + row + s * STRIP, c = side * COLUMNS;
        store_strip<T, COLUMNS>(dv_reg[s], 1.0f, strip_smem, ::row<T>(a.dv, w.batch, w.head, w.first_key) + c,
                                a.dv.stride_row, first, w.seqlen_k, a.head_dim - c, broken[s]);
        store_strip<T, COLUMNS>(dk_reg[s], a.scale, strip_smem,
                                ::row<T>(a.dk, w.batch, w.head, w.first_key) + c, a.dk.stride_row, first,
                                w.seqlen_k, a.head_dim - c, broken[s]);
    }
    __syncthreads();  // all columns are stored before rows are written once more
#pragma unroll
    for (int n = 0; n < STRIPS * 2; n++)
        for (int g = 0; g < 8 && broken[n / 2][n % 2]; g++)
            if (broken[n / 2][n % 2] >> g * 4 & 15)
                recompute_dk_dv_row<T>(&a, w.batch, w.head,
                                       (int64_t)w.first_key + first_key + row + n * 8 + g, scratch.delta);
}

// dQ = scale * the fp32 sums, in the storage type and in the order of columns.
template <class T> __global__ void __launch_bounds__(ROW_THREADS) finish_dq(struct attention a) {
    struct scratch scratch = scratch_of(&a, true);
    int64_t query = row_of_warp();
    if (query >= query_count(&a)) return;
    struct position at = position_of(&a, query);
    struct sequence s = sequence_at(&a, a.sequences ? sequence_of(a.cu_seqlens_q, a.sequences, at.i) : 0);
    int i = at.i - s.first_query, columns = dq_columns(&a);
    const float *sums = scratch.dq + (query - i) * columns;  // of query 0 of the sequence
    T *dq = row<T>(a.dq, at.batch, at.head, at.i);
    bool is_broken = false;
    for (int e = lane(); e < columns / 4; e += WARP) {
        float4 x = *(const float4 *)(sums + dq_at(s.seqlen_q, columns, i, e / 4 * 16, e % 4));
        is_broken |= !isfinite(x.x + x.y + x.z + x.w);
        int c = e / 4 * 16 + e % 4 * 2;
        *(uint32_t *)(dq + c) = pack2<T>(x.x * a.scale, x.y * a.scale);
        if (c + 8 < a.head_dim) *(uint32_t *)(dq + c + 8) = pack2<T>(x.z * a.scale, x.w * a.scale);
    }
    if (__any_sync(ALL_LANES, is_broken)) recompute_dq_row<T>(&a, at.batch, at.head, at.i, scratch.delta);
}

// ---- launches and the table ----

template <class T, int D, enum pass PASS> static void query_tiles_of(struct attention a) {
    constexpr int BYTES = (2 * QUERY_TILE + 2 * KEY_STEP) * D * 2;
    unsigned blocks = tile_blocks(&a, a.heads, a.seqlen_q, QUERY_TILE);
    if (blocks == 0) return;
    CUDA_CHECK(
        cudaFuncSetAttribute(query_tiles<T, D, PASS>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    query_tiles<T, D, PASS><<<blocks, QUERY_THREADS, BYTES>>>(a);
    CUDA_CHECK(cudaGetLastError());
}
template <class T, int D, enum step STEP> static void key_tiles_of(struct attention a) {
    constexpr int PAIRS = SHARE<D> - 1 + (SHARE<D> == 2 || STEP != SEPARATE);  // P^T, dS^T
    constexpr int BYTES = 2 * KEYS_BYTES<D> + 2 * STAGE_BYTES<D> + PAIRS * PAIRS_BYTES +
                          (STEP == SEPARATE ? 0 : QUERY_STEP * D * (int)sizeof(float));
    unsigned blocks = tile_blocks(&a, a.kv_heads, a.seqlen_k, KEY_TILE);
    if (blocks == 0) return;
    CUDA_CHECK(
        cudaFuncSetAttribute(key_tiles<T, D, STEP>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    // As many heads take turns as run together, so that no two blocks of a head begin at the same time.
    int multiprocessors = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    int abreast = max(1, multiprocessors * BLOCKS<D> * KEY_TILE / max(a.seqlen_k, 1));
    float factor = copysignf(lab16_factor(&a), a.scale);
    key_tiles<T, D, STEP><<<blocks, KEY_THREADS<D>, BYTES>>>(a, factor, abreast);
    CUDA_CHECK(cudaGetLastError());
}
template <class T, bool HAS_DQ> static void prepare_of(struct attention a) {
    if (query_count(&a) == 0) return;
    prepare<T, HAS_DQ><<<row_blocks(query_count(&a)), ROW_THREADS>>>(a);
    CUDA_CHECK(cudaGetLastError());
}

template <class T, int D> static void forward_of(struct attention a) { query_tiles_of<T, D, FORWARD>(a); }
template <class T, int D> static void forward_stored_of(struct attention a) {
    query_tiles_of<T, D, FORWARD>(a);
    struct matrix q = matrix_of(a.q, a.seqlen_q, a.head_dim), k = matrix_of(a.k, a.seqlen_k, a.head_dim);
    multiply<T, true>(a, q, transposed(k), stored_of<T>(&a, 0), a.scale, a.heads, 1, a.heads / a.kv_heads);
}
template <class T, int D> static void stored_of_all(struct attention a) {
    struct matrix p = stored_of<T>(&a, 0), dp = stored_of<T>(&a, 1);  // dp is dS after the third line
    struct matrix q = matrix_of(a.q, a.seqlen_q, a.head_dim), d_o = matrix_of(a.d_o, a.seqlen_q, a.head_dim);
    struct matrix k = matrix_of(a.k, a.seqlen_k, a.head_dim), v = matrix_of(a.v, a.seqlen_k, a.head_dim);
    struct matrix dq = matrix_of(a.dq, a.seqlen_q, a.head_dim);
    struct matrix dk = matrix_of(a.dk, a.seqlen_k, a.head_dim), dv = matrix_of(a.dv, a.seqlen_k, a.head_dim);
    int group = a.heads / a.kv_heads;
    multiply<T>(a, transposed(p), d_o, dv, 1.0f, a.kv_heads, group, 1);
    multiply<T>(a, d_o, transposed(v), dp, 1.0f, a.heads, 1, group);
    if (query_count(&a) > 0) stored_ds<T><<<row_blocks(query_count(&a)), ROW_THREADS>>>(a);
    CUDA_CHECK(cudaGetLastError());
    multiply<T>(a, dp, k, dq, a.scale, a.heads, 1, group);
    multiply<T>(a, transposed(dp), q, dk, a.scale, a.kv_heads, group, 1);
    repair<T><<<row_blocks(query_count(&a) + key_count(&a)), ROW_THREADS>>>(a);
}
template <class T, int D> static void separate_of(struct attention a) {
    prepare_of<T, false>(a);
    key_tiles_of<T, D, SEPARATE>(a);
    query_tiles_of<T, D, GRADIENT_OF_Q>(a);
}
template <class T, int D> static void fused_of(struct attention a) {
    prepare_of<T, true>(a);
    key_tiles_of<T, D, FUSED>(a);
    if (query_count(&a) > 0) finish_dq<T><<<row_blocks(query_count(&a)), ROW_THREADS>>>(a);
}
template <class T, int D> static void deterministic_of(struct attention a) {
    prepare_of<T, true>(a);
    clear_order<<<lab_blocks(query_count(&a) + 1, ROW_THREADS), ROW_THREADS>>>(a);
    CUDA_CHECK(cudaGetLastError());
    key_tiles_of<T, D, DETERMINISTIC>(a);
    if (query_count(&a) > 0) finish_dq<T><<<row_blocks(query_count(&a)), ROW_THREADS>>>(a);
}

static void forward(struct attention a) { LAB16_LAUNCH(a, forward_of); }
static void forward_stored(struct attention a) { LAB16_LAUNCH(a, forward_stored_of); }
static void launch_stored(struct attention a) { LAB16_LAUNCH(a, stored_of_all); }
static void launch_separate(struct attention a) { LAB16_LAUNCH(a, separate_of); }
static void launch_fused(struct attention a) { LAB16_LAUNCH(a, fused_of); }
static void launch_deterministic(struct attention a) { LAB16_LAUNCH(a, deterministic_of); }

constexpr unsigned TYPES = 1u << DTYPE_FP16 | 1u << DTYPE_BF16;
constexpr struct support EQUAL_LENGTHS = {TYPES, 8, 128, 0, 0, 0};
constexpr struct support ANY_LENGTHS = {TYPES, 8, 128, 0, FEATURE_PACKED, 0};
constexpr struct support ANY_ORDER = {TYPES, 8, 128, 0, FEATURE_PACKED, 0, 1};
static const struct kernel kernels[] = {
    {"stored", "P kept from the forward pass, dP written and read", launch_stored, stored_bytes,
     EQUAL_LENGTHS, forward_stored},
    {"separate", "P again, tile by tile; a kernel for dK and dV, one for dQ", launch_separate, delta_bytes,
     ANY_LENGTHS, forward},
    {"fused", "dQ in the same kernel, by atomic additions", launch_fused, fused_bytes, ANY_ORDER, forward},
    {"fused_deterministic", "additions to dQ in a fixed order", launch_deterministic, deterministic_bytes,
     ANY_LENGTHS, forward},
};

static const struct lab lab06 = {
    "lab06_backward",
    "gradients without the N x N matrix: the backward pass computes P again",
    "lecture 25, section 3.3",
    90,                      // min_sm: the oldest GPU that runs it, Hopper: bulk reductions, 193 KB a block
    {1, 2, 2, 256, 64},      // batch, heads, kv_heads, seqlen, head_dim on the cpu backend: a second of work
    {4, 16, 16, 4096, 128},  // and on a GPU: work that fills it
    kernels,
    sizeof kernels / sizeof kernels[0],
    0,
};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab06); }
