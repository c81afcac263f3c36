// quantised_test.c - the definition in quantise.h, and the emulation of it that quantising kernels are judged
// by: against a second implementation, on inputs whose answer is known, and with NaN and infinity.
#include "quantised_kernel.h"

static void start(const char *line, enum quantised as) {
    make(line);
    if (problem_quantised(&problem, as, &why) != 0) printf("%s\n", why.text), exit(1);
}

// Again, after the inputs were changed.
static void restart(enum quantised as) {
    reference_free(&problem.reference);
    problem.quantised_as = QUANTISED_NOT;
    reference_free(&problem.quantised);
    if (reference_forward(&problem.host, &problem.rows, &problem.reference) != 0 ||
        problem_quantised(&problem, as, &why) != 0)
        exit(1);
}

static void store(struct tensor t, int b, int h, int i, int c, double x) {
    number_store(problem.host.dtype, t.data, b * t.stride_batch + h * t.stride_head + i * t.stride_row + c,
                 x);
}

static double plain_o(int row, int c) { return problem.quantised.plain_o[row * problem.host.head_dim + c]; }

// ---------------------------------------------------------------- quantise.h

static void definition(void) {
    EXPECT(quantise_blocks(0) == 0 && quantise_blocks(1) == 1 && quantise_blocks(128) == 1 &&
           quantise_blocks(129) == 2);
    EXPECT(quantise_columns(8) == 64 && quantise_columns(64) == 64 && quantise_columns(72) == 128 &&
           quantise_columns(256) == 256);
    EXPECT(quantise_scale(448) == 1 && quantise_scale(0) == 1 && quantise_scale(7) == 7 / 448.0f);
    EXPECT(quantise_inverse(0) == 0 && quantise_inverse(14) == 32 && quantise_inverse(0x1p-101f) == 0);
    EXPECT(quantise_amax(2, -3) == 3 && quantise_amax(2, 1) == 2 && quantise_amax(2, NAN) == 2 &&
           quantise_amax(2, -INFINITY) == 2);
    EXPECT(quantise_scaled(3, 2) == 6 && isnan(quantise_scaled(NAN, 2)) &&
           isnan(quantise_scaled(INFINITY, 2)));
    EXPECT(exp2(QUANTISE_P_EXPONENT) == QUANTISE_P_MAX && QUANTISE_MAX == dtype_max_finite(DTYPE_E4M3));
    for (int amax = 1; amax < 2000;
         ++amax) {  // the largest element becomes the largest number, and comes back
        float x = (float)amax / 7;
        EXPECT(e4m3_from_float(quantise_scaled(x, quantise_inverse(x))) == 0x7e);
        EXPECT_NEAR(448 * quantise_scale(x), x, 0x1p-23 * x);
    }
}

// The rotation is orthogonal, H S / sqrt(D) by H's definition, and its signs are no pattern.
static void rotation(void) {
    for (int columns = 64; columns <= 256; columns *= 2) {
        static float of_unit[256][256];
        int negative = 0, changes = 0;
        double off = 0, sizes = 0;
        for (int i = 0; i < columns; ++i) {
            float unit[256] = {0};
            memset(of_unit[i], 0, sizeof of_unit[i]);
            of_unit[i][i] = unit[i] = 1;
            quantise_rotate(of_unit[i], columns);
            for (int c = 0; c < columns; ++c) {
                double want = (double)rotated_element(unit, columns, c);
                off = fmax(off, fabs((double)of_unit[i][c] - want));
                sizes = fmax(sizes, fabs(fabs(want) - 1 / sqrt(columns)));
            }
            negative += quantise_sign(i) < 0;
            changes += i > 0 && quantise_sign(i) != quantise_sign(i - 1);
        }
        EXPECT_NEAR(off, 0, 1e-7);
        EXPECT_NEAR(sizes, 0, 1e-7);
        EXPECT_NEAR(negative, columns / 2.0, columns / 8.0);
        EXPECT_NEAR(changes, columns / 2.0, columns / 8.0);
        for (int i = 0; i < columns; ++i)
            for (int j = 0; j < columns; ++j) {
                double dot = 0;
                for (int c = 0; c < columns; ++c) dot += (double)of_unit[i][c] * (double)of_unit[j][c];
                off = fmax(off, fabs(dot - (i == j)));
            }
        EXPECT_NEAR(off, 0, 1e-6);
    }
}

