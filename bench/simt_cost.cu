// simt_cost.cu - cpu backend: what the simulation costs. Prints the time of a switch between two threads of a
// block, of a checked access to global and to shared memory, and of a block's start, each on one core.
//
//     build/cpu/tests/simt/simt_cost
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/ptx.h"

// Two warps wait for each other at a barrier: every round switches once to each thread.
__global__ void __launch_bounds__(64) only_switch(int rounds) {
    for (int i = 0; i < rounds; i++) __syncthreads();  // nothing to protect: the barrier is what is measured
}

__global__ void read_global(const float *in, float *out, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += in[i & 1023];
    out[0] = sum;
}

__global__ void read_shared(const float *in, float *out, int n) {
    __shared__ float tile[1024];
    for (int i = 0; i < 1024; i++) tile[i] = in[i];
    float sum = 0;
    for (int i = 0; i < n; i++) sum += tile[i & 1023];
    out[0] = sum;
}

__global__ void start_only(void) {}

static struct simt_launch_stats last_launch(void) {
    struct simt_launch_stats stats[8];
    int n = simt_take_launch_stats(stats, 8);
    if (cudaGetLastError() != cudaSuccess || n != 1) {
        fprintf(stderr, "simt_cost: a launch failed\n");
        exit(1);
    }
    return stats[0];
}

int main(void) {
    float *in, *out;
    cudaMalloc(&in, 4096);
    cudaMalloc(&out, 4);
    cudaMemset(in, 0, 4096);
    const int n = 20 * 1000 * 1000;
    only_switch<<<1, 64>>>(1000);
    last_launch();
    only_switch<<<1, 64>>>(50000);
    struct simt_launch_stats it = last_launch();
    printf("context switch          %6.1f ns\n", 1e9 * it.seconds / (double)it.context_switches);
    read_global<<<1, 1>>>(in, out, n);
    printf("checked global read     %6.1f ns\n", 1e9 * last_launch().seconds / n);
    read_shared<<<1, 1>>>(in, out, n);
    printf("checked shared read     %6.1f ns\n", 1e9 * last_launch().seconds / n);
    start_only<<<1, 128>>>();
    last_launch();
    start_only<<<2000, 128>>>();
    it = last_launch();
    printf("start and end of thread %6.1f ns (all cores)\n", 1e9 * it.seconds / (double)it.threads);
    return 0;
}
