// reference_test.c - the reference against values that follow without it, and its gradients against
// differences. (tests/goldens compares it with NumPy.)
#include "common/inputs.h"
#include "common/problem.h"
#include "common/reference.h"

#include "unit.h"

static struct problem problem;
static struct message why;
static const struct lab lab = {.name = "reference_test"};
static const struct shape shape = {.batch = 2, .heads = 6, .kv_heads = 3, .seqlen = 21, .head_dim = 24};

// The case that these options describe, with its reference; problem_free frees it.
static void make(const char *line) {
    char copy[256], program[] = "reference_test", *argv[32] = {program};
    int argc = 1;
    static struct options options;  // packed sequences are kept there
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    if (options_parse(argc, argv, &lab, &shape, &options, &why) != 0 ||
        problem_make(&options, &problem, &why) != 0 || problem_reference(&options, &problem, &why) != 0) {
        printf("%s: %s\n", line, why.text);
        exit(1);
    }
}

static double load(struct tensor t, int64_t b, int64_t h, int64_t i, int64_t c) {
    return number_load(problem.host.dtype, t.data,
                       b * t.stride_batch + h * t.stride_head + i * t.stride_row + c);
}

// Whether query i sees key j, by the words of the manual: no ranges, no prefix sums.
static int sees(const struct attention *a, int i, int j) {
    int seqlen_q = a->seqlen_q, seqlen_k = a->seqlen_k;
    for (int n = 0; n < a->sequences; ++n) {
        seqlen_q = a->cu_seqlens_q[n + 1] - a->cu_seqlens_q[n];
        seqlen_k = a->cu_seqlens_k[n + 1] - a->cu_seqlens_k[n];
        int mine = i < seqlen_q, its = j < seqlen_k;
        if (mine != its) return 0;
        if (mine) break;
        i -= seqlen_q, j -= seqlen_k;
    }
    int ahead = j - (i + seqlen_k - seqlen_q);  // of where the query stands
    if (a->causal && ahead > 0) return 0;
    if (a->window && a->window_left != NO_LIMIT && -ahead > a->window_left) return 0;
    return !(a->window && a->window_right != NO_LIMIT && ahead > a->window_right);
}

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

