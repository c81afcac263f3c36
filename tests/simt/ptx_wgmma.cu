// ptx_wgmma.cu - wgmma on either backend: every N, type, major and swizzle, A in shared memory and in
// registers, against a product on the host. The matrices hold small integers, so that all sums are exact and
// every element must be equal. But what is cut off of e4m3 sums is known as well (common/e4m3_sum.h).
//
// What the CPU does is held to what a GPU does by the same expectations: the layouts here are written down
// once more, as the place of a byte in a panel, apart from common/simt.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <vector>

#include "common/ptx/barrier.h"
#include "common/ptx/wgmma.h"
#include "device_memory.h"

// A block is two warpgroups of 64 rows each. K is 128 bytes of elements: four instructions of 32 bytes.
constexpr int groups = 2, block_threads = 128 * groups, block_rows = 64 * groups;
constexpr int row_bytes = 128, steps = 4;
constexpr int tile_a_bytes = 64 * row_bytes;

// Where byte `column` of line `line` lies. Panels of `lines` lines of `chunks` 16-byte chunks follow each
// other. The chunks of eight lines are exchanged by the line's number: all three bits of it, the upper two,
// the upper one, none.
static __device__ int place(int line, int column, int lines, int chunks) {
    int panel = column / (16 * chunks), chunk = column / 16 % chunks;
    return (panel * lines + line) * 16 * chunks + (chunk ^ (line % 8 * chunks / 8)) * 16 + column % 16;
}

// Writes an operand of `rows` rows to shared memory; `matrix` is [rows][K] in global memory.
template <class T, int chunks, bool mn_major>
static __device__ void fill(unsigned char *tile, const T *matrix, int rows) {
    constexpr int size = sizeof(T), k_count = row_bytes / size;
    for (int i = threadIdx.x; i < rows * k_count; i += blockDim.x) {
        int row = i / k_count, k = i % k_count;
        int at = mn_major ? place(k, row * size, k_count, chunks) : place(row, k * size, rows, chunks);
        *reinterpret_cast<T *>(tile + at) = matrix[i];
    }
}

// The descriptor of an operand's 32 bytes of K from 32 * step on.
template <class T, int chunks, bool mn_major>
static __device__ uint64_t step_descriptor(const unsigned char *tile, int rows, int step) {
    constexpr int size = sizeof(T), line_bytes = 16 * chunks, swizzle = chunks == 1 ? 0 : line_bytes;
    uint32_t start = shared_address(tile);
    if (mn_major) {
        uint32_t panel = row_bytes / size * line_bytes, lines = 8 * line_bytes;
        start += step * 32 / size * line_bytes;
        return chunks == 1 ? wgmma_descriptor(start, lines, panel, swizzle)
                           : wgmma_descriptor(start, panel, lines, swizzle);
    }
    uint32_t panel = rows * line_bytes, column = 32 * step;
    start += column / line_bytes * panel + column % line_bytes;
    return wgmma_descriptor(start, chunks == 1 ? panel : 16, 8 * line_bytes, swizzle);
}

