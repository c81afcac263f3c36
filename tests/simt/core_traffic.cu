// core_traffic.cu - cpu backend only: requests, sectors and wavefronts of access patterns whose figures are
// known from Nsight Compute on an H200. Each kernel is one warp and has one access that matters, on a line of
// its own.
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

// The one line of the last launch with this kind of access; a failed check if there is none.
static struct simt_line find_line(int bytes, int write, int shared, int atomic) {
    static struct simt_launch_stats stats[4];
    int launches = simt_take_launch_stats(stats, 4), found = 0;
    struct simt_line result = {};
    CHECK(launches == 1 && cudaGetLastError() == cudaSuccess);
    for (int i = 0; i < stats[0].line_count; i++) {
        const struct simt_line *it = &stats[0].lines[i];
        if (it->bytes != bytes || it->write != write || it->shared != shared || it->atomic != atomic)
            continue;
        result = *it;
        found++;
    }
    CHECK(found == 1);
    return result;
}
static struct simt_line line_of(int bytes, int write, int shared) {
    return find_line(bytes, write, shared, 0);
}
static struct simt_line atomic_line(int shared) { return find_line(4, 1, shared, 1); }

template <class T> __global__ void load(const T *in, int stride, int shift, float *out) {
    T value = in[(int)threadIdx.x * stride + shift];
    out[0] = value == T() ? 1.0f : 2.0f;
}

struct sectors {
    int stride, shift;
    unsigned sectors, ideal;
};

template <class T> static void check_loads(const T *in, float *out, const struct sectors *cases, int count) {
    for (int i = 0; i < count; i++) {
        load<T><<<1, 32>>>(in, cases[i].stride, cases[i].shift, out);
        struct simt_line it = line_of(sizeof(T), 0, 0);
        CHECK(it.requests == 1 && it.accesses == 32 && it.wavefronts == 0);
        CHECK(it.sectors == cases[i].sectors);
        CHECK(it.ideal == cases[i].ideal);
    }
}

__global__ void load_vectors(const float4 *in, float *out) {
    float4 value = in[threadIdx.x];
    out[threadIdx.x] = value.x + value.w;
}

__global__ void shared_pattern(float *out, int stride, int shift, int divide) {
    __shared__ float tile[32 * 33];
    for (int i = 0; i < 33; i++) tile[32 * i + (int)threadIdx.x] = 1.0f;
    __syncwarp();
    out[threadIdx.x] = tile[((int)threadIdx.x / divide) * stride + shift * ((int)threadIdx.x % divide)];
}

__global__ void shared_vectors(float4 *out) {
    __shared__ float4 tile[32];
    tile[threadIdx.x] = make_float4(1, 2, 3, 4);
    __syncwarp();
    out[threadIdx.x] = tile[threadIdx.x];
}

// Lane i reads element i / together * stride, if it is in `mask`.
template <class T> __global__ void shared_wide(T *out, unsigned mask, int together, int stride) {
    __shared__ T tile[32 * 4];
    for (int i = 0; i < 4; i++) tile[32 * i + (int)threadIdx.x] = T();
    __syncwarp();
    if (mask >> threadIdx.x & 1) out[threadIdx.x] = tile[(int)threadIdx.x / together * stride];
}

__global__ void global_atomics(int *sums, int together, int stride) {
    atomicAdd(&sums[(int)threadIdx.x / together * stride], 1);
}

__global__ void shared_atomics(int *out, int together, int stride) {
    __shared__ int sums[32 * 32];
    for (int i = 0; i < 32; i++) sums[32 * i + (int)threadIdx.x] = 0;
    __syncwarp();
    atomicAdd(&sums[(int)threadIdx.x / together * stride], 1);
    __syncwarp();
    out[threadIdx.x] = sums[threadIdx.x];
}

// Lanes come to the load in their own time and go round different numbers of times.
__global__ void ragged_loop(const float *in, float *out) {
    float sum = 0;
    for (int i = 0; i <= (int)threadIdx.x % 4; i++) sum += in[32 * i + threadIdx.x];
    out[threadIdx.x] = sum;
}

__global__ void long_loop(const float *in, float *out, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += in[i % 32 * 32 + threadIdx.x];
    out[threadIdx.x] = sum;
}

__global__ void half_warp(const float *in, float *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = in[threadIdx.x];
}

__global__ void several_blocks(const float *in, float *out) {
    __shared__ float tile[128];
    tile[threadIdx.x] = in[128 * blockIdx.x + threadIdx.x];
    __syncthreads();  // tile is whole
    out[128 * blockIdx.x + threadIdx.x] = tile[127 - threadIdx.x];
}

