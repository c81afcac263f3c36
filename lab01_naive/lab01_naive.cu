// lab01_naive.cu - standard attention: three kernels, and two N x N matrices that travel between them.
//
//     S = scale * Q K^T        P = softmax(S), row by row        O = P V
//
// Lecture 25, sections 0.3 and 1.1-1.3, experiment 1. This is what a framework does that does not fuse. S is
// written and read, P is written and read, 2 N^2 bytes each time: 8 N^2 + 8 N d bytes a head for 4 N^2 d
// FLOPs. However fast the products become, the matrices have to travel. Three kernels do it:
//
//     naive    one thread for each element of S and of O
//     tiled    the same products out of 64 x 64 tiles in shared memory
//     cublas   the same products by the vendor's library on tensor cores, softmax from registers (GPU only)
//
//     ./lab run 01         or        build/cpu/lab01_naive --seqlen 200 --causal --kernel tiled

#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/attention.h"
#include "common/lab.h"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;
constexpr int THREADS = 256;

// S or P: fp16, [batch][heads][seqlen_q][seqlen_k]; a row starts at a multiple of 8 elements (16 bytes).
static __host__ __device__ struct tensor score_matrix(const struct attention *a, int which) {
    struct tensor t;
    t.stride_row = ((int64_t)a->seqlen_k + 7) / 8 * 8;
    t.stride_head = t.stride_row * a->seqlen_q;
    t.stride_batch = t.stride_head * a->heads;
    t.data = (half *)a->workspace + which * t.stride_batch * a->batch;
    return t;
}
static __host__ __device__ struct tensor s_of(const struct attention *a) { return score_matrix(a, 0); }
static __host__ __device__ struct tensor p_of(const struct attention *a) { return score_matrix(a, 1); }

// ---- naive: one thread for each element of a product ----

__global__ void __launch_bounds__(THREADS) scores_naive(struct attention a) {
    int64_t element = (int64_t)blockIdx.x * THREADS + threadIdx.x;  // of S, numbered [query][key]
    int64_t query = element / a.seqlen_k;
    int key = (int)(element % a.seqlen_k);
    if (query >= query_count(&a)) return;
    struct position at = position_of(&a, query);

    // BEGIN SOLUTION scores: sum is the product of the query's row and the key's, of the head they share.
    const half *q = row<half>(a.q, at.batch, at.head, at.i);                 // [head_dim]
    const half *k = row<half>(a.k, at.batch, kv_head_of(&a, at.head), key);  // [head_dim]
    float sum = 0.0f;
    for (int c = 0; c < a.head_dim; c++) sum += __half2float(q[c]) * __half2float(k[c]);
    // STUB float sum = 0.0f;
    // END SOLUTION
    // Scaled before it is rounded to fp16, which ends at 65504: q . k is sqrt(head_dim) times as large.
    row<half>(s_of(&a), at.batch, at.head, at.i)[key] = __float2half(a.scale * sum);
}

