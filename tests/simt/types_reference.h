// types_reference.h - narrow floating-point formats from their definition, slowly: what the types_ tests
// compare with. It shares nothing with common/numbers.h. C11 and CUDA C, host code.
#ifndef TYPES_REFERENCE_H
#define TYPES_REFERENCE_H

#include <math.h>
#include <stdint.h>

// A format as its definition gives it.
struct format {
    const char *name;
    int exponent_bits, fraction_bits, bias;
    int has_infinity;     // else only the all-ones pattern is special (e4m3)
    int saturates;        // overflow gives the largest finite value
    uint32_t nan_bits;    // what conversion makes of a NaN
    double value[65536];  // of each non-negative finite pattern, rising; filled by fill_values
    int finite;           // how many those are
};

static struct format fp16 = {"fp16", 5, 10, 15, 1, 0, 0x7fff, {0}, 0};
static struct format bf16 = {"bf16", 8, 7, 127, 1, 0, 0x7fff, {0}, 0};

static inline int bits_in(const struct format *f) { return 1 + f->exponent_bits + f->fraction_bits; }

static inline void fill_values(struct format *f) {
    int patterns = 1 << (bits_in(f) - 1);
    for (int bits = 0; bits < patterns; bits++) {
        int exponent = bits >> f->fraction_bits, fraction = bits & ((1 << f->fraction_bits) - 1);
        if (f->has_infinity ? exponent == (1 << f->exponent_bits) - 1 : bits == patterns - 1) break;
        double significand = ldexp(fraction, -f->fraction_bits) + (exponent > 0);
        f->value[f->finite++] = ldexp(significand, (exponent > 0 ? exponent : 1) - f->bias);
    }
}

// The value of any bit pattern.
static inline double value_of(const struct format *f, uint32_t bits) {
    uint32_t sign_bit = 1u << (bits_in(f) - 1), magnitude = bits & (sign_bit - 1);
    double value = magnitude < (uint32_t)f->finite                       ? f->value[magnitude]
                   : f->has_infinity && magnitude == (uint32_t)f->finite ? INFINITY
                                                                         : NAN;
    return bits & sign_bit ? -value : value;
}

// The sign of (x + rest) - v, where rest is at most half an ulp of x.
static inline int compare_sum(double x, double rest, double v) {
    if (x != v) return x > v ? 1 : -1;
    return (rest > 0) - (rest < 0);
}

// Rounds x + rest (rest at most half an ulp of x) by definition: to the nearest value, in a tie to the even
// pattern. The number after the largest finite one counts as a candidate: if it wins, that is overflow.
static inline uint32_t slow_round_sum(const struct format *f, double x, double rest) {
    uint32_t sign = signbit(x) ? 1u << (bits_in(f) - 1) : 0;
    if (isnan(x)) return f->nan_bits;
    if (signbit(x)) x = -x, rest = -rest;
    double largest = f->value[f->finite - 1];
    if (f->saturates && x >= largest) return sign | (uint32_t)(f->finite - 1);
    if (isinf(x)) return sign | (uint32_t)f->finite;
    int low = 0,
        high = f->finite;  // value[low] <= x + rest, and x + rest < value[high] or high is past the end
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (compare_sum(x, rest, f->value[middle]) >= 0)
            low = middle;
        else
            high = middle;
    }
    double step = high < f->finite ? f->value[high] - f->value[low] : largest - f->value[f->finite - 2];
    int side = compare_sum(x, rest, f->value[low] + step / 2);
    return sign | (uint32_t)(side < 0 || (side == 0 && low % 2 == 0) ? low : high);
}

static inline uint32_t slow_round(const struct format *f, double x) { return slow_round_sum(f, x, 0); }

// a + b as a double and the rest that it leaves (Knuth's TwoSum), rounded: for sums that a double cannot
// hold.
static inline uint32_t slow_add(const struct format *f, double a, double b) {
    double sum = a + b, part = sum - a;
    double rest = (a - (sum - part)) + (b - part);
    return slow_round_sum(f, sum, isnan(rest) ? 0 : rest);
}

#endif