// Row and column of D that register i of this thread holds.
static __device__ int row_of(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + (i & 2 ? 8 : 0); }
static __device__ int column_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// out [128][N] = a [128][K] b [N][K]^T; if first_scale is 1, plus (row - column).
template <class T, int N, int chunks, bool a_mn, bool b_mn, bool a_in_registers, int first_scale>
__global__ void __launch_bounds__(block_threads) product(const T *a, const T *b, float *out) {
    extern __shared__ __align__(1024) unsigned char tiles[];
    constexpr int k_count = row_bytes / sizeof(T);
    int group = threadIdx.x / 128;
    unsigned char *a_smem = tiles + group * tile_a_bytes, *b_smem = tiles + groups * tile_a_bytes;
    for (int g = 0; g < groups; g++)
        if (!a_in_registers) fill<T, chunks, a_mn>(tiles + g * tile_a_bytes, a + g * 64 * k_count, 64);
    fill<T, chunks, b_mn>(b_smem, b, N);
    fence_proxy_async();
    __syncthreads();  // all tiles are written before any warpgroup reads them

    float d[N / 2];
    for (int i = 0; i < N / 2; i++) d[i] = first_scale ? (float)(row_of(i) - column_of(i)) : NAN;
    uint32_t a_reg[steps][4] = {};
    for (int step = 0; step < steps; step++)
        for (int r = 0; r < 4 && a_in_registers; r++) {
            int row = row_of(0) + 8 * (r % 2), column = 32 * step + 4 * (threadIdx.x % 4) + 16 * (r / 2);
            a_reg[step][r] = reinterpret_cast<const uint32_t *>(a)[(row * row_bytes + column) / 4];
        }
    wgmma_pin(d);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < steps; step++) {
        uint64_t b_step = step_descriptor<T, chunks, b_mn>(b_smem, N, step);
        if constexpr (a_in_registers) {
            if (step == 0 && N % 64 != 0)
                wgmma_rs<T, N, first_scale, b_mn>(d, a_reg[step], b_step);
            else if (step % 2 == 0)
                wgmma_rs_adding<T, N, b_mn>(d, a_reg[step], b_step, step > 0 || first_scale);
            else
                wgmma_rs<T, N, 1, b_mn>(d, a_reg[step], b_step);
        } else {
            uint64_t a_step = step_descriptor<T, chunks, a_mn>(a_smem, 64, step);
            if (step == 0)
                wgmma_ss<T, N, first_scale, a_mn, b_mn>(d, a_step, b_step);
            else
                wgmma_ss<T, N, 1, a_mn, b_mn>(d, a_step, b_step);
        }
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(d);
    for (int i = 0; i < N / 2; i++) out[row_of(i) * N + column_of(i)] = d[i];
}

// The same matrices in two committed groups: out [2][128][64], once K's first half, once the second. The
// first half is stored while the second may still be under way.
__global__ void __launch_bounds__(block_threads) two_halves(const __half *a, const __half *b, float *out) {
    extern __shared__ __align__(1024) unsigned char tiles[];
    constexpr int k_count = row_bytes / sizeof(__half);
    int group = threadIdx.x / 128;
    unsigned char *a_smem = tiles + group * tile_a_bytes, *b_smem = tiles + groups * tile_a_bytes;
    for (int g = 0; g < groups; g++)
        fill<__half, 8, false>(tiles + g * tile_a_bytes, a + g * 64 * k_count, 64);
    fill<__half, 8, false>(b_smem, b, 64);
    fence_proxy_async();
    __syncthreads();  // all tiles are written before any warpgroup reads them

    float first[32], second[32];
    wgmma_fence();
    wgmma_ss<__half, 64, 0, false, false>(first, step_descriptor<__half, 8, false>(a_smem, 64, 0),
                                          step_descriptor<__half, 8, false>(b_smem, 64, 0));
    wgmma_ss<__half, 64, 1, false, false>(first, step_descriptor<__half, 8, false>(a_smem, 64, 1),
                                          step_descriptor<__half, 8, false>(b_smem, 64, 1));
    wgmma_commit();
    wgmma_ss<__half, 64, 0, false, false>(second, step_descriptor<__half, 8, false>(a_smem, 64, 2),
                                          step_descriptor<__half, 8, false>(b_smem, 64, 2));
    wgmma_ss<__half, 64, 1, false, false>(second, step_descriptor<__half, 8, false>(a_smem, 64, 3),
                                          step_descriptor<__half, 8, false>(b_smem, 64, 3));
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_pin(first);
    for (int i = 0; i < 32; i++) out[row_of(i) * 64 + column_of(i)] = first[i];
    wgmma_wait<0>();
    wgmma_pin(second);
    for (int i = 0; i < 32; i++) out[(block_rows + row_of(i)) * 64 + column_of(i)] = second[i];
}

