// honest_backward_test.c - backward passes that differ in what they round and in the order of their sums, but
// are all right, pass compare.h in every storage type and in heads of any size; small faults planted in them
// do not.
#include "common/backward.h"
#include "common/compare.h"
#include "common/problem.h"

#include "unit.h"

enum { CASES = 120, MAX_TOKENS = 64, MAX_DIM = 64 };

// What the implementations do. Each runs through tokens and columns from the last to the first, the
// reference's plain one from the first to the last.
enum style {
    FUSED,         // delta = dO . O as stored; all in fp32; scale multiplied into q
    TENSOR_CORES,  // delta = dO . O as stored; P and dS in the storage type, scale at the very end
    STORED,        // P of the forward pass, dP and dS in the storage type; delta from P and dP
    STYLES
};

enum fault {
    NONE,
    SCALE_TWICE,
    SCALE_ONCE_LESS,
    LSE_OF_ONE_ROW,  // by 1e-2; eight times as much in bf16, whose roundings are eight times as large
    TRANSPOSED_DS,
    MASK_OF_ONE,  // the last key of one query is left out
    NO_DELTA,
    FAULTS
};

static struct problem problem;
static struct attention a;  // problem.host, with dO and what is made of it
static struct gradient g[GRADIENTS];
static float p[MAX_TOKENS][MAX_TOKENS], ds[MAX_TOKENS][MAX_TOKENS];
static float dk_sum[MAX_TOKENS][MAX_DIM], dv_sum[MAX_TOKENS][MAX_DIM];

static float element(struct tensor t, int batch, int head, int i, int c) {
    return (float)number_load(a.dtype, t.data,
                              batch * t.stride_batch + head * t.stride_head + i * t.stride_row + c);
}
static void put(struct tensor t, int batch, int head, int i, int c, float value) {
    number_store(a.dtype, t.data, batch * t.stride_batch + head * t.stride_head + i * t.stride_row + c,
                 (double)value);
}
static float stored(float x) { return (float)number_round(a.dtype, (double)x); }

// Columns from the last to the first, or the other way.
static float dot(struct tensor x, int x_head, int i, struct tensor y, int y_head, int j, int batch,
                 float factor, int upward) {
    float sum = 0;
    for (int n = 0; n < a.head_dim; ++n) {
        int c = upward ? n : a.head_dim - 1 - n;
        sum += element(x, batch, x_head, i, c) * factor * element(y, batch, y_head, j, c);
    }
    return sum;
}

static float score(enum style style, int batch, int head, int i, int j, int upward) {
    float factor = style == FUSED ? a.scale : 1;
    float s = dot(a.q, head, i, a.k, kv_head_of(&a, head), j, batch, factor, upward);
    if (style != FUSED) s *= a.scale;
    return style == STORED ? stored(s) : s;
}

// O and LSE of one query; and P, which only STORED keeps.
static void forward_query(enum style style, int batch, int head, int i) {
    struct span keys = visible_range(&a, i);
    float max = -INFINITY, sum = 0;
    for (int j = keys.end - 1; j >= keys.first; --j)
        max = fmaxf(max, p[i][j] = score(style, batch, head, i, j, 0));
    for (int j = keys.end - 1; j >= keys.first; --j) {
        sum += p[i][j] = expf(p[i][j] - max);
        if (style == TENSOR_CORES) p[i][j] = stored(p[i][j]);
    }
    for (int j = keys.end - 1; j >= keys.first; --j) {
        p[i][j] /= sum;
        if (style == STORED) p[i][j] = stored(p[i][j]);
    }
    for (int c = 0; c < a.head_dim; ++c) {
        float o = 0;
        for (int j = keys.end - 1; j >= keys.first; --j)
            o += p[i][j] * element(a.v, batch, kv_head_of(&a, head), j, c);
        put(a.o, batch, head, i, c, o);
    }
    a.lse[((int64_t)batch * a.heads + head) * a.seqlen_q + i] = sum > 0 ? max + logf(sum) : -INFINITY;
}

// P and dS of one query.
static void backward_query(enum style style, enum fault fault, int batch, int head, int i) {
    struct span keys = visible_range(&a, i);
    int broken = i == a.seqlen_q / 2;  // if the fault is one of a single row
    float lse = a.lse[((int64_t)batch * a.heads + head) * a.seqlen_q + i], delta = 0;
    if (fault == LSE_OF_ONE_ROW && broken) lse += a.dtype == DTYPE_BF16 ? 8e-2f : 1e-2f;
    for (int j = 0; j < a.seqlen_k; ++j)
        if (j < keys.first || j >= keys.end) p[i][j] = ds[i][j] = 0;
    for (int j = keys.end - 1; j >= keys.first; --j) {
        if (style != STORED) p[i][j] = expf(score(style, batch, head, i, j, 1) - lse);
        ds[i][j] = dot(a.d_o, head, i, a.v, kv_head_of(&a, head), j, batch, 1, 0);
        if (style == STORED) ds[i][j] = stored(ds[i][j]), delta += p[i][j] * ds[i][j];
    }
    if (style != STORED) delta = dot(a.d_o, head, i, a.o, head, i, batch, 1, 0);
    if (fault == NO_DELTA) delta = 0;
    for (int j = keys.end - 1; j >= keys.first; --j) {
        ds[i][j] = p[i][j] * (ds[i][j] - delta);
        if (style == STORED) ds[i][j] = stored(ds[i][j] * a.scale);
        if (style == TENSOR_CORES) ds[i][j] = stored(ds[i][j]), p[i][j] = stored(p[i][j]);
    }
    if (fault == MASK_OF_ONE && broken) p[i][keys.end - 1] = ds[i][keys.end - 1] = 0;
}

