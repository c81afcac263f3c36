// ptx_time.cu - clocks, the number of the multiprocessor and the store without a branch (common/ptx/time.h),
// on either backend.
#include <cuda_runtime.h>
#include <stdint.h>

#include "common/ptx.h"
#include "device_memory.h"

constexpr int blocks = 200, threads = 64, rounds = 50;

struct stamps {
    uint64_t clock[rounds + 1], timer[2];
    uint32_t low, multiprocessor;
    float sum;  // of the work between the stamps
};

__global__ void stamp(struct stamps *out) {
    if (threadIdx.x != 0) return;
    struct stamps *it = &out[blockIdx.x];
    float x = 1.0f;
    it->multiprocessor = sm_id();
    it->timer[0] = global_timer();
    it->clock[0] = sm_clock();
    for (int i = 1; i <= rounds; i++) {
        for (int k = 0; k < 100; k++) x = x * 0.5f + (float)k;
        it->sum = x;
        it->clock[i] = sm_clock();
    }
    it->low = sm_clock_low();
    it->timer[1] = global_timer();
}

static void check_stamps(void) {
    static struct stamps stamps[blocks];
    struct stamps *device = to_device((struct stamps *)nullptr, blocks);
    int multiprocessors = 0, seen = 0;
    bool used[1024] = {};
    expect_success(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
#ifdef SIMT_CPU
    simt_set_tracing(1);
#endif
    stamp<<<blocks, threads>>>(device);
    from_device(stamps, device, blocks);
#ifdef SIMT_CPU
    simt_set_tracing(0);
#endif
    for (const struct stamps &it : stamps) {
        for (int i = 0; i < rounds; i++) {
            CHECK(it.clock[i + 1] >= it.clock[i] + 50);  // 100 rounds of work, of which none takes no time
            CHECK(it.clock[i + 1] < it.clock[i] + 10000000);
        }
        CHECK((uint32_t)(it.low - (uint32_t)it.clock[rounds]) < 10000000);  // the low half of the same clock
        CHECK(it.timer[0] > 0 && it.timer[1] >= it.timer[0]);
        if (CHECK(it.multiprocessor < 1024) && !used[it.multiprocessor])
            used[it.multiprocessor] = true, seen++;
    }
    // More blocks than multiprocessors, and so small that several are on each: hardly one has none.
    CHECK(seen > multiprocessors / 2 && seen <= multiprocessors);
}

// Thread t stores if t is odd.
__global__ void store(uint2 *out) {
    uint32_t t = threadIdx.x;
    store_if(t % 2, out + t, t + 1, 1000 * t);
}
__global__ void store_nowhere(uint2 *out) { store_if(threadIdx.x > 1000, out - (1 << 30), 1, 1); }

static void check_store(void) {
    uint2 out[threads], *device = to_device((uint2 *)nullptr, threads);
    store<<<1, threads>>>(device);
    store_nowhere<<<1, threads>>>(device);  // an address that is none is not used
    from_device(out, device, threads);
    for (uint32_t t = 0; t < threads; t++) {
        CHECK(out[t].x == (t % 2 ? t + 1 : 0));
        CHECK(out[t].y == (t % 2 ? 1000 * t : 0));
    }
}

int main(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return printf("no GPU\n"), 77;
    check_stamps();
    check_store();
    return check_done();
}
