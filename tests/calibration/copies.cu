// copies.cu - asynchronous copies: cp.async, bulk copies and TMA. What they move, in sectors of global memory
// and wavefronts of shared memory, is compared with Nsight Compute's. The rules of global_memory.cu hold here
// too. sm_90.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "calibration.h"
#include "common/ptx.h"
#include "common/tensor_map.h"

#define LANE ((int)threadIdx.x)

constexpr int TILE_BYTES = 16384;

// ---- cp.async ----

template <int BYTES> static __device__ void copy_lane(uint32_t to, const void *from) {
    if constexpr (BYTES == 4) cp_async_4(to, from);
    if constexpr (BYTES == 8) cp_async_8(to, from);
    if constexpr (BYTES == 16) cp_async_16(to, from);
}

template <int BYTES> static __device__ void copy_lane(uint32_t to, const void *from, int valid) {
    if constexpr (BYTES == 4) cp_async_4(to, from, valid);
    if constexpr (BYTES == 8) cp_async_8(to, from, valid);
    if constexpr (BYTES == 16) cp_async_16(to, from, valid);
}

static __device__ void finish_copies() {
    cp_async_commit();
    cp_async_wait<0>();
}

// The lanes in `mask` copy BYTES each, from `from` bytes apart, to `to` bytes apart, and read 4 of them.
template <int BYTES>
__global__ void copy_lanes(const char *in, unsigned mask, int from, int shift, int to, float *out) {
    __shared__ alignas(1024) char tile_smem[TILE_BYTES];
    if (mask >> LANE & 1) {
        copy_lane<BYTES>(shared_address(tile_smem) + (uint32_t)(LANE * to), in + LANE * from + shift);
        finish_copies();
        out[LANE] = *(const float *)&tile_smem[LANE * to];
    }
}

// Lanes from `end` on fill with zeros, as the rows beyond a tensor's end: all or nothing.
template <int BYTES> __global__ void copy_rows(const char *in, int end, int to, float *out) {
    __shared__ alignas(1024) char tile_smem[TILE_BYTES];
    copy_lane<BYTES>(shared_address(tile_smem) + (uint32_t)(LANE * to), in + LANE * BYTES,
                     LANE < end ? BYTES : 0);
    finish_copies();
    out[LANE] = *(const float *)&tile_smem[LANE * to];
}

// Each lane copies `valid` bytes of BYTES.
template <int BYTES> __global__ void copy_part(const char *in, int valid, float *out) {
    __shared__ alignas(1024) char tile_smem[TILE_BYTES];
    copy_lane<BYTES>(shared_address(tile_smem) + (uint32_t)(LANE * BYTES), in + LANE * BYTES, valid);
    finish_copies();
    out[LANE] = *(const float *)&tile_smem[LANE * BYTES];
}

// A tile of 64 rows of 128 bytes by 128 threads, eight lanes a row: `row` bytes apart in shared memory, the
// chunks swizzled by `swizzle`.
__global__ void copy_tile(const char *in, int pitch, int row, int swizzle, float *out) {
    __shared__ alignas(1024) char tile_smem[TILE_BYTES];
    int chunk = LANE & 7;
#pragma unroll 1
    for (int r = LANE >> 3; r < 64; r += 16)
        cp_async_16(shared_address(tile_smem) + (uint32_t)(r * row + ((chunk ^ (r & swizzle)) << 4)),
                    in + r * pitch + chunk * 16);
    finish_copies();
    __syncthreads();  // the tile is whole
    out[LANE] = *(const float *)&tile_smem[(LANE >> 3) * row + chunk * 16];
}

// ---- bulk copies and TMA ----

static __device__ void fill(float *tile_smem, const float *in) {
    float value = in[LANE];
#pragma unroll 1
    for (int i = LANE; i < TILE_BYTES / 4; i += 32) tile_smem[i] = value;
    fence_proxy_async();
    __syncthreads();  // the tile is whole and visible to the copy
}

