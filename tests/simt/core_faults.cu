// core_faults.cu - cpu backend only: each fault that a kernel can have is stopped, with what, where
// (file:line of this very file), and who in the message, and with CUDA's error code. The same kernels without
// the fault are silent.
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

#include "common/ptx.h"
#define SOURCE_NAME "core_faults.cu"
#include "fault_checks.h"

// ---- memory ----

__global__ void copy_shifted(const float *in, float *out, int shift) {
    out[threadIdx.x] = in[(int)threadIdx.x + shift];
}
constexpr int copy_line = __LINE__ - 2;

__global__ void store_shifted(float *out, int shift) { out[(int)threadIdx.x + shift] = 1.0f; }
constexpr int store_line = __LINE__ - 1;

static __device__ float load_elsewhere(const float *in) { return in[40]; }
constexpr int elsewhere_line = __LINE__ - 1;
__global__ void load_in_function(const float *in, float *out) { out[threadIdx.x] = load_elsewhere(in); }

static void check_global(void) {
    float *in, *out, host[32] = {0};
    OK(cudaMalloc(&in, sizeof host));
    OK(cudaMalloc(&out, sizeof host));
    OK(cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice));
    begin_capture();
    copy_shifted<<<2, 32>>>(in, out, 0);
    store_shifted<<<2, 32>>>(out, 0);
    check_silent();

    begin_capture();
    copy_shifted<<<1, 32>>>(in, out, 1);
    check_fault(cudaErrorIllegalAddress, copy_line, "out of bounds: read of 4 bytes, 0 bytes past the end",
                "thread (31,0,0) of block (0,0,0)");
    begin_capture();
    store_shifted<<<1, 32>>>(out, 40);
    check_fault(cudaErrorIllegalAddress, store_line, "out of bounds: write of 4 bytes, 32 bytes past the end",
                "thread (0,0,0)");
    begin_capture();
    store_shifted<<<1, 32>>>(out, -1);
    check_fault(cudaErrorIllegalAddress, store_line, "out of bounds: write of 4 bytes", "thread (0,0,0)");
    begin_capture();
    load_in_function<<<1, 32>>>(in, out);
    check_fault(cudaErrorIllegalAddress, elsewhere_line,
                "out of bounds: read of 4 bytes, 32 bytes past the end", "kernel load_in_function");

    simt_name_memory(in, sizeof host, "K");
    simt_mark_guard(in + 30, 2 * sizeof(float));
    simt_name_memory(in, 30 * sizeof(float), "K");
    begin_capture();
    copy_shifted<<<1, 32>>>(in, out, 0);
    check_fault(cudaErrorIllegalAddress, copy_line, "0 bytes past the end of K (120 bytes)",
                "thread (30,0,0)");
    simt_mark_unwritten(in, sizeof host);
    begin_capture();
    copy_shifted<<<1, 32>>>(in, out, 0);
    check_fault(cudaErrorLaunchFailure, copy_line, "unwritten memory: read of 4 bytes, byte 0 of K",
                "thread (0,0,0)");

    OK(cudaFree(in));
    begin_capture();
    copy_shifted<<<1, 32>>>(in, out, 0);
    check_fault(cudaErrorIllegalAddress, copy_line, "not allocated", "thread (0,0,0)");
    begin_capture();
    copy_shifted<<<1, 32>>>(host, out, 0);
    check_fault(cudaErrorIllegalAddress, copy_line, "host memory, which a kernel cannot reach",
                "thread (0,0,0)");
    begin_capture();
    copy_shifted<<<1, 32>>>(nullptr, out, 0);
    check_fault(cudaErrorIllegalAddress, copy_line, "a null pointer", "thread (0,0,0)");
    CHECK(cudaFree(in) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(out, host, sizeof host + 1, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(host, out + 1, sizeof host, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    OK(cudaFree(out));
}

__global__ void load_four(const float *in, float4 *out, int shift) {
    out[threadIdx.x] = *reinterpret_cast<const float4 *>(in + shift);
}
constexpr int four_line = __LINE__ - 2;
__global__ void read_unwritten_tail(const float4 *in, float4 *out) { out[0] = in[0]; }

struct padded {
    char letter;
    float number;
    short small;
};
// Copies a struct of which every member is written; its padding is not.
__global__ void copy_padded(padded *data) {
    __shared__ padded tile[32];
    tile[threadIdx.x].letter = 'a';
    tile[threadIdx.x].number = 2;
    tile[threadIdx.x].small = (short)threadIdx.x;
    __syncthreads();  // tile is written
    data[threadIdx.x] = tile[31 - threadIdx.x];
}

static void check_vectors(void) {
    padded *data;
    OK(cudaMalloc(&data, 32 * sizeof(padded)));
#ifndef __clang__  // which copies it word by word: then the padding of a word looks like half a word not
                   // written
    begin_capture();
    copy_padded<<<1, 32>>>(data);
    check_silent();
#endif
    OK(cudaFree(data));
    float *in;
    float4 *out;
    float host[8] = {0};
    OK(cudaMalloc(&in, sizeof host));
    OK(cudaMalloc(&out, sizeof host));
    OK(cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice));
    begin_capture();
    load_four<<<1, 1>>>(in, out, 4);
    check_silent();
    begin_capture();
    load_four<<<1, 1>>>(in, out, 1);
    check_fault(cudaErrorMisalignedAddress, four_line, "misaligned address: read of 16 bytes",
                "thread (0,0,0)");
    simt_mark_unwritten(in + 3, 4);
    begin_capture();
    read_unwritten_tail<<<1, 1>>>(reinterpret_cast<float4 *>(in), out);
    check_fault(cudaErrorLaunchFailure, 0, "unwritten memory: read of 16 bytes, byte 12", "thread (0,0,0)");
    OK(cudaFree(in));
    OK(cudaFree(out));
}

__global__ void shared_neighbours(int *out, int index) {
    __shared__ int first[32], second[32];
    first[threadIdx.x] = 1;
    second[threadIdx.x] = 2;
    __syncthreads();  // both arrays are written
    out[threadIdx.x] = first[index] + second[threadIdx.x];
}
constexpr int neighbour_line = __LINE__ - 2;

template <bool write_all> __global__ void shared_unwritten(int *out) {
    __shared__ int value[32];
    if (write_all || threadIdx.x != 5) value[threadIdx.x] = 3;
    __syncthreads();  // value is written
    out[threadIdx.x] = value[31 - threadIdx.x];
}
constexpr int unwritten_line = __LINE__ - 2;

__global__ void dynamic_too_far(int *out, int index) {
    extern __shared__ int tile[];
    tile[index] = 1;
    out[0] = tile[index];
}
constexpr int dynamic_line = __LINE__ - 3;

__global__ void shared_too_large(int *out) {
    __shared__ int a[10 * 1024], b[3 * 1024];
    a[0] = 1;
    b[0] = 2;
    out[0] = a[0] + b[0];
}

__constant__ float table[4] = {1, 2, 3, 4};
__global__ void read_constant(int *out) { out[threadIdx.x] = (int)table[threadIdx.x % 4]; }
__global__ void write_constant(int *out) {
    const_cast<volatile float *>(table)[0] = 5;
    out[0] = 1;
}

__global__ void share_local(int *out) {
    __shared__ int *pointer;
    int mine = 5;
    if (threadIdx.x == 0) pointer = &mine;
    __syncthreads();  // pointer is written
    out[threadIdx.x] = *pointer;
    __syncthreads();  // nobody reads mine after thread 0 has returned
}
constexpr int local_line = __LINE__ - 3;

static void check_shared(void) {
    int *out;
    OK(cudaMalloc(&out, 32 * sizeof(int)));
    begin_capture();
    shared_neighbours<<<2, 32>>>(out, 31);
    shared_unwritten<true><<<2, 32>>>(out);
    dynamic_too_far<<<1, 1, 64>>>(out, 15);
    read_constant<<<1, 32>>>(out);
    check_silent();
    begin_capture();
    shared_neighbours<<<1, 32>>>(out, 32);
    check_fault(cudaErrorIllegalAddress, neighbour_line, "0 bytes past the end of shared 'first' (128 bytes)",
                "thread (0,0,0)");
    begin_capture();
    shared_unwritten<false><<<1, 32>>>(out);
    check_fault(cudaErrorLaunchFailure, unwritten_line,
                "unwritten memory: read of 4 bytes, byte 20 of shared 'value'", "thread (26,0,0)");
    begin_capture();
    dynamic_too_far<<<1, 1, 64>>>(out, 16);
    check_fault(cudaErrorIllegalAddress, dynamic_line, "0 bytes past the end of shared 'tile' (64 bytes)",
                "thread (0,0,0)");
    begin_capture();
    dynamic_too_far<<<1, 1>>>(out, 0);
    check_fault(cudaErrorIllegalAddress, dynamic_line, "shared memory", "thread (0,0,0)");
    begin_capture();
    shared_too_large<<<1, 1>>>(out);
    check_fault(cudaErrorInvalidValue, 0, "nvcc accepts at most 49152", "kernel shared_too_large");
    begin_capture();
    write_constant<<<1, 1>>>(out);
    check_fault(cudaErrorIllegalAddress, 0, "constant memory", "kernel write_constant");
    begin_capture();
    share_local<<<1, 2>>>(out);
    check_fault(cudaErrorIllegalAddress, local_line, "local memory of another thread", "thread (1,0,0)");
    OK(cudaFree(out));
}

// ---- synchronisation ----

__global__ void divergent_barrier(int *out) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1;
}
constexpr int divergent_line = __LINE__ - 4;

