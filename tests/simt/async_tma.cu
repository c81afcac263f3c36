// async_tma.cu - cpu backend only: planted bugs of kernels that move tiles with TMA, and the same kernels
// without them.
#include "planted.h"

#include "common/ptx.h"
#include "common/simt/tensor_map.h"

// clang-format off
// Each access that a message must name has a line of its own; LINE_OF counts back to it.
#define LINE_OF(lines_above) (__LINE__ - (lines_above))

// A matrix of [48][32] floats in boxes of 8 rows.
constexpr int columns = 32, box_rows = 8, tiles = 6, box_floats = box_rows * columns;
constexpr int box_bytes = 4 * box_floats;

enum load_bug {
    load_right, load_no_wait, load_unused, load_parity, load_no_expect, load_no_fence, load_twice,
    load_misaligned, load_outside, load_rank
};

// One box, into a tile that ordinary stores wrote before.
template <load_bug bug> __global__ void load_box(const __grid_constant__ CUtensorMap map, float *out) {
    __shared__ __align__(128) float tile[box_floats];
    __shared__ uint64_t full;
    int t = (int)threadIdx.x;
    uint32_t bar = shared_address(&full), to = shared_address(tile);
    if (t == 0) {
        mbarrier_init(bar, 1);
        fence_mbarrier_init();
    }
    for (int i = t; i < box_floats; i += 64)
        tile[i] = -1;
    if (bug != load_no_fence) fence_proxy_async();
    __syncthreads();  // the mbarrier is there, the stores to the tile are done
    if (bug == load_misaligned) to += 64;
    if (bug == load_outside) to += 128;
    if (t == 0) {
        if (bug == load_no_expect)
            mbarrier_arrive(bar);
        else
            mbarrier_arrive_expect_tx(bar, box_bytes);
        if (bug == load_rank)
            tma_load_3d(to, &map, bar, 0, 0, 0);
        tma_load_2d(to, &map, bar, 0, box_rows * (int)blockIdx.x);
        if (bug == load_twice)
            tma_load_2d(to, &map, bar, 0, 0);
    }
    if (bug == load_unused) return;
    if (bug == load_no_wait)
        __syncthreads();
    else
        mbarrier_wait(bar, bug == load_parity ? 1 : 0);
    for (int i = t; i < box_floats; i += 64)
        out[box_floats * blockIdx.x + i] = tile[i];
}
constexpr int load_store = LINE_OF(24), load_rank_issue = LINE_OF(13), load_issue = LINE_OF(12);
constexpr int load_second = LINE_OF(11), load_read = LINE_OF(3);

template <bool fenced> __global__ void init_fence(const __grid_constant__ CUtensorMap map, float *out) {
    __shared__ __align__(128) float tile[box_floats];
    __shared__ uint64_t full;
    uint32_t bar = shared_address(&full);
    if (threadIdx.x == 0)
        mbarrier_init(bar, 1);
    if (threadIdx.x == 0 && fenced) fence_mbarrier_init();
    __syncthreads();  // the mbarrier is there
    if (threadIdx.x == 32) {
        mbarrier_arrive_expect_tx(bar, box_bytes);
        tma_load_2d(shared_address(tile), &map, bar, 0, 0);
    }
    mbarrier_wait(bar, 0);
    out[64 * blockIdx.x + threadIdx.x] = tile[threadIdx.x];
}
constexpr int fence_init = LINE_OF(10), fence_load = LINE_OF(5);

enum store_bug {
    store_right, store_no_fence, store_no_barrier, store_no_commit, store_no_wait, store_wrong_waiter,
    store_early_write, store_at_end, store_same_box
};

// Two boxes through one tile.
template <store_bug bug> __global__ void store_boxes(const __grid_constant__ CUtensorMap map) {
    __shared__ __align__(128) float tile[box_floats];
    int t = (int)threadIdx.x, block = bug == store_same_box ? 0 : (int)blockIdx.x;
    for (int round = 0; round < 2; round++) {
        for (int i = t; i < box_floats; i += 64)
            tile[i] = (float)(i + round);
        if (bug != store_no_fence) fence_proxy_async();
        if (bug != store_no_barrier) __syncthreads();  // the tile is whole
        if (t == 0) {
            tma_store_2d(&map, shared_address(tile), 0, box_rows * (2 * block + round));
            if (bug != store_no_commit) bulk_commit();
        }
        bool waits = bug == store_at_end ? round == 0 : bug != store_no_wait;
        if (waits && t == (bug == store_wrong_waiter ? 1 : 0)) bulk_wait_read<0>();
        if (bug != store_early_write) __syncthreads();  // the tile was read
    }
}
constexpr int store_write = LINE_OF(12), store_issue = LINE_OF(8);

