// simt_math.h - CUDA's device mathematics on the CPU: what <cmath> lacks or does differently.
//
// Exact on both backends, to the bit: the _rn, _rz, _rd, _ru functions, conversions, integer and bit
// functions, min, max, fma. The fast functions (__expf, __logf, __sinf, rsqrtf, ...) have on a GPU an error
// of a few ulp that no CPU repeats (CUDA Programming Guide, "Mathematical Functions"); here they are at least
// as accurate, and keep the special results. fmaf is one rounding, as everywhere. (An expression a * b + c is
// two roundings here; nvcc may make it an fma.)
#ifndef SIMT_MATH_H
#define SIMT_MATH_H

#include <cmath>
#include <cstdint>
#include <limits>
#include <math.h>
#include <type_traits>

#include "../../numbers.h"

// A function of values only: always inlined (nothing in it is an access to memory), and a debugger steps over
// it.
#define SIMT_VALUE_FN inline __attribute__((always_inline, artificial))

// ---- Minimum and maximum ----
// A NaN loses against a number (IEEE 754-2019 maximumNumber; PTX ISA, "max"), and -0 < +0. The C library
// leaves the zeros open, so the standard names are taken over, as function-like macros.

namespace simt {
template <class Real> SIMT_VALUE_FN Real maximum_number(Real a, Real b) {
    if (a == b) return std::signbit(a) ? b : a;
    return a > b || b != b ? a : b;
}
template <class Real> SIMT_VALUE_FN Real minimum_number(Real a, Real b) {
    if (a == b) return std::signbit(a) ? a : b;
    return a < b || b != b ? a : b;
}
}  // namespace simt

SIMT_VALUE_FN float simt_fmaxf(float a, float b) { return simt::maximum_number(a, b); }
SIMT_VALUE_FN float simt_fminf(float a, float b) { return simt::minimum_number(a, b); }
SIMT_VALUE_FN double simt_fmax(double a, double b) { return simt::maximum_number(a, b); }
SIMT_VALUE_FN double simt_fmin(double a, double b) { return simt::minimum_number(a, b); }
#define fmaxf(a, b) simt_fmaxf(a, b)
#define fminf(a, b) simt_fminf(a, b)
#define fmax(a, b) simt_fmax(a, b)
#define fmin(a, b) simt_fmin(a, b)

// CUDA's min and max take any two arithmetic types of the same kind: integers follow C's conversions (a
// signed and an unsigned int compare as unsigned), a float and a double as double.
template <class A, class B, class Result = std::common_type_t<A, B>,
          class = std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value &&
                                   std::is_integral<A>::value == std::is_integral<B>::value>>
SIMT_VALUE_FN Result max(A a, B b) {
    if constexpr (std::is_floating_point<Result>::value)
        return simt::maximum_number<Result>(a, b);
    else
        return static_cast<Result>(a) > static_cast<Result>(b) ? static_cast<Result>(a)
                                                               : static_cast<Result>(b);
}
template <class A, class B, class Result = std::common_type_t<A, B>,
          class = std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value &&
                                   std::is_integral<A>::value == std::is_integral<B>::value>>
SIMT_VALUE_FN Result min(A a, B b) {
    if constexpr (std::is_floating_point<Result>::value)
        return simt::minimum_number<Result>(a, b);
    else
        return static_cast<Result>(a) < static_cast<Result>(b) ? static_cast<Result>(a)
                                                               : static_cast<Result>(b);
}

// ---- Arithmetic that is not the kernel's ----
// What these headers compute in float for a kernel's half or atomic operations is not among its fp32 FLOPs
// (flops.cpp counts instructions of that type). In double, rounded to float, it is the same to the bit:
// double has more than twice the digits (Figueroa 1995). Compilers know that as well, and would compute in
// float if they saw where the operand comes from.

namespace simt {
SIMT_VALUE_FN double as_any_double(float x) {
    double wide = static_cast<double>(x);
#if defined(__x86_64__)
    __asm__("" : "+x"(wide));
#elif defined(__aarch64__)
    __asm__("" : "+w"(wide));
#endif
    return wide;
}
SIMT_VALUE_FN float sum(float a, float b) { return static_cast<float>(as_any_double(a) + as_any_double(b)); }
SIMT_VALUE_FN float product(float a, float b) {
    return static_cast<float>(as_any_double(a) * as_any_double(b));
}
SIMT_VALUE_FN float quotient(float a, float b) {
    return static_cast<float>(as_any_double(a) / as_any_double(b));
}
}  // namespace simt

// ---- The same bits as another type ----

