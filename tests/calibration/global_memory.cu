// global_memory.cu - kernels whose requests and sectors in global memory are compared with Nsight Compute's.
//
// One idea each, mostly one warp. nvcc must leave each access as it is written, or the comparison would be
// one of compilers: strides and shifts come as arguments, so that neighbours cannot be merged, and every
// value that is read reaches memory. The three kernels at the end are there to show what happens otherwise.
#include <cuda_runtime.h>
#include <cuda_fp16.h>

#include "calibration.h"

#define LANE ((int)threadIdx.x)

// ---- one load, one store ----

__global__ void load_stride(const float *in, int stride, int shift, float *out) {
    out[LANE] = in[LANE * stride + shift];
}

__global__ void store_stride(const float *in, int stride, int shift, float *out) {
    out[LANE * stride + shift] = in[LANE];
}

// T: 2 to 16 bytes, each loaded and stored in one piece.
template <class T> __global__ void copy(const T *in, int stride, int shift, T *out) {
    out[LANE * stride + shift] = in[LANE * stride + shift];
}

// Only the lanes in `mask` take part.
template <class T> __global__ void masked(const T *in, unsigned mask, T *out) {
    if (mask >> LANE & 1) out[LANE] = in[LANE];
}

// Neighbouring lanes read the same element, `together` of them.
__global__ void load_groups(const float *in, int together, int stride, float *out) {
    out[LANE] = in[LANE / together * stride];
}

// Fields of a structure of 12 bytes: each load strides over the others.
__global__ void array_of_structures(const float3 *in, float *out) {
    out[LANE] = in[LANE].x + in[LANE].y * 2.0f + in[LANE].z * 3.0f;
}

__global__ void read_only(const float *__restrict__ in, float *__restrict__ out) { out[LANE] = in[LANE]; }

__global__ void read_modify_write(float *data, int second) {
    data[LANE] = data[LANE] * 2.0f + 1.0f;
    data[LANE + second] += 3.0f;
}

// ---- lanes that part ----

// What the branches do has different types: nvcc would make one store of two alike, with a computed address.
__global__ void branches(const float *in, const int *trips, float *out) {
    if (trips[LANE] > 3)
        out[LANE] = in[LANE * 8] * in[LANE];
    else
        ((double *)out)[LANE + 64] = ((const double *)in)[LANE + 32] + 1.0;
}

__global__ void four_ways(const float *in, float *out) {
    switch (LANE % 4) {
    case 0:
        out[LANE] = in[LANE] + in[LANE + 64];
        break;
    case 1:
        ((double *)out)[LANE * 8] = ((const double *)in)[LANE + 1];
        break;
    case 2:
        ((float4 *)out)[LANE * 3] = ((const float4 *)in)[LANE * 2];
        break;
    default:
        break;
    }
}

__global__ void early_exit(const float *in, int last, float *out) {
    out[LANE] = in[LANE];
    if (LANE > last) return;
    out[LANE + 32] = in[LANE + 32];
}

// Not unrolled: nvcc's four-fold body and its remainder would be two loads, for different lanes.
__global__ void ragged_loop(const float *in, const int *trips, float *out) {
    float sum = 0.0f;
    int n = trips[LANE];
#pragma unroll 1
    for (int i = 0; i < n; i++) sum += in[32 * i + LANE];
    out[LANE] = sum;
}

__global__ void ragged_nested(const float *in, const int *trips, float *out) {
    float sum = 0.0f;
    int rows = trips[LANE / 8];
#pragma unroll 1
    for (int i = 0; i < rows; i++) {
        int columns = trips[32 * i + LANE];
#pragma unroll 1
        for (int j = 0; j < columns; j++) sum += in[64 * i + 8 * j + LANE];
    }
    out[LANE] = sum;
}

// ---- indices from memory ----

__global__ void gather(const float *in, const int *permutation, float *out) {
    out[LANE] = in[permutation[LANE]];
}

__global__ void scatter(const float *in, const int *permutation, float *out) {
    out[permutation[LANE]] = in[LANE];
}

__global__ void chase(const int *permutation, int steps, int *out) {
    int at = LANE;
#pragma unroll 1
    for (int i = 0; i < steps; i++) at = permutation[at];
    out[LANE] = at;
}