// A bulk store, and then an ordinary one to the same place: which of them is the last?
template <bool waits> __global__ void stored_twice(float *out) {
    __shared__ __align__(16) float tile[64];
    tile[threadIdx.x] = 1;
    fence_proxy_async();
    __syncthreads();  // the tile is whole
    if (threadIdx.x > 0) return;
    bulk_store(out + 64 * blockIdx.x, shared_address(tile), sizeof tile);
    bulk_commit();
    if (waits)
        bulk_wait<0>();
    else
        bulk_wait_read<0>();
    out[64 * blockIdx.x] = 2;
}

enum sum_bug { sum_right, sum_unwritten, sum_outside };

// Each block adds to the same numbers.
template <sum_bug bug> __global__ void add_up(float *out) {
    __shared__ __align__(128) float tile[box_floats];
    for (int i = (int)threadIdx.x; i < box_floats; i += 64)
        tile[i] = (float)i;
    fence_proxy_async();
    __syncthreads();  // the tile is whole
    if (threadIdx.x > 0) return;
    bulk_reduce_add_f32(out + (bug == sum_outside ? tiles * box_floats - 4 : 0), shared_address(tile), box_bytes);
    bulk_commit();
    bulk_wait<0>();
}
constexpr int sum_issue = LINE_OF(4);

enum ring_bug {
    ring_right, released_early, released_by_lane, released_by_one, full_not_waited, full_parity, full_stays,
    empty_not_waited, empty_parity, empty_stays, announced_once
};

// Warp 0 loads tile after tile into two stages; warps 1 and 2 both read each of them. `elected`: all lanes of
// the producer wait and one loads; otherwise only lane 0 is there.
template <ring_bug bug, bool elected>
__global__ void ring(const __grid_constant__ CUtensorMap map, float *out) {
    __shared__ __align__(128) float stage[2][box_floats];
    __shared__ uint64_t full[2], empty[2];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; s++) {
            mbarrier_init(shared_address(&full[s]), 1);
            mbarrier_init(shared_address(&empty[s]), bug == released_by_one ? 1 : 2);
        }
        fence_mbarrier_init();
    }
    __syncthreads();  // the mbarriers are there
    float sum = 0;
    for (int i = 0; i < tiles; i++) {
        uint32_t parity = (uint32_t)i / 2 % 2;
        uint32_t full_bar = shared_address(&full[i % 2]), empty_bar = shared_address(&empty[i % 2]);
        if (warp == 0) {
            if (!elected && lane > 0) break;
            if (bug != empty_not_waited)
                mbarrier_wait(empty_bar, bug == empty_parity ? parity : bug == empty_stays ? 1 : !parity);
            if (elected && !elect_one()) continue;
            if (bug != announced_once || i < 2)
                mbarrier_arrive_expect_tx(full_bar, box_bytes);
            tma_load_2d(shared_address(stage[i % 2]), &map, full_bar, 0, box_rows * i);
        } else {
            if (bug != full_not_waited)
                mbarrier_wait(full_bar, bug == full_parity ? !parity : bug == full_stays ? 0 : parity);
            if (bug == released_early && lane == 0) mbarrier_arrive(empty_bar);
            for (int row = 0; row < box_rows; row++)
                sum += stage[i % 2][columns * row + lane];
            if (bug != released_by_lane) __syncwarp();  // the whole warp has read
            if (bug != released_early && lane == 0) mbarrier_arrive(empty_bar);
        }
    }
    if (warp > 0) out[64 * blockIdx.x + 32 * (warp - 1) + lane] = sum;
}
constexpr int empty_wait = LINE_OF(17), ring_announce = LINE_OF(14), ring_load = LINE_OF(13);
constexpr int full_wait = LINE_OF(11), ring_read = LINE_OF(8), ring_release = LINE_OF(6);
// clang-format on

constexpr int blocks = 8;  // that add to the same numbers
static CUtensorMap in_map, out_map;
static float *in, *out;

