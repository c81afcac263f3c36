// core_sync.cu - threads that wait for each other, on both backends: barriers and their votes, named
// barriers, shuffles, votes and reductions of a warp, with early exits and blocks that are no multiple of 32.
#include <cuda_runtime.h>

#include "check.h"
#include "common/ptx.h"

#define OK(call) CHECK((call) == cudaSuccess)
constexpr unsigned all_lanes = 0xffffffffu;

static int *device_results(int n) {
    int *device;
    OK(cudaMalloc(&device, (size_t)n * sizeof(int)));
    OK(cudaMemset(device, 0xff, (size_t)n * sizeof(int)));
    return device;
}

// Fetches n results, frees them on the device, and checks the launch.
static void fetch(int *host, int *device, int n) {
    OK(cudaGetLastError());
    OK(cudaMemcpy(host, device, (size_t)n * sizeof(int), cudaMemcpyDeviceToHost));
    OK(cudaFree(device));
}

// A tree reduction over shared memory: wrong if any barrier lets one thread pass early.
__global__ void __launch_bounds__(1024) tree_sum(int *out) {
    __shared__ int part[1024];
    int t = (int)threadIdx.x;
    part[t] = t + (int)blockIdx.x;
    for (int step = (int)blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();  // the sums of the round before are written
        if (t < step) part[t] += part[t + step];
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

__global__ void barrier_votes(int *out) {
    int t = (int)threadIdx.x;
    int count = __syncthreads_count(t % 3 == 0), all = __syncthreads_and(t < 70),
        any = __syncthreads_or(t == 71);
    int all_true = __syncthreads_and(t < 80), none = __syncthreads_or(t > 80);
    if (t == 79) {
        out[0] = count;
        out[1] = all != 0;
        out[2] = any != 0;
        out[3] = all_true != 0;
        out[4] = none != 0;
    }
}

// Threads 40 and above return first; the barriers are for those that remain.
__global__ void early_exit(int *out) {
    __shared__ int value;
    if (threadIdx.x >= 40) return;
    if (threadIdx.x == 39) value = 7;
    __syncthreads();  // value is written
    __syncwarp();     // lanes 8-31 of warp 1 are gone
    out[threadIdx.x] = value;
}

// Two warps hand 32 numbers back and forth through named barriers 1 (full) and 2 (empty).
__global__ void hand_over(int *out) {
    __shared__ int box[32];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int round = 0; round < 5; round++) {
        if (warp == 0) {
            if (round > 0) bar_sync(2, 64);  // the consumer has read the round before
            box[lane] = 100 * round + lane;
            bar_arrive(1, 64);  // box is full
        } else {
            bar_sync(1, 64);  // box is full
            out[32 * round + lane] = box[31 - lane];
            if (round < 4) bar_arrive(2, 64);  // box may be written again
        }
    }
}

__global__ void shuffles(int *out) {
    int lane = (int)threadIdx.x % 32, value = 10 * lane;
    int *mine = out + 10 * threadIdx.x;
    mine[0] = __shfl_sync(all_lanes, value, 5);
    mine[1] = __shfl_sync(all_lanes, value, lane + 1, 8);
    mine[2] = __shfl_up_sync(all_lanes, value, 3u);
    mine[3] = __shfl_down_sync(all_lanes, value, 3u, 16);
    mine[4] = __shfl_xor_sync(all_lanes, value, 9);
    mine[5] = __shfl_xor_sync(all_lanes, value, 12, 8);
    mine[6] = (int)__shfl_xor_sync(all_lanes, (double)value, 1);
    mine[7] = __shfl_up_sync(all_lanes, value, 2u, 4);
    mine[8] = (int)__shfl_down_sync(all_lanes, (long long)value, 30u);
    mine[9] = lane < 16 ? __shfl_sync(0xffffu, value, 15) : __shfl_xor_sync(0xffff0000u, value, 1);
}

static int shuffle_expected(int which, int lane) {
    switch (which) {
    case 0:
        return 50;
    case 1:
        return 10 * (lane / 8 * 8 + (lane + 1) % 8);
    case 2:
        return 10 * (lane < 3 ? lane : lane - 3);
    case 3:
        return 10 * (lane % 16 + 3 < 16 ? lane + 3 : lane);
    case 4:
        return 10 * (lane ^ 9);
    case 5:
        return 10 * ((lane ^ 12) / 8 > lane / 8 ? lane : lane ^ 12);
    case 6:
        return 10 * (lane ^ 1);
    case 7:
        return 10 * (lane % 4 < 2 ? lane : lane - 2);
    case 8:
        return 10 * (lane + 30 < 32 ? lane + 30 : lane);
    default:
        return 10 * (lane < 16 ? 15 : lane ^ 1);
    }
}

__global__ void votes(unsigned *out) {
    unsigned lane = threadIdx.x % 32;
    unsigned *mine = out + 8 * threadIdx.x;
    mine[0] = __ballot_sync(all_lanes, lane % 5 == 0);
    mine[1] = __any_sync(all_lanes, lane == 31);
    mine[2] = __any_sync(all_lanes, lane == 32);
    mine[3] = __all_sync(all_lanes, lane < 32);
    mine[4] = __all_sync(all_lanes, lane < 31);
    mine[5] = __match_any_sync(all_lanes, lane / 7);
    mine[6] = __reduce_add_sync(all_lanes, lane) + 1000 * __reduce_max_sync(all_lanes, lane ^ 5u);
    mine[7] = (unsigned)__reduce_min_sync(all_lanes, (int)lane - 7) + __reduce_xor_sync(all_lanes, lane * 3);
}

// A block of 45 threads: the second warp has 13 lanes, which must do without the others.
__global__ void partial_warp(int *out) {
    int value = (int)threadIdx.x;
    unsigned mask = threadIdx.x < 32 ? all_lanes : (1u << 13) - 1;
    for (int step = 1; step < 16; step *= 2) {
        int other = __shfl_down_sync(mask, value, (unsigned)step);
        if ((int)(threadIdx.x % 32) + step < (threadIdx.x < 32 ? 32 : 13)) value += other;
    }
    __syncwarp(mask);
    if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = value;
}

static void check_barriers(void) {
    int host[1024];
    int *device = device_results(3);
    tree_sum<<<3, 1024>>>(device);
    fetch(host, device, 3);
    for (int b = 0; b < 3; b++) CHECK(host[b] == 1023 * 512 + 1024 * b);
    barrier_votes<<<1, 80>>>(device = device_results(5));
    fetch(host, device, 5);
    CHECK(host[0] == 27 && host[1] == 0 && host[2] == 1 && host[3] == 1 && host[4] == 0);
    early_exit<<<1, 64>>>(device = device_results(64));
    fetch(host, device, 64);
    for (int t = 0; t < 64; t++) CHECK(host[t] == (t < 40 ? 7 : -1));
    hand_over<<<1, 64>>>(device = device_results(160));
    fetch(host, device, 160);
    for (int i = 0; i < 160; i++) CHECK(host[i] == 100 * (i / 32) + 31 - i % 32);
}

static void check_warps(void) {
    static int host[640];
    int *device = device_results(640);
    shuffles<<<1, 64>>>(device);
    fetch(host, device, 640);
    for (int t = 0; t < 64; t++)
        for (int which = 0; which < 10; which++)
            CHECK(host[10 * t + which] == shuffle_expected(which, t % 32));
    votes<<<1, 64>>>((unsigned *)(device = device_results(512)));
    fetch(host, device, 512);
    for (int t = 0; t < 64; t++) {
        unsigned *mine = (unsigned *)host + 8 * t, lane = (unsigned)t % 32, same = 0, parity = 0;
        for (unsigned j = 0; j < 32; j++) same |= (unsigned)(j / 7 == lane / 7) << j, parity ^= 3 * j;
        CHECK(mine[0] == 0x42108421u);
        CHECK(mine[1] == 1 && mine[2] == 0 && mine[3] == 1 && mine[4] == 0);
        CHECK(mine[5] == same);
        CHECK(mine[6] == 496 + 1000 * 31);
        CHECK(mine[7] == parity - 7u);
    }
    partial_warp<<<1, 45>>>(device = device_results(2));
    fetch(host, device, 2);
    CHECK(host[0] == 120);  // the steps 1, 2, 4, 8 sum lanes 0 to 15
    CHECK(host[1] == 13 * 32 + 78);
}

int main(void) {
#ifdef SIMT_CPU
    for (unsigned long long schedule = 0; schedule < 10; schedule++) {
        simt_set_schedule(schedule);
#endif
        check_barriers();
        check_warps();
#ifdef SIMT_CPU
    }
#endif
    return check_done();
}
