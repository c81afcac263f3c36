// shared_memory.cu - kernels whose requests, wavefronts and bank conflicts in shared memory are compared with
// Nsight Compute's. The rules of global_memory.cu hold here too; of a shared array nvcc knows the alignment
// and merges what it can, so here nearly every stride is an argument or a row has an odd length.
#include <cuda_runtime.h>
#include <cuda_fp16.h>

#include "calibration.h"

#define LANE ((int)threadIdx.x)

constexpr int ROOM = 40;  // elements for each lane
constexpr int SIDE = 32;  // of the square tiles

// ---- one load, one store ----

// ROUNDS stores fill the array, in order, without conflicts.
template <class T, int ROUNDS> static __device__ void fill(T *tile_smem, const T *in) {
    T value = in[LANE];
    for (int i = 0; i < ROUNDS; i++) tile_smem[32 * i + LANE] = value;
    __syncwarp();  // every element is written before any lane reads another's
}

// `together` neighbouring lanes read one element; elements are `stride` apart.
template <class T> __global__ void shared_load(const T *in, int stride, int together, int shift, T *out) {
    __shared__ T tile_smem[32 * ROOM];
    fill<T, ROOM>(tile_smem, in);
    out[LANE] = tile_smem[LANE / together * stride + shift];
}

template <class T> __global__ void shared_store(const T *in, int stride, int shift, int from, T *out) {
    __shared__ T tile_smem[32 * ROOM];
    fill<T, ROOM>(tile_smem, in);
    tile_smem[LANE * stride + shift] = in[LANE + 32];
    __syncwarp();  // the store is done before other lanes read it
    out[LANE] = tile_smem[LANE + from];
}

// Only the lanes in `mask` take part. `shift` keeps what is read clear of what is written.
template <class T> __global__ void shared_masked(const T *in, unsigned mask, int stride, int shift, T *out) {
    __shared__ T tile_smem[32 * ROOM];
    fill<T, ROOM>(tile_smem, in);
    if (mask >> LANE & 1) {
        tile_smem[LANE * stride] = in[LANE + 32];
        out[LANE] = tile_smem[LANE * stride + shift];
    }
}

// Any pattern of 32 elements.
template <class T> __global__ void shared_gather(const T *in, const int *index, T *out) {
    __shared__ T tile_smem[32 * ROOM];
    fill<T, ROOM>(tile_smem, in);
    out[LANE] = tile_smem[index[LANE]];
}

// The array is at the end of an odd number of floats of dynamic shared memory.
__global__ void shared_dynamic(const float *in, int skip, int stride, float *out) {
    extern __shared__ float room_smem[];
    fill<float, ROOM>(room_smem, in);
    out[LANE] = room_smem[skip + LANE * stride];
}

// ---- tiles ----

// A tile of 32 rows, WIDTH apart: written by rows, read by rows or by columns (of a lane each).
template <int WIDTH> __global__ void tile_walk(const float *in, int along, int across, float *out) {
    __shared__ float tile_smem[SIDE * WIDTH];
    fill<float, WIDTH>(tile_smem, in);
    float sum = 0.0f;
    for (int i = 0; i < SIDE; i++) sum += tile_smem[LANE * across + i * along];
    out[LANE] = sum;
}

// Transposes a matrix of n x n; the block has 32 x 8 threads.
template <int PAD> __global__ void transpose(const float *in, int n, float *out) {
    __shared__ float tile_smem[SIDE][SIDE + PAD];
    int x = (int)threadIdx.x, y = (int)threadIdx.y;
    int first_x = (int)blockIdx.x * SIDE, first_y = (int)blockIdx.y * SIDE;
    for (int row = y; row < SIDE; row += 8) tile_smem[row][x] = in[(first_y + row) * n + first_x + x];
    __syncthreads();  // the tile is whole
    for (int row = y; row < SIDE; row += 8) out[(first_x + row) * n + first_y + x] = tile_smem[x][row];
}