SIMT_VALUE_FN int __float_as_int(float x) { return static_cast<int>(bits_of_float(x)); }
SIMT_VALUE_FN unsigned int __float_as_uint(float x) { return bits_of_float(x); }
SIMT_VALUE_FN float __int_as_float(int x) { return float_of_bits(static_cast<uint32_t>(x)); }
SIMT_VALUE_FN float __uint_as_float(unsigned int x) { return float_of_bits(x); }
SIMT_VALUE_FN long long __double_as_longlong(double x) { return static_cast<long long>(bits_of_double(x)); }
SIMT_VALUE_FN double __longlong_as_double(long long x) { return double_of_bits(static_cast<uint64_t>(x)); }
SIMT_VALUE_FN int __double2loint(double x) { return static_cast<int>(bits_of_double(x)); }
SIMT_VALUE_FN int __double2hiint(double x) { return static_cast<int>(bits_of_double(x) >> 32); }
SIMT_VALUE_FN double __hiloint2double(int high, int low) {
    return double_of_bits(static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 |
                          static_cast<uint32_t>(low));
}

// ---- Conversion between numbers ----

namespace simt {
// A whole number (or NaN, or infinity) as an integer; out of range: the nearest one. A NaN is 0, or the
// integer with only the top bit set if the source is double or the result has 64 bits (PTX ISA, "cvt").
template <class Integer, class Real> SIMT_VALUE_FN Integer saturated(Real x) {
    using Limits = std::numeric_limits<Integer>;
    constexpr Integer top_bit = std::is_signed<Integer>::value ? Limits::min() : Limits::max() / 2 + 1;
    if (x != x) return sizeof(Integer) == 8 || sizeof(Real) == 8 ? top_bit : 0;
    constexpr double end = std::is_signed<Integer>::value ? -static_cast<double>(Limits::min())
                                                          : static_cast<double>(Limits::max() / 2 + 1) * 2;
    if (static_cast<double>(x) >= end) return Limits::max();
    if (static_cast<double>(x) <= static_cast<double>(Limits::min())) return Limits::min();
    return static_cast<Integer>(x);
}
}  // namespace simt

// __float2int_rn and its relatives: to nearest even, toward zero, down, up.
#define SIMT_TO_INTEGER(name, real, integer)                                                                 \
    SIMT_VALUE_FN integer name##_rn(real x) { return simt::saturated<integer>(std::nearbyint(x)); }          \
    SIMT_VALUE_FN integer name##_rz(real x) { return simt::saturated<integer>(std::trunc(x)); }              \
    SIMT_VALUE_FN integer name##_rd(real x) { return simt::saturated<integer>(std::floor(x)); }              \
    SIMT_VALUE_FN integer name##_ru(real x) { return simt::saturated<integer>(std::ceil(x)); }
SIMT_TO_INTEGER(__float2int, float, int)
SIMT_TO_INTEGER(__float2uint, float, unsigned int)
SIMT_TO_INTEGER(__float2ll, float, long long)
SIMT_TO_INTEGER(__float2ull, float, unsigned long long)
SIMT_TO_INTEGER(__double2int, double, int)
SIMT_TO_INTEGER(__double2uint, double, unsigned int)
SIMT_TO_INTEGER(__double2ll, double, long long)
SIMT_TO_INTEGER(__double2ull, double, unsigned long long)
#undef SIMT_TO_INTEGER

SIMT_VALUE_FN float __int2float_rn(int x) { return static_cast<float>(x); }
SIMT_VALUE_FN float __uint2float_rn(unsigned int x) { return static_cast<float>(x); }
SIMT_VALUE_FN float __ll2float_rn(long long x) { return static_cast<float>(x); }
SIMT_VALUE_FN float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
SIMT_VALUE_FN double __int2double_rn(int x) { return x; }
SIMT_VALUE_FN double __uint2double_rn(unsigned int x) { return x; }
SIMT_VALUE_FN double __ll2double_rn(long long x) { return static_cast<double>(x); }
SIMT_VALUE_FN double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }
SIMT_VALUE_FN float __double2float_rn(double x) { return static_cast<float>(x); }

// ---- Single operations, rounded to nearest ----

SIMT_VALUE_FN float __fadd_rn(float a, float b) { return a + b; }
SIMT_VALUE_FN float __fsub_rn(float a, float b) { return a - b; }
SIMT_VALUE_FN float __fmul_rn(float a, float b) { return a * b; }
SIMT_VALUE_FN float __fdiv_rn(float a, float b) { return a / b; }
SIMT_VALUE_FN float __frcp_rn(float x) { return 1.0f / x; }
SIMT_VALUE_FN float __fsqrt_rn(float x) { return sqrtf(x); }
// Computed in double and rounded once more: equal to the correctly rounded result for every float (tried).
SIMT_VALUE_FN float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
SIMT_VALUE_FN float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
SIMT_VALUE_FN double __dadd_rn(double a, double b) { return a + b; }
SIMT_VALUE_FN double __dsub_rn(double a, double b) { return a - b; }
SIMT_VALUE_FN double __dmul_rn(double a, double b) { return a * b; }
SIMT_VALUE_FN double __ddiv_rn(double a, double b) { return a / b; }
SIMT_VALUE_FN double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

