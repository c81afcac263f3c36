// ptx_matrix.cu - ldmatrix and stmatrix on either backend. Where an element must be follows from the PTX
// ISA's tables, element by element.
#include <cuda_runtime.h>
#include <stdint.h>

#include "common/ptx.h"
#include "device_memory.h"

// 64 rows of 8 elements in shared memory, 24 elements (48 bytes) apart. The row of lane l is 37 l + 5 (mod
// 64): out of order, and half of the rows are nobody's.
constexpr int slots = 64, pitch = 24, tile_elements = slots * pitch;
__host__ __device__ static int slot_of_lane(int lane) { return (37 * lane + 5) % slots; }

template <int count, bool transposed> __device__ void load(uint32_t (&r)[count], uint32_t address) {
    if constexpr (transposed) {
        if constexpr (count == 1) ldmatrix_x1_trans(r, address);
        if constexpr (count == 2) ldmatrix_x2_trans(r, address);
        if constexpr (count == 4) ldmatrix_x4_trans(r, address);
    } else {
        if constexpr (count == 1) ldmatrix_x1(r, address);
        if constexpr (count == 2) ldmatrix_x2(r, address);
        if constexpr (count == 4) ldmatrix_x4(r, address);
    }
}

// sm_90; on an older GPU main does not launch what calls it.
template <int count, bool transposed> __device__ void store(uint32_t address, const uint32_t (&r)[count]) {
#if defined(SIMT_CPU) || __CUDA_ARCH__ >= 900
    if constexpr (transposed) {
        if constexpr (count == 1) stmatrix_x1_trans(address, r);
        if constexpr (count == 2) stmatrix_x2_trans(address, r);
        if constexpr (count == 4) stmatrix_x4_trans(address, r);
    } else {
        if constexpr (count == 1) stmatrix_x1(address, r);
        if constexpr (count == 2) stmatrix_x2(address, r);
        if constexpr (count == 4) stmatrix_x4(address, r);
    }
#endif
}

// Two warps, each with its own tile. fragments[thread][count]. Lanes that have no row to name give `unused`
// if that is not 0, else a row like the others.
template <int count, bool transposed>
__global__ void load_kernel(const uint16_t *data, uint32_t *fragments, uint32_t unused) {
    __shared__ alignas(16) uint16_t tile[2][tile_elements];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int i = lane; i < tile_elements; i += 32) tile[warp][i] = data[warp * tile_elements + i];
    __syncwarp();  // the tile is written
    uint32_t address = shared_address(&tile[warp][slot_of_lane(lane) * pitch]);
    if (unused && lane >= 8 * count) address = unused;
    uint32_t r[count];
    load<count, transposed>(r, address);
    for (int i = 0; i < count; i++) fragments[threadIdx.x * count + i] = r[i];
}

// The other way: the fragments into a tile that held something else; all of the tile comes back.
template <int count, bool transposed>
__global__ void store_kernel(const uint32_t *fragments, uint16_t *data, uint32_t unused) {
    __shared__ alignas(16) uint16_t tile[2][tile_elements];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int i = lane; i < tile_elements; i += 32) tile[warp][i] = data[warp * tile_elements + i];
    __syncwarp();  // the tile is written
    uint32_t address = shared_address(&tile[warp][slot_of_lane(lane) * pitch]);
    if (unused && lane >= 8 * count) address = unused;
    uint32_t r[count];
    for (int i = 0; i < count; i++) r[i] = fragments[threadIdx.x * count + i];
    store<count, transposed>(address, r);
    __syncwarp();  // the rows are stored
    for (int i = lane; i < tile_elements; i += 32) data[warp * tile_elements + i] = tile[warp][i];
}

// Loads four matrices and stores them elsewhere, plain or transposed, in place of what lies there.
template <bool load_transposed, bool store_transposed>
__global__ void round_trip_kernel(const uint16_t *in, uint16_t *out) {
    __shared__ alignas(16) uint16_t from[256], to[256];
    for (int i = 0; i < 8; i++) from[8 * threadIdx.x + i] = in[8 * threadIdx.x + i];
    __syncwarp();  // from is written
    uint32_t r[4];
    load<4, load_transposed>(r, shared_address(&from[8 * threadIdx.x]));
    store<4, store_transposed>(shared_address(&to[8 * threadIdx.x]), r);
    __syncwarp();  // to is written
    for (int i = 0; i < 8; i++) out[8 * threadIdx.x + i] = to[8 * threadIdx.x + i];
}

