// core_flops.cu - cpu backend only: what --profile counts of a kernel's arithmetic. Each kernel's FLOPs,
// exponentials and barriers are known from its source; the counts must be just these, whatever the compiler
// made of the loops and branches.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "common/ptx.h"

struct work {
    unsigned long long fp32, exps, barriers;
};

static struct simt_launch_stats last_launch(void) {
    static struct simt_launch_stats stats[4];
    CHECK(simt_take_launch_stats(stats, 4) == 1 && cudaGetLastError() == cudaSuccess);
    return stats[0];
}

#define EXPECT_WORK(...) expect_work(__LINE__, {__VA_ARGS__})
static void expect_work(int line, struct work want) {
    struct simt_launch_stats got = last_launch();
    bool same = got.fp32_flops == want.fp32 && got.exp_count == want.exps && got.barriers == want.barriers;
    if (CHECK(same && "the launch before line")) return;
    fprintf(stderr, "  line %d: %llu FLOPs, %llu exponentials, %llu barriers; not %llu, %llu, %llu\n", line,
            got.fp32_flops, got.exp_count, got.barriers, want.fp32, want.exps, want.barriers);
}

// ---- One operation after the other ----

__global__ void products(const float *a, const float *b, float *out, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    out[threadIdx.x] = sum;
}

// Nothing here touches memory but the last line.
__global__ void no_memory(float x, float *out, int n) {
    float y = x;
    for (int i = 0; i < n; i++) y = (y - x) * y + 0.25f;  // 3
    out[threadIdx.x] = y;
}

__global__ void each_operation(const float *a, float *out) {
    float x = a[0], y = a[1], z = a[2];
    out[0] = x + y;
    out[1] = x - y;
    out[2] = x * y;
    out[3] = x / y;
    out[4] = sqrtf(x);
    out[5] = fmaf(x, y, z);       // 2
    out[6] = __fmaf_rn(y, z, x);  // 2
    out[7] = __fadd_rn(x, z);
    out[8] = __fmul_rn(x, z);
    out[9] = __frcp_rn(z);
}

// None of these is a FLOP.
__global__ void no_operations(const float *a, const int *i, const unsigned long long *u, float *out) {
    float x = a[0], y = a[1];
    out[0] = -x;
    out[1] = fabsf(y);
    out[2] = fmaxf(x, y);
    out[3] = fminf(x, y);
    out[4] = x < y ? x : y;
    out[5] = (float)i[0];
    out[6] = (float)(int)y;
    out[7] = (float)u[0];
    out[8] = (float)u[1];
    out[9] = __uint_as_float(__float_as_uint(x) ^ 0x80000000u);
    out[10] = floorf(x);
    out[11] = (float)((double)x * (double)y + 1.0);  // fp64
    out[12] = logf(x);                               // a call, whatever is in it
    out[13] = (float)__float2int_rn(y);
    out[14] = copysignf(x, y);
    out[15] = __saturatef(x);
    out[16] = ceilf(x) < truncf(y) ? x : rintf(y);
    out[17] = (float)(unsigned long long)y;
    out[18] = (float)(unsigned)x;
    out[19] = (float)__float2ull_rz(x);
}

__global__ void other_types(half *h, __nv_bfloat16 *b, double *d, float *out) {
    h[0] = h[1] + h[2];
    h[3] = __hfma(h[0], h[1], h[2]);
    h[4] = h[1] / h[2] - h[0] * h[1];
    half2 pair = __hmul2(__half2half2(h[1]), __half2half2(h[2]));
    h[5] = pair.x;
    b[0] = b[1] * b[2];
    d[0] = d[1] * d[2] + d[3];
    atomicAdd(out, __half2float(h[0]));
    atomicAdd(d, 1.0);
    out[1] = __half2float(h[1]) * __bfloat162float(b[1]);  // the only one
    h[6] = __float2half(1e-6f * out[1]);                   // and this: 2
}

