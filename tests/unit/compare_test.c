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
static struct row_facts facts[ROWS];
static struct rows all_rows = {.count = ROWS, .total = ROWS};
static struct comparison o, l;

// Sound outputs: the reference rounded to fp16. The plain implementation is off by 2^-9 in one place, and so
// may any head be: all have the same scale.
static void reset(enum layout layout) {
    for (int i = 0; i < COUNT; ++i) expected[i] = plain[i] = (double)(i % 37 - 18) / 16;
    plain[77] += ldexp(1, -9);
    for (int r = 0; r < ROWS; ++r)
        facts[r] = (struct row_facts){.keys = 4, .score = 2, .o = {2, 0.5, 1, 0}, .lse = {2, 0.5, 1, 0}};
    o = (struct comparison){.output = OUTPUT_O,
                            .dtype = DTYPE_FP16,
                            .batch = BATCH,
                            .heads = HEADS,
                            .seqlen = TOKENS,
                            .columns = DIM,
                            .rows = &all_rows,
                            .expected = expected,
                            .plain = plain,
                            .facts = facts,
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
    l = (struct comparison){.output = OUTPUT_LSE,
                            .dtype = DTYPE_FP32,
                            .batch = BATCH,
                            .heads = HEADS,
                            .seqlen = TOKENS,
                            .columns = 1,
                            .rows = &all_rows,
                            .expected = lse_expected,
                            .plain = lse_plain,
                            .facts = facts,
                            .inputs_finite = 1};
    l.actual = tensor_view(lse, LAYOUT_BHSD, HEADS, TOKENS, 1);
}

static void sound(void) {
    reset(LAYOUT_BHSD);
    struct finding f = compare(&o);
    EXPECT(f.verdict == VERDICT_RIGHT && f.compared == COUNT && f.rows == ROWS);
    // 2 x 2^-9, half an ulp of fp16 at the largest |reference| = 18/16, and what sums in fp32 cost there
    EXPECT_NEAR(f.bound, ldexp(2, -9) + 18.0 / 16 * (ldexp(1, -11) + ldexp(1, -20)), 1e-15);
    EXPECT_NEAR(f.err, 0, 0);
    f = compare(&l);
    EXPECT(f.verdict == VERDICT_RIGHT && f.compared == ROWS);
    EXPECT_NEAR(f.bound, 2 * (ldexp(1, -24) + ldexp(1, -20)), 1e-15);  // the largest |LSE| here is 2
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
    // The bound is 2^-8 + 2^-11 + 2^-20; fp16 above 1 has steps of 2^-10. Four steps pass, five do not.
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
    EXPECT(f.batch == 1 && f.head == 2 && f.row == 4 && f.column == 7);  // of the worst head
    // Exactly at the bound passes, the next number does not.
    reset(LAYOUT_BHSD);
    double bound = 0.25 + ldexp(2, -24) + ldexp(2, -20);
    for (int r = 0; r < ROWS; ++r) lse[r] = 0, lse_expected[r] = lse_plain[r] = 0;
    lse_expected[5] = lse_plain[5] = lse[5] = 2;
    lse_plain[5] += 0.125;
    lse[6] = (float)bound;  // of the same head
    EXPECT(compare(&l).verdict == VERDICT_RIGHT);
    lse[6] = nextafterf(lse[6], 1);
    EXPECT(compare(&l).verdict == VERDICT_WRONG);
    // A reference from a file brings its own rounding.
    l.expected_roundoff = 0.01;
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

static void put(int64_t i, double value) { number_store(DTYPE_FP16, actual, i, value); }

// Head 4 (batch 1, head 1) is 1024 times as small as the others, and no kernel may be off by what they may.
static void bound_of_a_head(void) {
    enum { SMALL = 4 * TOKENS * DIM, END = 5 * TOKENS * DIM };
    for (int zeroed = 0; zeroed < 2; ++zeroed) {
        reset(LAYOUT_BHSD);
        plain[77] = expected[77] + 0.01;
        for (int i = SMALL; i < END; ++i) plain[i] = expected[i] /= 1024, put(i, zeroed ? 0 : expected[i]);
        for (int r = 4 * TOKENS; r < 5 * TOKENS; ++r)
            facts[r].o = (struct row_error){2.0 / 1024, 0.5 / 1024, 1.0 / 1024, 0};
        struct finding f = compare(&o);
        if (!zeroed) {
            EXPECT(f.verdict == VERDICT_RIGHT);
            continue;
        }
        EXPECT(f.verdict == VERDICT_WRONG && f.batch == 1 && f.head == 1 && f.row == 0);
        // The plain implementation made no error here; in proportion to V, its error in head 1 counts.
        double largest = 18.0 / 16 / 1024;
        EXPECT_NEAR(f.bound, 2 * 0.01 / 1024 + largest * (ldexp(1, -11) + ldexp(1, -20)), 1e-12);
        EXPECT_NEAR(f.err, largest, 1e-6);
        // No more than the worst case allows, where a head has an error that no other can have.
        for (int r = 4 * TOKENS; r < 5 * TOKENS; ++r) facts[r].o.worst = 1e-6;
        EXPECT_NEAR(compare(&o).bound, 2 * 1e-6 + largest * (ldexp(1, -11) + ldexp(1, -20)), 1e-12);
        // And never less than twice the plain implementation's error in this head.
        plain[SMALL] += 1e-4;
        EXPECT_NEAR(compare(&o).bound, 2 * 1e-4 + largest * (ldexp(1, -11) + ldexp(1, -20)), 1e-12);
    }
    // The bound of the whole tensor is never passed, however large a head's scale.
    reset(LAYOUT_BHSD);
    for (int r = 0; r < TOKENS; ++r) facts[r].o.scale = 1e6;
    actual[3] += 200;
    EXPECT(compare(&o).verdict == VERDICT_WRONG);
    EXPECT(compare(&o).bound < ldexp(2, -9) + 0x1p-10);
}

// A gradient has its errors where O has them, and counts as off by `least` where the plain implementation was
// lucky.
static void gradients(void) {
    for (int output = OUTPUT_DQ; output <= OUTPUT_DV; ++output) {
        reset(LAYOUT_BHSD);
        double bound_of_o = compare(&o).bound;
        o.output = (enum output)output;
        EXPECT(compare(&o).verdict == VERDICT_RIGHT && compare(&o).bound == bound_of_o);
        for (int r = 0; r < ROWS; ++r) facts[r].lse = (struct row_error){100, 100, 100, 100};
        EXPECT(compare(&o).bound == bound_of_o);
        facts[0].o.least = ldexp(1, -5);  // of head 0 only
        put(3, expected[3] + ldexp(1, -5));
        EXPECT(compare(&o).verdict == VERDICT_RIGHT);
        put(COUNT - 1, expected[COUNT - 1] + ldexp(1, -5));
        EXPECT(compare(&o).verdict == VERDICT_WRONG && compare(&o).batch == BATCH - 1);
    }
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

    // A kernel that writes NaN, where all is NaN: right or wrong, nobody knows.
    reset(LAYOUT_BHSD);
    o.inputs_finite = l.inputs_finite = 0;
    for (int i = 0; i < COUNT; ++i) expected[i] = plain[i] = NAN, actual[i] = 0x7fff;
    for (int r = 0; r < ROWS; ++r) lse[r] = NAN, lse_expected[r] = lse_plain[r] = NAN;
    EXPECT(compare(&o).verdict == VERDICT_NOT_FINITE);
    EXPECT(compare(&l).verdict == VERDICT_NOT_FINITE);
    // The zeros of a row without keys change nothing; one number does.
    for (int c = 0; c < DIM; ++c) expected[c] = 0, actual[c] = 0;
    lse_expected[0] = lse[0] = -INFINITY, facts[0].keys = 0;
    EXPECT(compare(&o).verdict == VERDICT_NOT_FINITE);
    EXPECT(compare(&l).verdict == VERDICT_NOT_FINITE);
    expected[DIM] = plain[DIM] = 1, put(DIM, 1);
    lse_expected[1] = lse_plain[1] = lse[1] = 1;
    EXPECT(compare(&o).verdict == VERDICT_RIGHT && compare(&o).finite == 1);
    EXPECT(compare(&l).verdict == VERDICT_RIGHT && compare(&l).finite == 1);
    // Where nobody sees a key there is nothing else to expect.
    for (int r = 0; r < ROWS; ++r) lse[r] = -INFINITY, lse_expected[r] = -INFINITY, facts[r].keys = 0;
    EXPECT(compare(&l).verdict == VERDICT_RIGHT);
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
    bound_of_a_head();
    gradients();
    checks_that_prove_nothing();
    sampled();
    for (int v = VERDICT_RIGHT; v <= VERDICT_TOO_FAST; ++v) EXPECT(verdict_text((enum verdict)v)[0] != '?');
    return unit_end();
}