// ---- Host ----

template <class T> struct matrix {
    std::vector<int> values;  // [rows][K]
    T *device;
};

// Random integers from -2 to 2: sums stay below 2^11, which even the sums of e4m3 hold.
template <class T> static matrix<T> random_matrix(int rows) {
    matrix<T> result;
    std::vector<T> elements;
    for (size_t i = 0; i < rows * row_bytes / sizeof(T); i++) {
        result.values.push_back((int)(random_bits() % 5) - 2);
        elements.push_back(T((float)result.values.back()));
    }
    result.device = to_device(elements.data(), elements.size());
    return result;
}

// Sum over k_from <= k < k_to of a[m][k] b[n][k].
template <class T>
static int dot(const matrix<T> &a, const matrix<T> &b, int m, int n, int k_from, int k_to) {
    constexpr int k_count = row_bytes / sizeof(T);
    int sum = 0;
    for (int k = k_from; k < k_to; k++) sum += a.values[m * k_count + k] * b.values[n * k_count + k];
    return sum;
}

static int shared_bytes(int n, bool b_mn, int chunks) {
    int rows = b_mn ? (n + 8 * chunks - 1) / (8 * chunks) * 8 * chunks : n;  // whole panels
    return groups * tile_a_bytes + rows * row_bytes;
}

template <class T, int N, int chunks, bool a_mn, bool b_mn, bool a_in_registers, int first_scale>
static void check_product() {
    matrix<T> a = random_matrix<T>(block_rows), b = random_matrix<T>(N);
    float *out_device = to_device<float>(nullptr, block_rows * N);
    std::vector<float> out(block_rows * N);
    product<T, N, chunks, a_mn, b_mn, a_in_registers, first_scale>
        <<<1, block_threads, shared_bytes(N, b_mn, chunks)>>>(a.device, b.device, out_device);
    from_device(out.data(), out_device, out.size());
    int wrong = 0;
    for (int m = 0; m < block_rows; m++)
        for (int n = 0; n < N; n++) {
            int expected = dot(a, b, m, n, 0, row_bytes / sizeof(T)) + (first_scale ? m - n : 0);
            wrong += !(out[m * N + n] == (float)expected);
        }
    if (!CHECK(wrong == 0))
        fprintf(
            stderr, "  %d of %d elements: %d-byte type, N %d, swizzle %d, A %s-major%s, B %s-major, D %s\n",
            wrong, block_rows * N, (int)sizeof(T), N, chunks == 1 ? 0 : 16 * chunks, a_mn ? "MN" : "K",
            a_in_registers ? " in registers" : "", b_mn ? "MN" : "K", first_scale ? "added to" : "replaced");
    expect_success(cudaFree(a.device));
    expect_success(cudaFree(b.device));
}

// Each N has instructions of its own.
template <int... N> static void check_each_n() {
    (check_product<__half, N, 8, false, false, false, 1>(), ...);
    (check_product<__nv_bfloat16, N, 8, false, false, true, 0>(), ...);
}

template <class T, int chunks> static void check_k_major() {
    check_product<T, 64, chunks, false, false, false, 0>();
    check_product<T, 128, chunks, false, false, true, 1>();
}

template <class T, int chunks> static void check_mn_major() {
    check_product<T, 128, chunks, false, true, false, 0>();
    check_product<T, 128, chunks, false, true, true, 1>();
    check_product<T, 64, chunks, true, false, false, 1>();
    check_product<T, 64, chunks, true, true, false, 0>();
}

template <int chunks> static void check_layouts() {
    check_k_major<__half, chunks>();
    check_k_major<__nv_bfloat16, chunks>();
    check_k_major<__nv_fp8_e4m3, chunks>();
    check_mn_major<__half, chunks>();
}