// A block of 16 x 16 threads for as many elements of c = a b. PAD 0: nvcc reads a's rows four at a time.
template <int PAD> __global__ void matmul_tiled(const float *a, const float *b, int n, float *c) {
    __shared__ float a_smem[16][16 + PAD];
    __shared__ float b_smem[16][16 + PAD];
    int tx = (int)threadIdx.x, ty = (int)threadIdx.y;
    int x = (int)blockIdx.x * 16 + tx, y = (int)blockIdx.y * 16 + ty;
    float sum = 0.0f;
    for (int first = 0; first < n; first += 16) {
        a_smem[ty][tx] = a[y * n + first + tx];
        b_smem[ty][tx] = b[(first + ty) * n + x];
        __syncthreads();  // both tiles are whole
        for (int k = 0; k < 16; k++) sum += a_smem[ty][k] * b_smem[k][tx];
        __syncthreads();  // nobody still reads the tiles
    }
    c[y * n + x] = sum;
}

// ---- reductions ----

__global__ void reduce_warp(const float *in, int half_warp, float *out) {
    __shared__ float sum_smem[32];
    sum_smem[LANE] = in[LANE];
    __syncwarp();  // all are written
#pragma unroll 1
    for (int offset = half_warp; offset > 0; offset /= 2) {
        if (LANE < offset) sum_smem[LANE] += sum_smem[LANE + offset];
        __syncwarp();  // the sums of this round are written
    }
    if (LANE == 0) out[0] = sum_smem[0];
}

// The active threads are neighbours, what they add lies further and further apart.
__global__ void reduce_block_interleaved(const float *in, int threads, float *out) {
    __shared__ float sum_smem[256];
    sum_smem[LANE] = in[LANE];
    __syncthreads();  // all are written
#pragma unroll 1
    for (int offset = 1; offset < threads; offset *= 2) {
        int at = 2 * offset * LANE;
        if (at < threads) sum_smem[at] += sum_smem[at + offset];
        __syncthreads();  // the sums of this round are written
    }
    if (LANE == 0) out[0] = sum_smem[0];
}

__global__ void reduce_shuffle(const float *in, float *out) {
    float sum = in[LANE];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    out[LANE] = sum;
}

// ---- atomics ----

__global__ void shared_add(int stride, int *out) {
    __shared__ int sums_smem[32 * 32];
    for (int i = 0; i < 32; i++) sums_smem[32 * i + LANE] = 0;
    __syncwarp();  // all are written
    atomicAdd(&sums_smem[LANE * stride], LANE);
    __syncwarp();  // all are added
    out[LANE] = sums_smem[LANE];
}

// ---- what nvcc makes of it is not what it says ----

// Four neighbours of a row at a time: nvcc makes 8 loads of 16 bytes of these 32.
__global__ void nvcc_merges(const float *in, float *out) {
    __shared__ float tile_smem[SIDE][SIDE];
    float value = in[LANE];
    for (int i = 0; i < SIDE; i++) tile_smem[i][LANE] = value;
    __syncwarp();  // the tile is whole
    float sum = 0.0f;
    for (int i = 0; i < SIDE; i++) sum += tile_smem[LANE][i];
    out[LANE] = sum;
}

// ---- launches ----

