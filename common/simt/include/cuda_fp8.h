// cuda_fp8.h - CUDA's 8-bit floating-point types e4m3 and e5m2 on the CPU (formats: common/numbers.h).
// Names and results are those of the CUDA Math API, "FP8 Intrinsics". There is no arithmetic: these are
// storage types.
#ifndef SIMT_CUDA_FP8_H
#define SIMT_CUDA_FP8_H

#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;  // element 0 in the low byte
typedef unsigned int __nv_fp8x4_storage_t;

// What becomes of a number past the largest finite one: NaN (e4m3) or infinity (e5m2), or the largest finite
// one.
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

// ---- Conversion to fp8: one rounding to nearest even; a NaN becomes 0x7f ----

SIMT_VALUE_FN __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate,
                                                       __nv_fp8_interpretation_t interpretation) {
    bool e4m3 = interpretation == __NV_E4M3;
    __nv_fp8_storage_t result = e4m3 ? e4m3_from_float(x) : e5m2_from_float(x);
    // Overflow starts where rounding would leave the largest finite value: the halfway point to the number
    // after it, which goes to even, and that is 448 for e4m3 but the number after it for e5m2.
    float magnitude = fabsf(x);
    bool overflow = e4m3 ? magnitude > 464.0f : magnitude >= 61440.0f;
    if (saturate == __NV_NOSAT && overflow) result = (result & 0x80) | (e4m3 ? 0x7f : 0x7c);
    return result;
}
// A NaN keeps its sign here, and as e5m2 its fraction, made quiet: as CUDA has it.
SIMT_VALUE_FN __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate,
                                                        __nv_fp8_interpretation_t interpretation) {
    if (x != x) {
        uint64_t bits = bits_of_double(x);
        unsigned int payload = interpretation == __NV_E4M3 ? 0x7f : 0x7e | (bits >> 50 & 3);
        return static_cast<__nv_fp8_storage_t>((bits >> 63 << 7) | payload);
    }
    return __nv_cvt_float_to_fp8(float_rounded_to_odd(x), saturate, interpretation);
}
SIMT_VALUE_FN __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturate,
                                                         __nv_fp8_interpretation_t interpretation) {
    return __nv_cvt_float_to_fp8(float_from_fp16(x.x), saturate, interpretation);
}
SIMT_VALUE_FN __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t saturate,
                                                             __nv_fp8_interpretation_t interpretation) {
    return __nv_cvt_float_to_fp8(float_from_bf16(x.x), saturate, interpretation);
}

namespace simt {
SIMT_VALUE_FN __nv_fp8x2_storage_t fp8_pair(__nv_fp8_storage_t low, __nv_fp8_storage_t high) {
    return static_cast<__nv_fp8x2_storage_t>(low | high << 8);
}
}  // namespace simt

#define SIMT_TO_FP8X2(name, source, convert)                                                                 \
    SIMT_VALUE_FN __nv_fp8x2_storage_t name(source x, __nv_saturation_t saturate,                            \
                                            __nv_fp8_interpretation_t interpretation) {                      \
        return simt::fp8_pair(convert(x.x, saturate, interpretation),                                        \
                              convert(x.y, saturate, interpretation));                                       \
    }
SIMT_TO_FP8X2(__nv_cvt_float2_to_fp8x2, float2, __nv_cvt_float_to_fp8)
SIMT_TO_FP8X2(__nv_cvt_double2_to_fp8x2, double2, __nv_cvt_double_to_fp8)
#undef SIMT_TO_FP8X2
SIMT_VALUE_FN __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw x, __nv_saturation_t saturate,
                                                              __nv_fp8_interpretation_t interpretation) {
    return __nv_cvt_float2_to_fp8x2(float2(float_from_fp16(x.x), float_from_fp16(x.y)), saturate,
                                    interpretation);
}
SIMT_VALUE_FN __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw x,
                                                                  __nv_saturation_t saturate,
                                                                  __nv_fp8_interpretation_t interpretation) {
    return __nv_cvt_float2_to_fp8x2(float2(float_from_bf16(x.x), float_from_bf16(x.y)), saturate,
                                    interpretation);
}

// ---- Conversion from fp8: exact; a NaN becomes 0x7fff ----

SIMT_VALUE_FN __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x,
                                                 __nv_fp8_interpretation_t interpretation) {
    return __half(interpretation == __NV_E4M3 ? float_from_e4m3(x) : float_from_e5m2(x));
}
SIMT_VALUE_FN __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x,
                                                     __nv_fp8_interpretation_t interpretation) {
    __nv_fp8_storage_t low = static_cast<__nv_fp8_storage_t>(x & 0xff);
    __nv_fp8_storage_t high = static_cast<__nv_fp8_storage_t>(x >> 8);
    return __half2_raw{__nv_cvt_fp8_to_halfraw(low, interpretation).x,
                       __nv_cvt_fp8_to_halfraw(high, interpretation).x};
}

