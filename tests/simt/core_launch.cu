// core_launch.cu - launches, on both backends: every thread of every block runs once with the right indices,
// and what the runtime refuses is refused with the same error code.
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define OK(call) CHECK((call) == cudaSuccess)

// Counts how often the thread with each linear index ran.
__global__ void count_threads(int *runs) {
    unsigned long long block = blockIdx.x + (unsigned long long)gridDim.x *
                                                (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    runs[block * (blockDim.x * blockDim.y * blockDim.z) + thread] += 1;
}

static void check_grid(dim3 grid, dim3 block) {
    size_t n = (size_t)grid.x * grid.y * grid.z * block.x * block.y * block.z;
    int *device, *host = (int *)malloc(n * sizeof(int));
    OK(cudaMalloc(&device, n * sizeof(int)));
    OK(cudaMemset(device, 0, n * sizeof(int)));
    count_threads<<<grid, block>>>(device);
    OK(cudaGetLastError());
    OK(cudaMemcpy(host, device, n * sizeof(int), cudaMemcpyDeviceToHost));
    size_t right = 0;
    for (size_t i = 0; i < n; i++) right += host[i] == 1;
    CHECK(right == n);
    OK(cudaFree(device));
    free(host);
}

// Launch syntax: templates, several lines, comments and strings with <<< inside, converted arguments, a
// pointer to a kernel.
template <int add, bool twice> __global__ void __launch_bounds__(64, 2) add_to(int *out, double value) {
    if (threadIdx.x == 0) out[blockIdx.x] += (twice ? 2 : 1) * (add + (int)value);
}

template <int add> static void launch_dependent(int *out) { add_to<add, true><<<1, 32>>>(out, 1); }

static void check_syntax(void) {
    int *device, host[2];
    OK(cudaMalloc(&device, sizeof host));
    OK(cudaMemset(device, 0, sizeof host));
    const char *text = "not a launch: k<<<1, 2>>>(x)"; /* nor this: k<<<1>>>() */
    CHECK(text[0] == 'n' && '<' == 60);
    // clang-format off
    add_to<10, false>
        <<<
            2,
            (32 + 32) >> 1
        >>>(device, 1.9f);  // 10 + 1
    // clang-format on
    launch_dependent<5>(device);                                          // 12 to block 0
    add_to<3, (4 > 2)><<<dim3(1, 1), dim3(32), 0, nullptr>>>(device, 0);  // 6 to block 0
    void (*kernel)(int *, double) = add_to<100, false>;
    kernel<<<1, 1>>>(device, 0);
    OK(cudaGetLastError());
    OK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(host[0] == 11 + 12 + 6 + 100);
    CHECK(host[1] == 11);
    OK(cudaFree(device));
}

__global__ void nothing(void) {}
__global__ void __launch_bounds__(128) bounded(int *out) { out[0] = 1; }
__global__ void __launch_bounds__(1024) dynamic_bytes(int *out, int n) {
    extern __shared__ int values[];
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) values[i] = i;
    __syncthreads();  // all of values is written before thread 0 reads it
    if (threadIdx.x == 0) out[0] = values[0] + values[n - 1];
}
__global__ void both_kinds(int *out, int n) {
    __shared__ int fixed[8 * 1024];  // 32 KB
    extern __shared__ int values[];
    fixed[threadIdx.x] = 1;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) values[i] = 2;
    __syncthreads();  // both arrays are written before thread 0 reads them
    if (threadIdx.x == 0) out[0] = fixed[0] + values[n - 1];
}

// CUDA 13 calls a bad grid or block an invalid value (seen with 13.0 on an H200); before, it was an error of
// its own.
#if defined(__CUDACC__) && CUDART_VERSION < 13000
constexpr cudaError_t bad_configuration = cudaErrorInvalidConfiguration;
#else
constexpr cudaError_t bad_configuration = cudaErrorInvalidValue;
#endif

// The last launch or call must have left this error, and asking for it must have cleared it.
#define REFUSED(error) check_refused((error), __LINE__)
static void check_refused(cudaError_t wanted, int line) {
    cudaError_t got = cudaGetLastError();
    if (got != wanted)
        fprintf(stderr, "core_launch.cu:%d: wanted %s, got %s\n", line, cudaGetErrorName(wanted),
                cudaGetErrorName(got));
    CHECK(got == wanted);
    CHECK(cudaGetLastError() == cudaSuccess);
}