static void check_shared(float *out) {
    static const struct {
        int stride, shift, divide;
        unsigned wavefronts;
    } cases[] = {{1, 0, 1, 1}, {32, 0, 1, 32}, {33, 0, 1, 1},   {2, 0, 1, 2},
                 {4, 0, 1, 4}, {0, 0, 1, 1},   {32, 16, 2, 16}, {3, 0, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        shared_pattern<<<1, 32>>>(out, cases[i].stride, cases[i].shift, cases[i].divide);
        struct simt_line it = line_of(4, 0, 1);
        CHECK(it.requests == 1 && it.sectors == 0 && it.ideal == 1);
        CHECK(it.wavefronts == cases[i].wavefronts);
    }
    shared_vectors<<<1, 32>>>((float4 *)out);
    struct simt_line it = line_of(16, 1, 1);
    CHECK(it.requests == 1 && it.wavefronts == 4 && it.ideal == 4);
}

struct wide {
    unsigned mask;
    int together, stride;
    unsigned wavefronts, ideal;
};

template <class T> static void check_wide(float *out, const struct wide *cases, int count) {
    for (int i = 0; i < count; i++) {
        shared_wide<T><<<1, 32>>>((T *)out, cases[i].mask, cases[i].together, cases[i].stride);
        struct simt_line it = line_of(sizeof(T), 0, 1);
        CHECK(it.requests == 1 && it.wavefronts == cases[i].wavefronts && it.ideal == cases[i].ideal);
    }
}

// Of 8 and 16 bytes, what pairs of lanes read together goes in half the passes.
static void check_wide_loads(float *out) {
    static const struct wide of_8[] = {
        {~0u, 1, 1, 2, 2},         {~0u, 1, 0, 1, 1},        {~0u, 2, 1, 1, 1},        {~0u, 8, 32, 4, 1},
        {0x55555555u, 1, 1, 2, 1}, {0x0f0f0f0f, 1, 1, 2, 2}, {0x80000001u, 1, 1, 1, 1}};
    static const struct wide of_16[] = {
        {~0u, 1, 1, 4, 4},         {~0u, 1, 0, 2, 2},        {~0u, 2, 1, 2, 2},        {~0u, 8, 32, 4, 2},
        {0x55555555u, 1, 1, 4, 2}, {0x0f0f0f0f, 1, 1, 4, 4}, {0x80000001u, 1, 1, 2, 2}};
    check_wide<double>(out, of_8, 7);
    check_wide<float4>(out, of_16, 7);
}

static void check_atomics(int *sums) {
    static const struct {
        int together, stride;
        unsigned sectors, wavefronts;
    } cases[] = {{1, 0, 32, 32}, {1, 1, 4, 1}, {1, 8, 32, 8}, {1, 32, 32, 32}, {2, 1, 4, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        global_atomics<<<1, 32>>>(sums, cases[i].together, cases[i].stride);
        struct simt_line it = atomic_line(0);
        CHECK(it.atomic && it.requests == 1 && it.sectors == cases[i].sectors && it.accesses == 32);
        CHECK(strstr(it.position, "core_traffic.cu:") != nullptr);
        shared_atomics<<<1, 32>>>(sums, cases[i].together, cases[i].stride);
        it = atomic_line(1);
        CHECK(it.shared && it.requests == 1 && it.wavefronts == cases[i].wavefronts && it.ideal == 1);
    }
}

static void check_loops(const float *in, float *out) {
    ragged_loop<<<1, 32>>>(in, out);
    struct simt_line it = line_of(4, 0, 0);
    CHECK(it.requests == 4 && it.accesses == 80);
    CHECK(it.sectors == 16);  // 4 a round: lanes 0-31 touch every sector as long as one lane in four goes on
    long_loop<<<1, 32>>>(in, out, 1000);
    it = line_of(4, 0, 0);
    CHECK(it.requests == 1000 && it.sectors == 4000 && it.ideal == 4000);
    long_loop<<<1, 64>>>(in, out, 1000);
    it = line_of(4, 0, 0);
    CHECK(it.requests == 2000 && it.sectors == 8000);
    half_warp<<<1, 32>>>(in, out);
    it = line_of(4, 0, 0);
    CHECK(it.requests == 1 && it.accesses == 16 && it.sectors == 2 && it.ideal == 2);
    several_blocks<<<5, 128>>>(in, out);
    it = line_of(4, 1, 1);
    CHECK(it.requests == 20 && it.wavefronts == 20);
    CHECK(strstr(it.position, "core_traffic.cu:") != nullptr);
}

int main(void) {
    float *in = nullptr, *out = nullptr;
    CHECK(cudaMalloc(&in, 1 << 16) == cudaSuccess && cudaMalloc(&out, 1 << 16) == cudaSuccess);
    CHECK(cudaMemset(in, 0, 1 << 16) == cudaSuccess && cudaMemset(out, 0, 1 << 16) == cudaSuccess);
    simt_set_profiling(1);
    static const struct sectors words[] = {{1, 0, 4, 4},  {1, 1, 5, 4}, {32, 0, 32, 4}, {2, 0, 8, 4},
                                           {8, 0, 32, 4}, {0, 7, 1, 4}, {-1, 31, 4, 4}, {1, 8, 4, 4}};
    static const struct sectors halves[] = {{1, 0, 2, 2}, {1, 1, 3, 2}, {16, 0, 32, 2}};
    static const struct sectors doubles[] = {{1, 0, 8, 8}, {1, 1, 9, 8}, {4, 0, 32, 8}};
    check_loads<float>(in, out, words, 8);
    check_loads<short>((const short *)in, out, halves, 3);
    check_loads<double>((const double *)in, out, doubles, 3);
    load_vectors<<<1, 32>>>((const float4 *)in, out);
    struct simt_line it = line_of(16, 0, 0);
    CHECK(it.requests == 1 && it.sectors == 16 && it.ideal == 16);
    check_shared(out);
    check_wide_loads(out);
    check_atomics((int *)out);
    for (unsigned long long schedule = 0; schedule < 6; schedule++) {
        simt_set_schedule(schedule);
        check_loops(in, out);
    }
    return check_done();
}
