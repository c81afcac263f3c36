// matrix.cu - ldmatrix, stmatrix and wgmma: their requests, wavefronts and bank conflicts in shared memory
// are compared with Nsight Compute's. The rules of global_memory.cu hold here too. sm_90.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "calibration.h"
#include "common/ptx.h"

#define LANE ((int)threadIdx.x)

constexpr int TILE_BYTES = 8192;

// Where the rows of the matrices lie: row r of matrix m at r * row + m * matrix, in bytes; then its 16-byte
// chunk is moved as a swizzle does it, by bits of the row's number.
struct Placing {
    int row, matrix, swizzle;
};

// Fills the tile in order, without conflicts.
static __device__ void fill(float *tile_smem, float value) {
#pragma unroll 1
    for (int i = LANE; i < TILE_BYTES / 4; i += (int)blockDim.x) tile_smem[i] = value;
}

static __device__ uint32_t row_address(const float *tile_smem, Placing at) {
    int row = LANE & 7, matrix = LANE >> 3;
    return shared_address(tile_smem) +
           (uint32_t)((row * at.row + matrix * at.matrix) ^ (row & at.swizzle) << 4);
}

template <int COUNT, bool TRANS> __global__ void ldmatrix(const float *in, Placing at, uint32_t *out) {
    __shared__ alignas(1024) float tile_smem[TILE_BYTES / 4];
    fill(tile_smem, in[LANE]);
    __syncthreads();  // the tile is whole
    uint32_t r[COUNT], address = row_address(tile_smem, at);
    if constexpr (COUNT == 1 && !TRANS) ldmatrix_x1(r, address);
    if constexpr (COUNT == 2 && !TRANS) ldmatrix_x2(r, address);
    if constexpr (COUNT == 4 && !TRANS) ldmatrix_x4(r, address);
    if constexpr (COUNT == 1 && TRANS) ldmatrix_x1_trans(r, address);
    if constexpr (COUNT == 2 && TRANS) ldmatrix_x2_trans(r, address);
    if constexpr (COUNT == 4 && TRANS) ldmatrix_x4_trans(r, address);
    uint32_t sum = 0;
    for (int i = 0; i < COUNT; i++) sum += r[i];
    out[LANE] = sum;
}

template <int COUNT, bool TRANS> __global__ void stmatrix(const float *in, Placing at, float *out) {
    __shared__ alignas(1024) float tile_smem[TILE_BYTES / 4];
    fill(tile_smem, in[LANE]);
    __syncthreads();  // the tile is whole
    uint32_t r[COUNT], address = row_address(tile_smem, at);
    for (int i = 0; i < COUNT; i++) r[i] = (uint32_t)(LANE + i);
    if constexpr (COUNT == 1 && !TRANS) stmatrix_x1(address, r);
    if constexpr (COUNT == 2 && !TRANS) stmatrix_x2(address, r);
    if constexpr (COUNT == 4 && !TRANS) stmatrix_x4(address, r);
    if constexpr (COUNT == 4 && TRANS) stmatrix_x4_trans(address, r);
    __syncthreads();  // the rows are written
    out[LANE] = tile_smem[LANE];
}

// One product of 64 x 64 x 16 in fp16, both operands in panels of 64 rows, SWIZZLE bytes (0: 16) each.
template <int SWIZZLE>
__global__ void product(const float *in, uint32_t leading, uint32_t stride, float *out) {
#if defined(SIMT_CPU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ alignas(1024) float a_smem[TILE_BYTES / 4];
    __shared__ alignas(1024) float b_smem[TILE_BYTES / 4];
    float value = in[LANE];
    fill(a_smem, value);
    fill(b_smem, value);
    fence_proxy_async();
    __syncthreads();  // both are whole and visible to wgmma
    float d[32];
    wgmma_fence();
    wgmma_ss<__half, 64, 0, false, false>(d,
                                          wgmma_descriptor(shared_address(a_smem), leading, stride, SWIZZLE),
                                          wgmma_descriptor(shared_address(b_smem), leading, stride, SWIZZLE));
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(d);
    float sum = 0.0f;
    for (int i = 0; i < 32; i++) sum += d[i];
    out[LANE] = sum;
#else
    (void)in, (void)leading, (void)stride, (void)out;
#endif
}

// The same with A in registers.
__global__ void product_of_registers(const float *in, uint32_t stride, float *out) {
#if defined(SIMT_CPU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ alignas(1024) float b_smem[TILE_BYTES / 4];
    fill(b_smem, in[LANE]);
    fence_proxy_async();
    __syncthreads();  // it is whole and visible to wgmma
    const uint32_t a[4] = {(uint32_t)LANE, 1, 2, 3};
    float d[32];
    wgmma_fence();
    wgmma_rs<__half, 64, 0, false>(d, a, wgmma_descriptor(shared_address(b_smem), 16, stride, 128));
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(d);
    float sum = 0.0f;
    for (int i = 0; i < 32; i++) sum += d[i];
    out[LANE] = sum;
#else
    (void)in, (void)stride, (void)out;
#endif
}

