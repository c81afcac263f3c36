// simt_cost.cu - cpu backend: what the simulation costs. Prints the time of a switch between two threads of a
// block, of a checked access to global and to shared memory, and of a block's start, each on one core; and
// the time of a tiled fp32 attention on all cores: plain, counted (--profile) and searched for races
// (--sanitize).
//
//     build/cpu/tests/simt/simt_cost
#include <cuda_runtime.h>
#include <math.h>
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

// One head of attention in fp32, N queries and keys, head_dim 64: 128 threads for 64 queries, two for each
// query.
constexpr int N = 256, DIM = 64, TILE = 64;
__global__ void __launch_bounds__(128)
    tiled_attention(const float *q, const float *k, const float *v, float *o) {
    __shared__ float kv_smem[TILE][DIM + 1];
    __shared__ float s_smem[TILE][TILE + 1];
    int row = (int)threadIdx.x / 2, half = (int)threadIdx.x % 2;
    const float *q_row = q + ((int)blockIdx.x * TILE + row) * DIM;
    float q_reg[DIM], o_reg[DIM / 2] = {}, max = -INFINITY, sum = 0;
    for (int c = 0; c < DIM; c++) q_reg[c] = q_row[c];
    for (int first = 0; first < N; first += TILE) {
        __syncthreads();  // nobody still reads V of the tile before
        for (int i = (int)threadIdx.x; i < TILE * DIM; i += 128)
            kv_smem[i / DIM][i % DIM] = k[first * DIM + i];
        __syncthreads();  // K is whole
        float new_max = max;
        for (int j = half; j < TILE; j += 2) {
            float s = 0;
            for (int c = 0; c < DIM; c++) s += q_reg[c] * kv_smem[j][c];
            s_smem[row][j] = s * 0.125f;
            new_max = fmaxf(new_max, s * 0.125f);
        }
        new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, 1));
        float rescale = expf(max - new_max);
        sum *= rescale;
        for (int c = 0; c < DIM / 2; c++) o_reg[c] *= rescale;
        max = new_max;
        __syncthreads();  // nobody still reads K
        for (int i = (int)threadIdx.x; i < TILE * DIM; i += 128)
            kv_smem[i / DIM][i % DIM] = v[first * DIM + i];
        __syncthreads();  // V is whole, and so are the scores of the other half
        for (int j = 0; j < TILE; j++) {
            float p = expf(s_smem[row][j] - max);
            sum += p;
            for (int c = 0; c < DIM / 2; c++) o_reg[c] += p * kv_smem[j][2 * c + half];
        }
    }
    for (int c = 0; c < DIM / 2; c++) o[((int)blockIdx.x * TILE + row) * DIM + 2 * c + half] = o_reg[c] / sum;
}

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

    float *tensor;
    cudaMalloc(&tensor, 4 * N * DIM * sizeof(float));
    cudaMemset(tensor, 0, 3 * N * DIM * sizeof(float));
    static const char *const modes[] = {"plain", "--profile", "--sanitize"};
    for (int mode = 0; mode < 3; mode++) {
        simt_set_profiling(mode == 1);
        simt_set_sanitizing(mode == 2);
        double best = 1e9;
        for (int repeat = 0; repeat < (mode == 0 ? 10 : 3); repeat++) {
            tiled_attention<<<N / TILE, 128>>>(tensor, tensor + N * DIM, tensor + 2 * N * DIM,
                                               tensor + 3 * N * DIM);
            it = last_launch();
            if (it.seconds < best) best = it.seconds;
        }
        printf("tiled attention, %-10s %6.3f s\n", modes[mode], best);
    }
    if (simt_take_races() != 0) return 1;
    return 0;
}