// Two barriers on one line are two barriers (with different neighbours, or a compiler makes one of them).
// clang-format off
__global__ void divergent_on_one_line(int *out) {
    if (threadIdx.x < 32) { out[0] = 1; __syncthreads(); out[1] = 2; } else { out[2] = 3; __syncthreads(); out[3] = 4; }
    out[threadIdx.x] = 1;
}
// clang-format on
[[maybe_unused]] constexpr int one_line_line = __LINE__ - 4;

__global__ void missing_barrier(int *out) {
    if (threadIdx.x == 3) {
        bar_sync(1, 64);
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1;
}
constexpr int missing_line = __LINE__ - 6;

__global__ void divergent_warp(int *out) {
    if (threadIdx.x < 16) {
        __syncwarp();
    } else {
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
    }
}
constexpr int warp_line = __LINE__ - 3;

__global__ void half_returned(int *out) {
    if (threadIdx.x >= 16) return;
    out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1, 1u);
}
constexpr int half_line = __LINE__ - 2;

// A lane that takes no part has nothing to give.
__global__ void absent_lane(float *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffu, 1.0f, 16);
}

__global__ void wrong_mask(int *out) { out[threadIdx.x] = __shfl_sync(0xfffffff7u, 1, 0); }
constexpr int mask_line = __LINE__ - 1;