SIMT_VALUE_FN float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }  // NaN: 0

// ---- Fast functions ----

SIMT_VALUE_FN float rsqrtf(float x) { return __frsqrt_rn(x); }
SIMT_VALUE_FN double rsqrt(double x) { return 1.0 / sqrt(x); }
// As on a GPU, a divisor beyond 2^126 gives 0 (and NaN for an infinite dividend).
SIMT_VALUE_FN float __fdividef(float a, float b) {
    return fabsf(b) > 0x1p126f && fabsf(b) < INFINITY ? a * 0.0f : a / b;
}
SIMT_VALUE_FN float fdividef(float a, float b) { return a / b; }
// e^x is computed as 2^(x log2 e) with the product rounded to float: most of the error of __expf for a large
// |x|.
SIMT_VALUE_FN float __expf(float x) { return exp2f(x * 1.44269504f); }
SIMT_VALUE_FN float __exp10f(float x) { return exp2f(x * 3.32192809f); }
SIMT_VALUE_FN float __log2f(float x) { return log2f(x); }
SIMT_VALUE_FN float __logf(float x) { return log2f(x) * 0.693147181f; }
SIMT_VALUE_FN float __log10f(float x) { return log2f(x) * 0.301029996f; }
SIMT_VALUE_FN float __powf(float x, float y) { return exp2f(y * log2f(x)); }
SIMT_VALUE_FN float __sinf(float x) { return sinf(x); }
SIMT_VALUE_FN float __cosf(float x) { return cosf(x); }
SIMT_VALUE_FN float __tanf(float x) { return __fdividef(__sinf(x), __cosf(x)); }
SIMT_VALUE_FN float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float *sine, float *cosine) { *sine = sinf(x), *cosine = cosf(x); }

// ---- Integers and bits ----

SIMT_VALUE_FN int __popc(unsigned int x) { return __builtin_popcount(x); }
SIMT_VALUE_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SIMT_VALUE_FN int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned int>(x)) : 32; }
SIMT_VALUE_FN int __clzll(long long x) {
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
SIMT_VALUE_FN int __ffs(int x) { return __builtin_ffs(x); }
SIMT_VALUE_FN int __ffsll(long long x) { return __builtin_ffsll(x); }
SIMT_VALUE_FN unsigned int __brev(unsigned int x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
SIMT_VALUE_FN unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned int>(x))) << 32 |
           __brev(static_cast<unsigned int>(x >> 32));
}
// Four bytes chosen among the eight of y:x; hexadecimal digit i of the selector (three bits of it) names byte
// i.
SIMT_VALUE_FN unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector) {
    uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
    unsigned int result = 0;
    for (int i = 0; i < 4; i++)
        result |= static_cast<unsigned int>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return result;
}
// The high (l) or low (r) word of high:low shifted; the shift is taken modulo 32, or stops at 32 (lc, rc).
SIMT_VALUE_FN unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
    return static_cast<unsigned int>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
SIMT_VALUE_FN unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
    return static_cast<unsigned int>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
SIMT_VALUE_FN unsigned int __funnelshift_lc(unsigned int low, unsigned int high, unsigned int shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
SIMT_VALUE_FN unsigned int __funnelshift_rc(unsigned int low, unsigned int high, unsigned int shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
SIMT_VALUE_FN int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
SIMT_VALUE_FN unsigned int __umulhi(unsigned int a, unsigned int b) {
    return static_cast<unsigned int>(static_cast<uint64_t>(a) * b >> 32);
}
namespace simt {
__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;
}  // namespace simt
SIMT_VALUE_FN long long __mul64hi(long long a, long long b) {
    return static_cast<long long>(static_cast<simt::int128>(a) * b >> 64);
}
SIMT_VALUE_FN unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<simt::uint128>(a) * b >> 64);
}
// The low 32 bits of the product of the low 24 bits.
SIMT_VALUE_FN unsigned int __umul24(unsigned int a, unsigned int b) {
    return (a & 0xffffffu) * (b & 0xffffffu);
}
SIMT_VALUE_FN int __mul24(int a, int b) {
    auto low24 = [](int x) {
        return static_cast<long long>(static_cast<int>(static_cast<uint32_t>(x) << 8) >> 8);
    };
    return static_cast<int>(low24(a) * low24(b));
}
// |a - b| + c
SIMT_VALUE_FN unsigned int __sad(int a, int b, unsigned int c) {
    return (a > b ? static_cast<unsigned int>(a) - static_cast<unsigned int>(b)
                  : static_cast<unsigned int>(b) - static_cast<unsigned int>(a)) +
           c;
}
SIMT_VALUE_FN unsigned int __usad(unsigned int a, unsigned int b, unsigned int c) {
    return (a > b ? a - b : b - a) + c;
}

#endif