// ---- launches ----

static void run_ldmatrix(struct buffers b) {
    static const struct {
        const char *name;
        Placing at;
    } cases[] = {
        {"rows_of_16", {16, 128, 0}},     // side by side: all banks
        {"rows_of_32", {32, 16, 0}},      // 2 rows of 8 in one bank
        {"rows_of_64", {64, 16, 0}},      // 4
        {"rows_of_128", {128, 16, 0}},    // 8: a tile of 64 fp16 without a swizzle
        {"swizzled_128", {128, 16, 7}},   // the same with one
        {"padded_144", {144, 16, 0}},     // the same with a padding
        {"one_address", {0, 0, 0}},       // every row is the same one
        {"same_matrix", {16, 0, 0}},      // of the four, not of the rows
        {"pairs_of_rows", {64, 256, 3}},  // chunks go through half of the banks
    };
    uint32_t *out = (uint32_t *)b.out;
    for (const auto &it : cases) {
        ldmatrix<4, false><<<1, 32>>>(b.in, it.at, out);
        launched("ldmatrix_x4_%s", it.name);
    }
    const Placing good = cases[0].at, bad = cases[3].at;
    ldmatrix<1, false><<<1, 32>>>(b.in, good, out);
    launched("ldmatrix_x1_rows_of_16");
    ldmatrix<2, false><<<1, 32>>>(b.in, good, out);
    launched("ldmatrix_x2_rows_of_16");
    ldmatrix<1, true><<<1, 32>>>(b.in, good, out);
    launched("ldmatrix_x1_trans_rows_of_16");
    ldmatrix<2, true><<<1, 32>>>(b.in, good, out);
    launched("ldmatrix_x2_trans_rows_of_16");
    ldmatrix<4, true><<<1, 32>>>(b.in, good, out);
    launched("ldmatrix_x4_trans_rows_of_16");
    ldmatrix<1, false><<<1, 32>>>(b.in, bad, out);
    launched("ldmatrix_x1_rows_of_128");
    ldmatrix<2, false><<<1, 32>>>(b.in, bad, out);
    launched("ldmatrix_x2_rows_of_128");
    ldmatrix<4, true><<<1, 32>>>(b.in, bad, out);
    launched("ldmatrix_x4_trans_rows_of_128");
    ldmatrix<4, true><<<1, 32>>>(b.in, cases[4].at, out);
    launched("ldmatrix_x4_trans_swizzled_128");
}

static void run_stmatrix(struct buffers b) {
    const Placing good = {16, 128, 0}, bad = {128, 16, 0}, swizzled = {128, 16, 7}, padded = {144, 16, 0};
    stmatrix<1, false><<<1, 32>>>(b.in, good, b.out);
    launched("stmatrix_x1_rows_of_16");
    stmatrix<2, false><<<1, 32>>>(b.in, good, b.out);
    launched("stmatrix_x2_rows_of_16");
    stmatrix<4, false><<<1, 32>>>(b.in, good, b.out);
    launched("stmatrix_x4_rows_of_16");
    stmatrix<4, true><<<1, 32>>>(b.in, good, b.out);
    launched("stmatrix_x4_trans_rows_of_16");
    stmatrix<4, false><<<1, 32>>>(b.in, bad, b.out);
    launched("stmatrix_x4_rows_of_128");
    stmatrix<1, false><<<1, 32>>>(b.in, bad, b.out);
    launched("stmatrix_x1_rows_of_128");
    stmatrix<4, false><<<1, 32>>>(b.in, swizzled, b.out);
    launched("stmatrix_x4_swizzled_128");
    stmatrix<4, false><<<1, 32>>>(b.in, padded, b.out);
    launched("stmatrix_x4_padded_144");
}

void run_matrix(struct buffers b) {
    run_ldmatrix(b);
    run_stmatrix(b);
    product<128><<<1, 128>>>(b.in, 16, 1024, b.out);
    launched("product_swizzled_128");
    product<64><<<1, 128>>>(b.in, 16, 512, b.out);
    launched("product_swizzled_64");
    product<32><<<1, 128>>>(b.in, 16, 256, b.out);
    launched("product_swizzled_32");
    product<0><<<1, 128>>>(b.in, 128, 256, b.out);
    launched("product_not_swizzled");
    product_of_registers<<<1, 128>>>(b.in, 1024, b.out);
    launched("product_of_registers");
}