template <int id, int threads> __global__ void one_barrier(int *out) {
    bar_sync(id, threads);
    out[threadIdx.x] = 1;
}
constexpr int one_line = __LINE__ - 3;

__global__ void disagreeing_barrier(int *out) {
    if (threadIdx.x < 32)
        bar_sync(3, 64);
    else
        bar_sync(3, 96);
    out[threadIdx.x] = 1;
}
constexpr int disagree_line = __LINE__ - 3;

__global__ void trapped(int *out) {
    out[threadIdx.x] = 1;
    if (threadIdx.x == 9) __trap();
}
constexpr int trap_line = __LINE__ - 2;

__global__ void no_bounds(int *out) { out[threadIdx.x] = 1; }
__global__ void __launch_bounds__(1024) deep_recursion(int *out, int depth) {
    struct Recursion {
        static int go(int n) {
            volatile char large[4096];
            large[0] = (char)n;
            return n ? go(n - 1) + large[0] : 0;
        }
    };
    out[threadIdx.x] = Recursion::go(depth);
}

static void check_waiting(void) {
    int *out;
    OK(cudaMalloc(&out, 1024 * sizeof(int)));
    begin_capture();
    divergent_barrier<<<1, 32>>>(out);
    one_barrier<1, 64><<<1, 64>>>(out);
    no_bounds<<<1, 256>>>(out);
    deep_recursion<<<1, 1>>>(out, 10);
    check_silent();

    begin_capture();
    divergent_barrier<<<1, 64>>>(out);
    check_fault(cudaErrorLaunchFailure, divergent_line, "divergent barrier: thread 0 waits at __syncthreads",
                "block (0,0,0)");
#if !defined(__clang__) || !defined(__OPTIMIZE__)  // clang makes one call of the two
    begin_capture();
    divergent_on_one_line<<<1, 64>>>(out);
    check_fault(cudaErrorLaunchFailure, one_line_line, "divergent barrier", "block (0,0,0)");
#endif
    begin_capture();
    missing_barrier<<<1, 64>>>(out);
    check_fault(cudaErrorLaunchTimeout, missing_line, "deadlock in block (0,0,0): 64 of 64 threads",
                "thread 3: bar.sync (barrier 1: 1 of 64 came)");
    begin_capture();
    divergent_warp<<<1, 32>>>(out);
    check_fault(cudaErrorLaunchFailure, warp_line, "divergent warp", "is at __shfl_xor_sync");
    begin_capture();
    half_returned<<<1, 32>>>(out);
    check_fault(cudaErrorLaunchTimeout, half_line, "deadlock", "threads 16-31: returned");
    float host[16];
    absent_lane<<<1, 32>>>((float *)out);
    OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 16; i++) CHECK(host[i] != host[i]);
    begin_capture();
    wrong_mask<<<1, 32>>>(out);
    check_fault(cudaErrorLaunchFailure, mask_line, "lane 3 calls it with mask 0xfffffff7", "thread (3,0,0)");
    begin_capture();
    one_barrier<16, 64><<<1, 64>>>(out);
    check_fault(cudaErrorLaunchFailure, one_line, "there are barriers 0 to 15", "thread (0,0,0)");
    begin_capture();
    one_barrier<1, 40><<<1, 64>>>(out);
    check_fault(cudaErrorLaunchFailure, one_line, "multiple of 32", "thread (0,0,0)");
    begin_capture();
    one_barrier<1, 96><<<1, 64>>>(out);
    check_fault(cudaErrorLaunchTimeout, one_line, "deadlock", "bar.sync (barrier 1: 64 of 96 came)");
    begin_capture();
    disagreeing_barrier<<<1, 96>>>(out);
    check_fault(cudaErrorLaunchFailure, disagree_line,
                "set for 96 threads, but those already there set it for 64", "thread (32,0,0)");
    begin_capture();
    trapped<<<1, 32>>>(out);
    check_fault(cudaErrorLaunchFailure, trap_line, "__trap()", "thread (9,0,0)");
    begin_capture();
    no_bounds<<<1, 257>>>(out);
    check_fault(cudaErrorLaunchOutOfResources, 0, "has no __launch_bounds__", "kernel no_bounds");
    OK(cudaFree(out));
}