__global__ void exponentials(const float *a, float *out) {
    float x = a[threadIdx.x];
    float sum = expf(x);
    sum += exp2f(x);
    sum += __expf(x);  // 1 more, in it
    sum += ex2(x);
    sum += std::exp(a[3]);  // of another number: once for both if it were the same
    if (threadIdx.x % 2) sum += exp10f(x);
    out[threadIdx.x] = sum;  // 4 additions, of the odd threads 5
}

// ---- Where the threads go ----

__global__ void branches(const float *a, float *out, int n) {
    float x = a[threadIdx.x], y = x;
    if (threadIdx.x >= 40) return;  // a whole warp leaves, and of another some
    for (int i = 0; i < n; i++) {
        if (i % 3 == 0) {
            y *= x;
            continue;
        }
        if (i == 7 && threadIdx.x % 2) break;
        y = y + x * (float)i;
        for (int j = 0; j < i; j++) y -= 1.5f;
    }
    out[threadIdx.x] = y;
}
static unsigned long long branches_flops(int n) {
    unsigned long long flops = 0;
    for (int thread = 0; thread < 40; thread++)
        for (int i = 0; i < n; i++) {
            if (i % 3 == 0)
                flops += 1;
            else if (i == 7 && thread % 2)
                break;
            else
                flops += 2 + i;
        }
    return flops;
}

static __device__ float __noinline__ step(float x, int kind) {
    switch (kind) {
    case 0:
        return x + 1;
    case 1:
        return x * 3 - 1;
    case 2:
    case 3:
        x -= 2;  // falls through
    case 4:
        return x / 7;
    case 5:
        return sqrtf(x + 1) * 2;
    case 6:
        return expf(x);
    }
    return x;
}
__global__ void switches(const float *a, float *out, int n) {
    float x = a[threadIdx.x];
    for (int i = 0; i < n; i++) x = step(x, (i + (int)threadIdx.x) % 8);
    out[threadIdx.x] = x;
}

static __device__ float power(float x, int n) { return n == 0 ? 1.0f : x * power(x, n - 1); }
__global__ void recursion(const float *a, float *out, int n) { out[threadIdx.x] = power(a[threadIdx.x], n); }

// ---- What the labs are made of ----

struct pair {
    float m, l;
};
static __device__ struct pair merge(struct pair a, struct pair b) {
    struct pair high = a.m < b.m ? b : a;
    struct pair low = a.m < b.m ? a : b;
    high.l += low.l * (low.m == -INFINITY ? 0.0f : expf(low.m - high.m));  // 2, and 2 with the exponential
    return high;
}
__global__ void merges(const float4 *a, float4 *out, int n) {
    struct pair sum = {-INFINITY, 0.0f};
    float4 v = make_float4(0, 0, 0, 0);
    for (int i = 0; i < n; i++) {
        float4 x = a[i];
        v.x += x.x;
        v.y += 2 * x.y;
        v.z = v.z * x.z + x.w;  // 1 + 2 + 2
        sum = merge(sum, {x.x, 1.0f});
    }
    v.w = sum.m + sum.l;  // 1
    out[threadIdx.x] = v;
}

template <int SIDE> __global__ void tiles(const float *in, float *out, int n) {
    __shared__ float a_smem[SIDE][SIDE];
    float sum_reg[SIDE] = {};
    for (int first = 0; first < n; first += SIDE) {
        __syncthreads();  // nobody still reads the tile before
        for (int i = threadIdx.x; i < SIDE * SIDE; i += blockDim.x) a_smem[i / SIDE][i % SIDE] = in[i];
        __syncthreads();  // the tile is whole
#pragma unroll
        for (int c = 0; c < SIDE; c++)
            for (int r = 0; r < SIDE; r++) sum_reg[c] += a_smem[r][c] * a_smem[c][r];
    }
    float sum = 0;
    for (int c = 0; c < SIDE; c++) sum += sum_reg[c];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = sum;
}

__global__ void named_barriers(float *out) {
    int warp = threadIdx.x / 32;
    if (warp == 3) return;
    if (warp < 2) bar_sync(1, 64);     // 2 warps
    if (warp == 2) bar_arrive(2, 64);  // does not wait
    if (warp == 0) bar_sync(2, 64);    // 1 warp
    __syncthreads();                   // 3 warps
    out[threadIdx.x] = 1.0f;
}

