// cuda_bf16.h - CUDA's bfloat16 type (the upper half of a float) on the CPU.
// Names and results are those of the CUDA Math API, "Bfloat16 Precision Intrinsics"; what fp16 and bf16 share
// is in simt_float16.inc.
#ifndef SIMT_CUDA_BF16_H
#define SIMT_CUDA_BF16_H

#include "simt_float16.h"

#define F16 __nv_bfloat16
#define F16X2 __nv_bfloat162
#define F16_RAW __nv_bfloat16_raw
#define F16X2_RAW __nv_bfloat162_raw
#define F16_FROM_FLOAT bf16_from_float
#define F16_FROM_DOUBLE bf16_from_double
// What cvt.rn.bf16.f64 makes of a NaN on an H200: it keeps the sign. All else gives 0x7fff.
#define F16_NAN_FROM_DOUBLE static_cast<unsigned short>(__builtin_signbit(value) ? 0xffc0 : 0x7fc0)
#define F16_TO_FLOAT float_from_bf16
#include "simt_float16.inc"

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7f80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16(0x7fff)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7f7f)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0)
#define CUDART_ONE_BF16 __ushort_as_bfloat16(0x3f80)

// ---- Conversions: float, double; _rn to nearest even, _rz toward zero, _rd down, _ru up ----

SIMT_VALUE_FN float __bfloat162float(__nv_bfloat16 a) { return float(a); }
SIMT_VALUE_FN __nv_bfloat16 __float2bfloat16(float a) { return __nv_bfloat16(a); }
SIMT_VALUE_FN __nv_bfloat16 __float2bfloat16_rn(float a) { return __nv_bfloat16(a); }
SIMT_VALUE_FN __nv_bfloat16 __float2bfloat16_rz(float a) { return simt::toward_zero(__nv_bfloat16(a), a); }
SIMT_VALUE_FN __nv_bfloat16 __float2bfloat16_rd(float a) { return simt::downward(__nv_bfloat16(a), a); }
SIMT_VALUE_FN __nv_bfloat16 __float2bfloat16_ru(float a) { return simt::upward(__nv_bfloat16(a), a); }
SIMT_VALUE_FN __nv_bfloat16 __double2bfloat16(double a) { return __nv_bfloat16(a); }

// ---- Conversions: pairs. low is x, high is y ----

SIMT_VALUE_FN __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162(x, y); }
SIMT_VALUE_FN __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) {
    return __nv_bfloat162(low, high);
}
SIMT_VALUE_FN __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return __nv_bfloat162(a, a); }
SIMT_VALUE_FN __nv_bfloat162 __float2bfloat162_rn(float a) {
    return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(a));
}
SIMT_VALUE_FN __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
    return __nv_bfloat162(__nv_bfloat16(low), __nv_bfloat16(high));
}
SIMT_VALUE_FN __nv_bfloat162 __float22bfloat162_rn(float2 a) {
    return __nv_bfloat162(__nv_bfloat16(a.x), __nv_bfloat16(a.y));
}
SIMT_VALUE_FN float2 __bfloat1622float2(__nv_bfloat162 a) { return float2(float(a.x), float(a.y)); }
SIMT_VALUE_FN __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
SIMT_VALUE_FN __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
SIMT_VALUE_FN __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return __nv_bfloat162(a.x, a.x); }
SIMT_VALUE_FN __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return __nv_bfloat162(a.y, a.y); }
SIMT_VALUE_FN __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) {
    return __nv_bfloat162(a.x, b.x);
}
SIMT_VALUE_FN __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) {
    return __nv_bfloat162(a.y, b.y);
}

// ---- Conversions: bits and integers ----

SIMT_VALUE_FN unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.simt_bits; }
SIMT_VALUE_FN short __bfloat16_as_short(__nv_bfloat16 a) { return static_cast<short>(a.simt_bits); }
SIMT_VALUE_FN __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return __nv_bfloat16::simt_from_bits(bits);
}
SIMT_VALUE_FN __nv_bfloat16 __short_as_bfloat16(short bits) {
    return __nv_bfloat16::simt_from_bits(static_cast<unsigned short>(bits));
}
#define SIMT_BFLOAT16_INTEGER(name, integer)                                                                 \
    SIMT_VALUE_FN integer __bfloat162##name##_rn(__nv_bfloat16 a) {                                          \
        return simt::saturated<integer>(std::nearbyint(float(a)));                                           \
    }                                                                                                        \
    SIMT_VALUE_FN integer __bfloat162##name##_rz(__nv_bfloat16 a) {                                          \
        return simt::saturated<integer>(std::trunc(float(a)));                                               \
    }                                                                                                        \
    SIMT_VALUE_FN integer __bfloat162##name##_rd(__nv_bfloat16 a) {                                          \
        return simt::saturated<integer>(std::floor(float(a)));                                               \
    }                                                                                                        \
    SIMT_VALUE_FN integer __bfloat162##name##_ru(__nv_bfloat16 a) {                                          \
        return simt::saturated<integer>(std::ceil(float(a)));                                                \
    }                                                                                                        \
    SIMT_VALUE_FN __nv_bfloat16 __##name##2bfloat16_rn(integer i) { return __nv_bfloat16(i); }
SIMT_BFLOAT16_INTEGER(short, short)
SIMT_BFLOAT16_INTEGER(ushort, unsigned short)
SIMT_BFLOAT16_INTEGER(int, int)
SIMT_BFLOAT16_INTEGER(uint, unsigned int)
SIMT_BFLOAT16_INTEGER(ll, long long)
SIMT_BFLOAT16_INTEGER(ull, unsigned long long)
#undef SIMT_BFLOAT16_INTEGER

#endif