// Which element of matrix `matrix` half `half` of the lane's register is, as an offset in its warp's tile.
// PTX ISA, ldmatrix: each thread receives a fragment of a row, four threads one row; with .trans the matrix
// is loaded in column-major format.
static int offset_of(int matrix, int lane, int half, bool transposed) {
    int row = lane / 4, column = lane % 4 * 2 + half;
    if (transposed) {
        int swap = row;
        row = column, column = swap;
    }
    return slot_of_lane(8 * matrix + row) * pitch + column;
}

template <int count, bool transposed> static void check_load(uint32_t unused) {
    uint16_t data[2 * tile_elements];
    for (int i = 0; i < 2 * tile_elements; i++) data[i] = (uint16_t)(i * 21 + 3);  // each another
    uint32_t fragments[64 * count];
    uint16_t *device_data = to_device(data, 2 * tile_elements);
    uint32_t *device_fragments = to_device((uint32_t *)nullptr, 64 * count);
    load_kernel<count, transposed><<<1, 64>>>(device_data, device_fragments, unused);
    from_device(fragments, device_fragments, 64 * count);
    expect_success(cudaFree(device_data));
    for (int thread = 0; thread < 64; thread++)
        for (int i = 0; i < count; i++) {
            const uint16_t *tile = data + thread / 32 * tile_elements;
            uint32_t low = tile[offset_of(i, thread % 32, 0, transposed)];
            uint32_t high = tile[offset_of(i, thread % 32, 1, transposed)];
            CHECK(fragments[thread * count + i] == (low | high << 16));
        }
}

template <int count, bool transposed> static void check_store(uint32_t unused) {
    uint16_t data[2 * tile_elements], expected[2 * tile_elements];
    for (int i = 0; i < 2 * tile_elements; i++) data[i] = expected[i] = (uint16_t)(0x8000 + i);
    uint32_t fragments[64 * count];
    for (int i = 0; i < 64 * count; i++) fragments[i] = (uint32_t)(2 * i) | (uint32_t)(2 * i + 1) << 16;
    uint16_t *device_data = to_device(data, 2 * tile_elements);
    uint32_t *device_fragments = to_device(fragments, 64 * count);
    store_kernel<count, transposed><<<1, 64>>>(device_fragments, device_data, unused);
    from_device(data, device_data, 2 * tile_elements);
    expect_success(cudaFree(device_fragments));
    for (int thread = 0; thread < 64; thread++)
        for (int i = 0; i < count; i++)
            for (int half = 0; half < 2; half++)
                expected[thread / 32 * tile_elements + offset_of(i, thread % 32, half, transposed)] =
                    (uint16_t)(2 * (thread * count + i) + half);
    for (int i = 0; i < 2 * tile_elements; i++) CHECK(data[i] == expected[i]);
}

template <bool load_transposed, bool store_transposed> static void check_round_trip() {
    uint16_t in[256], out[256];
    for (int i = 0; i < 256; i++) in[i] = (uint16_t)random_bits();
    uint16_t *device_in = to_device(in, 256), *device_out = to_device((uint16_t *)nullptr, 256);
    round_trip_kernel<load_transposed, store_transposed><<<1, 32>>>(device_in, device_out);
    from_device(out, device_out, 256);
    expect_success(cudaFree(device_in));
    for (int matrix = 0; matrix < 4; matrix++)
        for (int row = 0; row < 8; row++)
            for (int column = 0; column < 8; column++)
                CHECK(out[64 * matrix + 8 * row + column] ==
                      in[64 * matrix +
                         (load_transposed == store_transposed ? 8 * row + column : 8 * column + row)]);
}

template <bool transposed> static void check_matrices(int major, uint32_t unused) {
    check_load<1, transposed>(unused);
    check_load<2, transposed>(unused);
    check_load<4, transposed>(unused);
    if (major < 9) return;
    check_store<1, transposed>(unused);
    check_store<2, transposed>(unused);
    check_store<4, transposed>(unused);
}

int main() {
    int major = 0;
    expect_success(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
#ifdef SIMT_CPU
    for (unsigned schedule = 0; schedule < 4; schedule++) {
        simt_set_schedule(schedule);
#endif
        check_matrices<false>(major, 0);
        check_matrices<true>(major, 0);
        if (major >= 9) {
            check_round_trip<false, false>();
            check_round_trip<true, true>();
            check_round_trip<false, true>();
            check_round_trip<true, false>();
        }
        // Last, because it would break the context: what lanes without a row give as address does not matter,
        // be it misaligned and far outside of shared memory.
        check_matrices<false>(major, 0xfffffff1u);
        check_matrices<true>(major, 0xfffffff1u);
#ifdef SIMT_CPU
    }
#endif
    return check_done();
}
