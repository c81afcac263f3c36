// e4m3_sum.cpp - common/e4m3_sum.h, how Hopper's tensor cores add: sums worked out by hand, and random ones
// against the definition, to the bit.
#include "common/e4m3_sum.h"

#include <cmath>
#include <cstring>

#include "check.h"
#include "e4m3_reference.h"

// Sums for which the definition, or what an H200 gave, is worked out here by hand.
static void check_e4m3_by_hand() {
    struct {
        float large, small, sum, expected;  // 1 product of `large` and 31 of `small` with 448, and a sum
    } cases[] = {
        {32, 7 * 0x1p-9f, 0, 14336 + 31 * 6},     // 448 / 64 and less: units of 1, and 6.125 each
        {32, 9 * 0x1p-9f, 0, 14336 + 31 * 7},     // 7.875: case `peak`, of which an H200 makes 0.9951
        {-32, -9 * 0x1p-9f, 0, -14336 - 31 * 7},  // towards zero
        {32, -9 * 0x1p-9f, 0, 14336 - 31 * 7},
        {32, 0x1p-9f, 0, 14336},  // 0.875 is lost
        {32, 0x1p-9f, 0.875f, 14336},
        {0, 0x1p-9f, 0.875f, 28},                 // and with its like it is not
        {448, 0x1p-5f, 0, 200944},                // 448 * 448 counts as 2^16: units of 8; 200952 has 15 bits
        {0, 9 * 0x1p-9f, 16384, 16384 + 31 * 6},  // the sum so far is the largest: units of 2
    };
    for (const auto &it : cases) {
        e4m3_row row;
        e4m3_columns columns;
        float a[32], b[32][8], sums[8];
        for (int k = 0; k < 32; k++) a[k] = k == 20 ? it.large : it.small;
        for (int i = 0; i < 256; i++) b[i / 8][i % 8] = 448;
        for (float &sum : sums) sum = it.sum;
        e4m3_set_row(a, 1, 32, &row);
        e4m3_set_columns(b[0], 8, 32, &columns);
        e4m3_add(&row, &columns, sums);
        for (float sum : sums)
            if (!CHECK(sum == it.expected)) fprintf(stderr, "  %.9g, not %.9g\n", sum, it.expected);
    }
}

// An e4m3 number from the topmost `binades`, 0 among them.
static float random_e4m3(int binades) {
    uint32_t random = random_bits();
    int significand = static_cast<int>(random >> 12 & 15);  // below 8 it is not in the topmost
    float value = ldexpf(static_cast<float>(significand), 5 - static_cast<int>(random >> 16) % binades);
    value = float_from_e4m3(e4m3_from_float(value));
    return random & 1 ? value : -value;
}

// Against the definition to the bit, over numbers of all sizes and of nearly one. With a NaN in a row of A,
// or in a column of B, or an infinite sum so far: what fp32 makes of it there, and the same as without
// elsewhere.
static void check_e4m3_sums() {
    int wrong = 0, nans = 0;
    for (int round = 0; round < 20000; round++) {
        int binades = 1 + round % 16, special = round % 64;
        float a[32], b[32][8], sums[8], before[8];
        for (float &x : a) x = random_e4m3(binades);
        for (int i = 0; i < 256; i++) b[i / 8][i % 8] = random_e4m3(binades);
        for (float &sum : sums) sum = ldexpf(random_e4m3(binades), static_cast<int>(random_bits() % 24) - 8);
        memcpy(before, sums, sizeof before);
        if (special == 1) a[7] = NAN;
        if (special == 2) b[7][2] = NAN;
        if (special == 3) sums[6] = -INFINITY;
        e4m3_row row;
        e4m3_columns columns;
        e4m3_set_row(a, 1, 32, &row);
        e4m3_set_columns(b[0], 8, 32, &columns);
        e4m3_add(&row, &columns, sums);
        for (int c = 0; c < 8; c++) {
            bool is_nan = special == 1 || (special == 2 && c == 2);
            nans += is_nan;
            if (is_nan)
                wrong += !std::isnan(sums[c]);
            else if (special == 3 && c == 6)
                wrong += !(sums[c] == -INFINITY);
            else
                wrong += !(static_cast<double>(sums[c]) == e4m3_sum_slowly(before[c], a, 1, &b[0][c], 8, 32));
        }
    }
    CHECK(wrong == 0 && nans > 0);
}

int main() {
    check_e4m3_by_hand();
    check_e4m3_sums();
    return check_done();
}