static __device__ uint32_t begin_load(uint64_t *bar_smem, uint32_t bytes) {
    uint32_t bar = shared_address(bar_smem);
    if (LANE == 0) {
        mbarrier_init(bar, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(bar, bytes);
    }
    __syncthreads();  // the mbarrier exists
    return bar;
}

__global__ void load_bulk(const char *in, uint32_t bytes, uint32_t to, float *out) {
    __shared__ alignas(1024) char tile_smem[TILE_BYTES];
    __shared__ uint64_t bar_smem;
    uint32_t bar = begin_load(&bar_smem, bytes);
    if (LANE == 0) bulk_load(shared_address(tile_smem) + to, in, bytes, bar);
    mbarrier_wait(bar, 0);
    out[LANE] = *(const float *)&tile_smem[to + (uint32_t)LANE * 4 % bytes];
}

__global__ void store_bulk(const float *in, uint32_t bytes, uint32_t from, char *out) {
    __shared__ alignas(1024) float tile_smem[TILE_BYTES / 4];
    fill(tile_smem, in);
    if (LANE == 0) {
        bulk_store(out, shared_address(tile_smem) + from, bytes);
        bulk_commit();
        bulk_wait<0>();
    }
}

__global__ void add_bulk(const float *in, uint32_t bytes, uint32_t from, float *out) {
    __shared__ alignas(1024) float tile_smem[TILE_BYTES / 4];
    fill(tile_smem, in);
    if (LANE == 0) {
        bulk_reduce_add_f32(out, shared_address(tile_smem) + from, bytes);
        bulk_commit();
        bulk_wait<0>();
    }
}

__global__ void load_box(const __grid_constant__ CUtensorMap map, uint32_t bytes, int x, int y, float *out) {
    __shared__ alignas(1024) char tile_smem[TILE_BYTES];
    __shared__ uint64_t bar_smem;
    uint32_t bar = begin_load(&bar_smem, bytes);
    if (LANE == 0) tma_load_2d(shared_address(tile_smem), &map, bar, x, y);
    mbarrier_wait(bar, 0);
    out[LANE] = *(const float *)&tile_smem[LANE * 4 % (int)bytes];
}

__global__ void store_box(const __grid_constant__ CUtensorMap map, const float *in, int x, int y) {
    __shared__ alignas(1024) float tile_smem[TILE_BYTES / 4];
    fill(tile_smem, in);
    if (LANE == 0) {
        tma_store_2d(&map, shared_address(tile_smem), x, y);
        bulk_commit();
        bulk_wait<0>();
    }
}

__global__ void add_box(const __grid_constant__ CUtensorMap map, const float *in, int x, int y) {
    __shared__ alignas(1024) float tile_smem[TILE_BYTES / 4];
    fill(tile_smem, in);
    if (LANE == 0) {
        tma_reduce_add_2d(&map, shared_address(tile_smem), x, y);
        bulk_commit();
        bulk_wait<0>();
    }
}

// ---- launches ----

template <int BYTES> static void run_copy_lanes(struct buffers b) {
    const char *in = (const char *)b.in;
    const unsigned all = 0xffffffff;
    static const unsigned masks[] = {0x0000ffff, 0x55555555};
    static const int from_apart[] = {0, 64}, to_apart[] = {32, 128}, shifts[] = {4, 16};
    copy_lanes<BYTES><<<1, 32>>>(in, all, BYTES, 0, BYTES, b.out);
    launched("copy_lanes_%d_in_order", BYTES);
    for (int from : from_apart) {
        copy_lanes<BYTES><<<1, 32>>>(in, all, from, 0, BYTES, b.out);
        launched("copy_lanes_%d_from_%d_apart", BYTES, from);
    }
    for (int to : to_apart) {
        copy_lanes<BYTES><<<1, 32>>>(in, all, BYTES, 0, to, b.out);
        launched("copy_lanes_%d_to_%d_apart", BYTES, to);
    }
    for (int shift : shifts) {
        if (shift % BYTES) continue;
        copy_lanes<BYTES><<<1, 32>>>(in, all, BYTES, shift, BYTES, b.out);
        launched("copy_lanes_%d_shifted_by_%d", BYTES, shift);
    }
    for (unsigned mask : masks) {
        copy_lanes<BYTES><<<1, 32>>>(in, mask, BYTES, 0, BYTES, b.out);
        launched("copy_lanes_%d_%08x", BYTES, mask);
    }
    static const int ends[] = {20, 0};
    for (int end : ends) {
        copy_rows<BYTES><<<1, 32>>>(in, end, BYTES, b.out);
        launched("copy_rows_%d_of_%d_bytes", end, BYTES);
    }
    copy_rows<BYTES><<<1, 32>>>(in, 20, 128, b.out);
    launched("copy_rows_20_of_%d_bytes_to_128_apart", BYTES);
}

static void run_copy_tile(struct buffers b) {
    const char *in = (const char *)b.in;
    copy_part<16><<<1, 32>>>(in, 8, b.out);
    launched("copy_part_8_of_16");
    copy_part<16><<<1, 32>>>(in, 4, b.out);
    launched("copy_part_4_of_16");
    copy_part<8><<<1, 32>>>(in, 4, b.out);
    launched("copy_part_4_of_8");
    copy_part<4><<<1, 32>>>(in, 2, b.out);
    launched("copy_part_2_of_4");
    copy_lanes<16><<<1, 32>>>(in, 0xffffffff, 16, 0, 144, b.out);
    launched("copy_lanes_16_to_144_apart");
    copy_tile<<<1, 128>>>(in, 128, 128, 0, b.out);
    launched("copy_tile");
    copy_tile<<<1, 128>>>(in, 128, 128, 7, b.out);
    launched("copy_tile_swizzled");
    copy_tile<<<1, 128>>>(in, 256, 144, 0, b.out);
    launched("copy_tile_padded");
    copy_tile<<<1, 128>>>(in + 16, 256, 128, 7, b.out);
    launched("copy_tile_shifted_by_16");
}

static void run_bulk(struct buffers b) {
    static const unsigned cases[][3] = {{16, 0, 0},    {2048, 0, 0},   {2048, 16, 0},
                                        {2048, 0, 16}, {2048, 16, 16}, {16384, 0, 0}};
    for (const unsigned *it : cases) {
        unsigned bytes = it[0], global = it[1], shared = it[2];
        load_bulk<<<1, 32>>>((const char *)b.in + global, bytes, shared, b.out);
        launched("load_bulk_%u_from_%u_to_%u", bytes, global, shared);
        store_bulk<<<1, 32>>>(b.in, bytes, shared, (char *)b.out + global);
        launched("store_bulk_%u_from_%u_to_%u", bytes, shared, global);
        add_bulk<<<1, 32>>>(b.in, bytes, shared, b.out + global / 4);
        launched("add_bulk_%u_from_%u_to_%u", bytes, shared, global);
    }
}

constexpr int WIDTH = 64, HEIGHT = 256;  // of the tensor, in floats: all of a buffer

static CUtensorMap make_map(float *data, int box_width, int box_height, CUtensorMapSwizzle swizzle,
                            CUtensorMapL2promotion promotion) {
    const cuuint64_t size[] = {WIDTH, HEIGHT}, pitch[] = {WIDTH * sizeof(float)};
    const cuuint32_t box[] = {(cuuint32_t)box_width, (cuuint32_t)box_height}, step[] = {1, 1};
    CUtensorMap map;
    const auto encode = tensor_map_encoder();
    if (!encode ||
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, data, size, pitch, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)) {
        fprintf(stderr, "calibration: a tensor map cannot be made\n");
        exit(1);
    }
    return map;
}

