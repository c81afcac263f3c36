// async_time.cu - the time of traced launches on the CPU (common/simt/thread_time.h): each thread's own,
// joined where threads wait for each other, for copies and for products. Lengths are compared with a little
// slack for the basic blocks of the functions that are called on the way.
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

#include "common/ptx.h"
#include "device_memory.h"

constexpr int threads = 256, points = 8;
constexpr uint64_t slack = 60;
constexpr uint64_t latency = 600, bytes_a_step = 64;  // as thread_time.h says

// Takes `steps` basic blocks, about.
__device__ static void work(int steps) {
    for (int i = 0; i < steps; i++) asm volatile("" ::: "memory");
}
__device__ static void note(uint64_t *out, int point) { out[threadIdx.x * points + point] = sm_clock(); }

// ---- Threads with each other ----

// Points: 0 after work of t steps, 1 after a barrier of the warp, 2 of the block; 3 after a hand-over from
// the second half of the block by named barrier, 4 likewise by an mbarrier; 5 after a wait for a phase long
// over.
__global__ void meetings(uint64_t *out) {
    __shared__ uint64_t bar_smem;
    uint32_t bar = shared_address(&bar_smem);
    int t = (int)threadIdx.x;
    bool first_half = t < threads / 2;
    work(10 * t);
    note(out, 0);
    __syncwarp();
    note(out, 1);
    if (t == 0) mbarrier_init(bar, threads / 2);
    __syncthreads();  // the mbarrier is there
    note(out, 2);
    if (first_half) {
        bar_sync(1, threads);  // for the work of the others
    } else {
        work(3000);
        bar_arrive(1, threads);
    }
    note(out, 3);
    if (first_half) {
        mbarrier_wait(bar, 0);
    } else {
        work(20 * (t - threads / 2));
        mbarrier_arrive(bar);
    }
    note(out, 4);
    if (first_half) {
        work(500);
        mbarrier_wait(bar, 0);
    }
    note(out, 5);
    __syncthreads();  // nobody is in the way of the end
}

static uint64_t times[threads][points];

static bool is_about(uint64_t x, uint64_t expected) { return x >= expected && x <= expected + slack; }

static void check_meetings(void) {
    for (int t = 0; t < threads; t++) {
        const uint64_t *at = times[t], *last = times[threads - 1];
        int last_of_warp = t / 32 * 32 + 31;
        CHECK(at[0] >= 10 * (uint64_t)t && at[0] <= 25 * (uint64_t)t + slack);  // whoever had turns before it
        CHECK(is_about(at[1], times[last_of_warp][0]));
        CHECK(is_about(at[2], last[1]));
        // Who arrives goes on; who waits, waits for the last one.
        CHECK(t >= threads / 2 ? is_about(at[3], at[2] + 3000) || at[3] > at[2] + 3000
                               : is_about(at[3], times[threads / 2][3] - slack));
        CHECK(at[3] < at[2] + 7500);
        if (t < threads / 2) {
            CHECK(at[4] >= last[4] - slack && at[4] <= last[4] + slack);
            CHECK(at[5] >= at[4] + 500 && at[5] <= at[4] + 1250 + slack);
        } else {
            CHECK(at[4] >= at[3] + 20 * (uint64_t)(t - threads / 2));
            CHECK(at[4] <= at[3] + 50 * (uint64_t)(t - threads / 2) + slack);
        }
    }
}

// ---- Copies ----

constexpr int copy_bytes = 16384;

// One thread. Points: 1 after two loads were issued, 2 and 3 after the first and the second are there; 4
// after cp.async of 16 bytes has landed, 5 a store by TMA's path has left, from when it was issued: 6. 7 a
// wait for the first load again.
__global__ void copies(const unsigned char *data, unsigned char *to, uint64_t *out) {
    __shared__ __align__(128) unsigned char tile_smem[2][copy_bytes];
    __shared__ uint64_t bar_smem[2];
    if (threadIdx.x != 0) return;
    uint32_t tiles = shared_address(tile_smem), bars = shared_address(bar_smem);
    for (int i = 0; i < 2; i++) mbarrier_init(bars + 8 * i, 1);
    fence_mbarrier_init();
    note(out, 0);
    for (int i = 0; i < 2; i++) {
        mbarrier_arrive_expect_tx(bars + 8 * i, copy_bytes);
        bulk_load(tiles + i * copy_bytes, data + i * copy_bytes, copy_bytes, bars + 8 * i);
    }
    note(out, 1);
    mbarrier_wait(bars, 0);
    note(out, 2);
    mbarrier_wait(bars + 8, 0);
    note(out, 3);
    cp_async_16(tiles, data);
    cp_async_commit();
    cp_async_wait<0>();
    note(out, 4);
    note(out, 6);
    bulk_store(to, tiles + copy_bytes, copy_bytes);
    bulk_commit();
    bulk_wait<0>();
    note(out, 5);
    mbarrier_wait(bars, 0);
    note(out, 7);
}

