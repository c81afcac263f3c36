// lab16.h - what the kernels of labs 04 and later share and none of them is about: which instance of a
// template fits a 16-bit storage type and head_dim, and rows of O once more where V holds a NaN that they do
// not see.
//
// CUDA C, for .cu files only.
#ifndef LAB16_H
#define LAB16_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <float.h>
#include <math.h>
#include <type_traits>

#include "attention.h"
#include "lab.h"
#include "ptx.h"

// Calls the one of KERNEL_OF<T, D>(a) that fits a.dtype and a.head_dim: T is half or __nv_bfloat16, D 64 or
// 128, with LAB16_LAUNCH_WIDE 256 as well; what is missing to D is for the kernel to fill with 0. Nothing to
// do without queries; a backward pass has dK and dV of keys that nobody sees to set to 0, and finds out
// itself what has no blocks. The wrong kernels of tests/wrong need fewer instances: with LAB16_HALF_ONLY half
// is all there is, and LAB16_DIM_MAX is the largest D.
typedef void lab16_launcher(struct attention a);
struct lab16_launchers {
    lab16_launcher *dim_64, *dim_128, *dim_256;
};
#if defined(LAB16_DIM_MAX) && LAB16_DIM_MAX < 128
#define LAB16_OF(KERNEL_OF, T)                                                                               \
    { KERNEL_OF<T, 64>, nullptr, nullptr }
#else
#define LAB16_OF(KERNEL_OF, T)                                                                               \
    { KERNEL_OF<T, 64>, KERNEL_OF<T, 128>, nullptr }
#endif
#if defined(LAB16_DIM_MAX) && LAB16_DIM_MAX < 256
#define LAB16_WIDE_OF LAB16_OF
#else
#define LAB16_WIDE_OF(KERNEL_OF, T)                                                                          \
    { KERNEL_OF<T, 64>, KERNEL_OF<T, 128>, KERNEL_OF<T, 256> }
#endif
#ifdef LAB16_HALF_ONLY
#define LAB16_LAUNCH(a, KERNEL_OF) lab16_launch(a, LAB16_OF(KERNEL_OF, half), {})
#define LAB16_LAUNCH_WIDE(a, KERNEL_OF) lab16_launch(a, LAB16_WIDE_OF(KERNEL_OF, half), {})
#else
#define LAB16_LAUNCH(a, KERNEL_OF)                                                                           \
    lab16_launch(a, LAB16_OF(KERNEL_OF, half), LAB16_OF(KERNEL_OF, __nv_bfloat16))
#define LAB16_LAUNCH_WIDE(a, KERNEL_OF)                                                                      \
    lab16_launch(a, LAB16_WIDE_OF(KERNEL_OF, half), LAB16_WIDE_OF(KERNEL_OF, __nv_bfloat16))
#endif
static inline void lab16_launch(struct attention a, struct lab16_launchers of_half,
                                struct lab16_launchers of_bf16) {
    if (query_count(&a) == 0 && (!a.dk.data || key_count(&a) == 0)) return;
    struct lab16_launchers of = a.dtype == DTYPE_FP16 ? of_half : of_bf16;
    lab16_launcher *launcher = a.head_dim <= 64 ? of.dim_64 : a.head_dim <= 128 ? of.dim_128 : of.dim_256;
    bool is_16_bit = a.dtype == DTYPE_FP16 || a.dtype == DTYPE_BF16;
    CUDA_CHECK(launcher && is_16_bit ? cudaSuccess : cudaErrorNotSupported);
    launcher(a);
    CUDA_CHECK(cudaGetLastError());
}

// |scale| * log2(e), what scores are multiplied by for exponentials to the base 2. Not 0, which makes NaN of
// -inf, a masked score, and finite: infinity makes NaN of 0, a score of a query that is 0.
static inline float lab16_factor(const struct attention *a) {
    constexpr float LOG2_OF_E = 1.44269504f, LEAST = 1.2e-38f;  // a normal number
    return fminf(fmaxf(fabsf(a->scale) * LOG2_OF_E, LEAST), FLT_MAX);
}

// The two numbers of a 32-bit register, the lower half first. (pack2 of ptx.h is the way back.)
template <class T> static __device__ __forceinline__ float2 unpack2(uint32_t packed) {
    if constexpr (std::is_same<T, half>::value)
        return __half22float2(*(const half2 *)&packed);
    else
        return __bfloat1622float2(*(const __nv_bfloat162 *)&packed);
}

// One row of O = softmax(scale Q K^T) V again, by one warp, in fp32 and from the keys that its query sees
// alone. Tensor cores multiply whole tiles: a key that a query does not see has a probability of 0 there, but
// 0 times a NaN or an infinity in V is a NaN. m, the row's largest score or a number near it, and 1 / l are
// right all the same: a masked score is chosen away, not multiplied away. Slow, and needed only where V has
// such numbers.
//   q [head_dim]; k, v: key 0 of their sequence and head, rows `stride` apart; o [head_dim]; visible: the
//   keys; PAIRS: of columns that a lane has, 64 columns each
template <class T, int PAIRS = 2>
static __device__ void recompute_row(const T *q, const T *k, int64_t k_stride, const T *v, int64_t v_stride,
                                     T *o, int head_dim, struct span visible, float scale, float m,
                                     float inverse_l) {
    constexpr unsigned ALL = 0xffffffffu;
    constexpr int LANES = 32;
    int lane = threadIdx.x % LANES;
    float2 sum_reg[PAIRS] = {};  // of the pairs of columns lane, lane + 32, ...
    for (int first = visible.first; first < visible.end; first += LANES) {
        int key = first + lane;
        float p = 0.0f;  // of the lane's own key
        for (int c = 0; key < visible.end && c < head_dim; c += 2) {
            float2 x = unpack2<T>(*(const uint32_t *)(q + c));
            float2 y = unpack2<T>(*(const uint32_t *)(k + key * k_stride + c));
            p += x.x * y.x + x.y * y.y;
        }
        p = key < visible.end ? __expf(p * scale - (m == -INFINITY ? 0.0f : m)) * inverse_l : 0.0f;
        for (int n = 0; n < LANES && first + n < visible.end; n++) {
            float p_n = __shfl_sync(ALL, p, n);
#pragma unroll
            for (int e = 0; e < PAIRS; e++) {
                int c = 2 * (lane + e * LANES);
                if (c >= head_dim) continue;
                float2 x = unpack2<T>(*(const uint32_t *)(v + (first + n) * v_stride + c));
                sum_reg[e].x += p_n * x.x;
                sum_reg[e].y += p_n * x.y;
            }
        }
    }
#pragma unroll
    for (int e = 0; e < PAIRS; e++)
        if (2 * (lane + e * LANES) < head_dim)
            ((uint32_t *)o)[lane + e * LANES] = pack2<T>(sum_reg[e].x, sum_reg[e].y);
}

#endif
