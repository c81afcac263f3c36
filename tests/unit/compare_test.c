// compare_test.c - each fault that a kernel's output can have, planted alone, must be found; and the sound
// output passes.
#include "common/compare.h"
#include "common/problem.h"

#include "unit.h"

enum { BATCH = 2, HEADS = 3, TOKENS = 5, DIM = 8, ROWS = BATCH * HEADS * TOKENS, COUNT = ROWS * DIM };

static double expected[COUNT], plain[COUNT];
static uint16_t actual[COUNT];
static float lse[ROWS];
static double lse_expected[ROWS], lse_plain[ROWS];
static struct rows all_rows = {.count = ROWS, .total = ROWS};
static struct comparison o, l;

// Sound outputs: the reference rounded to fp16. The plain implementation is off by 2^-9 in one place.
static void reset(enum layout layout) {
    for (int i = 0; i < COUNT; ++i) expected[i] = plain[i] = (double)(i % 37 - 18) / 16;
    plain[77] += ldexp(1, -9);
    o = (struct comparison){.name = "O",
                            .dtype = DTYPE_FP16,
                            .batch = BATCH,
                            .heads = HEADS,
                            .seqlen = TOKENS,
                            .columns = DIM,
                            .rows = &all_rows,
                            .expected = expected,
                            .plain = plain,
                            .inputs_finite = 1,
                            .has_signal = 1};
    o.actual = tensor_view(actual, layout, HEADS, TOKENS, DIM);
    for (int r = 0; r < ROWS; ++r) {
        int i = r % TOKENS, h = r / TOKENS % HEADS, b = r / TOKENS / HEADS;
        for (int c = 0; c < DIM; ++c)
            number_store(DTYPE_FP16, actual,
                         b * o.actual.stride_batch + h * o.actual.stride_head + i * o.actual.stride_row + c,
                         expected[r * DIM + c]);
        lse_expected[r] = lse_plain[r] = lse[r] = (float)r / 8 - 2;
    }
    l = (struct comparison){.name = "LSE",
                            .dtype = DTYPE_FP32,
                            .batch = BATCH,
                            .heads = HEADS,
                            .seqlen = TOKENS,
                            .columns = 1,
                            .rows = &all_rows,
                            .expected = lse_expected,
                            .plain = lse_plain,
                            .floor = fp32_floor(lse_expected, ROWS, 1),
                            .inputs_finite = 1};
    l.actual = tensor_view(lse, LAYOUT_BHSD, HEADS, TOKENS, 1);
}

static void sound(void) {
    reset(LAYOUT_BHSD);
    struct finding f = compare(&o);
    EXPECT(f.verdict == VERDICT_RIGHT && f.compared == COUNT && f.rows == ROWS);
    // 2 x 2^-9, and half an ulp of fp16 at the largest |reference| = 18/16
    EXPECT_NEAR(f.bound, ldexp(2, -9) + 18.0 / 16 * ldexp(1, -11), 1e-15);
    EXPECT_NEAR(f.err, 0, 0);
    f = compare(&l);
    EXPECT(f.verdict == VERDICT_RIGHT && f.compared == ROWS);
    EXPECT_NEAR(l.floor, ldexp(2, -20), 1e-12);  // the largest |LSE| here is 2
    reset(LAYOUT_BSHD);
    EXPECT(compare(&o).verdict == VERDICT_RIGHT);
    // The same bytes read in the other order are not right.
    o.actual = tensor_view(actual, LAYOUT_BHSD, HEADS, TOKENS, DIM);
    EXPECT(compare(&o).verdict == VERDICT_WRONG);
}

static void nan_and_unwritten(void) {
    static const int places[] = {0, 1, DIM, COUNT / 2, COUNT - 1};
    for (int p = 0; p < 5; ++p) {
        reset(LAYOUT_BHSD);
        actual[places[p]] = 0xffff;
        struct finding f = compare(&o);
        EXPECT(f.verdict == VERDICT_UNWRITTEN);
        EXPECT(((f.batch * HEADS + f.head) * TOKENS + f.row) * DIM + f.column == places[p]);

        reset(LAYOUT_BHSD);
        actual[places[p]] = 0x7fff;
        f = compare(&o);
        EXPECT(f.verdict == VERDICT_NAN && isnan(f.actual) && f.expected == expected[places[p]]);
        EXPECT(((f.batch * HEADS + f.head) * TOKENS + f.row) * DIM + f.column == places[p]);

        reset(LAYOUT_BHSD);
        actual[places[p]] = 0x7c00;  // infinity
        EXPECT(compare(&o).verdict == VERDICT_NAN);

        reset(LAYOUT_BHSD);  // the other way round: a NaN that should be there is not
        expected[places[p]] = NAN, o.inputs_finite = 0;
        EXPECT(compare(&o).verdict == VERDICT_NAN);
        actual[places[p]] = 0x7fff;
        EXPECT(compare(&o).verdict == VERDICT_RIGHT);
    }
    reset(LAYOUT_BHSD);
    lse_expected[7] = lse_plain[7] = -INFINITY;
    lse[7] = -3.4e38f;
    EXPECT(compare(&l).verdict == VERDICT_NAN);
    lse[7] = INFINITY;
    EXPECT(compare(&l).verdict == VERDICT_NAN);
    lse[7] = NAN;
    EXPECT(compare(&l).verdict == VERDICT_NAN);
    lse[7] = -INFINITY;
    EXPECT(compare(&l).verdict == VERDICT_RIGHT);
    lse[8] = -INFINITY;
    EXPECT(compare(&l).verdict == VERDICT_NAN);
    memset(&lse[8], 0xff, sizeof lse[8]);
    EXPECT(compare(&l).verdict == VERDICT_UNWRITTEN);
}

