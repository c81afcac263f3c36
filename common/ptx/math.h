// math.h - arithmetic instructions that CUDA C has no name for, or a longer one: 2^x, and conversions that
// pack several numbers into one register, as the fragments of matrix.h and wgmma.h take them.
#ifndef PTX_MATH_H
#define PTX_MATH_H

#include "base.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <type_traits>
#if !defined(__CUDACC__)
#include <simt_matrix.h>
#endif

// 2^x, at most 2 units in the last place off (PTX ISA, "ex2"). Subnormal numbers count as zero: ex2(x) is 1
// for a subnormal x, and 0 for x < -126. ex2(-inf) is 0: a masked score. One instruction of the special
// function units, 16 of them a cycle and multiprocessor; e^x is ex2(x * log2(e)).
#if defined(__CUDACC__)
PTX_FN float ex2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
#else
PTX_FN float ex2(float x) { return simt::exp2_flushed(x); }
#endif

// Two numbers rounded to T (__half or __nv_bfloat16; to nearest even), `low` in the low half (PTX ISA, "cvt";
// sm_80). The instruction names the high one first. A NaN becomes 0x7fff.
template <class T> PTX_FN uint32_t pack2(float low, float high) {
    static_assert(std::is_same<T, __half>::value || std::is_same<T, __nv_bfloat16>::value,
                  "pack2 makes __half or __nv_bfloat16");
#if defined(__CUDACC__)
    uint32_t result;
    if constexpr (std::is_same<T, __half>::value)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
#else
    if constexpr (std::is_same<T, __half>::value)
        return __half_as_ushort(__float2half_rn(low)) | (uint32_t)__half_as_ushort(__float2half_rn(high))
                                                            << 16;
    else
        return __bfloat16_as_ushort(__float2bfloat16_rn(low)) |
               (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(high)) << 16;
#endif
}

// Four numbers rounded to e4m3 (to nearest even), x0 in the lowest byte (PTX ISA, "cvt"; an instruction since
// sm_89, before that CUDA's header computes it). What is past 448, infinity too, becomes 448; a NaN becomes
// 0x7f.
PTX_FN uint32_t pack4_e4m3(float x0, float x1, float x2, float x3) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(x1), "f"(x0));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(x3), "f"(x2));
    return low | (uint32_t)high << 16;
#else
    return __nv_fp8x4_e4m3(make_float4(x0, x1, x2, x3)).__x;
#endif
}

#endif
