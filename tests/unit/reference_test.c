// reference_test.c - the reference against values that follow without it. (tests/goldens compares it with
// NumPy.)
#include "common/inputs.h"
#include "common/reference.h"

#include "case.h"

// Attention by the definition, one element at a time: no blocking, no running anything.
static double by_definition(int b, int h, int i, int column, double *lse) {
    const struct attention *a = &problem.host;
    double sum = 0, weighted = 0;
    for (int j = 0; j < a->seqlen_k; ++j) {
        if (!sees(a, i, j)) continue;
        double s = 0;
        for (int c = 0; c < a->head_dim; ++c)
            s += load(a->q, b, h, i, c) * load(a->k, b, kv_head_of(a, h), j, c);
        double e = exp(s * (double)a->scale);
        sum += e, weighted += e * load(a->v, b, kv_head_of(a, h), j, column);
    }
    *lse = sum > 0 ? log(sum) : -INFINITY;
    return sum > 0 ? weighted / sum : 0;
}

static void forward(void) {
    static const char *const cases[] = {"",
                                        "--causal",
                                        "--kv-heads 1 --layout bshd",
                                        "--heads 6 --kv-heads 2 --causal --layout bshd,bhsd,bshd,bhsd",
                                        "--seqlen-q 7 --seqlen-k 30 --causal",
                                        "--seqlen-q 30 --seqlen-k 7 --causal",
                                        "--seqlen 1 --dim 8",
                                        "--scale 0.7",
                                        "--dtype bf16 --causal",
                                        "--dtype e4m3",
                                        "--seqlen-q 3 --seqlen-k 200 --dim 1",
                                        "--seqlen-q 5 --seqlen-k 0",
                                        "--window 3,2",
                                        "--window 0,0",
                                        "--window 5 --causal",
                                        "--window -1,0",
                                        "--window 2,-1 --seqlen-q 30 --seqlen-k 9",
                                        "--window 20,0 --seqlen-q 9 --seqlen-k 60 --dtype bf16",
                                        "--window 1000,1000",
                                        "--window 2147483647,2147483647 --causal",
                                        "--seqlens 5,0,21,1,17",
                                        "--seqlens 5,0,21,1,17 --causal --layout bhsd",
                                        "--seqlens-q 0,3,20,1,0 --seqlens-k 4,9,7,0,0 --causal",
                                        "--seqlens-q 0,3,20,1,0 --seqlens-k 4,9,7,0,0",
                                        "--seqlens 40,3,9 --window 4,1 --heads 6 --kv-heads 2",
                                        "--seqlens 40,3,9 --window 4 --causal --dtype e4m3"};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; ++n) {
        make(cases[n]);
        const struct attention *a = &problem.host;
        double plain_err = 0, pairs = 0;
        for (int i = 0; i < a->seqlen_q; ++i)
            for (int j = 0; j < a->seqlen_k; ++j) pairs += sees(a, i, j);
        EXPECT_NEAR(visible_pairs(a), pairs * a->batch * a->heads, 0);
        for (int64_t row = 0; row < problem.rows.count; ++row) {
            struct position at = position_of(a, row);
            for (int c = 0; c < a->head_dim; ++c) {
                double lse, o = by_definition(at.batch, at.head, at.i, c, &lse);
                EXPECT_NEAR(problem.reference.o[row * a->head_dim + c], o, 1e-13);
                if (isfinite(lse))
                    EXPECT_NEAR(problem.reference.lse[row], lse, 1e-13);
                else
                    EXPECT(problem.reference.lse[row] == -INFINITY && o == 0);
                plain_err = fmax(plain_err, fabs(problem.reference.plain_o[row * a->head_dim + c] - o));
            }
        }
        // The plain implementation is near, as near as its type, and never exact unless there is
        // nothing to compute.
        double unit = dtype_unit_roundoff(a->dtype);
        EXPECT(plain_err <= 16 * unit);
        EXPECT(plain_err > 0 || a->seqlen_k <= 1 || (a->window && a->window_left + a->window_right == 0));
        EXPECT(problem.reference.has_signal == (a->seqlen_k > 0));
        problem_free(&problem);
    }
}

