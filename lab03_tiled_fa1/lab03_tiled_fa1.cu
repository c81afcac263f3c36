// lab03_tiled_fa1.cu - FlashAttention-1: attention by tiles that fit into shared memory.
//
// A tile of K and V is loaded once, and all queries pass by it, a tile at a time. K and V are read once, Q
// and O once for each tile of keys: N^2 d^2 / M numbers move, if M fit into shared memory. Lecture 25,
// sections 3.2, 3.4 and 4.1; this is Algorithm 1 of Dao et al. 2022 with its loops as published:
//
//     for each tile of K and V:                       Bc = ceil(M / 4 d) keys
//         for each tile of Q:                         Br = min(Bc, d) queries
//             read its O, m, l; S = Q K^T, P = exp(S - max); m, l and O take P V in; write O, m, l
//
// The kernels, in fp32 on CUDA cores, one block for each batch and head:
//
//     fa1          rows in shared memory lie end to end
//     fa1_padded   the same, with a gap after each row: no bank conflicts
//
// Since lab 02: what is loaded serves a tile of queries and not one; O, m and l wait in global memory, for a
// block that goes through all queries for each tile of keys cannot keep them (lab 04 swaps the loops).
//
//     ./lab run 03         or        build/cpu/lab03_tiled_fa1 --seqlen 400 --causal --kernel fa1_padded

#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/attention.h"
#include "common/lab.h"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;
constexpr int THREADS = 512;
constexpr int WARPS = THREADS / WARP;

// ---- tiles ----

// Sizes of the tiles, and how they lie in shared memory (k_smem ... below), in numbers of fp32.
struct tiles {
    int keys, queries;  // Bc and Br
    int qk_stride;      // from one row of Q or K to the next, at least head_dim
    int s_stride;       // from one row of S to the next, at least `keys`
};

// One turn of the inner loop: a tile of keys and a tile of queries, of which the last ones are smaller.
struct step {
    int first_key, keys;
    int first_query, queries;
};

// Shared memory of a block: K, V, Q, S, and for each query m, l and two factors.
static __host__ __device__ int shared_floats(struct tiles t, int head_dim) {
    return t.keys * (t.qk_stride + head_dim) + t.queries * (t.qk_stride + t.s_stride + 4);
}

static __device__ int lesser(int x, int y) { return x < y ? x : y; }
static __device__ int pieces(int n, int size) { return (n + size - 1) / size; }

// How many of the keys of a step its query in row r sees: so many from the first on.
static __device__ int visible_in_tile(const struct attention *a, struct step step, int r) {
    int visible = visible_keys(a, step.first_query + r) - step.first_key;
    return visible < 0 ? 0 : lesser(visible, step.keys);
}

// Copies `rows` rows of one head, from row `first` on, to shared memory, times `factor`.
static __device__ void load_tile(struct tensor x, int batch, int head, int first, int rows, int head_dim,
                                 float factor, float *tile_smem, int stride) {
    const half *from = row<half>(x, batch, head, first);
    for (int e = threadIdx.x; e < rows * (head_dim / 4); e += THREADS) {
        int r = e / (head_dim / 4);
        int c = e % (head_dim / 4) * 4;
        uint2 packed = *(const uint2 *)(from + r * x.stride_row + c);
        const half2 *pair = (const half2 *)&packed;
        float2 low = __half22float2(pair[0]), high = __half22float2(pair[1]);
        *(float4 *)(tile_smem + r * stride + c) =
            make_float4(low.x * factor, low.y * factor, high.x * factor, high.y * factor);
    }
}

// ---- a warp as 4 x 8 lanes ----

// A warp works on one patch of S or O at a time: 16 rows of 64 keys or of 32 columns. Its lanes lie on it
// like this; each has ROWS rows, 4 apart, and of S KEYS columns, 8 apart, of O four neighbours. Pairs of
// lanes share a column: loads of 16 bytes take four passes, but two if both lanes of each pair want the same.
//
//     lane     0  1    2  3          14 15         16 17   18 19         30 31
//     row      0  1    0  1    ...    0  1          2  3    2  3    ...   2  3
//     column    0       1              7             0       1             7
constexpr int LANE_ROWS = 4;
constexpr int LANE_COLUMNS = 8;
constexpr int ROWS = 4;
constexpr int PATCH_ROWS = LANE_ROWS * ROWS;