static void one_head(enum style style, enum fault fault, int batch, int head) {
    int kv_head = kv_head_of(&a, head);
    float factor = style == STORED ? 1 : a.scale;
    if (fault == SCALE_TWICE) factor *= a.scale;
    if (fault == SCALE_ONCE_LESS) factor /= a.scale;
    for (int i = 0; i < a.seqlen_q; ++i)
        forward_query(style, batch, head, i), backward_query(style, fault, batch, head, i);
    for (int c = a.head_dim - 1; c >= 0; --c) {
        for (int i = 0; i < a.seqlen_q; ++i) {
            float sum = 0;
            for (int j = a.seqlen_k - 1; j >= 0; --j) sum += ds[i][j] * element(a.k, batch, kv_head, j, c);
            put(a.dq, batch, head, i, c, sum * factor);
        }
        for (int j = 0; j < a.seqlen_k; ++j)
            for (int i = a.seqlen_q - 1; i >= 0; --i) {
                float d = fault == TRANSPOSED_DS && i < a.seqlen_k && j < a.seqlen_q ? ds[j][i] : ds[i][j];
                dk_sum[j][c] += d * factor * element(a.q, batch, head, i, c);
                dv_sum[j][c] += p[i][j] * element(a.d_o, batch, head, i, c);
            }
    }
}

static void backward(enum style style, enum fault fault) {
    for (int batch = 0; batch < a.batch; ++batch)
        for (int kv_head = 0; kv_head < a.kv_heads; ++kv_head) {
            int group = a.heads / a.kv_heads;
            memset(dk_sum, 0, sizeof dk_sum), memset(dv_sum, 0, sizeof dv_sum);
            for (int head = (kv_head + 1) * group - 1; head >= kv_head * group; --head)
                one_head(style, fault, batch, head);
            for (int j = 0; j < a.seqlen_k; ++j)
                for (int c = 0; c < a.head_dim; ++c) {
                    put(a.dk, batch, kv_head, j, c, dk_sum[j][c]);
                    put(a.dv, batch, kv_head, j, c, dv_sum[j][c]);
                }
        }
}

static struct finding check(int which) {
    int of_queries = which == GRADIENT_Q;
    struct comparison c = {.output = OUTPUT_DQ + which,
                           .dtype = a.dtype,
                           .actual = of_queries            ? a.dq
                                     : which == GRADIENT_K ? a.dk
                                                           : a.dv,
                           .batch = a.batch,
                           .heads = of_queries ? a.heads : a.kv_heads,
                           .seqlen = of_queries ? a.seqlen_q : a.seqlen_k,
                           .columns = a.head_dim,
                           .rows = &g[which].rows,
                           .expected = g[which].exact,
                           .plain = g[which].plain,
                           .facts = g[which].facts,
                           .inputs_finite = 1,
                           .has_signal = g[which].has_signal};
    return compare(&c);
}

// Number `n` of the cases, each of a few rows to many, of few keys to many.
static struct options random_options(uint64_t n, enum dtype dtype) {
    static const enum input_kind kinds[] = {INPUTS_NORMAL,   INPUTS_ZERO_Q, INPUTS_CONSTANT_V, INPUTS_RISING,
                                            INPUTS_OUTLIERS, INPUTS_TINY,   INPUTS_UNEVEN,     INPUTS_ONE_HOT,
                                            INPUTS_STEEP,    INPUTS_LN3};
    unsigned draw[9];
    for (int i = 0; i < 9; ++i) draw[i] = (unsigned)(fabs(inputs_normal(n, 0, 0, 0, 0, i)) * 1e6);
    int kv_heads = 1 + (int)(draw[0] % 3), dim = 8 * (1 + (int)(draw[1] % 8));
    return (struct options){.batch = 1 + (int)(draw[2] % 2),
                            .heads = kv_heads * (1 + (int)(draw[2] / 2 % 2)),
                            .kv_heads = kv_heads,
                            .seqlen_q = 1 + (int)(draw[3] % (n % 2 ? 3 : 40)),
                            .seqlen_k = 1 + (int)(draw[4] % (n % 3 ? MAX_TOKENS : 4)),
                            .head_dim = dim,
                            .causal = (int)(draw[5] % 2),
                            .window = draw[8] % 4 == 0,
                            .window_left = (int)(draw[8] / 4 % 9),
                            .window_right = NO_LIMIT,
                            .dtype = dtype,
                            .scale = (float)((draw[6] % 3 ? 1 : 3) / sqrt(dim)),
                            .inputs = kinds[draw[7] % (sizeof kinds / sizeof *kinds)],
                            .seed = n};
}