static int same_error(struct row_error x, struct row_error y) {
    return x.scale == y.scale && x.worst == y.worst && x.sums == y.sums;
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
            const struct row_facts *f = &packed.facts[there], *g = &r->facts[row];
            EXPECT(f->keys == g->keys && f->score == g->score && same_error(f->o, g->o));
            EXPECT(same_error(f->lse, g->lse));
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

// ---------------------------------------------------------------- gradients

enum { MAX = 4096 };
static double d_o[MAX], dq[MAX], dk[MAX], dv[MAX];

// sum(O * dO), with fp64 storage so that a difference is not lost in rounding.
static double loss(const struct attention *a) {
    struct rows rows;
    struct reference r;
    double sum = 0;
    if (rows_choose(a, REFERENCE_BUDGET, &rows) != 0 || reference_forward(a, &rows, &r) != 0) exit(1);
    for (int64_t i = 0; i < rows.count * a->head_dim; ++i) sum += r.o[i] * d_o[i];
    reference_free(&r);
    rows_free(&rows);
    return sum;
}

// The forward reference unpacks to fp32, so steps are powers of two and values multiples of
// 2^-10: exact there.
static void check_gradient(const struct attention *a, double *values, int count, const double *gradient) {
    const double step = ldexp(1, -10);
    for (int i = 0; i < count; i += 7) {
        double kept = values[i];
        values[i] = kept + step;
        double above = loss(a);
        values[i] = kept - step;
        double below = loss(a);
        values[i] = kept;
        EXPECT_NEAR(gradient[i], (above - below) / (2 * step), 1e-5);
    }
}

static void gradients(void) {
    static const struct {
        int heads, kv_heads, seqlen_q, seqlen_k, causal, window, left, right, sequences;
    } cases[] = {{2, 2, 5, 5, 0, 0, 0, 0, 0}, {2, 2, 5, 5, 1, 0, 0, 0, 0},  {6, 2, 4, 7, 1, 0, 0, 0, 0},
                 {6, 3, 7, 4, 1, 0, 0, 0, 0}, {8, 1, 3, 4, 0, 0, 0, 0, 0},  {1, 1, 3, 0, 0, 0, 0, 0, 0},
                 {4, 2, 9, 6, 0, 1, 2, 1, 0}, {2, 1, 5, 9, 1, 1, 1, -1, 0}, {6, 2, 9, 9, 1, 0, 0, 0, 4},
                 {2, 1, 9, 9, 0, 1, 1, 1, 4}};
    static const int cu_q[] = {0, 4, 4, 8, 9}, cu_k[] = {0, 2, 5, 9, 9};
    static double q[MAX], k[MAX], v[MAX];
    for (size_t n = 0; n < sizeof cases / sizeof *cases; ++n) {
        struct attention a = {.batch = 2,
                              .heads = cases[n].heads,
                              .kv_heads = cases[n].kv_heads,
                              .seqlen_q = cases[n].seqlen_q,
                              .seqlen_k = cases[n].seqlen_k,
                              .head_dim = 8,
                              .scale = 0.4f,
                              .causal = cases[n].causal,
                              .window = cases[n].window,
                              .window_left = cases[n].left,
                              .window_right = cases[n].right,
                              .sequences = cases[n].sequences,
                              .cu_seqlens_q = cu_q,
                              .cu_seqlens_k = cu_k,
                              .dtype = DTYPE_FP64};
        int q_count = 2 * a.heads * a.seqlen_q * 8, k_count = 2 * a.kv_heads * a.seqlen_k * 8;
        for (int i = 0; i < MAX; ++i) {
            q[i] = ldexp(round(inputs_normal(1, 0, 0, 0, 0, i) * 1024), -10);
            k[i] = ldexp(round(inputs_normal(1, 1, 0, 0, 0, i) * 1024), -10);
            v[i] = ldexp(round(inputs_normal(1, 2, 0, 0, 0, i) * 1024), -10);
            d_o[i] = inputs_normal(1, 3, 0, 0, 0, i);
            dq[i] = dk[i] = dv[i] = NAN;
        }
        a.q = tensor_view(q, LAYOUT_BHSD, a.heads, a.seqlen_q, 8);
        a.k = tensor_view(k, LAYOUT_BHSD, a.kv_heads, a.seqlen_k, 8);
        a.v = tensor_view(v, LAYOUT_BHSD, a.kv_heads, a.seqlen_k, 8);
        struct tensor gradient = tensor_view(d_o, LAYOUT_BHSD, a.heads, a.seqlen_q, 8);
        EXPECT(reference_backward(&a, gradient, dq, dk, dv) == 0);
        check_gradient(&a, q, q_count, dq);
        check_gradient(&a, k, k_count, dk);
        check_gradient(&a, v, k_count, dv);
        EXPECT(isnan(dq[q_count]) && isnan(dk[k_count]) && isnan(dv[k_count]));  // and nothing past the end
        for (int64_t row = 0; row < query_count(&a); ++row) {                    // queries without keys
            int keys = 0;
            for (int j = 0; j < a.seqlen_k; ++j) keys += sees(&a, position_of(&a, row).i, j);
            for (int c = 0; c < 8 && keys == 0; ++c) EXPECT(dq[row * 8 + c] == 0);
        }
    }
    // One key: P = 1 whatever Q and K, so dQ = dK = 0 and dV is the sum of the dO that reach it.
    struct attention a = {.batch = 1,
                          .heads = 2,
                          .kv_heads = 1,
                          .seqlen_q = 3,
                          .seqlen_k = 1,
                          .head_dim = 8,
                          .scale = 1,
                          .dtype = DTYPE_FP64};
    a.q = tensor_view(q, LAYOUT_BHSD, 2, 3, 8);
    a.k = tensor_view(k, LAYOUT_BHSD, 1, 1, 8), a.v = tensor_view(v, LAYOUT_BHSD, 1, 1, 8);
    EXPECT(reference_backward(&a, tensor_view(d_o, LAYOUT_BHSD, 2, 3, 8), dq, dk, dv) == 0);
    for (int c = 0; c < 8; ++c) {
        double sum = 0;
        for (int row = 0; row < 6; ++row) sum += d_o[row * 8 + c];
        EXPECT_NEAR(dk[c], 0, 1e-14);
        EXPECT_NEAR(dq[c], 0, 1e-14);
        EXPECT_NEAR(dv[c], sum, 1e-14);
    }
}

int main(void) {
    forward();
    probes();
    nan_is_seen_or_not();
    packed_is_batched();
    nan_outside_the_window();
    sample();
    gradients();
    return unit_end();
}