static void run_boxes(struct buffers b) {
    const auto none = CU_TENSOR_MAP_SWIZZLE_NONE;
    const auto as_asked = CU_TENSOR_MAP_L2_PROMOTION_NONE, more = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
    static const struct {
        const char *name;
        int width, height;  // of the box
        CUtensorMapSwizzle swizzle;
        CUtensorMapL2promotion promotion;
        int x, y;
        bool stored, added;
    } cases[] = {
        {"128", 32, 64, none, as_asked, 0, 0, true, true},
        {"128_swizzled", 32, 64, CU_TENSOR_MAP_SWIZZLE_128B, as_asked, 0, 0, true, false},
        {"64", 16, 64, none, as_asked, 0, 0, true, false},
        {"64_swizzled", 16, 64, CU_TENSOR_MAP_SWIZZLE_64B, as_asked, 0, 0, false, false},
        {"32", 8, 64, none, as_asked, 0, 0, true, true},
        {"32_swizzled", 8, 64, CU_TENSOR_MAP_SWIZZLE_32B, as_asked, 0, 0, true, false},
        {"256", 64, 16, none, as_asked, 0, 0, false, false},
        {"16", 4, 16, none, as_asked, 0, 0, true, true},
        {"128_promoted", 32, 64, CU_TENSOR_MAP_SWIZZLE_128B, more, 0, 0, false, false},
        {"32_promoted", 8, 64, none, more, 0, 0, false, false},
        {"128_shifted_by_16", 32, 64, none, as_asked, 4, 0, true, false},
        {"128_half_beyond_right", 32, 64, none, as_asked, 48, 0, true, true},
        {"128_beyond_left", 32, 64, none, as_asked, -8, 0, false, false},
        {"128_half_below", 32, 64, CU_TENSOR_MAP_SWIZZLE_128B, as_asked, 0, HEIGHT - 32, true, false},
        {"128_above", 32, 64, none, as_asked, 0, -8, false, false},
        {"128_outside", 32, 64, none, as_asked, WIDTH, 0, true, false},
    };
    for (const auto &it : cases) {
        const CUtensorMap from = make_map(b.in, it.width, it.height, it.swizzle, it.promotion);
        const CUtensorMap to = make_map(b.out, it.width, it.height, it.swizzle, it.promotion);
        load_box<<<1, 32>>>(from, (uint32_t)(it.width * it.height * 4), it.x, it.y, b.out);
        launched("load_box_%s", it.name);
        if (it.stored) {
            store_box<<<1, 32>>>(to, b.in, it.x, it.y);
            launched("store_box_%s", it.name);
        }
        if (it.added) {
            add_box<<<1, 32>>>(to, b.in, it.x, it.y);
            launched("add_box_%s", it.name);
        }
    }
}

void run_copies(struct buffers b) {
    run_copy_lanes<4>(b);
    run_copy_lanes<8>(b);
    run_copy_lanes<16>(b);
    run_copy_tile(b);
    run_bulk(b);
    run_boxes(b);
}
