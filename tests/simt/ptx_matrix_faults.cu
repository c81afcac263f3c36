// ptx_matrix_faults.cu - cpu backend only: what ldmatrix, stmatrix and mma.sync must refuse, with what, where
// and who in the message. The same kernels without the fault are silent.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

#include "common/ptx.h"
#define SOURCE_NAME "ptx_matrix_faults.cu"
#include "fault_checks.h"

static uint32_t *results;  // device memory for what kernels hand back

// ---- Addresses: lane `odd` gives one that is `shift` bytes off; 32 rows, of which `written` are written
// ----

__global__ void load_rows(uint32_t *out, int odd, int shift, int written) {
    __shared__ alignas(16) uint16_t tile[32][8];
    int lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 8; i++)
        if (lane < written) tile[lane][i] = 1;
    __syncthreads();  // tile is written
    uint32_t r[4];
    ldmatrix_x4(r, shared_address(tile[lane]) + (uint32_t)(lane == odd ? shift : 0));
    out[threadIdx.x] = r[0] + r[1] + r[2] + r[3];
}
constexpr int load_line = __LINE__ - 3;

__global__ void load_two(uint32_t *out, int odd, int shift) {
    __shared__ alignas(16) uint16_t tile[16][8];
    int lane = (int)threadIdx.x % 32;
    if (lane < 16)
        for (int i = 0; i < 8; i++) tile[lane][i] = 1;
    __syncwarp();  // tile is written
    uint32_t r[2];
    ldmatrix_x2_trans(r, shared_address(tile[lane % 16]) + (uint32_t)(lane == odd ? shift : 0));
    out[threadIdx.x] = r[0] + r[1];
}
constexpr int load_two_line = __LINE__ - 3;

__global__ void store_rows(uint32_t *out, int odd, int shift) {
    __shared__ alignas(16) uint16_t tile[32][8];
    int lane = (int)threadIdx.x;
    uint32_t r[4] = {1, 2, 3, 4};
    stmatrix_x4(shared_address(tile[lane]) + (uint32_t)(lane == odd ? shift : 0), r);
    __syncwarp();  // tile is written
    out[lane] = tile[lane][0];
}
constexpr int store_line = __LINE__ - 4;

__global__ void store_one(uint32_t *out, int odd, int shift) {
    __shared__ alignas(16) uint16_t tile[8][8];
    int lane = (int)threadIdx.x;
    uint32_t r[1] = {1};
    stmatrix_x1_trans(shared_address(tile[lane % 8]) + (uint32_t)(lane == odd ? shift : 0), r);
    __syncwarp();  // tile is written
    out[lane] = tile[lane % 8][0];
}
constexpr int store_one_line = __LINE__ - 4;

static void check_addresses(void) {
    begin_capture();
    load_rows<<<1, 64>>>(results, -1, 0, 32);
    load_two<<<1, 32>>>(results, -1, 0);
    load_two<<<1, 32>>>(results, 16, 1);  // nobody's row: ignored
    load_two<<<1, 32>>>(results, 31, 1 << 30);
    store_rows<<<1, 32>>>(results, -1, 0);
    store_one<<<1, 32>>>(results, -1, 0);
    store_one<<<1, 32>>>(results, 8, 1 << 30);
    check_silent();

    begin_capture();
    load_rows<<<1, 32>>>(results, 5, 8, 32);
    check_fault(cudaErrorMisalignedAddress, load_line, "misaligned address: ldmatrix.x4, byte 88 of shared",
                "thread (5,0,0)");
    begin_capture();
    load_rows<<<1, 64>>>(results, 31, 16, 32);
    check_fault(cudaErrorIllegalAddress, load_line, "out of bounds: ldmatrix.x4, read of 16 bytes",
                "0 bytes past the end of shared 'tile' (512 bytes)");
    begin_capture();
    load_rows<<<1, 32>>>(results, 17, 1 << 30, 32);
    check_fault(cudaErrorIllegalAddress, load_line, "invalid address: ldmatrix.x4", "thread (17,0,0)");
    begin_capture();
    load_rows<<<1, 32>>>(results, -1, 0, 20);
    check_fault(cudaErrorLaunchFailure, load_line, "unwritten memory: ldmatrix.x4, read of 16 bytes",
                "byte 320 of shared 'tile'");
    begin_capture();
    load_two<<<1, 32>>>(results, 15, 2);
    check_fault(cudaErrorMisalignedAddress, load_two_line, "misaligned address: ldmatrix.x2.trans",
                "thread (15,0,0)");
    begin_capture();
    load_two<<<1, 32>>>(results, 15, 16);
    check_fault(cudaErrorIllegalAddress, load_two_line, "out of bounds: ldmatrix.x2.trans",
                "thread (15,0,0)");
    begin_capture();
    store_rows<<<1, 32>>>(results, 30, 4);
    check_fault(cudaErrorMisalignedAddress, store_line, "misaligned address: stmatrix.x4, byte 484 of shared",
                "thread (30,0,0)");
    begin_capture();
    store_rows<<<1, 32>>>(results, 31, 32);
    check_fault(cudaErrorIllegalAddress, store_line, "out of bounds: stmatrix.x4, write of 16 bytes",
                "16 bytes past the end of shared 'tile' (512 bytes)");
    begin_capture();
    store_one<<<1, 32>>>(results, 7, 16);
    check_fault(cudaErrorIllegalAddress, store_one_line, "out of bounds: stmatrix.x1.trans",
                "thread (7,0,0)");
}

