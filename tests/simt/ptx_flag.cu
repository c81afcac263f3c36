// ptx_flag.cu - ptx/flag.h on both backends: blocks that count themselves, and what the last of a round sees.
#include <cuda_runtime.h>
#include <stdlib.h>

#include "check.h"
#include "common/ptx.h"

constexpr int ITEMS = 37, THREADS = 64, LAUNCHES = 3;

__host__ __device__ static int value_of(int launch, int block, int thread) {
    return launch * 1000003 + block * 131 + thread;
}

// `parts` blocks to each item. The last of them to be done adds up what all have written.
//   values: [items * parts][THREADS]; order: [items * parts], the result of count_round; sums, lasts: [items]
__global__ void __launch_bounds__(THREADS) count_parts(int launch, int parts, unsigned *done, int *values,
                                                       unsigned *order, long long *sums, int *lasts) {
    __shared__ bool is_last;
    int block = (int)blockIdx.x, item = block / parts;
    values[block * THREADS + (int)threadIdx.x] = value_of(launch, block, (int)threadIdx.x);
    __syncthreads();  // the block's values are written before it counts itself
    if (threadIdx.x == 0) {
        order[block] = count_round(done + item, (unsigned)parts - 1);
        is_last = order[block] == (unsigned)parts - 1;
    }
    __syncthreads();  // all know, and see what thread 0 has seen
    if (!is_last || threadIdx.x >= 32) return;
    long long sum = 0;
    for (int n = (int)threadIdx.x; n < parts * THREADS; n += 32) sum += values[item * parts * THREADS + n];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x == 0) sums[item] = sum, atomicAdd(&lasts[item], 1);
}

static void check_rounds(int parts) {
    int blocks = ITEMS * parts;
    unsigned *done, *order;
    int *values, *lasts;
    long long *sums;
    CHECK(cudaMalloc(&done, ITEMS * sizeof *done) == cudaSuccess);
    CHECK(cudaMalloc(&order, (size_t)blocks * sizeof *order) == cudaSuccess);
    CHECK(cudaMalloc(&values, (size_t)blocks * THREADS * sizeof *values) == cudaSuccess);
    CHECK(cudaMalloc(&lasts, ITEMS * sizeof *lasts) == cudaSuccess);
    CHECK(cudaMalloc(&sums, ITEMS * sizeof *sums) == cudaSuccess);
    CHECK(cudaMemset(done, 0, ITEMS * sizeof *done) == cudaSuccess);
    unsigned *order_now = (unsigned *)malloc((size_t)blocks * sizeof *order_now);
    for (int launch = 0; launch < LAUNCHES; launch++) {
        unsigned done_now[ITEMS];
        int lasts_now[ITEMS];
        long long sums_now[ITEMS];
        CHECK(cudaMemset(lasts, 0, ITEMS * sizeof *lasts) == cudaSuccess);
        count_parts<<<(unsigned)blocks, THREADS>>>(launch, parts, done, values, order, sums, lasts);
        CHECK(cudaGetLastError() == cudaSuccess);
        CHECK(cudaMemcpy(done_now, done, sizeof done_now, cudaMemcpyDeviceToHost) == cudaSuccess);
        CHECK(cudaMemcpy(lasts_now, lasts, sizeof lasts_now, cudaMemcpyDeviceToHost) == cudaSuccess);
        CHECK(cudaMemcpy(sums_now, sums, sizeof sums_now, cudaMemcpyDeviceToHost) == cudaSuccess);
        CHECK(cudaMemcpy(order_now, order, (size_t)blocks * sizeof *order, cudaMemcpyDeviceToHost) ==
              cudaSuccess);
        for (int item = 0; item < ITEMS; item++) {
            long long sum = 0;
            unsigned long long seen = 0;  // each place of the round once
            for (int p = 0; p < parts; p++) {
                unsigned place = order_now[item * parts + p];
                if (CHECK(place < (unsigned)parts)) seen |= 1ull << place;
                for (int t = 0; t < THREADS; t++) sum += value_of(launch, item * parts + p, t);
            }
            CHECK(seen == (parts == 64 ? ~0ull : (1ull << parts) - 1));
            CHECK(done_now[item] == 0);  // ready for the next launch
            CHECK(lasts_now[item] == 1);
            CHECK(sums_now[item] == sum);
        }
    }
    free(order_now);
    cudaFree(done);
    cudaFree(order);
    cudaFree(values);
    cudaFree(lasts);
    cudaFree(sums);
}