static void check_errors(void) {
    int *device, host = 0;
    OK(cudaMalloc(&device, sizeof host));
    OK(cudaMemset(device, 0, sizeof host));
    nothing<<<0, 32>>>();
    REFUSED(bad_configuration);
    nothing<<<1, 0>>>();
    REFUSED(bad_configuration);
    nothing<<<1, 1025>>>();
    REFUSED(bad_configuration);
    nothing<<<1, dim3(32, 32, 2)>>>();
    REFUSED(bad_configuration);
    nothing<<<1, dim3(1, 1, 65)>>>();
    REFUSED(bad_configuration);
    nothing<<<dim3(1, 65536), 1>>>();
    REFUSED(bad_configuration);
    nothing<<<dim3(1, 1, 65536), 1>>>();
    REFUSED(bad_configuration);
    nothing<<<dim3(1, 65535), 1>>>();
    OK(cudaGetLastError());
    bounded<<<1, 129>>>(device);
    REFUSED(cudaErrorInvalidValue);
    bounded<<<1, 128>>>(device);
    OK(cudaGetLastError());

    // 48 KB of dynamic shared memory need nothing; more must be asked for, up to 227 KB.
    int kb = 1024 / (int)sizeof(int);
    dynamic_bytes<<<1, 256, 48 * 1024>>>(device, 48 * kb);
    OK(cudaGetLastError());
    OK(cudaDeviceSynchronize());
    dynamic_bytes<<<1, 256, 48 * 1024 + 4>>>(device, 48 * kb);
    REFUSED(cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(dynamic_bytes, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1) ==
          cudaErrorInvalidValue);
    REFUSED(cudaErrorInvalidValue);
    struct cudaFuncAttributes attributes = {};
    OK(cudaFuncGetAttributes(&attributes, dynamic_bytes));
    CHECK(attributes.maxDynamicSharedSizeBytes == 48 * 1024);
    OK(cudaFuncSetAttribute(dynamic_bytes, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024));
    OK(cudaFuncGetAttributes(&attributes, dynamic_bytes));
    CHECK(attributes.maxDynamicSharedSizeBytes == 227 * 1024 && attributes.ptxVersion >= 80);
    dynamic_bytes<<<1, 1024, 227 * 1024>>>(device, 227 * kb);
    OK(cudaGetLastError());
    OK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(host == 227 * kb - 1);

    // Static and dynamic shared memory count together.
    both_kinds<<<1, 32, 16 * 1024>>>(device, 16 * kb);
    OK(cudaGetLastError());
    OK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(host == 3);
    both_kinds<<<1, 32, 16 * 1024 + 16>>>(device, 16 * kb);
    REFUSED(cudaErrorInvalidValue);

    // Calls with bad arguments, and what stays usable after them.
    CHECK(cudaMemcpy(device, nullptr, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    cudaGetLastError();
    CHECK(cudaMalloc(&device, (size_t)1 << 50) == cudaErrorMemoryAllocation);
    REFUSED(cudaErrorMemoryAllocation);
    CHECK(cudaSetDevice(1000) == cudaErrorInvalidDevice);
    cudaGetLastError();
    void *empty = &host;
    OK(cudaMalloc((void **)&empty, 0));
    CHECK(empty == nullptr);
    OK(cudaFree(nullptr));
    OK(cudaMemset(device, 0, 0));
    CHECK(!strcmp(cudaGetErrorName(cudaErrorInvalidConfiguration), "cudaErrorInvalidConfiguration"));
    CHECK(!strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory"));
}

static void check_device(void) {
    struct cudaDeviceProp properties;
    OK(cudaGetDeviceProperties(&properties, 0));
    int value = 0;
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    CHECK(value == (int)properties.sharedMemPerBlockOptin);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    CHECK(value == properties.multiProcessorCount && value > 0);
    size_t free_bytes = 0, total = 0, after = 0;
    OK(cudaMemGetInfo(&free_bytes, &total));
    CHECK(free_bytes > 0 && free_bytes <= total);
    void *block;
    OK(cudaMalloc(&block, (size_t)64 << 20));
    OK(cudaMemGetInfo(&after, &total));
#ifdef SIMT_CPU  // a GPU has other users, whose memory comes and goes
    CHECK(after <= free_bytes - ((size_t)64 << 20));
#endif
    OK(cudaFree(block));

    cudaEvent_t start, end;
    float ms = -1;
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&end));
    OK(cudaEventRecord(start));
    nothing<<<1, 1>>>();
    OK(cudaEventRecord(end));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, start, end));
    CHECK(ms >= 0 && ms < 10000);
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(end));
    cudaStream_t stream;
    OK(cudaStreamCreate(&stream));
    nothing<<<1, 1, 0, stream>>>();
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamDestroy(stream));
}

int main(void) {
    check_grid(1, 1);
    check_grid(7, 33);
    check_grid(dim3(3, 4, 5), dim3(4, 3, 2));
    check_grid(dim3(1, 300), dim3(8, 8, 4));
    check_grid(70000, 32);
    check_syntax();
    check_errors();
    check_device();
    return check_done();
}