// ---- Lanes that are missing, or elsewhere ----

__global__ void multiply_some(uint32_t *out, int first, int last) {
    if ((int)threadIdx.x < first || (int)threadIdx.x > last) return;
    uint32_t a[4] = {}, b[2] = {};
    float d[4] = {};
    mma_m16n8k16<__half>(d, a, b);
    out[threadIdx.x] = (uint32_t)d[0];
}
constexpr int multiply_line = __LINE__ - 3;

__global__ void load_and_multiply(uint32_t *out, int loading) {
    __shared__ alignas(16) uint16_t tile[32][8];
    for (int i = 0; i < 8; i++) tile[threadIdx.x][i] = 1;
    __syncwarp();  // tile is written
    uint32_t a[4] = {}, b[2] = {};
    float d[4] = {};
    if ((int)threadIdx.x < loading)
        ldmatrix_x4(a, shared_address(tile[threadIdx.x]));
    else
        mma_m16n8k16<__half>(d, a, b);
    out[threadIdx.x] = a[0] + (uint32_t)d[0];
}
constexpr int mixed_load_line = __LINE__ - 5, mixed_multiply_line = __LINE__ - 3;

__global__ void load_both_ways(uint32_t *out, int plain) {
    __shared__ alignas(16) uint16_t tile[32][8];
    for (int i = 0; i < 8; i++) tile[threadIdx.x][i] = 1;
    __syncwarp();  // tile is written
    uint32_t r[4];
    if ((int)threadIdx.x < plain)
        ldmatrix_x4(r, shared_address(tile[threadIdx.x]));
    else
        ldmatrix_x4_trans(r, shared_address(tile[threadIdx.x]));
    out[threadIdx.x] = r[0];
}
constexpr int both_line = __LINE__ - 3;

// The same instruction written twice is two.
__global__ void multiply_twice(uint32_t *out, int above) {
    uint32_t a[4] = {}, b[2] = {};
    float d[4] = {};
    if ((int)threadIdx.x < above)
        mma_m16n8k16<__nv_bfloat16>(d, a, b);
    else
        mma_m16n8k16<__nv_bfloat16>(d, a, b);
    out[threadIdx.x] = (uint32_t)d[0];
}
constexpr int above_line = __LINE__ - 5;

static void check_lanes(void) {
    begin_capture();
    multiply_some<<<1, 64>>>(results, 32, 63);
    load_and_multiply<<<1, 32>>>(results, 0);
    load_and_multiply<<<1, 32>>>(results, 32);
    load_both_ways<<<1, 32>>>(results, 0);
    multiply_twice<<<1, 32>>>(results, 32);
    check_silent();

    begin_capture();
    multiply_some<<<1, 16>>>(results, 0, 63);
    check_fault(cudaErrorLaunchFailure, multiply_line, "mma.m16n8k16.f16 takes all 32 lanes of a warp",
                "warp 0 has only 16");
    begin_capture();
    multiply_some<<<1, 40>>>(results, 0, 63);
    check_fault(cudaErrorLaunchFailure, multiply_line, "takes all 32 lanes of a warp", "warp 1 has only 8");
    begin_capture();
    load_two<<<1, 31>>>(results, -1, 0);
    check_fault(cudaErrorLaunchFailure, load_two_line, "ldmatrix.x2.trans takes all 32 lanes of a warp",
                "warp 0 has only 31");
    begin_capture();  // lanes that have returned before the others come, and after
    multiply_some<<<1, 32>>>(results, 16, 63);
    check_fault(cudaErrorLaunchFailure, multiply_line, "takes all 32 lanes of a warp",
                "lanes 0x0000ffff of warp 0 have returned");
    begin_capture();
    multiply_some<<<1, 32>>>(results, 0, 29);
    check_fault(cudaErrorLaunchTimeout, multiply_line, "threads 30-31: returned", "mma.m16n8k16.f16");

    begin_capture();
    load_and_multiply<<<1, 32>>>(results, 31);
    check_fault(cudaErrorLaunchFailure, mixed_load_line, "divergent warp", "at ldmatrix.x4");
    begin_capture();
    load_and_multiply<<<1, 32>>>(results, 1);
    check_fault(cudaErrorLaunchFailure, mixed_multiply_line, "divergent warp", "at mma.m16n8k16.f16");
    begin_capture();
    load_both_ways<<<1, 32>>>(results, 8);
    check_fault(cudaErrorLaunchFailure, both_line, "divergent warp", "at ldmatrix.x4.trans");
    begin_capture();
    multiply_twice<<<1, 32>>>(results, 3);
    check_fault(cudaErrorLaunchFailure, above_line, "divergent warp: lane 0 is at mma.m16n8k16.bf16",
                "while lane 3 is at one in");
}