// Q K^T through the rotation, of rows filled up with zeros: what it was.
static void products_stay(void) {
    double off = 0;
    for (int n = 0; n < 200; ++n) {
        float q[128] = {0}, k[128] = {0};
        int dim = 8 * (1 + n % 16), columns = quantise_columns(dim);
        double before = 0, after = 0, size_q = 0, size_k = 0;
        for (int c = 0; c < dim; ++c) {
            q[c] = (float)inputs_normal(3, 0, 0, 0, n, c), k[c] = (float)inputs_normal(3, 1, 0, 0, n, c);
            before += (double)q[c] * (double)k[c];
            size_q += (double)q[c] * (double)q[c], size_k += (double)k[c] * (double)k[c];
        }
        quantise_rotate(q, columns), quantise_rotate(k, columns);
        for (int c = 0; c < columns; ++c) after += (double)q[c] * (double)k[c];
        off = fmax(off, fabs(after - before) / sqrt(size_q * size_k));
    }
    EXPECT(off > 0 && off < 1e-6);
}

// ---------------------------------------------------------------- the emulation

// The second implementation with all keys in one tile rounds P under the same maximum: the same result, but
// for the order of sums in fp32, one rounding to fp16, and numbers that it puts on the other side of a tie of
// e4m3 (P 2^-4 larger or smaller, among many).
static void second_implementation(void) {
    static const char *const lines[] = {
        "--batch 2 --heads 4 --kv-heads 2 --seqlen-q 140 --seqlen-k 300 --dim 24 --causal",
        "--batch 1 --heads 2 --kv-heads 1 --seqlen-q 30 --seqlen-k 500 --dim 72 --dtype bf16",
        "--batch 1 --heads 2 --kv-heads 2 --seqlen 260 --dim 64 --inputs steps --layout bshd,bhsd,bshd,bhsd",
        "--batch 1 --heads 2 --kv-heads 1 --seqlen 200 --dim 128 --inputs added-outliers --pad 8",
        "--batch 1 --heads 2 --kv-heads 1 --seqlen-q 200 --seqlen-k 70 --dim 16 --causal --scale -0.7",
    };
    for (size_t n = 0; n < sizeof lines / sizeof *lines; ++n)
        for (int as = QUANTISED_E4M3; as <= QUANTISED_E4M3_ROTATED; ++as) {
            start(lines[n], (enum quantised)as);
            const struct attention *a = &problem.host;
            struct reference *r = &problem.quantised;
            double squares = 0, most = 0, most_lse = 0, unit = dtype_unit_roundoff(a->dtype);
            quantised_kernel((struct way){MOST_TOKENS, 0, HONEST}, as == QUANTISED_E4M3_ROTATED);
            for (int64_t row = 0; row < query_count(a); ++row) {
                struct position at = position_of(a, row);
                for (int c = 0; c < a->head_dim; ++c) {
                    double plain = r->plain_o[row * a->head_dim + c], largest = r->facts[row].o.scale;
                    double off = fabs(plain - load(a->o, at.batch, at.head, at.i, c)) / fmax(largest, 1e-30);
                    squares += off * off, most = fmax(most, off);
                    EXPECT(r->o[row * a->head_dim + c] == problem.reference.o[row * a->head_dim + c]);
                }
                if (r->facts[row].keys == 0)
                    EXPECT(a->lse[row] == -INFINITY && r->plain_lse[row] == -INFINITY);
                else
                    most_lse = fmax(most_lse, fabs(r->plain_lse[row] - (double)a->lse[row]));
            }
            // Rotated in double or in fp32, an element near a tie of e4m3 goes either way, and all its
            // scores.
            double flips = as == QUANTISED_E4M3_ROTATED ? 0.02 : 0.004;
            EXPECT_NEAR(sqrt(squares / (double)(query_count(a) * a->head_dim)), 0, unit + flips / 20);
            EXPECT_NEAR(most, 0, 2 * unit + flips);
            EXPECT_NEAR(most_lse, 0, as == QUANTISED_E4M3_ROTATED ? 0.05 : 1e-5);
            problem_free(&problem);
        }
}

// Numbers of the grid of e4m3, with 448 in each block, come back as they were: with one key seen, O = V, in
// every block of it; scores are those of double.
static void on_the_grid(void) {
    start("--batch 1 --heads 2 --kv-heads 1 --seqlen 300 --dim 16 --scale 0.0001", QUANTISED_E4M3);
    const struct attention *a = &problem.host;
    for (int j = 0; j < 300; ++j)
        for (int c = 0; c < 16; ++c) {
            // From 2^-3 on in fp16 all of them are numbers; times 2, 1 and 1/2 from block to block.
            int block = j / 128, n = c == j % 16 ? 0x7e : 32 + (j * 16 + c) * 7 % 94;
            double x = ldexp((double)e4m3_number(n), 1 - block);
            store(a->v, 0, 0, j, c, x), store(a->k, 0, 0, j, c, -x);
            for (int h = 0; h < 2; ++h) store(a->q, 0, h, j, c, h ? x : -x);
        }
    restart(QUANTISED_E4M3);
    const struct reference *r = &problem.quantised;
    for (int row = 0; row < 600; ++row) EXPECT_NEAR(r->plain_lse[row], r->lse[row], 2e-5 * fabs(r->lse[row]));
    problem.host.causal = problem.host.window = 1,
    problem.host.window_left = 0;  // each query sees its own key
    problem.host.window_right = 0;
    restart(QUANTISED_E4M3);
    int differ = 0;
    for (int row = 0; row < 600; ++row)
        for (int c = 0; c < 16; ++c) differ += plain_o(row, c) != load(a->v, 0, 0, row % 300, c);
    EXPECT(differ == 0);
    problem_free(&problem);
}