static void numbers(void) {
    reset(LAYOUT_BHSD);
    for (int i = 0; i < COUNT; ++i) expected[i] = plain[i] = 1;
    plain[3] = 1 + ldexp(1, -9);
    for (int i = 0; i < COUNT; ++i) number_store(DTYPE_FP16, actual, i, 1);
    // The bound is 2^-8 + 2^-11; fp16 above 1 has steps of 2^-10. Four steps pass, five do not.
    actual[40] += 4;
    struct finding f = compare(&o);
    EXPECT(f.verdict == VERDICT_RIGHT);
    EXPECT_NEAR(f.err, ldexp(4, -10), 0);
    actual[40] += 1;
    f = compare(&o);
    EXPECT(f.verdict == VERDICT_WRONG);
    EXPECT(f.batch == 0 && f.head == 1 && f.row == 0 && f.column == 0);
    EXPECT_NEAR(f.actual, 1 + ldexp(5, -10), 0);
    EXPECT(f.compared == COUNT);  // the largest error of all is reported, not the first
    actual[COUNT - 1] += 9;
    f = compare(&o);
    EXPECT_NEAR(f.err, ldexp(9, -10), 0);
    EXPECT(f.head == 1 && f.row == 0);
    // Exactly at the bound passes, the next number does not.
    reset(LAYOUT_BHSD);
    l.floor = 0.25;
    double bound = 0.25 + 2.0 * ldexp(1, -24);
    for (int r = 0; r < ROWS; ++r) lse[r] = 0, lse_expected[r] = lse_plain[r] = 0;
    lse_expected[0] = lse_plain[0] = lse[0] = 2;
    lse[5] = (float)bound;
    EXPECT(compare(&l).verdict == VERDICT_RIGHT);
    lse[5] = nextafterf(lse[5], 1);
    EXPECT(compare(&l).verdict == VERDICT_WRONG);
    // A reference from a file brings its own rounding.
    l.expected_rounding = 0.01;
    EXPECT(compare(&l).verdict == VERDICT_RIGHT);
    // A plain implementation that overflows somewhere must not make everything right.
    reset(LAYOUT_BHSD);
    plain[5] = NAN, plain[6] = INFINITY;
    actual[40] ^= 0x2000;
    f = compare(&o);
    EXPECT(isfinite(f.bound) && f.verdict == VERDICT_WRONG);
    // Denormal results: the floor is half of the type's smallest step, not zero.
    reset(LAYOUT_BHSD);
    for (int i = 0; i < COUNT; ++i) expected[i] = plain[i] = 0, actual[i] = 0;
    expected[0] = plain[0] = ldexp(1, -25);
    EXPECT(compare(&o).verdict == VERDICT_RIGHT);
}

static void checks_that_prove_nothing(void) {
    reset(LAYOUT_BHSD);
    struct rows none = {.count = 0, .total = ROWS};
    o.rows = &none;
    EXPECT(compare(&o).verdict == VERDICT_NOTHING);
    none.total = 0;
    EXPECT(compare(&o).verdict == VERDICT_NOTHING);
    reset(LAYOUT_BHSD);
    memset(expected, 0, sizeof expected);
    memset(plain, 0, sizeof plain);
    memset(actual, 0, sizeof actual);
    EXPECT(compare(&o).verdict == VERDICT_ALL_ZERO);
    o.has_signal = 0;  // V is zero, or nobody sees a key: then zero is right
    EXPECT(compare(&o).verdict == VERDICT_RIGHT);
}

// On a sample of rows the others are still looked at: written, and no NaN from finite inputs.
static void sampled(void) {
    static int64_t index[] = {0, 7, ROWS - 1};
    static struct rows sample = {.count = 3, .total = ROWS, .index = index};
    static double sample_expected[3 * DIM];
    reset(LAYOUT_BHSD);
    for (int64_t r = 0; r < 3; ++r)
        memcpy(sample_expected + r * DIM, expected + index[r] * DIM, DIM * sizeof(double));
    o.rows = &sample, o.expected = o.plain = sample_expected;
    struct finding f = compare(&o);
    EXPECT(f.verdict == VERDICT_RIGHT && f.compared == (int64_t)3 * DIM && f.rows == 3 &&
           f.rows_total == ROWS);
    actual[7 * DIM + 2] ^= 0x0400;
    f = compare(&o);
    EXPECT(f.verdict == VERDICT_WRONG && f.head == 1 && f.row == 2 && f.column == 2);
    reset(LAYOUT_BHSD);
    o.rows = &sample, o.expected = o.plain = sample_expected;
    actual[(int64_t)11 * DIM] = 0xffff;
    EXPECT(compare(&o).verdict == VERDICT_UNWRITTEN);
    actual[(int64_t)11 * DIM] = 0x7fff;
    EXPECT(compare(&o).verdict == VERDICT_NAN);
    o.inputs_finite = 0;
    EXPECT(compare(&o).verdict == VERDICT_RIGHT);
}

int main(void) {
    sound();
    nan_and_unwritten();
    numbers();
    checks_that_prove_nothing();
    sampled();
    for (int v = VERDICT_RIGHT; v <= VERDICT_TOO_FAST; ++v) EXPECT(verdict_text((enum verdict)v)[0] != '?');
    return unit_end();
}
