// backward_test.c - the gradients against differences of the loss, against their definition, and against
// values that follow without them; the plain implementation beside them. (tests/goldens compares them with
// NumPy, honest_backward_test.c tests the bounds.)
#include "gradient_case.h"

// ---------------------------------------------------------------- differences of the loss

enum { MAX = 4096 };
static double d_o[MAX], q[MAX], k[MAX], v[MAX];

// sum(O * dO), with fp64 storage so that a difference is not lost in rounding.
static double loss(const struct attention *of) {
    struct rows rows;
    struct reference r;
    double sum = 0;
    if (rows_choose(of, REFERENCE_BUDGET, &rows) != 0 || reference_forward(of, &rows, &r) != 0) exit(1);
    for (int64_t i = 0; i < rows.count * of->head_dim; ++i) sum += r.o[i] * d_o[i];
    reference_free(&r);
    rows_free(&rows);
    return sum;
}

// The forward reference unpacks to fp32, so steps are powers of two and values multiples of
// 2^-10: exact there.
static void check_gradient(const struct attention *of, double *values, const struct gradient *gradient) {
    const double step = ldexp(1, -10);
    EXPECT(gradient->rows.count == gradient->rows.total && !gradient->rows.index);
    for (int64_t i = 0; i < gradient->rows.count * of->head_dim; i += 7) {
        double kept = values[i];
        values[i] = kept + step;
        double above = loss(of);
        values[i] = kept - step;
        double below = loss(of);
        values[i] = kept;
        EXPECT_NEAR(gradient->exact[i], (above - below) / (2 * step), 1e-5);
    }
}

static void differences(void) {
    static const struct {
        int heads, kv_heads, seqlen_q, seqlen_k, causal, window, left, right, sequences;
    } cases[] = {{2, 2, 5, 5, 0, 0, 0, 0, 0}, {2, 2, 5, 5, 1, 0, 0, 0, 0},  {6, 2, 4, 7, 1, 0, 0, 0, 0},
                 {6, 3, 7, 4, 1, 0, 0, 0, 0}, {8, 1, 3, 4, 0, 0, 0, 0, 0},  {1, 1, 3, 0, 0, 0, 0, 0, 0},
                 {4, 2, 9, 6, 0, 1, 2, 1, 0}, {2, 1, 5, 9, 1, 1, 1, -1, 0}, {6, 2, 9, 9, 1, 0, 0, 0, 4},
                 {2, 1, 9, 9, 0, 1, 1, 1, 4}, {2, 2, 0, 4, 0, 0, 0, 0, 0}};
    static const int cu_q[] = {0, 4, 4, 8, 9}, cu_k[] = {0, 2, 5, 9, 9};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; ++n) {
        a = (struct attention){.batch = 2,
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
        for (int i = 0; i < MAX; ++i) {
            q[i] = ldexp(round(inputs_normal(1, 0, 0, 0, 0, i) * 1024), -10);
            k[i] = ldexp(round(inputs_normal(1, 1, 0, 0, 0, i) * 1024), -10);
            v[i] = ldexp(round(inputs_normal(1, 2, 0, 0, 0, i) * 1024), -10);
            d_o[i] = ldexp(round(inputs_normal(1, 3, 0, 0, 0, i) * 1024), -10);
        }
        a.q = tensor_view(q, LAYOUT_BHSD, a.heads, a.seqlen_q, 8);
        a.k = tensor_view(k, LAYOUT_BHSD, a.kv_heads, a.seqlen_k, 8);
        a.v = tensor_view(v, LAYOUT_BHSD, a.kv_heads, a.seqlen_k, 8);
        a.d_o = tensor_view(d_o, LAYOUT_BHSD, a.heads, a.seqlen_q, 8);
        gradients_of(&a, INFINITY);
        check_gradient(&a, q, &g[GRADIENT_Q]);
        check_gradient(&a, k, &g[GRADIENT_K]);
        check_gradient(&a, v, &g[GRADIENT_V]);
        gradients_free(g);
    }
}

// ---------------------------------------------------------------- the definition

enum { VALUES = 1 << 16, ROWS = 1 << 12, KEYS = 256 };
static double wanted[GRADIENTS][VALUES], scales[GRADIENTS][ROWS];
static float wanted_plain[GRADIENTS][VALUES];
static int64_t seen_pairs[GRADIENTS][ROWS];

static double max_in(struct tensor t, int batch, int head, int i) {
    double max = 0;
    for (int c = 0; c < a.head_dim; ++c) max = fmax(max, fabs(load(t, batch, head, i, c)));
    return max;
}