// An outlier coarsens its own block and no other; a block of zeros is zeros; blocks count tokens of a head,
// whoever sees them.
static void blocks(void) {
    start("--batch 1 --heads 2 --kv-heads 2 --seqlen 300 --dim 8 --window 0,0", QUANTISED_E4M3);
    const struct attention *a = &problem.host;
    for (int j = 0; j < 300; ++j)
        for (int c = 0; c < 8; ++c) {
            double x = j < 128 ? 0 : 1 + (j + c) % 8 / 8.0;
            for (int h = 0; h < 2; ++h) store(a->v, 0, h, j, c, j == 200 && c == 3 && h == 1 ? 57344 : x);
        }
    restart(QUANTISED_E4M3);
    double off[2][3] = {{0}};
    for (int row = 0; row < 600; ++row)
        for (int c = 0; c < 8; ++c) {
            double err = fabs(plain_o(row, c) - problem.quantised.o[row * 8 + c]);
            double *worst = &off[row / 300][row % 300 / 128];
            *worst = fmax(*worst, err);
        }
    EXPECT(off[0][0] == 0 && off[1][0] == 0);
    EXPECT(off[0][2] > 0 && off[0][2] < 0.07 && off[0][1] < 0.07 && off[1][2] == off[0][2]);
    // 57344 / 448 = 128: its numbers below 2 are 2^-9 x 128 apart.
    EXPECT(off[1][1] == 0.125 && plain_o(300 + 200, 3) == 57344);
    problem_free(&problem);

    // Below half of 2^-9 of the scale nothing is left, though the outlier is hidden from everybody before it.
    start("--batch 1 --heads 1 --kv-heads 1 --seqlen 128 --dim 8 --causal", QUANTISED_E4M3);
    for (int j = 0; j < 128; ++j)
        for (int c = 0; c < 8; ++c) store(problem.host.v, 0, 0, j, c, j < 127 ? 0.03 : 28672);
    restart(QUANTISED_E4M3);
    EXPECT(plain_o(126, 0) == 0 && plain_o(0, 7) == 0 && plain_o(127, 0) != 0);
    problem_free(&problem);
}

// ---------------------------------------------------------------- NaN and infinity

static int count_nan(const double *x, int count) {
    int nan = 0;
    for (int i = 0; i < count; ++i) nan += isnan(x[i]) != 0;
    return nan;
}

// One bad number in the block that all queries read: who sees it has NaN, the others have what they had.
static void bad_numbers(void) {
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    enum { TOKENS = 100, DIM = 8, BAD = 60 };
    for (int as = QUANTISED_E4M3; as <= QUANTISED_E4M3_ROTATED; ++as)
        for (int n = 0; n < 9; ++n) {
            static double before_o[TOKENS * DIM], before_lse[TOKENS];
            start("--batch 1 --heads 1 --kv-heads 1 --seqlen 100 --dim 8 --causal", (enum quantised)as);
            const struct attention *a = &problem.host;
            struct tensor t = n % 3 == 0 ? a->q : n % 3 == 1 ? a->k : a->v;
            store(t, 0, 0, BAD, 5, 0);
            restart((enum quantised)as);
            memcpy(before_o, problem.quantised.plain_o, sizeof before_o);
            memcpy(before_lse, problem.quantised.plain_lse, sizeof before_lse);
            store(t, 0, 0, BAD, 5, bad[n / 3]);
            restart((enum quantised)as);
            const struct reference *r = &problem.quantised;
            for (int i = 0; i < TOKENS; ++i) {
                int sees_it = n % 3 == 0 ? i == BAD : i >= BAD, of_v = n % 3 == 2;
                EXPECT(count_nan(r->plain_o + (long)i * DIM, DIM) == (!sees_it ? 0 : of_v ? 1 : DIM));
                EXPECT(count_nan(r->o + (long)i * DIM, DIM) == (!sees_it ? 0 : of_v ? 1 : DIM));
                EXPECT(isnan(r->plain_lse[i]) == (sees_it && !of_v) &&
                       isnan(r->lse[i]) == (sees_it && !of_v));
                if (!sees_it) EXPECT(r->plain_lse[i] == before_lse[i]);
                for (int c = 0; c < DIM; ++c)
                    if (!sees_it) EXPECT(r->plain_o[i * DIM + c] == before_o[i * DIM + c]);
            }
            // A second implementation agrees, and the check says so.
            problem.inputs_finite = 0;
            quantised_kernel((struct way){64, 0, HONEST}, as == QUANTISED_E4M3_ROTATED);
            struct comparison o = problem_comparison(&problem, OUTPUT_O, (enum quantised)as);
            struct comparison lse = problem_comparison(&problem, OUTPUT_LSE, (enum quantised)as);
            EXPECT(compare(&o).verdict == VERDICT_RIGHT && compare(&lse).verdict == VERDICT_RIGHT);
            // What the largest number would be in its place is not what the contract asks for.
            store(problem.host.o, 0, 0, BAD, 5, 1);
            EXPECT(compare(&o).verdict == VERDICT_NAN);
            problem_free(&problem);
        }
}

