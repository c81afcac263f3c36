// numbers.h - the storage types of the labs and their exact conversions, for host code and for the CPU
// backend.
//
//     type   sign exponent fraction   largest    smallest > 0   half an ulp at 1   specials
//     fp16    1      5        10      65504        2^-24            2^-11          inf, NaN
//     bf16    1      8         7      3.39e38      2^-133           2^-8           inf, NaN
//     e4m3    1      4         3      448          2^-9             2^-4           NaN only (0x7f, 0xff)
//     e5m2    1      5         2      57344        2^-16            2^-3           inf, NaN
//
// Rounding is to nearest, ties to even, once: also from double, and also where the result is subnormal. What
// CUDA fixes beyond IEEE 754 is kept: a NaN becomes 0x7fff (fp16, bf16) or 0x7f (e4m3, e5m2) and loses its
// sign; fp16 and bf16 overflow to infinity, the fp8 types stop at their largest finite value (CUDA's
// __NV_SATFINITE), infinity included. Sources: IEEE 754-2019; OCP 8-bit Floating Point Specification; PTX
// ISA, "cvt".
//
// An emulated kernel calls these for every element that it loads, so they are a few integer operations each:
// no table, no loop, and no branch that ordinary data makes hard to predict. They rely on the default
// rounding mode (to nearest). C11 and C++17.
#ifndef NUMBERS_H
#define NUMBERS_H

#include <stdint.h>
#include <string.h>

enum dtype { DTYPE_FP16, DTYPE_BF16, DTYPE_E4M3, DTYPE_E5M2, DTYPE_FP32, DTYPE_FP64, DTYPE_COUNT };

// NUMBERS_FN: a function of values only. Inlined always: it touches no memory, so it leaves no trace in code
// that the CPU backend instruments, and it costs no call there. NUMBERS_MEMORY_FN: a function that reads or
// writes through a pointer. In instrumented code it must not be seen.
#if defined(__CUDACC__)
#define NUMBERS_FN static inline
#else
#define NUMBERS_FN static inline __attribute__((always_inline))
#endif
#if defined(SIMT_CPU) && defined(__cplusplus)
#define NUMBERS_MEMORY_FN __attribute__((no_sanitize("thread"))) static inline
#else
#define NUMBERS_MEMORY_FN static inline
#endif

// ---- Bits of float and double ----

#if defined(SIMT_CPU) && defined(__cplusplus)
// Unlike memcpy it takes no address, so even at -O0 there is no access to instrument.
#define NUMBERS_BITS_AS(type, value) return __builtin_bit_cast(type, value)
#else
#define NUMBERS_BITS_AS(type, value)                                                                         \
    type result;                                                                                             \
    memcpy(&result, &value, sizeof result);                                                                  \
    return result
#endif
NUMBERS_FN uint32_t bits_of_float(float value) { NUMBERS_BITS_AS(uint32_t, value); }
NUMBERS_FN float float_of_bits(uint32_t bits) { NUMBERS_BITS_AS(float, bits); }
NUMBERS_FN uint64_t bits_of_double(double value) { NUMBERS_BITS_AS(uint64_t, value); }
NUMBERS_FN double double_of_bits(uint64_t bits) { NUMBERS_BITS_AS(double, bits); }

#define FLOAT_SIGN_BIT 0x80000000u
#define FLOAT_INF_BITS 0x7f800000u

// ---- The common part: a magnitude (a number without its sign) to and from a narrow format ----
//
// A narrow format has `dropped` fewer fraction bits than float's 23, and an exponent bias that is `rebias`
// less than float's 127. Both are constants wherever these functions are called. Arithmetic is in double: the
// simulated device counts what is in float as a kernel's own (common/simt/flops.cpp).

// Rounds the magnitude of a float that is no NaN. A value past the format's largest comes out as a larger bit
// pattern, which the caller cuts down to infinity or to the largest finite value.
NUMBERS_FN uint32_t narrow_magnitude(uint32_t magnitude, unsigned dropped, uint32_t rebias) {
    if (magnitude < (rebias + 1) << 23) {
        // Zero or subnormal in the narrow format. Adding the double whose own ulp is the format's smallest
        // subnormal lets the adder round: the count of such units is left in the low bits.
        uint64_t unit = (uint64_t)(rebias + dropped + 926) << 52;
        return (uint32_t)(bits_of_double((double)float_of_bits(magnitude) + double_of_bits(unit)) - unit);
    }
    // Half an ulp minus one, plus one more if the kept part is odd: a carry out of the fraction moves the
    // exponent on.
    uint32_t odd = magnitude >> dropped & 1;
    return (magnitude - (rebias << 23) + ((1u << (dropped - 1)) - 1) + odd) >> dropped;
}

// The float with a narrow format's finite magnitude: the bits moved into place in a double have the narrow
// bias, so the value is too small by exactly 2^(rebias + 896). The product is exact, for subnormals as well.
NUMBERS_FN float widen_magnitude(uint32_t magnitude, unsigned dropped, uint32_t rebias) {
    return (float)(double_of_bits((uint64_t)magnitude << (dropped + 29)) *
                   double_of_bits((uint64_t)(1919 + rebias) << 52));
}

