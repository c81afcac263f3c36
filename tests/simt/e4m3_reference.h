// e4m3_reference.h - how Hopper's tensor cores add e4m3 products, from the definition, slowly and in double:
// what common/e4m3_sum.h is compared with. C11 and C++.
#ifndef E4M3_REFERENCE_H
#define E4M3_REFERENCE_H

#include <math.h>

// x without what is below `unit`, a power of two.
static inline double cut_below(double x, double unit) { return trunc(x / unit) * unit; }

static inline int exponent_of(double x, int smallest) {
    int exponent = ilogb(x);
    return exponent > smallest ? exponent : smallest;
}

// sum + the products of `count` numbers, finite all; a and b are e4m3, `step` apart.
static inline double e4m3_sum_slowly(double sum, const float *a, int a_step, const float *b, int b_step,
                                     int count) {
    int top = sum != 0 ? exponent_of(sum, -126) : -1000;
    for (int k = 0; k < count; ++k) {
        double x = (double)a[k * a_step], y = (double)b[k * b_step];
        if (x == 0 || y == 0) continue;
        int exponent = exponent_of(x, -6) + exponent_of(y, -6);
        if (exponent > top) top = exponent;
    }
    double unit = ldexp(1, top - 13), total = cut_below(sum, unit);
    for (int k = 0; k < count; ++k) total += cut_below((double)a[k * a_step] * (double)b[k * b_step], unit);
    return total != 0 ? cut_below(total, ldexp(1, exponent_of(total, -126) - 13)) : 0;
}

#endif