static __device__ float warp_max(float x) {
    for (int offset = WARP / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}
static __device__ float warp_sum(float x) {
    for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// One warp for each row, which it reads three times: maximum, sum, probabilities. Also writes LSE.
__global__ void __launch_bounds__(THREADS) softmax_rows(struct attention a) {
    int64_t query = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / WARP;
    int lane = threadIdx.x % WARP;
    if (query >= query_count(&a)) return;  // the whole warp leaves: a warp has one query
    struct position at = position_of(&a, query);
    int visible = visible_keys(&a, at.i);
    const half *s = row<half>(s_of(&a), at.batch, at.head, at.i);  // [seqlen_k]
    half *p = row<half>(p_of(&a), at.batch, at.head, at.i);        // [seqlen_k]

    // BEGIN SOLUTION softmax: max is the row's largest visible score, sum that of exp(score - max).
    // fmaxf passes over a NaN. The sum does not, and through it the NaN reaches P, O and LSE.
    float max = -INFINITY;
    for (int key = lane; key < visible; key += WARP) max = fmaxf(max, __half2float(s[key]));
    max = warp_max(max);

    float sum = 0.0f;
    for (int key = lane; key < visible; key += WARP) sum += expf(__half2float(s[key]) - max);
    sum = warp_sum(sum);
    // STUB float max = warp_max(0.0f), sum = warp_sum(1.0f);
    // END SOLUTION

    // A masked key is known by its place, never by its score: S may hold anything there.
    for (int key = lane; key < a.seqlen_k; key += WARP)
        p[key] = __float2half(key < visible ? expf(__half2float(s[key]) - max) / sum : 0.0f);
    if (lane == 0) a.lse[query] = visible > 0 ? max + logf(sum) : -INFINITY;
}

// With ONLY_NAN, a repair of what another kernel computed: see launch_cublas.
template <bool ONLY_NAN> __global__ void __launch_bounds__(THREADS) output_naive(struct attention a) {
    int64_t element = (int64_t)blockIdx.x * THREADS + threadIdx.x;  // of O, numbered [query][column]
    int64_t query = element / a.head_dim;
    int c = (int)(element % a.head_dim);
    if (query >= query_count(&a)) return;
    struct position at = position_of(&a, query);

    half *o = row<half>(a.o, at.batch, at.head, at.i) + c;
    if (ONLY_NAN && !isnan(__half2float(*o))) return;
    // BEGIN SOLUTION output: sum is that of P times V, in this column, over the keys that the query sees.
    const half *p = row<half>(p_of(&a), at.batch, at.head, at.i);              // [seqlen_k]
    const half *v = row<half>(a.v, at.batch, kv_head_of(&a, at.head), 0) + c;  // [seqlen_k], stride_row apart
    // Not to seqlen_k: P is 0 for a masked key, but 0 times a NaN in V would still be NaN.
    int visible = visible_keys(&a, at.i);
    float sum = 0.0f;
    for (int key = 0; key < visible; key++, v += a.v.stride_row)
        sum += __half2float(p[key]) * __half2float(*v);
    // STUB float sum = 0.0f;
    // END SOLUTION
    *o = __float2half(sum);
}

// ---- tiled: both products through shared memory ----

constexpr int TILE = 64;   // a block computes TILE x TILE elements ...
constexpr int DEPTH = 32;  // ... and holds DEPTH terms of their sums in shared memory at a time
constexpr int SIDE = 16;   // the block is SIDE x SIDE threads ...
constexpr int EACH = 4;    // ... and each computes EACH x EACH elements, SIDE apart in both directions
static_assert(SIDE * EACH == TILE && SIDE * SIDE == THREADS, "the threads cover the tile");

// Block number blockIdx.x counts through [batch][heads][tiles of queries][tiles of columns].
struct tile {
    int batch, head, first_query, first_column;
};
static __device__ struct tile tile_of_block(const struct attention *a, int columns) {
    int across = (columns + TILE - 1) / TILE;
    int down = (a->seqlen_q + TILE - 1) / TILE;
    int number = (int)blockIdx.x;
    struct tile t;
    t.first_column = number % across * TILE;
    t.first_query = number / across % down * TILE;
    t.head = number / across / down % a->heads;
    t.batch = number / across / down / a->heads;
    return t;
}

// Copies a tile of ROWS x COLUMNS elements, of which only `rows` x `columns` exist, to shared memory and
// fills the rest with zeros. TRANSPOSED: its columns become rows there.
template <int ROWS, int COLUMNS, bool TRANSPOSED>
static __device__ void load_tile(float (*tile_smem)[DEPTH + 1], const half *from, int64_t stride_row,
                                 int rows, int columns) {
    for (int e = threadIdx.x; e < ROWS * COLUMNS; e += THREADS) {
        int r = e / COLUMNS;
        int c = e % COLUMNS;  // neighbouring threads, neighbouring addresses
        float x = r < rows && c < columns ? __half2float(from[r * stride_row + c]) : 0.0f;
        (TRANSPOSED ? tile_smem[c][r] : tile_smem[r][c]) = x;
    }
}

// sum_reg[y][x] += a_smem[row y] . b_smem[row x]. MASKED: row y takes its first limit_reg[y] terms only.
// Eight loads feed sixteen multiplications. Rows are DEPTH + 1 long, so a walk down a column changes banks.
template <bool MASKED>
static __device__ void multiply_tiles(const float (*a_smem)[DEPTH + 1], const float (*b_smem)[DEPTH + 1],
                                      const int *limit_reg, float (*sum_reg)[EACH]) {
    // BEGIN SOLUTION tile_product: add to the thread's EACH x EACH sums: a load serves several products.
    int first_a = threadIdx.x / SIDE;
    int first_b = threadIdx.x % SIDE;
    for (int term = 0; term < DEPTH; term++) {
        float b_reg[EACH];
        for (int x = 0; x < EACH; x++) b_reg[x] = b_smem[first_b + SIDE * x][term];
        for (int y = 0; y < EACH; y++) {
            float a_reg = a_smem[first_a + SIDE * y][term];
            if (MASKED && term >= limit_reg[y]) continue;
            for (int x = 0; x < EACH; x++) sum_reg[y][x] += a_reg * b_reg[x];
        }
    }
    // STUB (void)a_smem, (void)b_smem, (void)limit_reg, (void)sum_reg;
    // END SOLUTION
}

__global__ void __launch_bounds__(THREADS) scores_tiled(struct attention a) {
    __shared__ float q_smem[TILE][DEPTH + 1];
    __shared__ float k_smem[TILE][DEPTH + 1];
    struct tile t = tile_of_block(&a, a.seqlen_k);
    int queries = a.seqlen_q - t.first_query;                        // rows of S from here to the end
    int keys = a.seqlen_k - t.first_column;                          // and columns
    const half *q = row<half>(a.q, t.batch, t.head, t.first_query);  // [queries][head_dim]
    const half *k = row<half>(a.k, t.batch, kv_head_of(&a, t.head), t.first_column);  // [keys][head_dim]
    half *s = row<half>(s_of(&a), t.batch, t.head, t.first_query) + t.first_column;   // [queries][keys]

    float sum_reg[EACH][EACH] = {};
    for (int c = 0; c < a.head_dim; c += DEPTH) {
        __syncthreads();  // nobody still reads the tiles that the next lines overwrite
        load_tile<TILE, DEPTH, false>(q_smem, q + c, a.q.stride_row, queries, a.head_dim - c);
        load_tile<TILE, DEPTH, false>(k_smem, k + c, a.k.stride_row, keys, a.head_dim - c);
        __syncthreads();  // both tiles are whole before anybody reads them
        multiply_tiles<false>(q_smem, k_smem, nullptr, sum_reg);
    }
#pragma unroll
    for (int n = 0; n < EACH * EACH; n++) {
        int y = threadIdx.x / SIDE + SIDE * (n / EACH);
        int x = threadIdx.x % SIDE + SIDE * (n % EACH);
        if (y < queries && x < keys)
            s[y * s_of(&a).stride_row + x] = __float2half(a.scale * sum_reg[n / EACH][n % EACH]);
    }
}

__global__ void __launch_bounds__(THREADS) output_tiled(struct attention a) {
    __shared__ float p_smem[TILE][DEPTH + 1];
    __shared__ float v_smem[TILE][DEPTH + 1];  // transposed: [column][key]
    struct tile t = tile_of_block(&a, a.head_dim);
    int queries = a.seqlen_q - t.first_query;  // rows of O from here to the end
    int columns = a.head_dim - t.first_column;
    int kv_head = kv_head_of(&a, t.head);
    const half *p = row<half>(p_of(&a), t.batch, t.head, t.first_query);        // [queries][seqlen_k]
    const half *v = row<half>(a.v, t.batch, kv_head, 0) + t.first_column;       // [seqlen_k][columns]
    half *o = row<half>(a.o, t.batch, t.head, t.first_query) + t.first_column;  // [queries][columns]

    int seen_by_all = visible_keys(&a, t.first_query);
    int seen_by_any = visible_keys(&a, t.first_query + (queries < TILE ? queries : TILE) - 1);
    float sum_reg[EACH][EACH] = {};
    for (int key = 0; key < seen_by_any; key += DEPTH) {
        __syncthreads();  // nobody still reads the tiles that the next lines overwrite
        load_tile<TILE, DEPTH, false>(p_smem, p + key, p_of(&a).stride_row, queries, a.seqlen_k - key);
        load_tile<DEPTH, TILE, true>(v_smem, v, a.v.stride_row, a.seqlen_k - key, columns);
        v += DEPTH * a.v.stride_row;
        __syncthreads();  // both tiles are whole before anybody reads them
        if (key + DEPTH <= seen_by_all) {
            multiply_tiles<false>(p_smem, v_smem, nullptr, sum_reg);
        } else {  // some rows do not see some of these keys: leave the terms out, V may hold a NaN there
            int limit_reg[EACH];
            for (int y = 0; y < EACH; y++)
                limit_reg[y] = visible_keys(&a, t.first_query + threadIdx.x / SIDE + SIDE * y) - key;
            multiply_tiles<true>(p_smem, v_smem, limit_reg, sum_reg);
        }
    }
#pragma unroll
    for (int n = 0; n < EACH * EACH; n++) {
        int y = threadIdx.x / SIDE + SIDE * (n / EACH);
        int x = threadIdx.x % SIDE + SIDE * (n % EACH);
        if (y < queries && x < columns) o[y * a.o.stride_row + x] = __float2half(sum_reg[n / EACH][n % EACH]);
    }
}

static void launch_naive(struct attention a) {
    int64_t queries = query_count(&a);
    if (queries == 0) return;
    if (a.seqlen_k > 0) scores_naive<<<lab_blocks(queries * a.seqlen_k, THREADS), THREADS>>>(a);
    softmax_rows<<<lab_blocks(queries, THREADS / WARP), THREADS>>>(a);
    output_naive<false><<<lab_blocks(queries * a.head_dim, THREADS), THREADS>>>(a);
    CUDA_CHECK(cudaGetLastError());
}

static void launch_tiled(struct attention a) {
    int64_t queries = query_count(&a);
    if (queries == 0) return;
    int64_t query_tiles = (int64_t)a.batch * a.heads * lab_blocks(a.seqlen_q, TILE);
    if (a.seqlen_k > 0)
        scores_tiled<<<lab_blocks(query_tiles * lab_blocks(a.seqlen_k, TILE), 1), THREADS>>>(a);
    softmax_rows<<<lab_blocks(queries, THREADS / WARP), THREADS>>>(a);
    output_tiled<<<lab_blocks(query_tiles * lab_blocks(a.head_dim, TILE), 1), THREADS>>>(a);
    CUDA_CHECK(cudaGetLastError());
}

// ---- cublas: both products on tensor cores ----

#ifdef __CUDACC__
#include <cublas_v2.h>

// One block for each row, read once, 16 bytes a load, and kept in registers until its probabilities are
// written. Takes rows of up to 32 * THREADS_PER_ROW keys.
constexpr int VECTORS = 4;  // loads in flight for each thread, 8 keys each
template <int THREADS_PER_ROW>
__global__ void __launch_bounds__(THREADS_PER_ROW) softmax_registers(struct attention a) {
    constexpr int WARPS = THREADS_PER_ROW / WARP;
    __shared__ float max_smem[WARPS];
    __shared__ float sum_smem[WARPS];
    int warp = threadIdx.x / WARP;
    int lane = threadIdx.x % WARP;
    struct position at = position_of(&a, blockIdx.x);
    int visible = visible_keys(&a, at.i);
    const uint4 *s = (const uint4 *)row<half>(s_of(&a), at.batch, at.head, at.i);  // [vectors]
    uint4 *p = (uint4 *)row<half>(p_of(&a), at.batch, at.head, at.i);              // [vectors]
    int vectors = (a.seqlen_k + 7) / 8;

    float x_reg[VECTORS][8];  // scores, then their exponentials
    float max = -INFINITY;
    for (int n = 0; n < VECTORS; n++) {
        int vector = n * THREADS_PER_ROW + threadIdx.x;
        uint4 packed = vector < vectors ? s[vector] : make_uint4(0, 0, 0, 0);
        const half *s_reg = (const half *)&packed;
        for (int e = 0; e < 8; e++) {
            x_reg[n][e] = vector * 8 + e < visible ? __half2float(s_reg[e]) : -INFINITY;
            max = fmaxf(max, x_reg[n][e]);
        }
    }
    max = warp_max(max);
    if (lane == 0) max_smem[warp] = max;
    __syncthreads();  // every warp's maximum is there before anybody reads them
    max = warp_max(max_smem[lane % WARPS]);

    float sum = 0.0f;
    for (int n = 0; n < VECTORS; n++)
        for (int e = 0; e < 8; e++) {
            int key = (n * THREADS_PER_ROW + threadIdx.x) * 8 + e;
            x_reg[n][e] = key < visible ? __expf(x_reg[n][e] - max) : 0.0f;
            sum += x_reg[n][e];
        }
    sum = warp_sum(sum);
    if (lane == 0) sum_smem[warp] = sum;
    __syncthreads();  // every warp's sum is there before anybody reads them
    sum = warp_sum(lane < WARPS ? sum_smem[lane] : 0.0f);

    float factor = visible > 0 ? 1.0f / sum : 0.0f;
    for (int n = 0; n < VECTORS; n++) {
        int vector = n * THREADS_PER_ROW + threadIdx.x;
        uint4 packed;
        half2 *p_reg = (half2 *)&packed;
        for (int e = 0; e < 4; e++)
            p_reg[e] = __floats2half2_rn(x_reg[n][2 * e] * factor, x_reg[n][2 * e + 1] * factor);
        if (vector < vectors) p[vector] = packed;
    }
    if (threadIdx.x == 0) a.lse[blockIdx.x] = visible > 0 ? max + logf(sum) : -INFINITY;
}

#define CUBLAS_CHECK(call) cublas_check((call), #call, __LINE__)
static void cublas_check(cublasStatus_t status, const char *call, int line) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, line, call, cublasGetStatusString(status));
    exit(LAB_WRONG);
}