// Makes the case and its gradients; end() frees them.
static void start(const struct options *options) {
    static char memory[GRADIENTS + 1][1 << 18];
    struct message why = {""};
    if (problem_make(options, &problem, &why) != 0) {
        printf("%s\n", why.text);
        exit(1);
    }
    a = problem.host;
    a.dq = tensor_view(memory[GRADIENT_Q], LAYOUT_BHSD, a.heads, a.seqlen_q, a.head_dim);
    a.dk = tensor_view(memory[GRADIENT_K], LAYOUT_BHSD, a.kv_heads, a.seqlen_k, a.head_dim);
    a.dv = tensor_view(memory[GRADIENT_V], LAYOUT_BHSD, a.kv_heads, a.seqlen_k, a.head_dim);
    a.d_o = tensor_view(memory[GRADIENTS], LAYOUT_BHSD, a.heads, a.seqlen_q, a.head_dim);
    inputs_fill_gradient(INPUTS_NORMAL, options->seed, &a);
    if (gradients_make(&a, INFINITY, g) != 0) exit(1);
}

static void end(void) {
    gradients_free(g);
    problem_free(&problem);
}

static void honest(uint64_t n, enum dtype dtype) {
    struct options options = random_options(n, dtype);
    start(&options);
    for (int style = 0; style < STYLES; ++style) {
        backward((enum style)style, NONE);
        for (int which = 0; which < GRADIENTS; ++which) {
            struct finding f = check(which);
            EXPECT(f.verdict == VERDICT_RIGHT);
            if (f.verdict != VERDICT_RIGHT)
                printf("  that was: %s, case %d, inputs %s, %d queries, %d keys, style %d, d%c: %g of %g\n",
                       dtype_name(dtype), (int)n, inputs_name(options.inputs), a.seqlen_q, a.seqlen_k, style,
                       "QKV"[which], f.err, f.bound);
        }
    }
    end();
}

// In which of the gradients the fault is found: a bit each.
static int found_in(enum style style, enum fault fault) {
    int found = 0;
    backward(style, fault);
    for (int which = 0; which < GRADIENTS; ++which)
        if (check(which).verdict == VERDICT_WRONG) found |= 1 << which;
    return found;
}

static void faults(enum dtype dtype) {
    enum { ROUNDS = 20, Q = 1 << GRADIENT_Q, K = 1 << GRADIENT_K, V = 1 << GRADIENT_V };
    // Where each shows: the fault of a single row or pair is small, and now and then within what is allowed.
    // (STORED does not use the LSE.)
    static const struct {
        int shows, never, times;
    } wanted[FAULTS] = {[NONE] = {0, Q | K | V, ROUNDS},        [SCALE_TWICE] = {Q | K, V, ROUNDS},
                        [SCALE_ONCE_LESS] = {Q | K, V, ROUNDS}, [TRANSPOSED_DS] = {K, Q | V, ROUNDS},
                        [NO_DELTA] = {Q | K, V, ROUNDS},        [LSE_OF_ONE_ROW] = {0, 0, ROUNDS * 9 / 10},
                        [MASK_OF_ONE] = {0, 0, ROUNDS * 9 / 10}};
    int found[FAULTS] = {0};
    for (int n = 0; n < ROUNDS; ++n) {
        struct options options = random_options((uint64_t)n, dtype);
        options.inputs = INPUTS_NORMAL, options.window = 0,
        options.scale = (float)(1 / sqrt(options.head_dim));
        options.seqlen_q = options.seqlen_k = 16 + 2 * n;
        start(&options);
        for (int fault = 0; fault < FAULTS; ++fault) {
            int in = found_in((enum style)(n % STORED), (enum fault)fault);
            found[fault] += in != 0;
            EXPECT((in & wanted[fault].shows) == wanted[fault].shows && (in & wanted[fault].never) == 0);
        }
        end();
    }
    found[NONE] = ROUNDS;
    for (int fault = 0; fault < FAULTS; ++fault) {
        EXPECT(found[fault] >= wanted[fault].times);
        if (found[fault] < wanted[fault].times)
            printf("  that was: %s, fault %d, found %d times\n", dtype_name(dtype), fault, found[fault]);
    }
}

int main(void) {
    static const enum dtype types[] = {DTYPE_FP16, DTYPE_BF16, DTYPE_FP32};
    for (int t = 0; t < 3; ++t) {
        for (uint64_t n = 0; n < CASES; ++n) honest(n, types[t]);
        faults(types[t]);
    }
    return unit_end();
}