static void make_map(CUtensorMap *map, float *data) {
    const cuuint64_t size[2] = {columns, box_rows * tiles}, stride[1] = {columns * sizeof(float)};
    const cuuint32_t box[2] = {columns, box_rows}, step[2] = {1, 1};
    std::string why;
    CUresult result = simt::encode_tiled(
        map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, data, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, why);
    if (!CHECK(result == CUDA_SUCCESS)) fprintf(stderr, "  %s\n", why.c_str());
}

template <load_bug bug> static void check_load(const char *name, std::initializer_list<symptom> symptoms) {
    planted(
        name, [] { load_box<bug><<<1, 64>>>(in_map, out); }, symptoms);
}

static void check_loads() {
    silent(
        "load", [] { load_box<load_right><<<tiles, 64>>>(in_map, out); }, out, tiles * box_floats,
        [](int i) { return i; });
    const symptom in_flight = {"bytes of a copy still in flight: read of 4 bytes", load_read, load_issue};
    check_load<load_no_wait>("no wait for the load", {in_flight});
    check_load<load_no_expect>("no bytes announced", {in_flight});
    check_load<load_parity>("wrong parity", {in_flight, {"write after read in byte", load_issue, load_read}});
    check_load<load_unused>("load that nobody waits for",
                            {{"the block ends while the TMA load issued at", load_issue, 0}});
    check_load<load_no_fence>(
        "load over ordinary stores without a fence",
        {{"missing fence_proxy_async: ordinary write, then a copy over it", load_store, load_issue}});
    check_load<load_twice>(
        "two loads to one place",
        {{"bytes of a copy still in flight: TMA load, write of 16 bytes", load_second, load_issue}});
    check_load<load_misaligned>("misaligned box",
                                {{"misaligned address: TMA load, byte 64 of shared 'tile'", load_issue, 0}});
    check_load<load_outside>(
        "box past the end of the tile",
        {{"out of bounds: TMA load, write of 16 bytes, 0 bytes past the end of shared 'tile'", load_issue,
          0}});
    check_load<load_rank>("wrong number of coordinates",
                          {{"a tensor map of rank 2 is used with 3 coordinates", load_rank_issue, 0}});
    silent(
        "mbarrier fence", [] { init_fence<true><<<3, 64>>>(in_map, out); }, out, 3 * 64,
        [](int i) { return i % 64; });
    planted("no mbarrier fence", [] { init_fence<false><<<1, 64>>>(in_map, out); },
            {{"missing fence_mbarrier_init between an mbarrier's init and a copy", fence_init, fence_load}});
}

template <store_bug bug> static void check_store(const char *name, std::initializer_list<symptom> symptoms) {
    planted(
        name, [] { store_boxes<bug><<<1, 64>>>(out_map); }, symptoms);
}

static void check_stores() {
    silent(
        "store", [] { store_boxes<store_right><<<tiles / 2, 64>>>(out_map); }, out, tiles * box_floats,
        [](int i) { return i % box_floats + i / box_floats % 2; });
    const symptom overwritten = {"memory that an operation in flight still reads: write of 4 bytes",
                                 store_write, store_issue};
    const symptom race = {"race in kernel store_boxes", store_write, store_issue};
    check_store<store_no_fence>(
        "store without a fence",
        {{"missing fence_proxy_async: ordinary write, then a read by TMA", store_write, store_issue}});
    check_store<store_no_barrier>(
        "store before all have written",
        {race, overwritten, {"unwritten memory: TMA store, read of 16 bytes", store_issue, 0}});
    check_store<store_no_commit>("store that is not committed", {overwritten});
    check_store<store_no_wait>("source overwritten", {overwritten});
    check_store<store_wrong_waiter>("another thread waits for the store", {overwritten});
    check_store<store_early_write>("source overwritten by those that do not wait", {race, overwritten});
    planted("two blocks store to one place", [] { store_boxes<store_same_box><<<2, 64>>>(out_map); },
            {{"write after write between blocks in byte", store_issue, 0}});
    check_store<store_at_end>("store that nobody waits for",
                              {{"the block ends while the TMA store issued at", store_issue, 0}});
}

