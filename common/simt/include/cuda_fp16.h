// cuda_fp16.h - CUDA's half precision type (1 sign, 5 exponent, 10 fraction bits) on the CPU.
// Names and results are those of the CUDA Math API, "Half Precision Intrinsics"; what fp16 and bf16 share is
// in simt_float16.inc.
#ifndef SIMT_CUDA_FP16_H
#define SIMT_CUDA_FP16_H

#include "simt_float16.h"

#define F16 __half
#define F16X2 __half2
#define F16_RAW __half_raw
#define F16X2_RAW __half2_raw
#define F16_FROM_FLOAT fp16_from_float
#define F16_FROM_DOUBLE fp16_from_double
// What cvt.rn.f16.f64 makes of a NaN on an H200: it keeps the sign. All else gives 0x7fff.
#define F16_NAN_FROM_DOUBLE static_cast<unsigned short>(__builtin_signbit(value) ? 0xfe00 : 0x7e00)
#define F16_TO_FLOAT float_from_fp16
#include "simt_float16.inc"

typedef __half half;
typedef __half2 half2;

#define CUDART_INF_FP16 __ushort_as_half(0x7c00)
#define CUDART_NAN_FP16 __ushort_as_half(0x7fff)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7bff)
#define CUDART_ZERO_FP16 __ushort_as_half(0)
#define CUDART_ONE_FP16 __ushort_as_half(0x3c00)

// ---- Conversions: float, double; _rn to nearest even, _rz toward zero, _rd down, _ru up ----

SIMT_VALUE_FN float __half2float(__half a) { return float(a); }
SIMT_VALUE_FN __half __float2half(float a) { return __half(a); }
SIMT_VALUE_FN __half __float2half_rn(float a) { return __half(a); }
SIMT_VALUE_FN __half __float2half_rz(float a) { return simt::toward_zero(__half(a), a); }
SIMT_VALUE_FN __half __float2half_rd(float a) { return simt::downward(__half(a), a); }
SIMT_VALUE_FN __half __float2half_ru(float a) { return simt::upward(__half(a), a); }
SIMT_VALUE_FN __half __double2half(double a) { return __half(a); }

// ---- Conversions: pairs. low is x, high is y ----

SIMT_VALUE_FN __half2 make_half2(__half x, __half y) { return __half2(x, y); }
SIMT_VALUE_FN __half2 __halves2half2(__half low, __half high) { return __half2(low, high); }
SIMT_VALUE_FN __half2 __half2half2(__half a) { return __half2(a, a); }
SIMT_VALUE_FN __half2 __float2half2_rn(float a) { return __half2(__half(a), __half(a)); }
SIMT_VALUE_FN __half2 __floats2half2_rn(float low, float high) { return __half2(__half(low), __half(high)); }
SIMT_VALUE_FN __half2 __float22half2_rn(float2 a) { return __half2(__half(a.x), __half(a.y)); }
SIMT_VALUE_FN float2 __half22float2(__half2 a) { return float2(float(a.x), float(a.y)); }
SIMT_VALUE_FN __half __low2half(__half2 a) { return a.x; }
SIMT_VALUE_FN __half __high2half(__half2 a) { return a.y; }
SIMT_VALUE_FN __half2 __low2half2(__half2 a) { return __half2(a.x, a.x); }
SIMT_VALUE_FN __half2 __high2half2(__half2 a) { return __half2(a.y, a.y); }
SIMT_VALUE_FN __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
SIMT_VALUE_FN __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }

// ---- Conversions: bits and integers ----

SIMT_VALUE_FN unsigned short __half_as_ushort(__half a) { return a.simt_bits; }
SIMT_VALUE_FN short __half_as_short(__half a) { return static_cast<short>(a.simt_bits); }
SIMT_VALUE_FN __half __ushort_as_half(unsigned short bits) { return __half::simt_from_bits(bits); }
SIMT_VALUE_FN __half __short_as_half(short bits) {
    return __half::simt_from_bits(static_cast<unsigned short>(bits));
}
#define SIMT_HALF_INTEGER(name, integer)                                                                     \
    SIMT_VALUE_FN integer __half2##name##_rn(__half a) {                                                     \
        return simt::saturated<integer>(std::nearbyint(float(a)));                                           \
    }                                                                                                        \
    SIMT_VALUE_FN integer __half2##name##_rz(__half a) {                                                     \
        return simt::saturated<integer>(std::trunc(float(a)));                                               \
    }                                                                                                        \
    SIMT_VALUE_FN integer __half2##name##_rd(__half a) {                                                     \
        return simt::saturated<integer>(std::floor(float(a)));                                               \
    }                                                                                                        \
    SIMT_VALUE_FN integer __half2##name##_ru(__half a) {                                                     \
        return simt::saturated<integer>(std::ceil(float(a)));                                                \
    }                                                                                                        \
    SIMT_VALUE_FN __half __##name##2half_rn(integer i) { return __half(i); }
SIMT_HALF_INTEGER(short, short)
SIMT_HALF_INTEGER(ushort, unsigned short)
SIMT_HALF_INTEGER(int, int)
SIMT_HALF_INTEGER(uint, unsigned int)
SIMT_HALF_INTEGER(ll, long long)
SIMT_HALF_INTEGER(ull, unsigned long long)
#undef SIMT_HALF_INTEGER

#endif