// Block b waits for b blocks before it by turns: what each has added to is seen by the next.
__global__ void __launch_bounds__(32) pass_on(int *turn, int *total) {
    if (threadIdx.x > 0) return;
    if (load_acquire(turn) != (int)blockIdx.x) return;
    *total += (int)blockIdx.x + 1;
    add_release(turn, 1);
}

static void check_release(void) {
    int *turn, *total, now[2] = {0, 0};
    CHECK(cudaMalloc(&turn, sizeof *turn) == cudaSuccess);
    CHECK(cudaMalloc(&total, sizeof *total) == cudaSuccess);
    CHECK(cudaMemset(turn, 0, sizeof *turn) == cudaSuccess);
    CHECK(cudaMemset(total, 0, sizeof *total) == cudaSuccess);
    int launches = 0;  // in each at least one block has its turn
    for (; now[0] < 5 && launches < 5; launches++) {
        pass_on<<<5, 32>>>(turn, total);
        CHECK(cudaGetLastError() == cudaSuccess);
        CHECK(cudaMemcpy(&now[0], turn, sizeof *turn, cudaMemcpyDeviceToHost) == cudaSuccess);
        CHECK(cudaMemcpy(&now[1], total, sizeof *total, cudaMemcpyDeviceToHost) == cudaSuccess);
        CHECK(now[0] > launches);
        CHECK(now[1] == now[0] * (now[0] + 1) / 2);
    }
    CHECK(now[0] == 5);
    cudaFree(turn);
    cudaFree(total);
}

// Each thread's two, then four, numbers, in the order of its loads.
__global__ void __launch_bounds__(THREADS) copy_relaxed(const float *from, float *to) {
    int t = (int)threadIdx.x;
    float4 four = load_relaxed((const float4 *)from + t);
    float2 two = load_relaxed((const float2 *)(from + 4 * THREADS) + t);
    ((float4 *)to)[t] = four;
    ((float2 *)(to + 4 * THREADS))[t] = two;
}

static void check_relaxed(void) {
    constexpr int COUNT = 6 * THREADS;
    float numbers[COUNT], copied[COUNT], *from, *to;
    for (int i = 0; i < COUNT; i++) numbers[i] = (float)i - 7.25f;
    CHECK(cudaMalloc(&from, sizeof numbers) == cudaSuccess);
    CHECK(cudaMalloc(&to, sizeof numbers) == cudaSuccess);
    CHECK(cudaMemcpy(from, numbers, sizeof numbers, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaMemset(to, 0, sizeof numbers) == cudaSuccess);
    copy_relaxed<<<1, THREADS>>>(from, to);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaMemcpy(copied, to, sizeof copied, cudaMemcpyDeviceToHost) == cudaSuccess);
    for (int i = 0; i < COUNT; i++) CHECK(copied[i] == numbers[i]);
    cudaFree(from);
    cudaFree(to);
}

int main(void) {
    for (int parts : {1, 2, 3, 7, 64}) check_rounds(parts);
    check_release();
    check_relaxed();
#ifdef SIMT_CPU
    // The same under other orders of blocks; and the counter is an order that the race detector knows.
    simt_set_sanitizing(1);
    for (uint64_t schedule : {1, 11, 12}) {
        simt_set_schedule(schedule);
        check_rounds(7);
        check_release();
        CHECK(simt_take_races() == 0);
    }
#endif
    return check_done();
}