// Rows of one large number and 127 small ones, times columns of 448: what is left of the sums.
template <bool a_in_registers> static void check_cut_off() {
    static const struct {
        float large, small, expected;
    } rows[] = {
        {32, 9 * 0x1p-9f, 14336 + 127 * 7},  // units of 1, and 7.875 each
        {32, 7 * 0x1p-9f, 14336 + 127 * 6},  // 6.125
        {-32, -9 * 0x1p-9f, -14336 - 127 * 7},
        {32, -9 * 0x1p-9f, 14336 - 127 * 7},
        {32, 0x1p-9f, 14336},    // 0.875
        {448, 0x1p-5f, 200944},  // units of 8 and then of 16, and 14 each
    };
    constexpr int kinds = sizeof rows / sizeof *rows, k_count = row_bytes;
    std::vector<__nv_fp8_e4m3> a, b(8 * k_count, __nv_fp8_e4m3(448.0f));
    for (int i = 0; i < block_rows * k_count; i++)
        a.push_back(__nv_fp8_e4m3(i % k_count == 11 ? rows[i / k_count % kinds].large
                                                    : rows[i / k_count % kinds].small));
    __nv_fp8_e4m3 *a_device = to_device(a.data(), a.size()), *b_device = to_device(b.data(), b.size());
    float *out_device = to_device<float>(nullptr, block_rows * 8);
    std::vector<float> out(block_rows * 8);
    product<__nv_fp8_e4m3, 8, 8, false, false, a_in_registers, 0>
        <<<1, block_threads, shared_bytes(8, false, 8)>>>(a_device, b_device, out_device);
    from_device(out.data(), out_device, out.size());
    for (int i = 0; i < 8 * kinds; i++)
        if (!CHECK(out[i] == rows[i / 8].expected))
            fprintf(stderr, "  row %d, column %d: %.9g, expected %.9g\n", i / 8, i % 8, out[i],
                    rows[i / 8].expected);
    expect_success(cudaFree(a_device));
    expect_success(cudaFree(b_device));
}

static void check_two_halves() {
    matrix<__half> a = random_matrix<__half>(block_rows), b = random_matrix<__half>(64);
    float *out_device = to_device<float>(nullptr, 2 * block_rows * 64);
    std::vector<float> out(2 * block_rows * 64);
    two_halves<<<1, block_threads, shared_bytes(64, false, 8)>>>(a.device, b.device, out_device);
    from_device(out.data(), out_device, out.size());
    int wrong = 0;
    for (int half = 0; half < 2; half++)
        for (int m = 0; m < block_rows; m++)
            for (int n = 0; n < 64; n++) {
                int expected = dot(a, b, m, n, 32 * half, 32 * half + 32);
                wrong += !(out[(half * block_rows + m) * 64 + n] == (float)expected);
            }
    CHECK(wrong == 0);
    expect_success(cudaFree(a.device));
    expect_success(cudaFree(b.device));
}

int main(void) {
    cudaDeviceProp device;
    if (cudaGetDeviceProperties(&device, 0) != cudaSuccess || device.major != 9) {
        printf("skipped: wgmma needs a GPU of compute capability 9.0 (H100, H200)\n");
        return 77;
    }
    check_each_n<8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256>();
    check_layouts<1>();
    check_layouts<2>();
    check_layouts<4>();
    check_layouts<8>();
    check_mn_major<__nv_bfloat16, 8>();
    check_product<__nv_fp8_e4m3, 8, 8, false, false, false, 0>();
    check_product<__nv_fp8_e4m3, 224, 8, false, false, true, 0>();
    check_product<__half, 256, 8, false, true, true, 0>();
    // Panels of which N uses only a part.
    check_product<__half, 16, 8, false, true, false, 0>();
    check_product<__half, 80, 8, false, true, true, 0>();
    check_two_halves();
    check_cut_off<false>();
    check_cut_off<true>();
    return check_done();
}
