// async_mbarrier.cu - cpu backend only: planted bugs of kernels that wait at mbarriers, and of elect and
// setmaxnreg; the same kernels without them.
#include "planted.h"

#include "common/ptx.h"

// clang-format off
// Each access that a message must name has a line of its own; LINE_OF counts back to it.
#define LINE_OF(lines_above) (__LINE__ - (lines_above))

constexpr int rounds = 5;

enum bug {
    right, no_init, no_block_barrier, twice, count_too_big, count_zero, empty_one_too_few, full_only_once,
    reader_parity, producer_parity, producer_stays, no_full_wait, no_empty_wait, early_release,
    overwritten, read_as_memory, parity_two
};

// Warp 0 hands numbers to warp 1 through one tile and two mbarriers, several times over.
template <bug which> __global__ void hand_over(float *out) {
    __shared__ float tile[32];
    __shared__ uint64_t full, empty;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    uint32_t full_bar = shared_address(&full), empty_bar = shared_address(&empty);
    if (warp == 0) tile[lane] = -1;
    if (threadIdx.x == 0) {
        if (which != no_init)
            mbarrier_init(full_bar, which == count_too_big ? 33 : which == count_zero ? 0 : 32);
        mbarrier_init(empty_bar, 32);
    }
    if (which == twice && threadIdx.x == 1)
        mbarrier_init(full_bar, 32);
    if (which != no_block_barrier) __syncthreads();  // the mbarriers are there
    float sum = 0;
    for (int round = 0; round < rounds; round++) {
        uint32_t parity = (uint32_t)round % 2;
        if (warp == 0) {
            uint32_t before = which == producer_parity ? parity : which == producer_stays ? 1 : parity ^ 1;
            if (which != no_empty_wait)
                mbarrier_wait(empty_bar, before);
            tile[lane] = (float)round;
            if (which == overwritten && lane == 7)
                full = 0;
            if (which != full_only_once || round == 0) mbarrier_arrive(full_bar);
        } else {
            if (which != no_full_wait)
                mbarrier_wait(full_bar, which == parity_two ? 2 : which == reader_parity ? !parity : parity);
            if (which == early_release) mbarrier_arrive(empty_bar);
            sum += tile[31 - lane];
            if (which == read_as_memory && lane == 7)
                sum += (float)full;
            if (which == empty_one_too_few && lane == 31) continue;
            if (which != early_release) mbarrier_arrive(empty_bar);
        }
    }
    if (warp == 1) out[32 * blockIdx.x + lane] = sum;
}
constexpr int init_line = LINE_OF(30), second_init = LINE_OF(26), empty_wait = LINE_OF(18);
constexpr int tile_write = LINE_OF(18);
constexpr int bad_store = LINE_OF(17), full_arrive = LINE_OF(16), full_wait = LINE_OF(13);
constexpr int tile_read = LINE_OF(12), bad_read = LINE_OF(10);

// Two phases end without anybody waiting for the waiters of the first.
template <bool lapped> __global__ void two_phases(float *out) {
    __shared__ uint64_t full, seen;
    uint32_t bar = shared_address(&full), back = shared_address(&seen);
    if (threadIdx.x == 0) {
        mbarrier_init(bar, 1);
        mbarrier_init(back, 32);
    }
    __syncthreads();  // the mbarriers are there
    if (threadIdx.x == 0) {
        mbarrier_arrive(bar);
        if (!lapped) mbarrier_wait(back, 0);
        mbarrier_arrive(bar);
    } else if (threadIdx.x >= 32) {
        mbarrier_wait(bar, 0);
        if (!lapped) mbarrier_arrive(back);
        mbarrier_wait(bar, 1);
        out[32 * blockIdx.x + threadIdx.x % 32] = 1;
    }
}
constexpr int lapped_wait = LINE_OF(6);