static float stored(float x) { return (float)number_round(a.dtype, (double)x); }

// dQ, dK and dV by their formulas, one pair at a time: no ranges, no blocks, no sweep over keys. Each
// statement that adds is in the order that the plain implementation has.
static void one_query(int batch, int head, int i) {
    int kv_head = kv_head_of(&a, head);
    int64_t row = ((int64_t)batch * a.heads + head) * a.seqlen_q + i;
    int64_t first_key = ((int64_t)batch * a.kv_heads + kv_head) * a.seqlen_k;
    double p[KEYS] = {0}, dp[KEYS] = {0}, sum = 0, delta = 0, magnitude = 0, k_max = 0,
           scale = fabs((double)a.scale);
    float plain_p[KEYS] = {0}, plain_dp[KEYS] = {0}, max = -INFINITY, plain_sum = 0, plain_delta = 0;
    for (int j = 0; j < a.seqlen_k; ++j) {
        double s = 0;
        float plain_s = 0;
        dp[j] = plain_dp[j] = 0;
        if (!sees(&a, i, j)) continue;
        for (int c = 0; c < a.head_dim; ++c) {
            double q_k = load(a.q, batch, head, i, c) * load(a.k, batch, kv_head, j, c);
            double d_o_v = load(a.d_o, batch, head, i, c) * load(a.v, batch, kv_head, j, c);
            s += q_k, dp[j] += d_o_v;
            plain_s += (float)q_k, plain_dp[j] += (float)d_o_v;
        }
        sum += p[j] = exp(s * (double)a.scale), k_max = fmax(k_max, max_in(a.k, batch, kv_head, j));
        plain_p[j] = stored(plain_s * a.scale), plain_dp[j] = stored(plain_dp[j]);
        if (plain_p[j] > max) max = plain_p[j];
    }
    for (int j = 0; j < a.seqlen_k; ++j)
        if (sees(&a, i, j)) plain_sum += plain_p[j] = expf(plain_p[j] - max);
    for (int j = 0; j < a.seqlen_k; ++j) {
        if (!sees(&a, i, j)) continue;
        delta += (p[j] /= sum) * dp[j], magnitude += p[j] * fabs(dp[j]);
        plain_p[j] = stored(plain_p[j] / plain_sum), plain_delta += plain_p[j] * plain_dp[j];
    }
    scales[GRADIENT_Q][row] = scale * k_max * (magnitude + fabs(delta));
    for (int j = 0; j < a.seqlen_k; ++j) {
        if (!sees(&a, i, j)) continue;
        ++seen_pairs[GRADIENT_Q][row], ++seen_pairs[GRADIENT_K][first_key + j];
        scales[GRADIENT_K][first_key + j] +=
            scale * max_in(a.q, batch, head, i) * p[j] * (fabs(dp[j]) + fabs(delta));
        scales[GRADIENT_V][first_key + j] += max_in(a.d_o, batch, head, i) * p[j];
        double ds = (double)a.scale * p[j] * (dp[j] - delta);
        float plain_ds = stored(plain_p[j] * (plain_dp[j] - plain_delta) * a.scale);
        for (int c = 0; c < a.head_dim; ++c) {
            int64_t of_q = row * a.head_dim + c, of_k = (first_key + j) * a.head_dim + c;
            double k_c = load(a.k, batch, kv_head, j, c), q_c = load(a.q, batch, head, i, c);
            double d_o_c = load(a.d_o, batch, head, i, c);
            wanted[GRADIENT_Q][of_q] += ds * k_c, wanted_plain[GRADIENT_Q][of_q] += plain_ds * (float)k_c;
            wanted[GRADIENT_K][of_k] += ds * q_c, wanted_plain[GRADIENT_K][of_k] += plain_ds * (float)q_c;
            wanted[GRADIENT_V][of_k] += p[j] * d_o_c;
            wanted_plain[GRADIENT_V][of_k] += plain_p[j] * (float)d_o_c;
        }
    }
}

static void by_definition(void) {
    memset(wanted, 0, sizeof wanted), memset(wanted_plain, 0, sizeof wanted_plain);
    memset(scales, 0, sizeof scales), memset(seen_pairs, 0, sizeof seen_pairs);
    for (int64_t row = 0; row < query_count(&a); ++row) {
        struct position at = position_of(&a, row);
        one_query(at.batch, at.head, at.i);
    }
    memcpy(seen_pairs[GRADIENT_V], seen_pairs[GRADIENT_K], sizeof seen_pairs[GRADIENT_K]);
}

static double largest_of(const double *x, int64_t count) {
    double max = 0;
    for (int64_t i = 0; i < count; ++i)
        if (isfinite(x[i])) max = fmax(max, fabs(x[i]));
    return max;
}