// ---- matrices and grids ----

// Each lane sums n elements: `along` apart from one to the next, `across` from lane to lane.
__global__ void walk(const float *in, int along, int across, int n, float *out) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += in[LANE * across + i * along];
    out[LANE] = sum;
}

__global__ void blocks(const float *in, float *out) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = in[i];
}

// A warp of a block of 8 x 8 threads is four rows of 8.
__global__ void blocks_2d(const float *in, int pitch, float *out) {
    int x = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int y = (int)(blockIdx.y * blockDim.y + threadIdx.y);
    out[y * pitch + x] = in[x * pitch + y];
}

__global__ void grid_stride(const float *in, int n, float *out) {
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x))
        out[i] = in[i] + 1.0f;
}

__global__ void matmul_naive(const float *a, const float *b, int n, float *c) {
    int x = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int y = (int)(blockIdx.y * blockDim.y + threadIdx.y);
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}

// ---- atomics, constant memory ----

__global__ void add_unused(int *sums, int stride) { atomicAdd(&sums[LANE * stride], LANE); }

__global__ void add_used(int *sums, int stride, int *out) {
    out[LANE] = atomicAdd(&sums[LANE * stride], LANE);
}

__global__ void add_float(float *sums, int stride) { atomicAdd(&sums[LANE * stride], 1.0f); }

__global__ void exchange_if_equal(int *sums, int stride, int *out) {
    out[LANE] = atomicCAS(&sums[LANE * stride], 0, LANE);
}

__constant__ float table[32] = {1, 2, 3, 4, 5, 6, 7, 8};

__global__ void constants(int stride, int shift, float *out) { out[LANE] = table[LANE * stride + shift]; }

// ---- what compilers make of these is not what they say ----

// Only .x is used: nvcc loads 4 bytes. The cpu backend's compiler loads all 16.
__global__ void nvcc_narrows(const float4 *in, float *out) {
    float4 value = in[LANE];
    out[LANE] = value.x;
}

// The load of `in` is the same in every round, and no store can change it: one is enough.
__global__ void compilers_hoist(const float *__restrict__ in, const float *__restrict__ factors, int n,
                                float *__restrict__ out) {
    for (int i = 0; i < n; i++) out[32 * i + LANE] = in[LANE] * factors[32 * i + LANE];
}

// What was just stored needs no load.
__global__ void compilers_forward(const float *in, float *out) {
    out[LANE] = in[LANE] + 1.0f;
    out[LANE + 32] = out[LANE] * 2.0f;
}

// ---- launches ----

template <class T> static void run_types(const char *type, struct buffers b) {
    static const int strides[] = {1, 2, 3, 9};
    for (int stride : strides) {
        copy<T><<<1, 32>>>((const T *)b.in, stride, 0, (T *)b.out);
        launched("copy_%s_stride_%d", type, stride);
    }
    copy<T><<<1, 32>>>((const T *)b.in, 1, 1, (T *)b.out);
    launched("copy_%s_shift_1", type);
    copy<T><<<1, 32>>>((const T *)b.in, 0, 5, (T *)b.out);
    launched("copy_%s_broadcast", type);
    static const unsigned masks[] = {0x0000ffff, 0x55555555, 0x80000001, 0x00fff000};
    for (unsigned mask : masks) {
        masked<T><<<1, 32>>>((const T *)b.in, mask, (T *)b.out);
        launched("masked_%s_%08x", type, mask);
    }
}

static void run_patterns(struct buffers b) {
    static const int patterns[][2] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {8, 0},   {32, 0},
                                      {0, 7}, {1, 1}, {1, 7}, {1, 8}, {-1, 31}, {-3, 100}};
    for (const int *it : patterns) {
        load_stride<<<1, 32>>>(b.in, it[0], it[1], b.out);
        launched("load_stride_%d_from_%d", it[0], it[1]);
        store_stride<<<1, 32>>>(b.in, it[0], it[1], b.out);
        launched("store_stride_%d_from_%d", it[0], it[1]);
    }
    static const int groups[][2] = {{2, 1}, {8, 8}, {16, 32}};
    for (const int *it : groups) {
        load_groups<<<1, 32>>>(b.in, it[0], it[1], b.out);
        launched("load_groups_of_%d_stride_%d", it[0], it[1]);
    }
    array_of_structures<<<1, 32>>>((const float3 *)b.in, b.out);
    launched("array_of_structures");
    read_only<<<1, 32>>>(b.in, b.out);
    launched("read_only");
    read_modify_write<<<1, 32>>>(b.out, 33);
    launched("read_modify_write");
}