// All lanes of warp 1 wait, and one of them lets the next phase begin: once all are back, or at once.
template <bool together> __global__ void one_for_all(float *out) {
    __shared__ uint64_t full, empty;
    uint32_t full_bar = shared_address(&full), empty_bar = shared_address(&empty);
    if (threadIdx.x == 0) {
        mbarrier_init(full_bar, 1);
        mbarrier_init(empty_bar, 1);
    }
    __syncthreads();  // the mbarriers are there
    for (uint32_t round = 0; round < 3; round++) {
        if (threadIdx.x == 0) {
            mbarrier_wait(empty_bar, ~round & 1);
            mbarrier_arrive(full_bar);
        } else if (threadIdx.x >= 32) {
            mbarrier_wait(full_bar, round & 1);
            if (together) __syncwarp();
            if (threadIdx.x == 32) mbarrier_arrive(empty_bar);
        }
    }
    if (threadIdx.x >= 32) out[32 * blockIdx.x + threadIdx.x % 32] = 1;
}
constexpr int next_phase = LINE_OF(9), others_wait = LINE_OF(7);

enum bytes_bug { bytes_right, bytes_polled, extra_arrival, bytes_overflow, too_small, too_large, forgotten };

// One bulk copy of 1024 bytes.
template <bytes_bug which> __global__ void bytes(const float *in, float *out) {
    __shared__ __align__(16) float tile[256];
    __shared__ uint64_t full;
    int t = (int)threadIdx.x;
    uint32_t bar = shared_address(&full);
    if (t == 0) mbarrier_init(bar, 1);
    if (t == 0) fence_mbarrier_init();
    __syncthreads();  // the mbarrier is there
    if (t == 0) {
        if (which == bytes_overflow)
            for (int i = 0; i < 1025; i++)
                mbarrier_expect_tx(bar, 1024);
        uint32_t announced = which == too_small ? 512 : which == too_large ? 2048 : 1024;
        if (which == forgotten)
            mbarrier_arrive(bar);
        else
            mbarrier_arrive_expect_tx(bar, announced);
        bulk_load(shared_address(tile), in, 1024, bar);
        if (which == extra_arrival)
            mbarrier_arrive(bar);
    }
    while (which == bytes_polled && !mbarrier_test(bar, 0)) {}
    mbarrier_wait(bar, 0);
    for (int i = t; i < 256; i += 64)
        out[256 * blockIdx.x + i] = tile[i];
}
constexpr int overflow_line = LINE_OF(15), bytes_load = LINE_OF(9), extra_arrive = LINE_OF(7);
constexpr int bytes_wait = LINE_OF(5);
constexpr int bytes_read = LINE_OF(4);

enum end_bug { end_right, still_waited, not_ended, used_afterwards };

// An mbarrier ends and its memory becomes something else.
template <end_bug which> __global__ void end_of_life(float *out) {
    __shared__ uint64_t memory;
    int t = (int)threadIdx.x;
    uint32_t bar = shared_address(&memory);
    if (t == 0) mbarrier_init(bar, which == still_waited ? 33 : 32);
    __syncthreads();  // the mbarrier is there
    mbarrier_arrive(bar);
    if (which != still_waited || t > 0) mbarrier_wait(bar, 0);
    if (which != still_waited) __syncthreads();  // nobody uses it any more
    if (t == 0 && which != not_ended)
        mbarrier_inval(bar);
    __syncthreads();  // it is no mbarrier any more
    if (which == used_afterwards)
        mbarrier_arrive(bar);
    if (t == 0)
        memory = 5;
    __syncthreads();  // memory is written
    out[32 * blockIdx.x + t] = (float)memory;
}
constexpr int inval_line = LINE_OF(9), after_line = LINE_OF(6), memory_line = LINE_OF(4);

// One lane polls while it does other work.
__global__ void polling(float *out) {
    __shared__ float tile[32];
    __shared__ uint64_t full;
    int lane = (int)threadIdx.x % 32, polls = 0;
    uint32_t bar = shared_address(&full);
    if (threadIdx.x == 0) mbarrier_init(bar, 32);
    __syncthreads();  // the mbarrier is there
    if (threadIdx.x < 32) {
        tile[lane] = (float)lane;
        mbarrier_arrive(bar);
    } else {
        while (!mbarrier_test(bar, 0)) polls++;
        out[32 * blockIdx.x + lane] = tile[31 - lane];
    }
}