static int nearly(double x, double y) { return fabs(x - y) <= 1e-6 * fabs(y); }  // norms are kept in fp32

// Exact values are those of the definition. The plain implementation's are near, in each row no further than
// the worst case, and at most a few roundings of what their sums pass through.
static void check_definition(void) {
    double u = dtype_unit_roundoff(a.dtype);
    by_definition();
    for (int which = 0; which < GRADIENTS; ++which) {
        double largest = largest_of(wanted[which], g[which].rows.count * a.head_dim), plain_err = 0,
               scale = 0;
        EXPECT(g[which].rows.count == (int64_t)a.batch * heads_of(which) * tokens_of(which));
        for (int64_t row = 0; row < g[which].rows.count; ++row) {
            const struct row_facts *facts = &g[which].facts[row];
            double err = 0;
            EXPECT(facts->keys == seen_pairs[which][row]);
            for (int64_t i = row * a.head_dim; i < (row + 1) * a.head_dim; ++i) {
                double got = g[which].exact[i], plain = g[which].plain[i];
                if (heads_of(which) == a.heads && !isnan(plain))
                    EXPECT(plain == (double)stored(wanted_plain[which][i]));
                if (isnan(wanted[which][i])) {
                    EXPECT(isnan(got) && isnan(plain));
                    continue;
                }
                EXPECT_NEAR(got, wanted[which][i], 1e-13 * (1 + largest));
                EXPECT(facts->keys > 0 || (got == 0 && plain == 0));
                err = fmax(err, fabs(plain - got));
            }
            EXPECT(err <= facts->o.worst + dtype_min_positive(a.dtype));
            EXPECT(isfinite(facts->o.sums) && facts->o.least <= facts->o.worst);
            EXPECT(!isfinite(scales[which][row]) || nearly(facts->o.scale, scales[which][row]));
            plain_err = fmax(plain_err, err), scale = fmax(scale, facts->o.scale);
        }
        EXPECT(plain_err <= 8 * u * scale + dtype_min_positive(a.dtype));
        EXPECT(!(largest > 1e-3) || plain_err >= u * largest / 16);
        EXPECT(g[which].has_signal == (which == GRADIENT_V && largest > 0));
    }
}

static void definition(void) {
    static const char *const cases[] = {"",
                                        "--causal --dtype bf16",
                                        "--causal --dtype fp32",
                                        "--heads 6 --kv-heads 2 --causal --layout bshd,bhsd,bshd,bhsd",
                                        "--kv-heads 1 --layout bshd --pad 3",
                                        "--seqlen-q 7 --seqlen-k 50 --causal",
                                        "--seqlen-q 50 --seqlen-k 7 --causal --dtype bf16",
                                        "--seqlen-q 3 --seqlen-k 200 --dim 1 --batch 1",
                                        "--seqlen-q 200 --seqlen-k 3 --dim 5 --batch 1",
                                        "--seqlen-q 5 --seqlen-k 0",
                                        "--seqlen-q 0 --seqlen-k 5",
                                        "--seqlen 1",
                                        "--batch 0",
                                        "--scale 0.7",
                                        "--scale -0.3 --dtype bf16",
                                        "--window 3,2",
                                        "--window 2,-1 --seqlen-q 30 --seqlen-k 9",
                                        "--window -1,3 --seqlen-q 9 --seqlen-k 30",
                                        "--window 20,0 --seqlen-q 9 --seqlen-k 60 --dtype bf16",
                                        "--window 0,0",
                                        "--window 2147483647,2147483647 --causal",
                                        "--seqlens 5,0,21,1,17 --heads 6 --kv-heads 2",
                                        "--seqlens 5,0,21,1,17 --causal --layout bhsd",
                                        "--seqlens-q 0,3,20,1,0 --seqlens-k 4,9,7,0,0 --causal",
                                        "--seqlens-q 0,3,20,1,0 --seqlens-k 4,9,7,0,0 --dtype bf16",
                                        "--seqlens 40,3,9 --window 4,1 --heads 6 --kv-heads 2",
                                        "--inputs outliers --dtype bf16",
                                        "--inputs uneven",
                                        "--inputs steep",
                                        "--inputs nan",
                                        "--inputs nan --causal --window 3,0",
                                        "--inputs nan-q --heads 6 --kv-heads 2",
                                        "--inputs nan-v --causal",
                                        "--inputs nan --seqlens 9,5,12 --window 2,4",
                                        "--inputs nan-v --seqlens 9,5,12 --causal"};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; ++n) {
        int failures = unit_failures;
        start(cases[n]);
        check_definition();
        if (unit_failures > failures) printf("  that was: %s\n", cases[n]);
        end();
    }
}