template <class T> static void run_types(const char *type, struct buffers b) {
    const T *in = (const T *)b.in;
    T *out = (T *)b.out;
    static const int strides[] = {0, 1, 2, 3, 4, 5, 8, 16, 32, 33};
    for (int stride : strides) {
        shared_load<T><<<1, 32>>>(in, stride, 1, 0, out);
        launched("shared_load_%s_stride_%d", type, stride);
        shared_store<T><<<1, 32>>>(in, stride, 0, 0, out);
        launched("shared_store_%s_stride_%d", type, stride);
    }
    shared_load<T><<<1, 32>>>(in, -1, 1, 33, out);
    launched("shared_load_%s_backwards", type);
    static const int groups[][2] = {{2, 1}, {2, 16}, {4, 8}, {8, 1}, {8, 32}, {16, 32}};
    for (const int *it : groups) {
        shared_load<T><<<1, 32>>>(in, it[1], it[0], 0, out);
        launched("shared_load_%s_groups_of_%d_stride_%d", type, it[0], it[1]);
    }
    static const unsigned masks[] = {0x0000ffff, 0xffff0000, 0x55555555, 0x00ff00ff,
                                     0x0f0f0f0f, 0x80000001, 0x00000001};
    for (unsigned mask : masks) {
        shared_masked<T><<<1, 32>>>(in, mask, 1, 64, out);
        launched("shared_masked_%s_%08x", type, mask);
    }
    shared_masked<T><<<1, 32>>>(in, 0x0000ffff, 32, 5, out);
    launched("shared_masked_%s_0000ffff_stride_32", type);
    shared_gather<T><<<1, 32>>>(in, b.permutation, out);
    launched("shared_gather_%s", type);
    shared_gather<T><<<1, 32>>>(in, b.trips, out);
    launched("shared_gather_%s_of_7", type);
}

static void run_tiles(struct buffers b) {
    tile_walk<32><<<1, 32>>>(b.in, 1, 32, b.out);
    launched("tile_walk_32_along_rows");
    tile_walk<32><<<1, 32>>>(b.in, 32, 1, b.out);
    launched("tile_walk_32_along_columns");
    tile_walk<33><<<1, 32>>>(b.in, 1, 33, b.out);
    launched("tile_walk_33_along_rows");
    tile_walk<33><<<1, 32>>>(b.in, 33, 1, b.out);
    launched("tile_walk_33_along_columns");
    tile_walk<36><<<1, 32>>>(b.in, 1, 36, b.out);
    launched("tile_walk_36_along_rows");
    dim3 grid(MATRIX_SIDE / 32, MATRIX_SIDE / 32);
    transpose<0><<<grid, dim3(32, 8)>>>(b.in, MATRIX_SIDE, b.out);
    launched("transpose");
    transpose<1><<<grid, dim3(32, 8)>>>(b.in, MATRIX_SIDE, b.out);
    launched("transpose_padded");
    const float *second = b.in + MATRIX_SIDE * MATRIX_SIDE;
    matmul_tiled<1><<<dim3(4, 4), dim3(16, 16)>>>(b.in, second, MATRIX_SIDE, b.out);
    launched("matmul_tiled_padded");
    matmul_tiled<0><<<dim3(4, 4), dim3(16, 16)>>>(b.in, second, MATRIX_SIDE, b.out);
    launched("matmul_tiled_nvcc_merges");
}

void run_shared_memory(struct buffers b) {
    run_types<half>("half", b);
    run_types<half2>("half2", b);
    run_types<float>("float", b);
    run_types<float2>("float2", b);
    run_types<float4>("float4", b);
    shared_dynamic<<<1, 32, 32 * ROOM * sizeof(float)>>>(b.in, 5, 3, b.out);
    launched("shared_dynamic");
    run_tiles(b);
    reduce_warp<<<1, 32>>>(b.in, 16, b.out);
    launched("reduce_warp");
    reduce_block_interleaved<<<2, 256>>>(b.in, 256, b.out);
    launched("reduce_block_interleaved");
    reduce_shuffle<<<1, 32>>>(b.in, b.out);
    launched("reduce_shuffle");
    static const int strides[] = {0, 1, 2, 32};
    for (int stride : strides) {
        shared_add<<<1, 32>>>(stride, (int *)b.sums);
        launched("shared_add_stride_%d", stride);
    }
    nvcc_merges<<<1, 32>>>(b.in, b.out);
    launched("nvcc_merges");
}