// ---- elect and setmaxnreg ----

enum elect_bug { elect_right, half_a_warp, divergent };

template <elect_bug which> __global__ void elected(float *out) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();  // count is 0
    if (which == divergent && threadIdx.x % 32 == 5)
        __syncwarp();
    if (which != half_a_warp || threadIdx.x % 32 >= 16)
        if (elect_one()) atomicAdd(&count, 1);
    __syncthreads();  // all have counted
    out[64 * blockIdx.x + threadIdx.x] = (float)count;
}
constexpr int elect_syncwarp = LINE_OF(6), elect_line = LINE_OF(4), elect_barrier = LINE_OF(3);

// Three warpgroups share 64 K registers.
template <bool too_many, int producer> __global__ void __launch_bounds__(384, 1) shares(float *out) {
    if ((int)threadIdx.x / 128 == producer)
        setmaxnreg_dec<40>();
    else
        setmaxnreg_inc<too_many ? 240 : 232>();
    out[threadIdx.x] = 1;
}
constexpr int dec_line = LINE_OF(5), inc_line = LINE_OF(3);
// clang-format on

static float *in, *out;

template <bug which> static void check_hand_over(const char *name, std::initializer_list<symptom> symptoms) {
    planted(
        name, [] { hand_over<which><<<1, 64>>>(out); }, symptoms);
}