// A float that rounds to any narrower format as the double would: the nearest one, unless that is inexact and
// even; then its odd neighbour on the other side of `value` (rounding to odd; Boldo and Melquiond 2008). The
// last bit then says "there was more", so that a later rounding sees no false tie.
NUMBERS_FN float float_rounded_to_odd(double value) {
    float nearest = (float)value;
    double error = value - (double)nearest;  // exact; NaN for infinity and NaN
    uint32_t bits = bits_of_float(nearest);
    if (error == 0 || error != error || bits & 1) return nearest;
    // A finite value that became infinite goes back to the largest float, which is odd and overflows again.
    int away_from_zero = (error < 0) == (value < 0);
    return float_of_bits(away_from_zero ? bits + 1 : bits - 1);
}

// ---- fp16 ----

NUMBERS_FN float float_from_fp16(uint16_t half) {
    uint32_t magnitude = half & 0x7fffu;
    uint32_t bits = bits_of_float(widen_magnitude(magnitude, 13, 112));
    bits |=
        (0u - (magnitude >= 0x7c00u)) & FLOAT_INF_BITS;  // infinity and NaN had the largest narrow exponent
    return float_of_bits(bits | (uint32_t)(half & 0x8000u) << 16);
}
NUMBERS_FN uint16_t fp16_from_float(float value) {
    uint32_t bits = bits_of_float(value), magnitude = bits & ~FLOAT_SIGN_BIT;
    if (magnitude > FLOAT_INF_BITS) return 0x7fff;
    uint32_t narrow = narrow_magnitude(magnitude, 13, 112);
    if (narrow > 0x7c00) narrow = 0x7c00;
    return (uint16_t)((bits >> 16 & 0x8000u) | narrow);
}
NUMBERS_FN uint16_t fp16_from_double(double value) { return fp16_from_float(float_rounded_to_odd(value)); }

// ---- bf16: the upper half of a float ----

