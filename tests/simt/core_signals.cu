// core_signals.cu FAULT - cpu backend only: what kills an ordinary program ends a kernel with a report and
// exit code 1. Each fault is a run of its own, since the program ends there.
#include <assert.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

// Every level needs its caller's array, so that no compiler makes a loop of it.
static __device__ int sum_below(int n, const volatile char *above) {
    volatile char large[4096];
    large[0] = (char)(n + above[0]);
    return n > 0 ? sum_below(n - 1, large) + large[0] : 0;
}
__global__ void recurse(int *out, int depth) {
    volatile char first[1] = {1};
    out[threadIdx.x] = sum_below(depth, first);
}

__global__ void large_array(int *out, int n) {
    volatile float row[64 * 1024];
    for (int i = 0; i < n; i++) row[i] = 1;
    out[0] = (int)row[n - 1];
}

__global__ void divide(int *out, int by) { out[0] = 7 / by; }

__global__ void check(int *out, int limit) {
    assert((int)threadIdx.x < limit);
    out[threadIdx.x] = limit;
}

int main(int argc, char **argv) {
    int *out;
    if (argc != 2 || cudaMalloc(&out, 4096) != cudaSuccess) return 2;
    if (!strcmp(argv[1], "recursion")) recurse<<<1, 32>>>(out, 1000);
    if (!strcmp(argv[1], "array")) large_array<<<1, 1>>>(out, 64 * 1024);
    if (!strcmp(argv[1], "division")) divide<<<1, 1>>>(out, 0);
    if (!strcmp(argv[1], "assert")) check<<<1, 32>>>(out, 5);
    if (!strcmp(argv[1], "none")) {
        recurse<<<1, 32>>>(out, 10);
        divide<<<1, 1>>>(out, 2);
        check<<<1, 32>>>(out, 32);
        printf("silent\n");
    }
    return cudaDeviceSynchronize() == cudaSuccess && !strcmp(argv[1], "none") ? 0 : 3;
}