// No disassembler: what it would tell is not known, and not 0; what is counted otherwise is there.
static void check_without_objdump(const float *a, float *out) {
    setenv("PATH", "/nowhere", 1);
    tiles<8><<<1, 64>>>(a, out, 8);
    EXPECT_WORK(SIMT_NOT_COUNTED, SIMT_NOT_COUNTED, 2 * 2);
}

int main(int argc, char **argv) {
    float values[256], *a, *out;
    for (int i = 0; i < 256; i++) values[i] = 0.5f + (float)(i % 7);
    cudaMalloc(&a, sizeof values);
    cudaMalloc(&out, 1024);
    cudaMemcpy(a, values, sizeof values, cudaMemcpyHostToDevice);
    cudaMemset(out, 0, 1024);
    int *integers;
    unsigned long long *large, two[] = {5, ~0ull};
    half *halves;
    __nv_bfloat16 *narrow;
    double *wide;
    cudaMalloc(&integers, 64);
    cudaMalloc(&large, sizeof two);
    cudaMalloc(&halves, 64);
    cudaMalloc(&narrow, 64);
    cudaMalloc(&wide, 64);
    cudaMemset(integers, 0, 64);
    cudaMemcpy(large, two, sizeof two, cudaMemcpyHostToDevice);
    cudaMemset(halves, 1, 64);
    cudaMemset(narrow, 1, 64);
    cudaMemset(wide, 1, 64);

    products<<<1, 32>>>(a, a, out, 10);
    CHECK(last_launch().fp32_flops == 0);  // without profiling nothing is counted
    simt_set_profiling(1);
    if (argc > 1 && !strcmp(argv[1], "without_objdump")) {
        check_without_objdump(a, out);
        return check_done();
    }

    products<<<1, 1>>>(a, a, out, 1);
    EXPECT_WORK(2, 0, 0);
    products<<<1, 1>>>(a, a, out, 0);
    EXPECT_WORK(0, 0, 0);
    products<<<7, 96>>>(a, a, out, 100);
    EXPECT_WORK(7 * 96 * 100 * 2, 0, 0);
    no_memory<<<3, 64>>>(0.5f, out, 33);
    EXPECT_WORK(3 * 64 * 33 * 3, 0, 0);
    each_operation<<<1, 5>>>(a, out);
    EXPECT_WORK(5 * 12, 0, 0);
    no_operations<<<1, 1>>>(a, integers, large, out);
    EXPECT_WORK(0, 0, 0);
    other_types<<<1, 1>>>(halves, narrow, wide, out);
    EXPECT_WORK(2, 0, 0);
    exponentials<<<1, 32>>>(a, out);
    EXPECT_WORK(32 * 5 + 16, 32 * 5 + 16, 0);

    for (int n = 0; n < 20; n += 6) {
        branches<<<2, 96>>>(a, out, n);
        EXPECT_WORK(2 * branches_flops(n), 0, 0);
    }
    switches<<<2, 32>>>(a, out, 8);  // every thread once each way: 1 + 2 + 2 + 2 + 1 + 3
    EXPECT_WORK(2 * 32 * 11, 2 * 32, 0);
    recursion<<<1, 32>>>(a, out, 9);
    EXPECT_WORK(32 * 9, 0, 0);

    merges<<<1, 32>>>((const float4 *)a, (float4 *)out, 16);
    EXPECT_WORK(32 * (16 * 5 + 16 * 2 + 15 + 1), 32 * 15, 0);
    tiles<8><<<3, 64>>>(a, out, 40);
    EXPECT_WORK(3 * 64 * (5 * 8 * 8 * 2 + 8 + 5), 0, 3 * 2 * 5 * 2);
    tiles<16><<<1, 128>>>(a, out, 16);
    EXPECT_WORK(128 * (16 * 16 * 2 + 16 + 5), 0, 4 * 2);
    named_barriers<<<2, 128>>>(out);
    EXPECT_WORK(0, 0, 2 * 6);
    return check_done();
}