NUMBERS_FN float float_from_bf16(uint16_t number) { return float_of_bits((uint32_t)number << 16); }
NUMBERS_FN uint16_t bf16_from_float(float value) {
    uint32_t bits = bits_of_float(value);
    if ((bits & ~FLOAT_SIGN_BIT) > FLOAT_INF_BITS) return 0x7fff;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
NUMBERS_FN uint16_t bf16_from_double(double value) { return bf16_from_float(float_rounded_to_odd(value)); }

// ---- fp8 ----

NUMBERS_FN float float_from_e4m3(uint8_t number) {
    uint32_t magnitude = number & 0x7fu;
    uint32_t bits = bits_of_float(widen_magnitude(magnitude, 20, 120));
    bits = magnitude == 0x7f ? 0x7fffffffu : bits | (uint32_t)(number & 0x80u) << 24;
    return float_of_bits(bits);
}
NUMBERS_FN uint8_t e4m3_from_float(float value) {
    uint32_t bits = bits_of_float(value), magnitude = bits & ~FLOAT_SIGN_BIT;
    if (magnitude > FLOAT_INF_BITS) return 0x7f;
    const uint32_t largest = 0x43e00000u;  // 448
    uint32_t narrow = narrow_magnitude(magnitude < largest ? magnitude : largest, 20, 120);
    return (uint8_t)((bits >> 24 & 0x80u) | narrow);
}
NUMBERS_FN uint8_t e4m3_from_double(double value) { return e4m3_from_float(float_rounded_to_odd(value)); }

// e5m2 is the upper half of an fp16.
NUMBERS_FN float float_from_e5m2(uint8_t number) { return float_from_fp16((uint16_t)(number << 8)); }
NUMBERS_FN uint8_t e5m2_from_float(float value) {
    uint32_t bits = bits_of_float(value), magnitude = bits & ~FLOAT_SIGN_BIT;
    if (magnitude > FLOAT_INF_BITS) return 0x7f;
    const uint32_t largest = 0x47600000u;  // 57344
    uint32_t narrow = narrow_magnitude(magnitude < largest ? magnitude : largest, 21, 112);
    return (uint8_t)((bits >> 24 & 0x80u) | narrow);
}
NUMBERS_FN uint8_t e5m2_from_double(double value) { return e5m2_from_float(float_rounded_to_odd(value)); }

// ---- By type: for code that learns the type from the command line ----

// The name that --dtype and reports use; "?" for anything that is no type.
NUMBERS_FN const char *dtype_name(enum dtype type) {
    switch (type) {
    case DTYPE_FP16:
        return "fp16";
    case DTYPE_BF16:
        return "bf16";
    case DTYPE_E4M3:
        return "e4m3";
    case DTYPE_E5M2:
        return "e5m2";
    case DTYPE_FP32:
        return "fp32";
    case DTYPE_FP64:
        return "fp64";
    case DTYPE_COUNT:
        break;
    }
    return "?";
}

// The type with that name, DTYPE_COUNT if there is none. "fp8" is e4m3.
NUMBERS_FN enum dtype dtype_from_name(const char *name) {
    if (strcmp(name, "fp8") == 0) return DTYPE_E4M3;
    for (int type = 0; type < DTYPE_COUNT; type++)
        if (strcmp(name, dtype_name((enum dtype)type)) == 0) return (enum dtype)type;
    return DTYPE_COUNT;
}

// Size of one element in bytes.
NUMBERS_FN int dtype_bytes(enum dtype type) {
    switch (type) {
    case DTYPE_FP16:
    case DTYPE_BF16:
        return 2;
    case DTYPE_E4M3:
    case DTYPE_E5M2:
        return 1;
    case DTYPE_FP32:
        return 4;
    case DTYPE_FP64:
        return 8;
    case DTYPE_COUNT:
        break;
    }
    return 0;
}

// Half an ulp at 1: the largest relative error of one rounding (of a result that is not subnormal).
NUMBERS_FN double dtype_unit_roundoff(enum dtype type) {
    switch (type) {
    case DTYPE_FP16:
        return 1.0 / (1 << 11);
    case DTYPE_BF16:
        return 1.0 / (1 << 8);
    case DTYPE_E4M3:
        return 1.0 / (1 << 4);
    case DTYPE_E5M2:
        return 1.0 / (1 << 3);
    case DTYPE_FP32:
        return 1.0 / (1 << 24);
    case DTYPE_FP64:
        return 1.0 / ((int64_t)1 << 53);
    case DTYPE_COUNT:
        break;
    }
    return 0;
}

// The smallest value above zero: the distance of neighbours in the subnormal range.
NUMBERS_FN double dtype_min_positive(enum dtype type) {
    switch (type) {
    case DTYPE_FP16:
        return 0x1p-24;
    case DTYPE_BF16:
        return 0x1p-133;
    case DTYPE_E4M3:
        return 0x1p-9;
    case DTYPE_E5M2:
        return 0x1p-16;
    case DTYPE_FP32:
        return 0x1p-149;
    case DTYPE_FP64:
        return 0x1p-1074;
    case DTYPE_COUNT:
        break;
    }
    return 0;
}

// The largest finite value.
NUMBERS_FN double dtype_max_finite(enum dtype type) {
    switch (type) {
    case DTYPE_FP16:
        return 65504;
    case DTYPE_BF16:
        return (double)float_of_bits(0x7f7f0000u);
    case DTYPE_E4M3:
        return 448;
    case DTYPE_E5M2:
        return 57344;
    case DTYPE_FP32:
        return (double)float_of_bits(0x7f7fffffu);
    case DTYPE_FP64:
        return double_of_bits(0x7fefffffffffffffu);
    case DTYPE_COUNT:
        break;
    }
    return 0;
}

// Element i of an array of that type (any alignment). Exact.
NUMBERS_MEMORY_FN double number_load(enum dtype type, const void *base, int64_t i) {
    const char *at = (const char *)base + i * dtype_bytes(type);
    uint16_t two_bytes;
    uint8_t byte;
    float single;
    double result = 0;
    switch (type) {
    case DTYPE_FP16:
        memcpy(&two_bytes, at, 2);
        return (double)float_from_fp16(two_bytes);
    case DTYPE_BF16:
        memcpy(&two_bytes, at, 2);
        return (double)float_from_bf16(two_bytes);
    case DTYPE_E4M3:
        memcpy(&byte, at, 1);
        return (double)float_from_e4m3(byte);
    case DTYPE_E5M2:
        memcpy(&byte, at, 1);
        return (double)float_from_e5m2(byte);
    case DTYPE_FP32:
        memcpy(&single, at, 4);
        return (double)single;
    case DTYPE_FP64:
        memcpy(&result, at, 8);
        return result;
    case DTYPE_COUNT:
        break;
    }
    return result;
}

// Rounds `value` once to the type and writes it to element i of an array of that type (any alignment).
NUMBERS_MEMORY_FN void number_store(enum dtype type, void *base, int64_t i, double value) {
    char *at = (char *)base + i * dtype_bytes(type);
    uint16_t two_bytes = 0;
    uint8_t byte = 0;
    float single = 0;
    switch (type) {
    case DTYPE_FP16:
        two_bytes = fp16_from_double(value), memcpy(at, &two_bytes, 2);
        break;
    case DTYPE_BF16:
        two_bytes = bf16_from_double(value), memcpy(at, &two_bytes, 2);
        break;
    case DTYPE_E4M3:
        byte = e4m3_from_double(value), memcpy(at, &byte, 1);
        break;
    case DTYPE_E5M2:
        byte = e5m2_from_double(value), memcpy(at, &byte, 1);
        break;
    case DTYPE_FP32:
        single = (float)value, memcpy(at, &single, 4);
        break;
    case DTYPE_FP64:
        memcpy(at, &value, 8);
        break;
    case DTYPE_COUNT:
        break;
    }
}

// `value` after one rounding to the type: what a store and a load make of it.
NUMBERS_MEMORY_FN double number_round(enum dtype type, double value) {
    double memory = 0;
    number_store(type, &memory, 0, value);
    return number_load(type, &memory, 0);
}

#endif
