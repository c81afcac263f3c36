// simt_float16.h - arithmetic that __half and __nv_bfloat16 share (simt_float16.inc has the rest).
#ifndef SIMT_FLOAT16_H
#define SIMT_FLOAT16_H

#include "simt_atomics.h"
#include "simt_math.h"
#include "vector_types.h"

namespace simt {

// a * b + c such that one more rounding, to fp16 or bf16, gives the fma. The product of two such numbers is
// exact in double. Their sum may not be: then it is rounded to odd, so that the next rounding sees that
// something was cut off.
SIMT_VALUE_FN double fma_of_narrow(float a, float b, float c) {
    double product = static_cast<double>(a) * static_cast<double>(b), addend = static_cast<double>(c);
    double sum = product + addend;
    double part = sum - product;
    double error = (product - (sum - part)) + (addend - part);  // exact (Knuth's TwoSum); NaN with infinities
    uint64_t bits = bits_of_double(sum);
    if (error == 0 || error != error || bits & 1) return sum;
    bool away_from_zero = (error < 0) == (sum < 0);
    return double_of_bits(away_from_zero ? bits + 1 : bits - 1);
}

// An integer as a double that rounds on to fp16 or bf16 as the integer would: what a double cannot hold of a
// 64-bit integer goes into its last bit.
template <class Integer> SIMT_VALUE_FN double double_for_narrowing(Integer value) {
    if (sizeof(Integer) < 8) return static_cast<double>(value);
    bool negative = value < 0;
    uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    uint64_t cut = magnitude >> 53 ? magnitude & 0x7ff : 0;
    double result = static_cast<double>((magnitude - cut) | (cut ? 0x800 : 0));
    return negative ? -result : result;
}

}  // namespace simt

#endif