// Answers known without any computation.
static void probes(void) {
    make("--inputs zero-q --causal --seqlen-q 13 --seqlen-k 21 --heads 6 --kv-heads 2");
    const struct attention *a = &problem.host;
    for (int64_t row = 0; row < problem.rows.count; ++row) {
        struct position at = position_of(a, row);
        int n = at.i + 1 + 21 - 13;
        double mean = 0;
        for (int j = 0; j < n; ++j) mean += load(a->v, at.batch, at.head / 3, j, 5) / n;
        EXPECT_NEAR(problem.reference.o[row * a->head_dim + 5], mean, 1e-14);
        EXPECT_NEAR(problem.reference.lse[row], log(n), 1e-14);
    }
    problem_free(&problem);

    make("--inputs constant-v");
    for (int64_t i = 0; i < problem.rows.count * shape.head_dim; ++i)
        EXPECT_NEAR(problem.reference.o[i], 1, 1e-14);
    problem_free(&problem);

    // ln 3 in turn: 11 even keys with V = -1 (weight 1), 10 odd ones with V = 1 (weight 3), 21 keys in all.
    make("--inputs ln3 --dtype fp32 --batch 1 --heads 1");
    EXPECT_NEAR(problem.reference.o[0], (30.0 - 11) / (30 + 11), 1e-6);
    EXPECT_NEAR(problem.reference.lse[0], log(41), 1e-6);
    problem_free(&problem);

    // One key: O is its V and LSE its score, however large.
    make("--inputs huge --seqlen-q 3 --seqlen-k 1 --dim 64 --heads 2 --dtype bf16");
    for (int64_t row = 0; row < problem.rows.count; ++row) {
        struct position at = position_of(&problem.host, row);
        EXPECT_NEAR(problem.reference.lse[row], at.head ? 57344 : -57344, 0);
        EXPECT_NEAR(problem.reference.o[row * 64 + 9], load(problem.host.v, at.batch, at.head, 0, 9), 0);
    }
    problem_free(&problem);
}

// Of equal lengths, packed sequences are the batches of an ordinary problem, to the last bit; and so are the
// facts that bounds are made of.
static void packed_is_batched(void) {
    static const char *const cases[][2] = {
        {"--seqlens 21,21,21,21 --heads 6 --kv-heads 2", "--batch 4 --heads 6 --kv-heads 2"},
        {"--seqlens-q 9,9 --seqlens-k 21,21 --causal --window 7,3 --dtype bf16",
         "--batch 2 --seqlen-q 9 --seqlen-k 21 --causal --window 7,3 --dtype bf16"}};
    for (int n = 0; n < 2; ++n) {
        make(cases[n][0]);
        struct reference packed = problem.reference;
        struct problem kept = problem;
        make(cases[n][1]);
        const struct attention *a = &problem.host;
        EXPECT(problem.rows.count == kept.rows.count && a->batch > 1);
        EXPECT(packed.largest_score == problem.reference.largest_score);
        for (int64_t row = 0; row < problem.rows.count; ++row) {
            struct position at = position_of(a, row);
            int64_t there = ((int64_t)at.head * a->batch + at.batch) * a->seqlen_q + at.i, dim = a->head_dim;
            size_t bytes = (size_t)dim * sizeof(double);
            const struct reference *r = &problem.reference;
            EXPECT(memcmp(packed.o + there * dim, r->o + row * dim, bytes) == 0);
            EXPECT(memcmp(packed.plain_o + there * dim, r->plain_o + row * dim, bytes) == 0);
            EXPECT(packed.lse[there] == r->lse[row] && packed.plain_lse[there] == r->plain_lse[row]);
            EXPECT(same_facts(&packed.facts[there], &r->facts[row]));
        }
        problem_free(&problem);
        problem_free(&kept);
    }
}