static void check_hand_overs() {
    silent(
        "hand over", [] { hand_over<right><<<3, 64>>>(out); }, out, 3 * 32,
        [](int) { return rounds * (rounds - 1) / 2; });
    check_hand_over<no_init>("not initialised", {{"no mbarrier is alive there", full_arrive, 0},
                                                 {"no mbarrier is alive there", full_wait, 0}});
    check_hand_over<no_block_barrier>(
        "no barrier after the init",
        {{"race in kernel hand_over: no barrier between an mbarrier's init and its use", init_line,
          full_wait},
         {"race in kernel hand_over: no barrier between an mbarrier's init and its use", init_line,
          full_arrive},
         {"no mbarrier is alive there", full_wait, 0},
         {"no mbarrier is alive there", empty_wait, 0}});
    check_hand_over<twice>(
        "initialised twice",
        {{"mbarrier misuse: init on byte 0 of shared 'full' (8 bytes): thread 0 has initialised it already",
          second_init, init_line},
         {"mbarrier misuse: init on byte 0 of shared 'full' (8 bytes): thread 1 has initialised it already",
          init_line, second_init}});
    check_hand_over<count_zero>("count 0", {{"count 0: a phase takes 1 to 1048575 arrivals", init_line, 0}});
    check_hand_over<count_too_big>("an arrival too few",
                                   {{"threads 32-63: mbarrier wait (parity 0) for byte 0 of shared 'full' (8 "
                                     "bytes) (phase 0, 1 of 33 arrivals to come)",
                                     full_wait, empty_wait}});
    check_hand_over<empty_one_too_few>("a consumer that does not arrive",
                                       {{"mbarrier wait (parity 0) for byte 0 of shared 'empty' (8 bytes) "
                                         "(phase 0, 1 of 32 arrivals to come)",
                                         empty_wait, full_wait}});
    check_hand_over<full_only_once>("a producer that does not arrive",
                                    {{"mbarrier wait (parity 1) for byte 0 of shared 'full' (8 bytes) (phase "
                                      "1, 32 of 32 arrivals to come)",
                                      full_wait, 0}});
    const symptom consumer_ahead = {"race in kernel hand_over", tile_write, tile_read};
    const symptom lapped = {"the end of a phase", full_arrive, full_wait};
    const symptom consumer_stuck = {"mbarrier wait (parity 1) for byte 0 of shared 'full' (8 bytes) (phase 1",
                                    full_wait, empty_wait};
    check_hand_over<reader_parity>(
        "the consumer's parity is wrong",
        {consumer_ahead,
         consumer_stuck,
         {"mbarrier wait (parity 0) for byte 0 of shared 'full' (8 bytes) (phase 0", full_wait, empty_wait}});
    // It may also read all rounds at once and leave the producer behind.
    check_hand_over<no_full_wait>(
        "the consumer does not wait",
        {consumer_ahead,
         {"mbarrier wait (parity 1) for byte 0 of shared 'empty' (8 bytes) (phase 5", empty_wait, 0},
         {"the end of a phase on byte 0 of shared 'empty'", empty_wait, 0}});
    check_hand_over<producer_parity>(
        "the producer's parity is wrong",
        {{"mbarrier wait (parity 0) for byte 0 of shared 'empty'", empty_wait, full_wait}});
    // It may also run through all rounds before the consumer comes.
    const symptom left_behind = {"threads 0-31: returned\nsimt:     threads 32-63: mbarrier wait (parity 1) "
                                 "for byte 0 of shared 'full'",
                                 full_wait, 0};
    check_hand_over<producer_stays>("the producer's parity never changes",
                                    {consumer_ahead, lapped, left_behind});
    check_hand_over<no_empty_wait>("the producer does not wait", {consumer_ahead, lapped, left_behind});
    check_hand_over<early_release>("released before it is read", {consumer_ahead});
    check_hand_over<overwritten>(
        "a store over an mbarrier",
        {{"memory of an mbarrier: write of 8 bytes, byte 0 of shared 'full'", bad_store, init_line}});
    check_hand_over<read_as_memory>(
        "a load from an mbarrier",
        {{"memory of an mbarrier: read of 8 bytes, byte 0 of shared 'full'", bad_read, init_line}});
    check_hand_over<parity_two>("parity 2", {{"parity 2: it is 0 or 1", full_wait, 0}});
    silent(
        "two phases", [] { two_phases<false><<<3, 64>>>(out); }, out, 3 * 32, [](int) { return 1; });
    planted("a lapped waiter", [] { two_phases<true><<<1, 64>>>(out); },
            {{"has not come back yet from its wait", lapped_wait, 0},
             {"mbarrier wait (parity 0) for byte 0 of shared 'full' (8 bytes) (phase 2", lapped_wait, 0}});
    silent(
        "one arrives for all", [] { one_for_all<true><<<3, 64>>>(out); }, out, 3 * 32, [](int) { return 1; });
    planted("one arrives before all are back", [] { one_for_all<false><<<1, 64>>>(out); },
            {{"has not come back yet from its wait", others_wait, 0},
             {"an mbarrier's next phase may end before a thread is back", next_phase, others_wait}});
    silent(
        "polling", [] { polling<<<3, 64>>>(out); }, out, 3 * 32, [](int i) { return 31 - i % 32; });
}

static void check_bytes() {
    auto number = [](int i) { return i % 256; };
    silent(
        "bytes", [] { bytes<bytes_right><<<3, 64>>>(in, out); }, out, 3 * 256, number);
    silent(
        "bytes, polled", [] { bytes<bytes_polled><<<3, 64>>>(in, out); }, out, 3 * 256, number);
    planted("one arrival too many", [] { bytes<extra_arrival><<<1, 64>>>(in, out); },
            {{"mbarrier misuse: arrive on byte 0 of shared 'full' (8 bytes): all arrivals of this phase have "
              "come",
              extra_arrive, 0}});
    planted("too many bytes", [] { bytes<bytes_overflow><<<1, 64>>>(in, out); },
            {{"a phase can wait for at most 1048575 bytes", overflow_line, 0}});
    planted("too few bytes announced", [] { bytes<too_small><<<1, 64>>>(in, out); },
            {{"threads 0-63: mbarrier wait (parity 0) for byte 0 of shared 'full' (8 bytes) (phase 0, 0 of 1 "
              "arrivals to come, "
              "512 bytes landed that nobody announced",
              bytes_wait, 0}});
    planted("too many bytes announced", [] { bytes<too_large><<<1, 64>>>(in, out); },
            {{"threads 0-63: mbarrier wait (parity 0) for byte 0 of shared 'full' (8 bytes) (phase 0, 0 of 1 "
              "arrivals to come, "
              "1024 announced bytes to land",
              bytes_wait, 0}});
    planted("no bytes announced", [] { bytes<forgotten><<<1, 64>>>(in, out); },
            {{"bytes of a copy still in flight: read of 4 bytes", bytes_read, bytes_load}});
}