// ---- atomics ----

__global__ void add_atomically(int *out, int index) { atomicAdd(out + index, 1); }
constexpr int atomic_line = __LINE__ - 1;

static void check_atomics(void) {
    int *out;
    OK(cudaMalloc(&out, 64));
    begin_capture();
    add_atomically<<<1, 1>>>(out, 0);
    check_fault(cudaErrorLaunchFailure, atomic_line, "unwritten memory: atomic of 4 bytes", "thread (0,0,0)");
    OK(cudaMemset(out, 0, 64));
    begin_capture();
    add_atomically<<<4, 32>>>(out, 3);
    check_silent();
    int host[16];
    OK(cudaMemcpy(host, out, 64, cudaMemcpyDeviceToHost));
    CHECK(host[3] == 128);
    begin_capture();
    add_atomically<<<1, 1>>>(out, 16);
    check_fault(cudaErrorIllegalAddress, atomic_line, "out of bounds: atomic of 4 bytes", "thread (0,0,0)");
    OK(cudaFree(out));
}

// Addresses are used again only when the range (64 MB here) runs out: 100 times 10 MB pass through it.
static void check_allocator(void) {
    size_t free_before, free_after, total;
    OK(cudaMemGetInfo(&free_before, &total));
    char *kept, *first = nullptr, host[4] = {1, 2, 3, 4};
    OK(cudaMalloc(&kept, 4));
    OK(cudaMemcpy(kept, host, 4, cudaMemcpyHostToDevice));
    for (int i = 0; i < 100; i++) {
        char *block, *small;
        OK(cudaMalloc(&block, (size_t)10 << 20));
        OK(cudaMalloc(&small, 1000));
        OK(cudaMemset(block, i, (size_t)10 << 20));
        if (i == 0) first = block;
        if (i == 1) CHECK(block != first);
        OK(cudaFree(block));
        OK(cudaFree(small));
    }
    char *too_large;
    CHECK(cudaMalloc(&too_large, (size_t)65 << 20) == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    memset(host, 0, 4);
    OK(cudaMemcpy(host, kept, 4, cudaMemcpyDeviceToHost));
    CHECK(host[0] == 1 && host[3] == 4);
    OK(cudaFree(kept));
    OK(cudaMemGetInfo(&free_after, &total));
    CHECK(free_before == free_after);
}

int main(void) {
    setenv("SIMT_ARENA_MB", "64", 1);  // read at the first allocation
    check_global();
    check_vectors();
    check_shared();
    check_waiting();
    check_atomics();
    check_allocator();
    return check_done();
}