template <sum_bug bug> static void check_sum(const char *name, std::initializer_list<symptom> symptoms) {
    planted(
        name,
        [] {
            CHECK(cudaMemset(out, 0, box_bytes) == cudaSuccess);
            if (bug == sum_unwritten) simt_mark_unwritten(out, box_bytes);
            add_up<bug><<<blocks, 64>>>(out);
        },
        symptoms);
}

// Of several blocks, whatever becomes of the first: the others must not wait for it.
static void check_sums() {
    silent(
        "stored twice", [] { stored_twice<true><<<3, 64>>>(out); }, out, 3 * 64,
        [](int i) { return i % 64 ? 1 : 2; });
    // A store that has left shared memory may still be on its way.
    silent(
        "stored twice, one late", [] { stored_twice<false><<<3, 64>>>(out); }, out, 3 * 64,
        [](int) { return 1; });
    silent(
        "sum",
        [] {
            CHECK(cudaMemset(out, 0, box_bytes) == cudaSuccess);
            add_up<sum_right><<<blocks, 64>>>(out);
        },
        out, box_floats, [](int i) { return blocks * i; });
    check_sum<sum_unwritten>("sum of nothing",
                             {{"unwritten memory: bulk reduction, read of 16 bytes", sum_issue, 0}});
    check_sum<sum_outside>("sum past the end",
                           {{"out of bounds: bulk reduction, read of 16 bytes", sum_issue, 0}});
}

template <ring_bug bug> static void check_ring(const char *name, std::initializer_list<symptom> symptoms) {
    planted(
        name, [] { ring<bug, false><<<1, 96>>>(in_map, out); }, symptoms);
}

static void check_rings() {
    auto sum = [](int i) {
        return tiles * box_rows * (i % 32) + columns * (tiles * box_rows) * (tiles * box_rows - 1) / 2;
    };
    silent(
        "ring", [] { ring<ring_right, false><<<3, 96>>>(in_map, out); }, out, 3 * 64, sum);
    silent(
        "ring of a whole warp", [] { ring<ring_right, true><<<3, 96>>>(in_map, out); }, out, 3 * 64, sum);
    const symptom in_flight = {"bytes of a copy still in flight: read of 4 bytes", ring_read, ring_load};
    const symptom race = {"race in kernel ring", ring_read, ring_load};
    const symptom lapped = {"the end of a phase on byte", ring_release, empty_wait};
    const symptom refilled = {"all arrivals of this phase have come", ring_announce, 0};
    check_ring<released_early>("released before it is read", {race, in_flight});
    check_ring<released_by_lane>("released before the whole warp has read", {race, in_flight});
    check_ring<released_by_one>("released by the first of two readers", {race, in_flight, lapped});
    check_ring<full_not_waited>("readers that do not wait",
                                {race, in_flight, {"unwritten memory: read", ring_read, 0}});
    check_ring<full_parity>("readers with the wrong parity",
                            {race, in_flight, {"unwritten memory: read", ring_read, 0}});
    check_ring<full_stays>("readers whose parity never changes", {race, in_flight});
    check_ring<empty_not_waited>("a producer that does not wait", {race, in_flight, refilled});
    check_ring<empty_parity>(
        "a producer with the wrong parity",
        {{"mbarrier wait (parity 0) for byte 0 of shared 'empty'", empty_wait, full_wait}});
    check_ring<empty_stays>("a producer whose parity never changes", {race, in_flight, refilled});
    check_ring<announced_once>(
        "bytes announced in the first round only",
        {{"(phase 1, 1 of 1 arrivals to come, 1024 bytes landed that nobody announced (expect_tx))",
          full_wait, 0}});
}

int main(int argc, char **) {
    source_name = "async_tma.cu";
    show_messages = argc > 1;
    static float numbers[tiles * box_floats];
    for (int i = 0; i < tiles * box_floats; i++) numbers[i] = (float)i;
    CHECK(cudaMalloc(&in, sizeof numbers) == cudaSuccess && cudaMalloc(&out, sizeof numbers) == cudaSuccess);
    CHECK(cudaMemcpy(in, numbers, sizeof numbers, cudaMemcpyHostToDevice) == cudaSuccess);
    simt_name_memory(in, sizeof numbers, "IN");
    simt_name_memory(out, sizeof numbers, "OUT");
    make_map(&in_map, in);
    make_map(&out_map, out);
    simt_set_sanitizing(1);
    check_loads();
    check_stores();
    check_sums();
    check_rings();
    return check_done();
}