// Warp 0 waits for a copy and then arrives at `done`, for which warp 1 polls: the poller must not keep the
// copy from landing.
__global__ void polled(const float *from, float *to) {
    __shared__ alignas(16) float tile[32];
    __shared__ uint64_t full, done;
    uint32_t full_bar = shared_address(&full), done_bar = shared_address(&done);
    int t = (int)threadIdx.x;
    if (t == 0) {
        mbarrier_init(full_bar, 1);
        mbarrier_init(done_bar, 32);
        fence_mbarrier_init();
    }
    __syncthreads();  // the mbarriers are there
    if (t < 32) {
        if (t == 0) {
            mbarrier_arrive_expect_tx(full_bar, sizeof tile);
            bulk_load(shared_address(tile), from, sizeof tile, full_bar);
        }
        mbarrier_wait(full_bar, 0);
        to[t] = tile[t];
        mbarrier_arrive(done_bar);
    } else {
        while (!mbarrier_test(done_bar, 0)) {
        }
        to[t] = tile[63 - t];
    }
}

static void check_ends() {
    silent(
        "polled", [] { polled<<<1, 64>>>(in, out); }, out, 64, [](int i) { return i < 32 ? i : 63 - i; });
    silent(
        "end of life", [] { end_of_life<end_right><<<3, 32>>>(out); }, out, 3 * 32, [](int) { return 5; });
    planted("inval while threads wait", [] { end_of_life<still_waited><<<1, 32>>>(out); },
            {{"inval on byte 0 of shared 'memory' (8 bytes): threads still wait for it", inval_line, 0},
             {"no mbarrier is alive there", 0, 0}});
    planted("no inval", [] { end_of_life<not_ended><<<1, 32>>>(out); },
            {{"memory of an mbarrier: write of 8 bytes", memory_line, 0}});
    planted("arrive after inval", [] { end_of_life<used_afterwards><<<1, 32>>>(out); },
            {{"no mbarrier is alive there", after_line, 0}});
}

static void check_warps() {
    silent(
        "elect", [] { elected<elect_right><<<3, 64>>>(out); }, out, 3 * 64, [](int) { return 2; });
    planted("elect in half a warp", [] { elected<half_a_warp><<<1, 64>>>(out); },
            {{"elect.sync (mask 0xffffffff)", elect_line, elect_barrier}});
    planted("elect in a divergent warp", [] { elected<divergent><<<1, 64>>>(out); },
            {{"divergent warp", elect_line, elect_syncwarp}});
    silent(
        "register shares", [] { shares<false, 0><<<1, 384>>>(out); }, out, 384, [](int) { return 1; });
    silent(
        "register shares again", [] { shares<false, 2><<<1, 384>>>(out); }, out, 384, [](int) { return 1; });
    planted("too many registers", [] { shares<true, 0><<<1, 384>>>(out); },
            {{"setmaxnreg", inc_line, 0}, {"setmaxnreg", dec_line, 0}});
}

int main(int argc, char **) {
    source_name = "async_mbarrier.cu";
    show_messages = argc > 1;
    float numbers[256];
    for (int i = 0; i < 256; i++) numbers[i] = (float)i;
    CHECK(cudaMalloc(&in, sizeof numbers) == cudaSuccess && cudaMalloc(&out, 4096) == cudaSuccess);
    CHECK(cudaMemcpy(in, numbers, sizeof numbers, cudaMemcpyHostToDevice) == cudaSuccess);
    simt_name_memory(in, sizeof numbers, "IN");
    simt_name_memory(out, 4096, "OUT");
    simt_set_sanitizing(1);
    check_hand_overs();
    check_bytes();
    check_ends();
    check_warps();
    return check_done();
}