static void run_divergent(struct buffers b) {
    branches<<<1, 32>>>(b.in, b.trips, b.out);
    launched("branches");
    four_ways<<<1, 32>>>(b.in, b.out);
    launched("four_ways");
    early_exit<<<1, 32>>>(b.in, 20, b.out);
    launched("early_exit");
    ragged_loop<<<1, 32>>>(b.in, b.trips, b.out);
    launched("ragged_loop");
    ragged_loop<<<1, 100>>>(b.in, b.trips, b.out);
    launched("ragged_loop_100_threads");
    ragged_nested<<<1, 32>>>(b.in, b.trips, b.out);
    launched("ragged_nested");
    gather<<<1, 128>>>(b.in, b.permutation, b.out);
    launched("gather");
    scatter<<<1, 128>>>(b.in, b.permutation, b.out);
    launched("scatter");
    chase<<<1, 64>>>(b.permutation, 20, (int *)b.out);
    launched("chase");
}

static void run_grids(struct buffers b) {
    walk<<<1, 64>>>(b.in, 1, MATRIX_SIDE, MATRIX_SIDE, b.out);
    launched("walk_along_rows");
    walk<<<1, 64>>>(b.in, MATRIX_SIDE, 1, MATRIX_SIDE, b.out);
    launched("walk_along_columns");
    walk<<<1, 64>>>(b.in, MATRIX_SIDE + 1, 1, MATRIX_SIDE, b.out);
    launched("walk_along_columns_padded");
    blocks<<<3, 96>>>(b.in, b.out);
    launched("blocks_3_of_96");
    blocks<<<5, 50>>>(b.in, b.out);
    launched("blocks_5_of_50");
    blocks_2d<<<dim3(3, 2), dim3(8, 8)>>>(b.in, MATRIX_SIDE, b.out);
    launched("blocks_2d");
    grid_stride<<<2, 96>>>(b.in, 1000, b.out);
    launched("grid_stride");
    matmul_naive<<<dim3(4, 4), dim3(16, 16)>>>(b.in, b.in + MATRIX_SIDE * MATRIX_SIDE, MATRIX_SIDE, b.out);
    launched("matmul_naive");
}

static void run_atomics(struct buffers b) {
    static const int strides[] = {0, 1, 8};
    for (int stride : strides) {
        add_unused<<<1, 32>>>(b.sums, stride);
        launched("add_unused_stride_%d", stride);
        add_used<<<1, 32>>>(b.sums, stride, (int *)b.out);
        launched("add_used_stride_%d", stride);
        add_float<<<1, 32>>>(b.out, stride);
        launched("add_float_stride_%d", stride);
        exchange_if_equal<<<1, 32>>>(b.sums, stride, (int *)b.out);
        launched("exchange_if_equal_stride_%d", stride);
    }
    constants<<<1, 32>>>(0, 3, b.out);
    launched("constants_uniform");
    constants<<<1, 32>>>(1, 0, b.out);
    launched("constants_by_lane");
}

void run_global_memory(struct buffers b) {
    run_patterns(b);
    run_types<half>("half", b);
    run_types<half2>("half2", b);
    run_types<float2>("float2", b);
    run_types<double>("double", b);
    run_types<float4>("float4", b);
    run_types<uint4>("uint4", b);
    run_divergent(b);
    run_grids(b);
    run_atomics(b);
    nvcc_narrows<<<1, 32>>>((const float4 *)b.in, b.out);
    launched("nvcc_narrows");
    compilers_hoist<<<1, 32>>>(b.in, b.in + 32, 10, b.out);
    launched("compilers_hoist");
    compilers_forward<<<1, 32>>>(b.in, b.out);
    launched("compilers_forward");
}
