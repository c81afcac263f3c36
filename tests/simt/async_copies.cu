// async_copies.cu - cpu backend only: planted bugs of kernels that copy with cp.async, and the same kernels
// without them.
#include "planted.h"

#include "common/ptx.h"

// clang-format off
// Each access that a message must name has a line of its own; LINE_OF counts back to it.
#define LINE_OF(lines_above) (__LINE__ - (lines_above))

constexpr int threads = 64, rounds = 5;

enum tile_bug { tile_right, no_commit, no_wait, wait_for_older, no_barrier };

// One tile, each thread copies 4 bytes and reads what another has copied.
template <tile_bug bug> __global__ void one_tile(const float *in, float *out) {
    __shared__ float tile[threads];
    int t = (int)threadIdx.x;
    tile[t] = -1;
    __syncthreads();  // so that no thread reads what was never written
    cp_async_4(shared_address(&tile[t]), in + t);
    if (bug != no_commit) cp_async_commit();
    if (bug != no_wait) cp_async_wait<bug == wait_for_older ? 1 : 0>();
    if (bug != no_barrier) __syncthreads();  // all have waited
    out[threads * blockIdx.x + t] = tile[threads - 1 - t];
}
constexpr int tile_copy = LINE_OF(6), tile_read = LINE_OF(2);

enum ring_bug { ring_right, group_too_new, refilled_early };

// Two stages: while one is read, the next is on its way.
template <ring_bug bug> __global__ void ring(const float *in, float *out) {
    __shared__ float stage[2][threads];
    int t = (int)threadIdx.x;
    float sum = 0;
    cp_async_4(shared_address(&stage[0][t]), in + t);
    cp_async_commit();
    for (int i = 0; i < rounds; i++) {
        if (i + 1 < rounds)
            cp_async_4(shared_address(&stage[(i + 1) % 2][t]), in + (i + 1) * threads + t);
        cp_async_commit();  // empty in the last round, so that the count below stays right
        cp_async_wait<bug == group_too_new ? 2 : 1>();
        __syncthreads();  // the stage is full
        sum += stage[i % 2][threads - 1 - t];
        if (bug != refilled_early) __syncthreads();  // everybody has read the stage
    }
    out[threads * blockIdx.x + t] = sum;
}
constexpr int ring_first = LINE_OF(13), ring_copy = LINE_OF(9), ring_read = LINE_OF(5);

enum place_bug { place_right, twice, not_aligned, source_not_aligned, source_outside, outside, too_many };

// 16 bytes for each thread: 64 floats of `in` become as many of `tile`.
template <place_bug bug> __global__ void sixteen_bytes(const float *in, float *out) {
    __shared__ __align__(16) float tile[threads];
    int t = (int)threadIdx.x;
    uint32_t to = shared_address(&tile[4 * t]) + (bug == not_aligned ? 4 : bug == outside && t > 14 ? 16 : 0);
    const float *from = in + 4 * t + (bug == source_not_aligned ? 1 : bug == source_outside ? 4 : 0);
    cp_async_16(to, from, bug == too_many ? 20 : 16);
    if (bug == twice)
        cp_async_16(to, in);
    cp_async_wait_all();
    for (int i = 0; i < 4; i++) out[4 * t + i] = tile[4 * t + i];
}
constexpr int place_copy = LINE_OF(6), place_second = LINE_OF(4);

// `floats` of `in` are asked for and not waited for; the kernel goes on with the first.
__global__ void prefetched(const float *in, uint32_t floats, float *out) {
    if (threadIdx.x == 0)
        bulk_prefetch_l2(in, floats * 4);
    out[threadIdx.x] = in[threadIdx.x];
}
constexpr int prefetch = LINE_OF(3);

// Bytes of at most `most` floats of which `left` are left.
static __device__ int valid(int left, int most) { return 4 * (left < 0 ? 0 : left < most ? left : most); }

// A row that ends in the middle of 8 and 16 bytes: the rest is zero, and nothing past the end is read.
__global__ void zero_fill(const float *in, int count, float *out) {
    __shared__ __align__(16) float four[threads], eight[threads], sixteen[threads];
    int t = (int)threadIdx.x, left = count - t;
    cp_async_4(shared_address(&four[t]), in + t, valid(left, 1));
    if (t % 2 == 0) cp_async_8(shared_address(&eight[t]), in + t, valid(left, 2));
    if (t % 4 == 0) cp_async_16(shared_address(&sixteen[t]), left > 0 ? in + t : nullptr, valid(left, 4));
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();  // all have waited
    out[t] = four[t];
    out[threads + t] = eight[t];
    out[2 * threads + t] = sixteen[t];
}

enum arrive_bug { arrive_right, plain_arrive, no_arrive, too_few_copies };