// ---- The types: saturating constructors, exact conversions back. __x holds the bits ----

#define SIMT_FP8_TYPES(name, interpretation)                                                                 \
    struct __nv_fp8_##name {                                                                                 \
        __nv_fp8_storage_t __x;                                                                              \
        __nv_fp8_##name() = default;                                                                         \
        SIMT_RAW_COPY(__nv_fp8_##name, raw1, 1)                                                              \
        SIMT_VALUE_FN explicit __nv_fp8_##name(float f) : __x(name##_from_float(f)) {}                       \
        SIMT_VALUE_FN explicit __nv_fp8_##name(double f)                                                     \
            : __x(__nv_cvt_double_to_fp8(f, __NV_SATFINITE, interpretation)) {}                              \
        SIMT_VALUE_FN explicit __nv_fp8_##name(__half f) : __nv_fp8_##name(float(f)) {}                      \
        SIMT_VALUE_FN explicit __nv_fp8_##name(__nv_bfloat16 f) : __nv_fp8_##name(float(f)) {}               \
        template <class Integer, class = std::enable_if_t<std::is_integral<Integer>::value>>                 \
        SIMT_VALUE_FN explicit __nv_fp8_##name(Integer i)                                                    \
            : __nv_fp8_##name(simt::double_for_narrowing(i)) {}                                              \
        SIMT_VALUE_FN explicit operator float() const { return float_from_##name(__x); }                     \
        SIMT_VALUE_FN explicit operator double() const { return double(float_from_##name(__x)); }            \
        SIMT_VALUE_FN explicit operator __half() const { return __half(float_from_##name(__x)); }            \
        SIMT_VALUE_FN explicit operator __nv_bfloat16() const {                                              \
            return __nv_bfloat16(float_from_##name(__x));                                                    \
        }                                                                                                    \
    };                                                                                                       \
    struct alignas(2) __nv_fp8x2_##name {                                                                    \
        __nv_fp8x2_storage_t __x;                                                                            \
        __nv_fp8x2_##name() = default;                                                                       \
        SIMT_RAW_COPY(__nv_fp8x2_##name, raw2, 1)                                                            \
        SIMT_VALUE_FN explicit __nv_fp8x2_##name(float2 f)                                                   \
            : __x(__nv_cvt_float2_to_fp8x2(f, __NV_SATFINITE, interpretation)) {}                            \
        SIMT_VALUE_FN explicit __nv_fp8x2_##name(double2 f)                                                  \
            : __x(__nv_cvt_double2_to_fp8x2(f, __NV_SATFINITE, interpretation)) {}                           \
        SIMT_VALUE_FN explicit __nv_fp8x2_##name(__half2 f) : __nv_fp8x2_##name(__half22float2(f)) {}        \
        SIMT_VALUE_FN explicit __nv_fp8x2_##name(__nv_bfloat162 f)                                           \
            : __nv_fp8x2_##name(__bfloat1622float2(f)) {}                                                    \
        SIMT_VALUE_FN explicit operator float2() const {                                                     \
            return float2(float_from_##name(__x & 0xff), float_from_##name(__x >> 8));                       \
        }                                                                                                    \
        SIMT_VALUE_FN explicit operator __half2() const {                                                    \
            return __half2(__nv_cvt_fp8x2_to_halfraw2(__x, interpretation));                                 \
        }                                                                                                    \
    };                                                                                                       \
    struct alignas(4) __nv_fp8x4_##name {                                                                    \
        __nv_fp8x4_storage_t __x;                                                                            \
        __nv_fp8x4_##name() = default;                                                                       \
        SIMT_RAW_COPY(__nv_fp8x4_##name, raw4, 1)                                                            \
        SIMT_VALUE_FN explicit __nv_fp8x4_##name(float4 f)                                                   \
            : __x(__nv_fp8x2_##name(float2(f.x, f.y)).__x |                                                  \
                  static_cast<unsigned int>(__nv_fp8x2_##name(float2(f.z, f.w)).__x) << 16) {}               \
        SIMT_VALUE_FN explicit __nv_fp8x4_##name(__half2 low, __half2 high)                                  \
            : __x(__nv_fp8x2_##name(low).__x | static_cast<unsigned int>(__nv_fp8x2_##name(high).__x)        \
                                                   << 16) {}                                                 \
        SIMT_VALUE_FN explicit operator float4() const {                                                     \
            return float4(float_from_##name(__x & 0xff), float_from_##name(__x >> 8 & 0xff),                 \
                          float_from_##name(__x >> 16 & 0xff), float_from_##name(__x >> 24));                \
        }                                                                                                    \
    };
SIMT_FP8_TYPES(e4m3, __NV_E4M3)
SIMT_FP8_TYPES(e5m2, __NV_E5M2)
#undef SIMT_FP8_TYPES

#endif