// ---------------------------------------------------------------- bookkeeping

static void of_the_problem(void) {
    start("--batch 1 --heads 1 --kv-heads 1 --seqlen 70 --inputs added-outliers", QUANTISED_E4M3);
    double *first = problem.quantised.o, plain = plain_o(3, 3);
    EXPECT(problem_quantised(&problem, QUANTISED_NOT, &why) == 0 && problem.quantised_as == QUANTISED_E4M3);
    EXPECT(problem_quantised(&problem, QUANTISED_E4M3, &why) == 0 && problem.quantised.o == first);
    EXPECT(problem_quantised(&problem, QUANTISED_E4M3_ROTATED, &why) == 0);
    EXPECT(problem.quantised_as == QUANTISED_E4M3_ROTATED && plain_o(3, 3) != plain);
    EXPECT(problem_comparison(&problem, OUTPUT_O, QUANTISED_E4M3_ROTATED).plain == problem.quantised.plain_o);
    EXPECT(problem_comparison(&problem, OUTPUT_O, QUANTISED_NOT).plain == problem.reference.plain_o);
    problem_free(&problem);

    // A sample of rows: the same numbers as in all of them.
    start("--batch 2 --heads 4 --kv-heads 2 --seqlen-q 200 --seqlen-k 140 --causal", QUANTISED_E4M3_ROTATED);
    struct rows few;
    struct reference truth, quantised;
    int differ = 0;
    if (rows_choose(&problem.host, 1, &few) != 0 || few.count == few.total ||
        reference_forward(&problem.host, &few, &truth) != 0 ||
        reference_quantised(&problem.host, &few, QUANTISED_E4M3_ROTATED, &truth, &quantised) != 0)
        exit(1);
    for (int64_t r = 0; r < few.count; ++r) {
        int64_t row = rows_at(&few, r);
        for (int c = 0; c < 24; ++c)
            differ += quantised.plain_o[r * 24 + c] != problem.quantised.plain_o[row * 24 + c];
        differ += quantised.plain_lse[r] != problem.quantised.plain_lse[row];
        differ += !same_facts(&quantised.facts[r], &problem.quantised.facts[row]);
    }
    EXPECT(differ == 0);
    reference_free(&truth), reference_free(&quantised), rows_free(&few);
    problem_free(&problem);
}

// The published effect: outliers cost e4m3 its accuracy, and the rotation gives it back (FlashAttention-3,
// table 3: 2.4e-2 without, 9.1e-3 with, 1.9e-4 in fp16).
static void published(void) {
    double rmse[3];
    start("--batch 1 --heads 2 --kv-heads 2 --seqlen-q 128 --seqlen-k 4096 --dim 128 --inputs added-outliers",
          QUANTISED_E4M3);
    int64_t count = problem.rows.count * 128;
    rmse[0] = root_mean_square_error(problem.reference.plain_o, problem.reference.o, count);
    rmse[1] = root_mean_square_error(problem.quantised.plain_o, problem.quantised.o, count);
    if (problem_quantised(&problem, QUANTISED_E4M3_ROTATED, &why) != 0) exit(1);
    rmse[2] = root_mean_square_error(problem.quantised.plain_o, problem.quantised.o, count);
    printf("RMSE of O: fp16 %.2e, e4m3 %.2e, rotated %.2e\n", rmse[0], rmse[1], rmse[2]);
    EXPECT(rmse[2] < 0.7 * rmse[1] && rmse[1] < 0.1 && rmse[0] < 0.05 * rmse[2]);
    problem_free(&problem);
}

int main(void) {
    definition();
    rotation();
    products_stay();
    second_implementation();
    on_the_grid();
    blocks();
    bad_numbers();
    of_the_problem();
    published();
    return unit_end();
}