// ---------------------------------------------------------------- answers known without any computation

static void probes(void) {
    // One key: P = 1 whatever Q and K, so dQ = dK = 0 and dV is the sum of the dO that reach it.
    start("--seqlen-k 1 --seqlen-q 3 --batch 1 --heads 4 --kv-heads 2 --inputs outliers");
    for (int64_t i = 0; i < g[GRADIENT_Q].rows.count * a.head_dim; ++i)
        EXPECT(g[GRADIENT_Q].exact[i] == 0 && g[GRADIENT_Q].plain[i] == 0);
    for (int kv_head = 0; kv_head < 2; ++kv_head)
        for (int c = 0; c < a.head_dim; ++c) {
            double sum = 0;
            for (int i = 0; i < 6; ++i) sum += load(a.d_o, 0, 2 * kv_head + i / 3, i % 3, c);
            EXPECT_NEAR(g[GRADIENT_V].exact[kv_head * a.head_dim + c], sum, 1e-14);
            EXPECT(g[GRADIENT_K].exact[kv_head * a.head_dim + c] == 0);
        }
    end();

    // All values equal: what is paid attention to does not matter.
    start("--inputs constant-v --causal --heads 6 --kv-heads 2");
    EXPECT(largest_of(g[GRADIENT_Q].exact, g[GRADIENT_Q].rows.count * a.head_dim) < 1e-13);
    EXPECT(largest_of(g[GRADIENT_K].exact, g[GRADIENT_K].rows.count * a.head_dim) < 1e-13);
    EXPECT(largest_of(g[GRADIENT_V].exact, g[GRADIENT_V].rows.count * a.head_dim) > 0.1);
    end();

    // dO in the first query alone: the last key gets something from it unless the mask is causal.
    for (int causal = 0; causal < 2; ++causal) {
        start(causal ? "--causal" : "");
        for (int64_t row = 0; row < query_count(&a); ++row) {
            struct position at = position_of(&a, row);
            int64_t first =
                at.batch * a.d_o.stride_batch + at.head * a.d_o.stride_head + at.i * a.d_o.stride_row;
            for (int c = 0; c < a.head_dim && at.i > 0; ++c) number_store(a.dtype, a.d_o.data, first + c, 0);
        }
        gradients_free(g);
        gradients_of(&a, INFINITY);
        for (int64_t row = 0; row < g[GRADIENT_Q].rows.count; ++row) {
            double dq = largest_of(g[GRADIENT_Q].exact + row * a.head_dim, a.head_dim);
            EXPECT((dq != 0) == (row % a.seqlen_q == 0 && !causal));  // if causal it sees one key
        }
        for (int64_t row = 0; row < g[GRADIENT_K].rows.count; ++row) {
            double dv = largest_of(g[GRADIENT_V].exact + row * a.head_dim, a.head_dim);
            double dk = largest_of(g[GRADIENT_K].exact + row * a.head_dim, a.head_dim);
            EXPECT((dv != 0) == (row % a.seqlen_k == 0 || !causal) && (dk != 0) == !causal);
        }
        end();
    }

    // Q = 0 and four keys: P = 1/4. Where V and dO are whole numbers nothing is rounded, in no type.
    static const enum dtype types[] = {DTYPE_FP32, DTYPE_FP16, DTYPE_BF16};
    for (int t = 0; t < 3; ++t) {
        make("--seqlen-q 2 --seqlen-k 4 --dim 8 --scale 0.5 --inputs zero-q --dtype fp32");
        a = problem.host, a.d_o = a.o, a.dtype = types[t];
        for (int i = 0; i < 2 * 3 * 4 * 8; ++i) {
            number_store(a.dtype, a.k.data, i, i % 5 - 2);
            number_store(a.dtype, a.v.data, i, i % 3 - 1);
        }
        for (int i = 0; i < 2 * 6 * 2 * 8; ++i) number_store(a.dtype, a.d_o.data, i, i % 7 - 3);
        gradients_of(&a, INFINITY);
        for (int which = 0; which < GRADIENTS; ++which)
            for (int64_t i = 0; i < g[which].rows.count * 8; ++i)
                EXPECT(g[which].plain[i] == g[which].exact[i]);
        EXPECT(largest_of(g[GRADIENT_Q].exact, 8) > 0.1);
        gradients_free(g);
        problem_free(&problem);
    }
}

int main(void) {
    differences();
    definition();
    probes();
    return unit_end();
}