static void check_copies(void) {
    const uint64_t *at = times[0], one = copy_bytes / bytes_a_step;
    CHECK(at[1] <= at[0] + 2 * slack);  // to issue takes no time
    CHECK(at[2] >= at[0] + one + latency && at[2] <= at[1] + one + latency + slack);
    CHECK(at[3] >= at[0] + 2 * one + latency &&
          at[3] <= at[1] + 2 * one + latency + slack);  // one behind the other
    CHECK(is_about(at[4], at[3] + latency));
    CHECK(is_about(at[5], at[6] + one + latency));
    CHECK(is_about(at[7], at[5]));
}

// ---- Products ----

constexpr int n = 128, products_a_group = 4;

// Two warpgroups. Points: 0 before a group of products is issued, 1 after two groups were committed, 2 after
// the first is there, 3 after both are; 4 after a wait for nothing.
__global__ void products(uint64_t *out) {
    __shared__ __align__(1024) __half tile_smem[n * 64];
    for (int i = (int)threadIdx.x; i < n * 64; i += threads) tile_smem[i] = __float2half(0.0f);
    fence_proxy_async();
    __syncthreads();  // the tile is written
    uint64_t tile = wgmma_descriptor(shared_address(tile_smem), 16, 1024, 128);
    float d[2][n / 2] = {};
    note(out, 0);
    for (int g = 0; g < 2; g++) {
        wgmma_fence();
        for (int i = 0; i < products_a_group; i++)
            wgmma_ss<__half, n, 1, false, false>(d[g], tile + 2 * i, tile + 2 * i);
        wgmma_commit();
    }
    note(out, 1);
    wgmma_wait<1>();
    note(out, 2);
    wgmma_wait<0>();
    note(out, 3);
    wgmma_wait<0>();
    note(out, 4);
    out[threads * points] = d[0][0] == 0.0f && d[1][0] == 0.0f;
}

static void check_products(void) {
    const uint64_t group = products_a_group * n / 2;
    uint64_t start = times[0][0], free_at[4];
    // The tensor cores are one, and work off four groups one after the other, in either order.
    int count = 0;
    for (int warpgroup = 0; warpgroup < 2; warpgroup++)
        for (int point = 2; point <= 3; point++) free_at[count++] = times[warpgroup * 128][point];
    for (int i = 0; i < 4; i++)
        for (int j = i + 1; j < 4; j++)
            if (free_at[j] < free_at[i]) {
                uint64_t other = free_at[i];
                free_at[i] = free_at[j], free_at[j] = other;
            }
    for (int i = 0; i < 4; i++) {
        CHECK(free_at[i] >= start + (uint64_t)(i + 1) * group);
        CHECK(free_at[i] <= start + (uint64_t)(i + 1) * group + 4 * slack);
    }
    for (int t = 0; t < threads; t++) {
        CHECK(times[t][1] <= start + 4 * slack);  // to issue takes no time
        CHECK(times[t][2] <= times[t][3]);
        CHECK(is_about(times[t][4], times[t][3]));
        // Every thread of a warpgroup has its sums at the same time.
        CHECK(times[t][3] <= times[t / 128 * 128][3] + slack &&
              times[t][3] + slack >= times[t / 128 * 128][3]);
    }
}

// ---- All of them, under several orders of threads ----

enum which { MEETINGS, COPIES, PRODUCTS };

static void run(enum which which, uint64_t schedule, int tracing) {
    static uint64_t all[threads * points + 1];
    uint64_t *device = to_device((uint64_t *)nullptr, threads * points + 1);
    unsigned char *data = to_device((unsigned char *)nullptr, 4 * copy_bytes);
    simt_set_schedule(schedule);
    simt_set_tracing(tracing);
    if (which == MEETINGS) meetings<<<1, threads>>>(device);
    if (which == COPIES) copies<<<1, threads>>>(data, data + 2 * copy_bytes, device);
    if (which == PRODUCTS) products<<<1, threads>>>(device);
    from_device(all, device, threads * points + 1);
    simt_set_tracing(0);
    expect_success(cudaFree(data));
    memcpy(times, all, sizeof times);
}

int main(void) {
    static uint64_t first[threads][points];
    static const uint64_t schedules[] = {0, 1, 5, 6, 7};
    static void (*const checks[])(void) = {check_meetings, check_copies, check_products};
    for (int which = MEETINGS; which <= PRODUCTS; which++) {
        for (uint64_t schedule : schedules) {
            run((enum which)which, schedule, 1);
            checks[which]();
            if (schedule == 0) memcpy(first, times, sizeof first);
            if (which != PRODUCTS) CHECK(memcmp(first, times, sizeof first) == 0);
        }
        run((enum which)which, 0, 0);  // not traced: no time
        for (auto &of_thread : times)
            for (uint64_t time : of_thread) CHECK(time == 0);
    }
    return check_done();
}