// Warp 0 copies, warp 1 waits for an mbarrier on which the copies arrive.
template <arrive_bug bug> __global__ void arrive_when_copied(const float *in, float *out) {
    __shared__ float tile[2][32];
    __shared__ uint64_t full;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    uint32_t bar = shared_address(&full);
    out += 64 * blockIdx.x;
    if (threadIdx.x == 0) mbarrier_init(bar, 32);
    __syncthreads();  // the mbarrier is there
    if (warp == 0) {
        cp_async_4(shared_address(&tile[0][lane]), in + lane);
        if (bug == too_few_copies) cp_async_mbarrier_arrive(bar);
        cp_async_4(shared_address(&tile[1][lane]), in + 32 + lane);
        if (bug == arrive_right) cp_async_mbarrier_arrive(bar);
        if (bug == plain_arrive) mbarrier_arrive(bar);
    } else {
        mbarrier_wait(bar, 0);
        out[lane] = tile[0][31 - lane];
        out[32 + lane] = tile[1][31 - lane];
    }
}
constexpr int arrive_first = LINE_OF(11), arrive_second = LINE_OF(9), arrive_wait = LINE_OF(5);
constexpr int arrive_read0 = LINE_OF(5);
constexpr int arrive_read1 = LINE_OF(5);

// A store after cp_async_mbarrier_arrive is not what the mbarrier hands over.
template <bool right> __global__ void store_after_arrive(const float *in, float *out) {
    __shared__ float copied[32], stored[32];
    __shared__ uint64_t full;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    uint32_t bar = shared_address(&full);
    if (warp == 0) stored[lane] = -1;
    if (threadIdx.x == 0) mbarrier_init(bar, 32);
    __syncthreads();  // the mbarrier is there, stored is written
    if (warp == 0) {
        cp_async_4(shared_address(&copied[lane]), in + lane);
        if (right) stored[lane] = 1;
        cp_async_mbarrier_arrive(bar);
        if (!right)
            stored[lane] = 1;
    } else {
        mbarrier_wait(bar, 0);
        out[32 * blockIdx.x + lane] = copied[lane] +
                    stored[lane];
    }
}
constexpr int late_store = LINE_OF(7), late_read = LINE_OF(3);

// More pairs of lines than are printed. Thread 0's copies give lines of their own; thread 1 reads without a
// barrier.
__global__ void many_races(const float *in, float *out, int pairs) {
    __shared__ float tile[threads];
    tile[threadIdx.x] = 0;
    __syncthreads();  // all of it is written
    if (threadIdx.x == 0)
        for (int i = 0; i < pairs; i++) cp_async_4(shared_address(&tile[i]), in + i, 4, "some.cu", 100 + i);
    cp_async_wait_all();
    for (int i = 0; i < pairs && threadIdx.x == 1; i++) out[i] = tile[i];
}
// clang-format on

static float *in, *out;

static void check_tile() {
    silent(
        "one tile", [] { one_tile<tile_right><<<3, threads>>>(in, out); }, out, 3 * threads,
        [](int i) { return threads - 1 - i % threads; });
    const symptom in_flight = {"bytes of a copy still in flight: read of 4 bytes", tile_read, tile_copy};
    planted("no commit", [] { one_tile<no_commit><<<1, threads>>>(in, out); }, {in_flight});
    planted("no wait", [] { one_tile<no_wait><<<1, threads>>>(in, out); }, {in_flight});
    planted("wait for an older group", [] { one_tile<wait_for_older><<<1, threads>>>(in, out); },
            {in_flight});
    planted("no barrier after the wait", [] { one_tile<no_barrier><<<1, threads>>>(in, out); },
            {{"race in kernel one_tile", tile_read, tile_copy}});
}

static void check_ring() {
    silent(
        "ring", [] { ring<ring_right><<<3, threads>>>(in, out); }, out, 3 * threads,
        [](int i) { return rounds * (threads - 1 - i % threads) + threads * rounds * (rounds - 1) / 2; });
    planted("group too new", [] { ring<group_too_new><<<1, threads>>>(in, out); },
            {{"bytes of a copy still in flight: read of 4 bytes", ring_read, ring_first}});
    planted("refilled early", [] { ring<refilled_early><<<1, threads>>>(in, out); },
            {{"write after read in byte", ring_read, ring_copy},
             {"bytes of a copy still in flight: read", ring_read, ring_copy}});
}