// ---- Order: neither instruction is a barrier; a row is touched by the lane that gives its address ----

template <bool ordered> __global__ void load_neighbours(uint32_t *out, int flip) {
    __shared__ alignas(16) uint16_t tile[32][8];
    for (int i = 0; i < 8; i++) tile[threadIdx.x][i] = 1;
    if (ordered) __syncwarp();  // the other lanes' rows are written
    uint32_t r[4];
    ldmatrix_x4(r, shared_address(tile[(int)threadIdx.x ^ flip]));
    out[threadIdx.x] = r[0];
}
constexpr int row_write_line = __LINE__ - 6, row_load_line = __LINE__ - 3;

template <bool ordered> __global__ void store_for_neighbours(uint32_t *out, int flip) {
    __shared__ alignas(16) uint16_t tile[32][8];
    uint32_t r[4] = {1, 2, 3, 4};
    stmatrix_x4(shared_address(tile[threadIdx.x]), r);
    if (ordered) __syncwarp();  // the rows are stored
    out[threadIdx.x] = tile[(int)threadIdx.x ^ flip][0];
}
constexpr int row_store_line = __LINE__ - 4, row_read_line = __LINE__ - 2;

static void check_race(int first_line, int second_line) {
    end_capture();
    OK(cudaDeviceSynchronize());
    char first[64], second[64];
    snprintf(first, sizeof first, "ptx_matrix_faults.cu:%d", first_line);
    snprintf(second, sizeof second, "ptx_matrix_faults.cu:%d", second_line);
    int ok = CHECK(simt_take_races() > 0);
    ok &= CHECK(strstr(message, first) != nullptr) & CHECK(strstr(message, second) != nullptr);
    if (!ok) fprintf(stderr, "wanted a race of %s and %s; got:\n%s", first, second, message);
}

static void check_order(void) {
    simt_set_sanitizing(1);
    begin_capture();
    load_neighbours<true><<<1, 32>>>(results, 31);
    store_for_neighbours<true><<<1, 32>>>(results, 31);
    load_neighbours<false><<<1, 32>>>(results, 0);  // each lane's own row
    store_for_neighbours<false><<<1, 32>>>(results, 0);
    check_silent();
    CHECK(simt_take_races() == 0);
    begin_capture();
    load_neighbours<false><<<1, 32>>>(results, 31);
    check_race(row_write_line, row_load_line);
    begin_capture();
    store_for_neighbours<false><<<1, 32>>>(results, 31);
    check_race(row_store_line, row_read_line);
    simt_set_sanitizing(0);
}

// ---- Figures: bytes of shared memory, and operations of the tensor cores ----

static void check_counters(void) {
    struct simt_launch_stats stats[4];
    simt_take_launch_stats(stats, 4);
    load_rows<<<3, 64>>>(results, -1, 0, 32);
    multiply_some<<<5, 64>>>(results, 0, 63);
    CHECK(simt_take_launch_stats(stats, 4) == 2);
    CHECK(stats[0].shared_read_bytes == 3 * 2 * 512 && stats[0].tensor_flops == 0);
    CHECK(stats[1].shared_read_bytes == 0 && stats[1].tensor_flops == 5 * 2 * 2ull * 16 * 8 * 16);
}

int main(void) {
    OK(cudaMalloc(&results, 64 * sizeof *results));
    check_addresses();
    check_lanes();
    check_order();
    check_counters();
    return check_done();
}