static cublasHandle_t create_cublas() {
    cublasHandle_t handle;
    CUBLAS_CHECK(cublasCreate(&handle));
    // Without this cuBLAS may add partial sums in fp16.
    CUBLAS_CHECK(cublasSetMathMode(handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
    return handle;
}

// For each head C = alpha * B A, or alpha * B A^T; fp16, sums in fp32. C is [n][m], k the number of terms. A
// is K or V, shared by a group of heads. cuBLAS takes matrices to lie column by column: told of ours as they
// are, it sees each one transposed and computes C^T = A^T B^T.
static void multiply_heads(const struct attention *a, cublasOperation_t op_a, int m, int n, int k,
                           float alpha, struct tensor A, struct tensor B, struct tensor C) {
    static const cublasHandle_t cublas = create_cublas();  // once, in the warm-up: it allocates
    float beta = 0.0f;
    int64_t heads = a->heads, group = heads / a->kv_heads, count = a->batch * heads;
    // One call may take products that lie at equal distances: all of them, or a batch's, or a group's.
    bool folds = A.stride_batch == heads * A.stride_head && B.stride_batch == heads * B.stride_head &&
                 C.stride_batch == heads * C.stride_head;
    int64_t span = group > 1 ? group : folds ? count : heads;
    for (int64_t at = 0, products; at < count; at += products) {
        products = span - at % span;
        if (products > 65535) products = 65535;  // cuBLAS puts them into a grid dimension that ends there
        int64_t batch = at / heads, head = at % heads;
        CUBLAS_CHECK(cublasGemmStridedBatchedEx_64(
            cublas, op_a, CUBLAS_OP_N, m, n, k, &alpha, row<half>(A, batch, head / group, 0), CUDA_R_16F,
            A.stride_row, group > 1 ? 0 : A.stride_head, row<half>(B, batch, head, 0), CUDA_R_16F,
            B.stride_row, B.stride_head, &beta, row<half>(C, batch, head, 0), CUDA_R_16F, C.stride_row,
            C.stride_head, products, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }
}

static void launch_cublas(struct attention a) {
    if (query_count(&a) == 0) return;
    if (a.seqlen_k == 0) return launch_naive(a);  // no product to leave to cuBLAS
    unsigned rows = lab_blocks(query_count(&a), 1);
    multiply_heads(&a, CUBLAS_OP_T, a.seqlen_k, a.seqlen_q, a.head_dim, a.scale, a.k, a.q, s_of(&a));
    if (a.seqlen_k <= 1024)
        softmax_registers<32><<<rows, 32>>>(a);
    else if (a.seqlen_k <= 4096)
        softmax_registers<128><<<rows, 128>>>(a);
    else if (a.seqlen_k <= 8192)
        softmax_registers<256><<<rows, 256>>>(a);
    else if (a.seqlen_k <= 32768)
        softmax_registers<1024><<<rows, 1024>>>(a);
    else
        softmax_rows<<<lab_blocks(rows, THREADS / WARP), THREADS>>>(a);
    multiply_heads(&a, CUBLAS_OP_N, a.head_dim, a.seqlen_q, a.seqlen_k, 1.0f, a.v, p_of(&a), a.o);
    // The library's product takes all keys, and 0 times a masked NaN or infinity is NaN. Nothing else makes a
    // masked key felt, so what came out NaN, usually nothing, is computed again from the visible keys.
    if (a.causal) output_naive<true><<<lab_blocks(query_count(&a) * a.head_dim, THREADS), THREADS>>>(a);
    CUDA_CHECK(cudaGetLastError());
}
#else
static void (*const launch_cublas)(struct attention) = nullptr;  // gpu_only below: never called on the CPU
#endif

// ---- the table ----

static size_t matrix_bytes(const struct attention *a) {  // S and P
    return 2 * (size_t)(score_matrix(a, 0).stride_batch * a->batch) * sizeof(half);
}

constexpr struct support ANYWHERE = {1u << DTYPE_FP16, 8, 256, 0, FEATURE_UNALIGNED, 0};
constexpr struct support ON_GPU = {1u << DTYPE_FP16, 8, 256, 1, 0, 0};
static const struct kernel kernels[] = {
    {"naive", "one thread per element of S and O", launch_naive, matrix_bytes, ANYWHERE},
    {"tiled", "both products from shared-memory tiles", launch_tiled, matrix_bytes, ANYWHERE},
    {"cublas", "both products on tensor cores", launch_cublas, matrix_bytes, ON_GPU},
};

static const struct lab lab01 = {
    "lab01_naive",
    "standard attention: S = QK^T, P = softmax(S), O = PV, with S and P in memory",
    "lecture 25, sections 0.3 and 1.1-1.3",
    75,                      // min_sm: the oldest GPU that runs it, Turing
    {1, 2, 2, 256, 64},      // batch, heads, kv_heads, seqlen, head_dim on the cpu backend: a second of work
    {4, 16, 16, 4096, 128},  // and on a GPU: work that fills it
    kernels,
    sizeof kernels / sizeof kernels[0],
    0,  // not causal, unless --causal
};

int main(int argc, char **argv) { return lab_main(argc, argv, &lab01); }