static void check_places() {
    silent(
        "16 bytes", [] { sixteen_bytes<place_right><<<1, 16>>>(in, out); }, out, threads,
        [](int i) { return i; });
    planted("two copies to one place", [] { sixteen_bytes<twice><<<1, 16>>>(in, out); },
            {{"bytes of a copy still in flight: cp.async, write of 16 bytes", place_second, place_copy}});
    planted("misaligned destination", [] { sixteen_bytes<not_aligned><<<1, 16>>>(in, out); },
            {{"misaligned address: cp.async, byte ", place_copy, 0}});
    planted("misaligned source", [] { sixteen_bytes<source_not_aligned><<<1, 16>>>(in, out); },
            {{"misaligned address: cp.async, read of 16 bytes", place_copy, 0}});
    // The last thread's 16 bytes are the first outside.
    planted("source out of bounds",
            [] { sixteen_bytes<source_outside><<<1, 16>>>(in + (rounds - 1) * threads, out); },
            {{"out of bounds: cp.async, read of 16 bytes, 0 bytes past the end of IN", place_copy, 0}});
    planted("destination out of bounds", [] { sixteen_bytes<outside><<<1, 16>>>(in, out); },
            {{"out of bounds: cp.async, write of 16 bytes, 0 bytes past the end of shared 'tile'", place_copy,
              0}});
    planted("20 of 16 bytes", [] { sixteen_bytes<too_many><<<1, 16>>>(in, out); },
            {{"cp.async: it writes 16 bytes, and of these 20 are said to be valid", place_copy, 0}});
    silent(
        "prefetch", [] { prefetched<<<1, threads>>>(in, rounds * threads, out); }, out, threads,
        [](int i) { return i; });
    planted("prefetch past the end", [] { prefetched<<<1, threads>>>(in, rounds * threads + 4, out); },
            {{"out of bounds: bulk prefetch of 1296 bytes, 0 bytes past the end of IN", prefetch, 0}});
    planted("prefetch of no multiple of 16 bytes", [] { prefetched<<<1, threads>>>(in, 5, out); },
            {{"bulk prefetch of 20 bytes, byte 0 of IN", prefetch, 0}});
    planted("prefetch of nothing", [] { prefetched<<<1, threads>>>(in, 0, out); },
            {{"bulk prefetch of 0 bytes", prefetch, 0}});
    for (int count = 0; count < 8; count++) {
        float *row;
        CHECK(cudaMalloc(&row, threads * sizeof *row) == cudaSuccess);
        CHECK(cudaMemcpy(row, in, threads * sizeof *row, cudaMemcpyDeviceToDevice) == cudaSuccess);
        simt_mark_guard(row + count, (size_t)(threads - count) * sizeof *row);
        silent(
            "zero fill", [=] { zero_fill<<<1, threads>>>(row, count, out); }, out, 3 * threads,
            [=](int i) { return i % threads < count ? i % threads : 0; });
        CHECK(cudaFree(row) == cudaSuccess);
    }
}

static void check_arrivals() {
    auto reversed = [](int i) { return i % 64 / 32 * 32 + 31 - i % 32; };
    silent(
        "arrive when copied", [] { arrive_when_copied<arrive_right><<<3, 64>>>(in, out); }, out, 3 * 64,
        reversed);
    planted("arrive before the copy", [] { arrive_when_copied<plain_arrive><<<1, 64>>>(in, out); },
            {{"bytes of a copy still in flight: read of 4 bytes", arrive_read0, arrive_first}});
    planted("arrive for the first copy only", [] { arrive_when_copied<too_few_copies><<<1, 64>>>(in, out); },
            {{"bytes of a copy still in flight: read of 4 bytes", arrive_read1, arrive_second}});
    planted("copies that never arrive", [] { arrive_when_copied<no_arrive><<<1, 64>>>(in, out); },
            {{"threads 32-63: mbarrier wait (parity 0) for byte 0 of shared 'full' (8 bytes) (phase 0, 32 of "
              "32 arrivals to come)",
              arrive_wait, 0}});
    silent(
        "store before the arrival", [] { store_after_arrive<true><<<3, 64>>>(in, out); }, out, 3 * 32,
        [](int i) { return i % 32 + 1; });
    planted("store after the arrival", [] { store_after_arrive<false><<<1, 64>>>(in, out); },
            {{"read after write in byte", late_store, late_read}});
}

// The list of races is cut off after 20 pairs; the count is not.
static void check_many() {
    simt_set_schedule(0);
    for (int pairs = 19; pairs <= 25; pairs++) {
        begin_capture();
        many_races<<<1, threads>>>(in, out, pairs);
        end_capture();
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(simt_take_races() == pairs);
        CHECK(simt_take_races() == 0);
        int printed = 0;
        for (const char *at = message; (at = strstr(at, "race in kernel many_races")) != nullptr; at++)
            printed++;
        CHECK(printed == (pairs < 20 ? pairs : 20));
        char more[64];
        snprintf(more, sizeof more, "more pairs of lines that race: %d\n", pairs - 20);
        CHECK(pairs <= 20 ? strstr(message, "more pairs") == nullptr : strstr(message, more) != nullptr);
        if (show_messages && pairs == 25) printf("---- many races\n%s", message);
    }
}

int main(int argc, char **) {
    source_name = "async_copies.cu";
    show_messages = argc > 1;
    float numbers[rounds * threads];
    for (int i = 0; i < rounds * threads; i++) numbers[i] = (float)i;
    CHECK(cudaMalloc(&in, sizeof numbers) == cudaSuccess && cudaMalloc(&out, 4096) == cudaSuccess);
    CHECK(cudaMemcpy(in, numbers, sizeof numbers, cudaMemcpyHostToDevice) == cudaSuccess);
    simt_name_memory(in, sizeof numbers, "IN");
    simt_name_memory(out, 4096, "OUT");
    simt_set_sanitizing(1);
    check_tile();
    check_ring();
    check_places();
    check_arrivals();
    check_many();
    return check_done();
}