static __device__ int warp() { return threadIdx.x / WARP; }
static __device__ int lane_row() { return threadIdx.x % 2 + threadIdx.x % WARP / 16 * 2; }
static __device__ int lane_column() { return threadIdx.x / 2 % LANE_COLUMNS; }

// Over the eight lanes of a row.
static __device__ float row_max(float x) {
    for (int offset = 2; offset < 16; offset *= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}
static __device__ float row_sum(float x) {
    for (int offset = 2; offset < 16; offset *= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// ---- S = Q K^T ----

constexpr int KEYS = 8;  // of a lane in each of its rows, 8 apart
constexpr int PATCH_KEYS = LANE_COLUMNS * KEYS;

static __device__ void add_product(float4 x, float4 y, float *sum) {
    *sum += x.x * y.x;
    *sum += x.y * y.y;
    *sum += x.z * y.z;
    *sum += x.w * y.w;
}

// -inf where a query does not see a key.
static __device__ void multiply_q_k(const struct attention *a, struct tiles t, struct step step,
                                    const float *q_smem, const float *k_smem, float *s_smem) {
    int across = pieces(step.keys, PATCH_KEYS);
    for (int patch = warp(); patch < pieces(step.queries, PATCH_ROWS) * across; patch += WARPS) {
        int row0 = patch / across * PATCH_ROWS + lane_row();
        int key0 = patch % across * PATCH_KEYS + lane_column();
        // What lies past the end of a tile is taken for its last row; nothing that comes of it is stored.
        const float *q[ROWS];
        const float *k[KEYS];
#pragma unroll
        for (int y = 0; y < ROWS; y++)
            q[y] = q_smem + lesser(row0 + LANE_ROWS * y, step.queries - 1) * t.qk_stride;
#pragma unroll
        for (int x = 0; x < KEYS; x++)
            k[x] = k_smem + lesser(key0 + LANE_COLUMNS * x, step.keys - 1) * t.qk_stride;

        float sum_reg[ROWS][KEYS] = {};
        for (int c = 0; c < a->head_dim; c += 4) {
            float4 q_reg[ROWS];
#pragma unroll
            for (int y = 0; y < ROWS; y++) q_reg[y] = *(const float4 *)(q[y] + c);
#pragma unroll
            for (int x = 0; x < KEYS; x++) {
                float4 k_reg = *(const float4 *)(k[x] + c);
#pragma unroll
                for (int y = 0; y < ROWS; y++) add_product(q_reg[y], k_reg, &sum_reg[y][x]);
            }
        }
#pragma unroll
        for (int n = 0; n < ROWS * KEYS; n++) {
            int r = row0 + LANE_ROWS * (n / KEYS);
            int j = key0 + LANE_COLUMNS * (n % KEYS);
            if (r >= step.queries || j >= step.keys) continue;
            // A masked key is known by its place, never by its score: K may hold anything there.
            bool visible = j < visible_in_tile(a, step, r);
            s_smem[r * t.s_stride + j] = visible ? sum_reg[n / KEYS][n % KEYS] : -INFINITY;
        }
    }
}

// ---- P, m and l ----

// exp(score - m) for m >= score; for -inf it is 0, even if m is -inf too, when the difference would be NaN.
static __device__ float share(float score, float m) { return score == -INFINITY ? 0.0f : __expf(score - m); }
static __device__ float lse_of(float2 m_l) { return m_l.y == 0.0f ? -INFINITY : m_l.x + logf(m_l.y); }

// P = exp(S - m_tile) in place of S, with a row's maximum m_tile and sum l_tile in this tile. Then, m, l and
// O being of the tiles before this one, m', l' and O' of this one, too (Algorithm 1, lines 10 to 13):
//
//     m' = max(m, m_tile)     l' = l exp(m - m') + l_tile exp(m_tile - m')
//     O' = keep O + add P V,  with keep = l exp(m - m') / l' and add = exp(m_tile - m') / l'
static __device__ void softmax(struct tiles t, struct step step, const float2 *state_smem, float *s_smem,
                               float2 *factor_smem, float2 *state) {
    for (int first = warp() * LANE_ROWS; first < step.queries; first += WARPS * LANE_ROWS) {
        int r = first + lane_row();
        // BEGIN SOLUTION tile_softmax: m_tile and l_tile of row r, and P in the place of S.
        int end = r < step.queries ? step.keys : 0;  // no row: goes along, for the sake of the shuffles
        float *s = s_smem + r * t.s_stride;
        // fmaxf passes over a NaN. The sum does not, and through it the NaN reaches O and LSE.
        float m_tile = -INFINITY;
        for (int j = lane_column(); j < end; j += LANE_COLUMNS) m_tile = fmaxf(m_tile, s[j]);
        m_tile = row_max(m_tile);
        float l_tile = 0.0f;
        for (int j = lane_column(); j < end; j += LANE_COLUMNS) {
            float p = share(s[j], m_tile);
            l_tile += p;
            s[j] = p;
        }
        l_tile = row_sum(l_tile);
        // STUB float m_tile = row_max(0.0f), l_tile = row_sum(0.0f);
        // STUB (void)t, (void)s_smem;
        // END SOLUTION
        if (lane_column() != 0 || r >= step.queries) continue;
        float2 old = state_smem[r];  // m and l
        // BEGIN SOLUTION factors: m', l', and what old O (keep) and this P V (add) count before dividing.
        float m_new = fmaxf(old.x, m_tile);
        float keep = old.y * share(old.x, m_new);
        float add = share(m_tile, m_new);
        float l_new = keep + l_tile * add;
        // STUB float m_new = fmaxf(old.x, m_tile), keep = share(old.x, m_new);
        // STUB float add = 0.0f, l_new = add * l_tile;
        // END SOLUTION
        float inverse = l_new == 0.0f ? 0.0f : 1.0f / l_new;
        factor_smem[r] = make_float2(keep * inverse, add * inverse);
        state[step.first_query + r] = make_float2(m_new, l_new);
    }
}

// ---- O = keep O + add P V ----

static __device__ void add_multiple(float p, float4 v, float4 *sum) {
    sum->x += p * v.x;
    sum->y += p * v.y;
    sum->z += p * v.z;
    sum->w += p * v.w;
}

// sum_reg += P V over the keys from `key` to before `end`. MASKED: of a row only the first limit_reg, for P
// is 0 beyond, but 0 times a NaN in V would still be NaN.
template <bool MASKED>
static __device__ void multiply_p_v(const float *const *p, const float *v_smem, int head_dim, int key,
                                    int end, const int *limit_reg, float4 *sum_reg) {
    for (; key < end; key++) {
        float4 v_reg = *(const float4 *)(v_smem + key * head_dim);
#pragma unroll
        for (int y = 0; y < ROWS; y++) {
            float p_reg = p[y][key];
            if (!MASKED || key < limit_reg[y]) add_multiple(p_reg, v_reg, &sum_reg[y]);
        }
    }
}

// In each of its rows a lane has four neighbouring columns.
static __device__ void update_o(const struct attention *a, struct tiles t, struct step step,
                                const float *s_smem, const float *v_smem, const float2 *factor_smem,
                                float *o) {
    o += (int64_t)step.first_query * a->head_dim;
    int across = pieces(a->head_dim, LANE_COLUMNS * 4);
    for (int patch = warp(); patch < pieces(step.queries, PATCH_ROWS) * across; patch += WARPS) {
        int first_row = patch / across * PATCH_ROWS;
        int last_row = lesser(first_row + PATCH_ROWS, step.queries) - 1;
        int column = (patch % across * LANE_COLUMNS + lane_column()) * 4;
        int end_row = column < a->head_dim ? last_row + 1 : 0;  // 0: beside O, goes along and stores nothing
        column = lesser(column, a->head_dim - 4);

        const float *p[ROWS];
        int limit_reg[ROWS];
        float4 o_reg[ROWS] = {};  // loaded before the product, for use after it
#pragma unroll
        for (int y = 0; y < ROWS; y++) {
            int r = first_row + lane_row() + LANE_ROWS * y;
            if (r < end_row) o_reg[y] = *(const float4 *)(o + (int64_t)r * a->head_dim + column);
            p[y] = s_smem + lesser(r, last_row) * t.s_stride;
            limit_reg[y] = visible_in_tile(a, step, lesser(r, last_row));
        }
        // Keys that all rows of the patch see, then those that only some of them see.
        int all = visible_in_tile(a, step, first_row);
        int any = visible_in_tile(a, step, last_row);
        float4 sum_reg[ROWS] = {};
        multiply_p_v<false>(p, v_smem + column, a->head_dim, 0, all, limit_reg, sum_reg);
        multiply_p_v<true>(p, v_smem + column, a->head_dim, all, any, limit_reg, sum_reg);
#pragma unroll
        for (int y = 0; y < ROWS; y++) {
            int r = first_row + lane_row() + LANE_ROWS * y;
            if (r >= end_row) continue;
            float4 o_new = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            // BEGIN SOLUTION update_o: O' = keep O + add P V.
            add_multiple(factor_smem[r].x, o_reg[y], &o_new);
            add_multiple(factor_smem[r].y, sum_reg[y], &o_new);
            // STUB add_multiple(0.0f, o_reg[y], &o_new);
            // STUB add_multiple(0.0f, sum_reg[y], &o_new);
            // STUB (void)factor_smem;
            // END SOLUTION
            *(float4 *)(o + (int64_t)r * a->head_dim + column) = o_new;
        }
    }
}

// ---- Algorithm 1 ----

// One block for each batch and head. Between the passes O, m and l are in the workspace in fp32 (an O rounded
// to fp16 in each pass would be worse and worse): [queries of all heads][head_dim], then a pair for each
// query.
__global__ void __launch_bounds__(THREADS) fa1(struct attention a, struct tiles t) {
    extern __shared__ float4 shared_smem[];
    float *k_smem = (float *)shared_smem;                               // [t.keys][t.qk_stride]
    float *v_smem = k_smem + t.keys * t.qk_stride;                      // [t.keys][head_dim]
    float *q_smem = v_smem + t.keys * a.head_dim;                       // [t.queries][t.qk_stride]
    float2 *state_smem = (float2 *)(q_smem + t.queries * t.qk_stride);  // [t.queries]: m and l
    float2 *factor_smem = state_smem + t.queries;                       // [t.queries]: keep and add
    float *s_smem = (float *)(factor_smem + t.queries);                 // [t.queries][t.s_stride]: S, then P

    int64_t head_start = (int64_t)blockIdx.x * a.seqlen_q;  // number of this head's first query
    struct position at = position_of(&a, head_start);
    int kv_head = kv_head_of(&a, at.head);
    float *o = (float *)a.workspace + head_start * a.head_dim;  // [seqlen_q][head_dim]
    float2 *state = (float2 *)((float *)a.workspace + query_count(&a) * a.head_dim);
    state += head_start;  // [seqlen_q]: m and l
    int64_t o_count = (int64_t)a.seqlen_q * a.head_dim;

    for (int64_t e = threadIdx.x; e < o_count; e += THREADS) o[e] = 0.0f;
    for (int i = threadIdx.x; i < a.seqlen_q; i += THREADS) state[i] = make_float2(-INFINITY, 0.0f);
    __syncthreads();  // O, m and l are written before others read them: at once, if there are no keys

    struct step step;
    for (int tile_k = 0; tile_k < pieces(a.seqlen_k, t.keys); tile_k++) {
        step.first_key = tile_k * t.keys;
        step.keys = lesser(t.keys, a.seqlen_k - step.first_key);
        load_tile(a.k, at.batch, kv_head, step.first_key, step.keys, a.head_dim, 1.0f, k_smem, t.qk_stride);
        load_tile(a.v, at.batch, kv_head, step.first_key, step.keys, a.head_dim, 1.0f, v_smem, a.head_dim);
        for (int tile_q = 0; tile_q < pieces(a.seqlen_q, t.queries); tile_q++) {
            step.first_query = tile_q * t.queries;
            step.queries = lesser(t.queries, a.seqlen_q - step.first_query);
            load_tile(a.q, at.batch, at.head, step.first_query, step.queries, a.head_dim, a.scale, q_smem,
                      t.qk_stride);
            for (int r = threadIdx.x; r < step.queries; r += THREADS)
                state_smem[r] = state[step.first_query + r];
            __syncthreads();  // K, V, Q, m and l are whole before anybody reads them
            multiply_q_k(&a, t, step, q_smem, k_smem, s_smem);
            __syncthreads();  // S is whole before a warp takes rows of it
            softmax(t, step, state_smem, s_smem, factor_smem, state);
            __syncthreads();  // P and the factors are whole before anybody reads them
            update_o(&a, t, step, s_smem, v_smem, factor_smem, o);
            __syncthreads();  // nobody still reads what the next tiles overwrite, and O, m, l are written
        }
    }

    for (int64_t e = (int64_t)threadIdx.x * 4; e < o_count; e += THREADS * 4) {
        float4 o_reg = *(const float4 *)(o + e);
        uint2 packed;
        half2 *pair = (half2 *)&packed;
        pair[0] = __floats2half2_rn(o_reg.x, o_reg.y);
        pair[1] = __floats2half2_rn(o_reg.z, o_reg.w);
        *(uint2 *)(row<half>(a.o, at.batch, at.head, e / a.head_dim) + e % a.head_dim) = packed;
    }
    for (int i = threadIdx.x; i < a.seqlen_q; i += THREADS) a.lse[head_start + i] = lse_of(state[i]);
}

// ---- launches and the table ----

// Bytes of shared memory that a block may have: what the device has, or less, if LAB_SHARED_BYTES says so.
static long shared_bytes() {
    int most = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    return lab_shared_bytes(most);
}

// Bc and Br as published: K, V, Q and O, a quarter of M each. O is in registers here, S takes its place, and
// the gaps come on top; where that is too much (Br = Bc, or nearly), fewer keys.
static struct tiles make_tiles(int head_dim, bool padded) {
    int M = (int)(shared_bytes() / (long)sizeof(float));
    struct tiles t;
    for (t.keys = (M + 4 * head_dim - 1) / (4 * head_dim); t.keys > 0; t.keys--) {
        t.queries = t.keys < head_dim ? t.keys : head_dim;
        // Eight neighbouring rows, of which 16 bytes each are read, lie in all 32 banks: 4, 12, 20 or 28
        // numbers more than whole rounds. Four rows of S, of which 8 scores each are written: 8 or 24 more.
        t.qk_stride = head_dim + 4;
        t.s_stride = (t.keys + 7) / 16 * 16 + 8;
        if (shared_floats(t, head_dim) <= M) break;
    }
    if (t.keys <= 0) {
        fprintf(stderr,
                "LAB_SHARED_BYTES must be a number, at most what the device has and enough for a key.\n");
        exit(LAB_USAGE);
    }
    static struct tiles said;  // what was printed last: a kernel is launched many times
    if (said.keys != t.keys || said.queries != t.queries)
        printf("M = %d numbers in shared memory: tiles of %d keys and %d queries\n", M, t.keys, t.queries);
    said = t;
    if (!padded) t.qk_stride = head_dim, t.s_stride = t.keys;  // the same tiles, no gaps
    return t;
}

static bool aligned(struct tensor x) {
    return (uintptr_t)x.data % 8 == 0 && (x.stride_batch | x.stride_head | x.stride_row) % 4 == 0;
}

// Stops if a row starts off a multiple of 8 bytes: no layout of lab_main does.
static void launch(struct attention a, bool padded) {
    if (query_count(&a) == 0) return;
    bool all_aligned = aligned(a.q) && aligned(a.k) && aligned(a.v) && aligned(a.o);
    CUDA_CHECK(all_aligned ? cudaSuccess : cudaErrorMisalignedAddress);
    struct tiles t = make_tiles(a.head_dim, padded);
    size_t bytes = (size_t)shared_floats(t, a.head_dim) * sizeof(float);
    CUDA_CHECK(cudaFuncSetAttribute(fa1, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    fa1<<<lab_blocks((int64_t)a.batch * a.heads, 1), THREADS, bytes>>>(a, t);
    CUDA_CHECK(cudaGetLastError());
}

static void launch_fa1(struct attention a) { launch(a, false); }
static void launch_fa1_padded(struct attention a) { launch(a, true); }

static size_t state_bytes(const struct attention *a) {  // O, m and l in fp32
    return (size_t)query_count(a) * ((size_t)a->head_dim + 2) * sizeof(float);
}

constexpr struct support ANYWHERE = {1u << DTYPE_FP16, 8, 256, 0, 0, 0};
static const struct kernel kernels[] = {
    {"fa1", "a pass over Q and O for each tile of K and V", launch_fa1, state_bytes, ANYWHERE},
    {"fa1_padded", "longer rows, no bank conflicts", launch_fa1_padded, state_bytes, ANYWHERE},
};

static const struct lab lab03 = {
    "lab03_tiled_fa1",
    "FlashAttention-1: tiles as large as shared memory, no S and no P in memory",
    "lecture 25, sections 3.2, 3.4 and 4.1",
    75,                      // min_sm: the oldest GPU that runs it, Turing
    {1, 2, 2, 256, 64},      // batch, heads, kv_heads, seqlen, head_dim on the cpu backend: a second of work
    {4, 16, 16, 4096, 128},  // and on a GPU: as before, though 64 blocks do not fill it (see the handout)
    kernels,
    sizeof kernels / sizeof kernels[0],
    0,  // not causal, unless --causal
};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab03); }