// A NaN reaches who sees it and nobody else.
static void nan_is_seen_or_not(void) {
    for (int causal = 0; causal < 2; ++causal) {
        make(causal ? "--inputs nan --causal" : "--inputs nan");
        const struct attention *a = &problem.host;
        for (int64_t row = 0; row < problem.rows.count; ++row) {
            struct position at = position_of(a, row);
            int sees =
                at.batch == a->batch - 1 && at.head >= a->heads - 2 && (!causal || at.i == a->seqlen_q - 1);
            EXPECT(!isnan(problem.reference.lse[row]) == !sees);
            EXPECT(!isnan(problem.reference.plain_lse[row]) == !sees);
            for (int c = 0; c < a->head_dim; ++c) {
                EXPECT(!isnan(problem.reference.o[row * a->head_dim + c]) == !sees);
                EXPECT(!isnan(problem.reference.plain_o[row * a->head_dim + c]) == !sees);
            }
        }
        EXPECT(!problem.inputs_finite);
        problem_free(&problem);
    }
}

static void nan_outside_the_window(void) {
    static const char *const cases[] = {"--inputs nan --window 3,0", "--inputs nan --window 0,2 --causal",
                                        "--inputs nan --seqlens 9,5,12 --window 2,4",
                                        "--inputs nan --seqlens 9,5,12 --causal"};
    for (int n = 0; n < 4; ++n) {
        make(cases[n]);
        const struct attention *a = &problem.host;
        int reached = 0;
        for (int64_t row = 0; row < problem.rows.count; ++row) {
            struct position at = position_of(a, row);
            int touched = at.batch == a->batch - 1 && at.head >= a->heads - a->heads / a->kv_heads &&
                          sees(a, at.i, a->seqlen_k - 1);
            reached += touched;
            EXPECT(!isnan(problem.reference.lse[row]) == !touched);
            EXPECT(!isnan(problem.reference.plain_lse[row]) == !touched);
            EXPECT(isfinite(problem.reference.facts[row].o.worst));
            for (int c = 0; c < a->head_dim; ++c) {
                EXPECT(!isnan(problem.reference.o[row * a->head_dim + c]) == !touched);
                EXPECT(!isnan(problem.reference.plain_o[row * a->head_dim + c]) == !touched);
            }
        }
        EXPECT(reached > 0 && reached < 30);
        problem_free(&problem);
    }
}

// A sample gives the very values that all rows give, holds the corners, and is the same each time.
static void sample(void) {
    make("--seqlen 50 --causal");
    const struct attention *a = &problem.host;
    struct rows rows = {.count = 0}, again = {.count = 0};
    struct reference few;
    EXPECT(rows_choose(a, 1e5, &rows) == 0 && rows_choose(a, 1e5, &again) == 0);
    EXPECT(rows.index && again.index);
    if (!rows.index || !again.index) return;
    EXPECT(rows.count < rows.total && rows.count >= 32 && rows.total == 600);
    EXPECT(rows.count == again.count &&
           memcmp(rows.index, again.index, (size_t)rows.count * sizeof *rows.index) == 0);
    static const int64_t corners[] = {0, 49, 550, 599};
    for (int i = 0; i < 4; ++i) {
        int found = 0;
        for (int64_t n = 0; n < rows.count; ++n) found |= rows_at(&rows, n) == corners[i];
        EXPECT(found);
    }
    for (int64_t n = 1; n < rows.count; ++n) EXPECT(rows.index[n] > rows.index[n - 1]);
    EXPECT(reference_forward(a, &rows, &few) == 0);
    for (int64_t n = 0; n < rows.count; ++n) {
        int64_t row = rows_at(&rows, n), bytes = a->head_dim * (int64_t)sizeof(double);
        EXPECT(memcmp(few.o + n * a->head_dim, problem.reference.o + row * a->head_dim, (size_t)bytes) == 0);
        EXPECT(memcmp(few.plain_o + n * a->head_dim, problem.reference.plain_o + row * a->head_dim,
                      (size_t)bytes) == 0);
        EXPECT(few.lse[n] == problem.reference.lse[row]);
    }
    reference_free(&few);
    rows_free(&rows);
    rows_free(&again);
    problem_free(&problem);
}

int main(void) {
    forward();
    probes();
    nan_is_seen_or_not();
    packed_is_batched();
    nan_outside_the_window();
    sample();
    return unit_end();
}
