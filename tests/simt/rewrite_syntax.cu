// rewrite_syntax.cu - what simt-rewrite must read or leave alone, on both backends. Every form here has been
// written by somebody: comments and literals that look like launches, odd heads, shared variables.
#include <cuda_runtime.h>

#include "check.h"

#define OK(call) CHECK((call) == cudaSuccess)

// clang-format off
// __global__ void not_a_kernel() { __shared__ int x[1]; }  k<<<1, 1>>>();
/* __shared__ float also_not[3]; extern __shared__ int nor_this[]; */
static const char *const text = "__global__ k<<<1, 1>>>(\"quoted\") __shared__ int x;";
static const char *const raw = R"(a raw " string <<<1>>> __shared__)";
constexpr int million = 1'000'000;
constexpr char quote = '"', brace = '{', escaped = '\'';

struct pair {
    int first, second;
};

template <int rows, int columns = 4> struct tile {
    int cell[rows][columns];
};

__global__ void declared_first(int *out, int n);

__device__ int helper(int value);
static __device__ __forceinline__ int sum_of(const pair &it) {
    return it.first + it.second + (int)(threadIdx.x * 0);
}
__host__ __device__ static inline int on_both(int x) { return x + 1; }
static __device__ __noinline__ int apart(int x) { return x; }
__noinline__ static __device__ int apart_too(int x) { return x; }
__device__ constexpr int compile_time(int x) { return 2 * x; }
__device__ int helper(int value)
{
    return value + (int)blockDim.x;
}

__global__
void
__launch_bounds__(32 * 2,
                  1)
declared_first(int *out,
               int n)
{
    __shared__ int plain, several[2][3], last[compile_time(4)];
    __shared__ __align__(16) unsigned char bytes[48];
    __shared__ pair structured[2];
    __shared__ tile<2, 3> templated;
    __shared__ tile<(3 > 2) ? 2 : 1> pair_of_tiles[2];
    __shared__ const int *pointer;
    if (threadIdx.x == 0) {
        plain = n;
        for (int i = 0; i < 6; i++) several[i / 3][i % 3] = i;
        for (int i = 0; i < 8; i++) last[i] = i;
        bytes[47] = brace == '{' ? 7 : 0;
        structured[1] = pair{3, 4};
        templated.cell[1][2] = 5;
        pair_of_tiles[1].cell[1][3] = 6;
        pointer = out;
    }
    __syncthreads();  // thread 0 has written all of them
    if (threadIdx.x == 1) {
        out[0] = plain + several[1][2] + last[7] + bytes[47] + sum_of(structured[1]) + templated.cell[1][2] +
                 pair_of_tiles[1].cell[1][3] + on_both(1) + helper(0) + apart(1) - apart_too(1) + (pointer == out);
        out[1] = (int)(reinterpret_cast<unsigned long long>(bytes) % 16);
    }
}

// The same name in two kernels and in two instances of one is a different variable.
template <class T> __global__ void __launch_bounds__(64) typed(int *out, T value) {
    extern __shared__ __align__(16) unsigned char raw_bytes[];
    __shared__ T plain;
    T *values = reinterpret_cast<T *>(raw_bytes);
    values[threadIdx.x] = value;
    if (threadIdx.x == 0) plain = value;
    __syncthreads();  // values and plain are written
    if (threadIdx.x == 0) out[0] = (int)(values[63] + plain + (T)sizeof(T));
}

// Built-in variables where the rewriter sees no kernel or device function; bounds before __global__; odd shared variables.
struct functor {
    int add;
    __device__ int operator()(int x) const { return x + add + (int)threadIdx.x; }
};
__host__ __device__ static inline unsigned block_size_here(void) { return blockDim.x; }
static __device__ auto trailing(int x) -> int { return x + (int)blockIdx.x; }
__constant__ int filled[4];
__launch_bounds__(512) __global__ void odd_shared(int *out) {
    static __shared__ int kept;
    __shared__ int value, *pointer;
    __shared__ struct { int item[2]; int count; } unnamed;
    if (threadIdx.x == 0) {
        kept = 1, value = 2, pointer = &value;
        unnamed.item[1] = 3, unnamed.count = 4;
    }
    __syncthreads();  // thread 0 has written all of them
    functor plus = {10};
    if (threadIdx.x == 2)
        out[0] = kept + *pointer + unnamed.item[1] + unnamed.count + plus(0) + (int)block_size_here() + trailing(0) +
                 filled[3] + (int)min(threadIdx.x, blockDim.x);
}

#define LAUNCH(kernel, ...) kernel<<<1, 64, 64 * sizeof(double)>>>(__VA_ARGS__)

int main(void) {
    int *device, host[2];
    OK(cudaMalloc(&device, sizeof host));
    OK(cudaMemset(device, 0, sizeof host));
    declared_first<<<dim3(1), /* a comment, with > and >>, in between */ 64>>>(device, million);
    OK(cudaGetLastError());
    OK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(host[0] == million + 5 + 7 + 7 + 7 + 5 + 6 + 2 + 64 + 1);
    CHECK(host[1] == 0);
    const int constants[4] = {0, 0, 0, 100};
    OK(cudaMemcpyToSymbol(filled, constants, sizeof constants));
    odd_shared<<<1, 512>>>(device);
    OK(cudaGetLastError());
    OK(cudaMemcpy(host, device, sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(host[0] == 1 + 2 + 3 + 4 + 12 + 512 + 0 + 100 + 2);
    LAUNCH(typed<float>, device, 1.5f);
    OK(cudaMemcpy(host, device, sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(host[0] == 7);
    LAUNCH(typed<double>, device, 10.25);
    OK(cudaMemcpy(host, device, sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(host[0] == 28);
    OK(cudaFree(device));
    CHECK(__LINE__ == 129);  // no line was added or lost
    CHECK(text[0] == '_' && raw[0] == 'a' && quote == '"' && escaped == '\'' && on_both(1) == 2);
    return check_done();
}
