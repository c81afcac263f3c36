// e4m3_sum.h - how the tensor cores of Hopper add: 32 products of e4m3 numbers and the sum so far, which is
// what one wgmma of that type makes of an element.
//
//     e = the largest exponent of the 33 terms; that of a product is the sum of its factors' exponents
//     each term is cut off below 2^(e - 13), towards zero
//     what is left is added exactly, and of the sum 14 significant bits are kept: the rest is cut off, too
//
// So a product that is less than 2^-13 of the largest is lost, and what is lost makes every sum smaller.
// Xie, Wang, Yang and Yang found that by experiments on H100, and checked it to the bit (MMA-Sim, 2025, arXiv
// 2511.10909). The simulated device adds like that, and so does the emulation that fp8 kernels are judged by.
// Where a factor is NaN, or the sum so far is no finite number, the result is what fp32 has for it.
#ifndef E4M3_SUM_H
#define E4M3_SUM_H

#include <string.h>

#include "numbers.h"

#define E4M3_TERMS 32             // products of one instruction, at most
#define E4M3_COLUMNS 8            // sums that are worked on at once
#define E4M3_KEPT 13              // bits of a term or a sum behind its first
#define E4M3_BIAS 127             // of exponents, as in fp32
#define E4M3_LOWEST (127 - 6)     // the exponent of numbers that are subnormal in e4m3
#define E4M3_NO_NUMBER (1 << 12)  // and of what is not finite: above all sums of two others

// Vectors of the compiler's, which every processor has.
typedef float e4m3_floats __attribute__((vector_size(16)));
typedef int e4m3_ints __attribute__((vector_size(16)));

// Of an e4m3 number; 0 of zero, which is below all sums of two others.
static inline int e4m3_exponent(float x) {
    int magnitude = (int)(bits_of_float(x) & 0x7fffffff), exponent = magnitude >> 23;
    exponent = exponent > E4M3_LOWEST ? exponent : E4M3_LOWEST;
    exponent = exponent < 0xff ? exponent : E4M3_NO_NUMBER;
    return magnitude > 0 ? exponent : 0;
}

// 32 numbers of a row of A, or of eight columns of B, [k][column]: fewer are filled up with zeros.
struct e4m3_row {
    float value[E4M3_TERMS];
    int exponent[E4M3_TERMS];
};
struct e4m3_columns {
    float value[E4M3_TERMS][E4M3_COLUMNS];
    int exponent[E4M3_TERMS][E4M3_COLUMNS];
};

static inline void e4m3_set_row(const float *a, int step, int count, struct e4m3_row *row) {
    for (int k = 0; k < E4M3_TERMS; ++k) row->value[k] = k < count ? a[k * step] : 0;
    for (int k = 0; k < E4M3_TERMS; ++k) row->exponent[k] = e4m3_exponent(row->value[k]);
}

static inline void e4m3_set_columns(const float *b, int step, int count, struct e4m3_columns *columns) {
    memset(columns->value, 0, sizeof columns->value);
    for (int k = 0; k < count; ++k) memcpy(columns->value[k], b + k * step, sizeof columns->value[k]);
    for (int k = 0; k < E4M3_TERMS; ++k)
        for (int c = 0; c < E4M3_COLUMNS; ++c) columns->exponent[k][c] = e4m3_exponent(columns->value[k][c]);
}

static inline e4m3_ints e4m3_larger(e4m3_ints x, e4m3_ints y) {
    e4m3_ints above = x > y;
    return (x & above) | (y & ~above);
}

// Four of the sums. Returns 0, and leaves them, if something is not finite.
static inline int e4m3_add_four(const struct e4m3_row *a, const struct e4m3_columns *b, int first,
                                float *sums) {
    e4m3_floats sum, scale, unit, value;
    memcpy(&sum, sums + first, sizeof sum);
    // `top` is the largest exponent, with the bias of two. Where the sum so far is below 2^-113 and there is
    // no product, it stays at that, so that scale and unit are numbers.
    const int lowest = E4M3_BIAS + E4M3_KEPT + 1;
    e4m3_ints top, bits, exponent, least = {lowest, lowest, lowest, lowest};
    memcpy(&bits, &sum, sizeof bits);
    top = e4m3_larger((bits >> 23 & 0xff) + E4M3_BIAS, least);
    for (int k = 0; k < E4M3_TERMS; ++k) {
        memcpy(&exponent, &b->exponent[k][first], sizeof exponent);
        top = e4m3_larger(exponent + a->exponent[k], top);
    }
    e4m3_ints no_number = top >= 0xff + E4M3_BIAS;
    if (no_number[0] | no_number[1] | no_number[2] | no_number[3]) return 0;
    bits = (3 * E4M3_BIAS + E4M3_KEPT - top) << 23;  // 2^(13 - e)
    memcpy(&scale, &bits, sizeof scale);
    bits = (top - E4M3_BIAS - E4M3_KEPT) << 23;
    memcpy(&unit, &bits, sizeof unit);
    e4m3_ints total = __builtin_convertvector(sum * scale, e4m3_ints);  // towards zero
    for (int k = 0; k < E4M3_TERMS; ++k) {
        memcpy(&value, &b->value[k][first], sizeof value);
        total += __builtin_convertvector(value * a->value[k] * scale, e4m3_ints);
    }
    sum = __builtin_convertvector(total, e4m3_floats) * unit;  // exact: |total| is below 2^21
    memcpy(&bits, &sum, sizeof bits);
    bits &= (int)(0xffffffffu << (23 - E4M3_KEPT));
    memcpy(sums + first, &bits, sizeof bits);
    return 1;
}

// The same where something is not finite: those sums in fp32, the others as if it were not there.
static inline void e4m3_add_around(const struct e4m3_row *a, const struct e4m3_columns *b, float *sums) {
    struct e4m3_row finite_a = *a;
    struct e4m3_columns finite_b = *b;
    float plain[E4M3_COLUMNS];
    for (int c = 0; c < E4M3_COLUMNS; ++c) {
        plain[c] = sums[c];
        if (bits_of_float(sums[c] - sums[c])) sums[c] = 0;  // NaN of what is not finite
        for (int k = 0; k < E4M3_TERMS; ++k) {
            plain[c] += a->value[k] * b->value[k][c];
            if (a->exponent[k] == E4M3_NO_NUMBER) finite_a.value[k] = 0, finite_a.exponent[k] = 0;
            if (b->exponent[k][c] == E4M3_NO_NUMBER) finite_b.value[k][c] = 0, finite_b.exponent[k][c] = 0;
        }
    }
    for (int first = 0; first < E4M3_COLUMNS; first += 4) e4m3_add_four(&finite_a, &finite_b, first, sums);
    for (int c = 0; c < E4M3_COLUMNS; ++c)
        if (bits_of_float(plain[c] - plain[c])) sums[c] = plain[c];
}

// sums[c] = sums[c] + A B of these columns.
static inline void e4m3_add(const struct e4m3_row *a, const struct e4m3_columns *b, float *sums) {
    float before[E4M3_COLUMNS];
    memcpy(before, sums, sizeof before);
    if (e4m3_add_four(a, b, 0, sums) && e4m3_add_four(a, b, 4, sums)) return;
    memcpy(sums, before, sizeof before);
    e4m3_add_around(a, b, sums);
}

#endif
