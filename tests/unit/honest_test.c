// honest_test.c - implementations that differ in what they round and in the order of their sums, but are all
// right, pass compare.h in every storage type and in heads of any size; and what the bound is made of holds.
#include "common/compare.h"
#include "common/problem.h"

#include "unit.h"

enum { CASES = 60, MAX_KEYS = 64 };

// What the implementations do. Each runs through keys and columns from the last to the first, the reference's
// plain one from the first to the last.
enum style {
    UNFUSED,           // scores and normalised probabilities in the storage type
    FUSED,             // neither: all in fp32, scale multiplied into q
    SCORES_KEPT,       // scores in the storage type, exp(s - max) in fp32, divided at the end
    TENSOR_CORES,      // scores in fp32, exp(s - max) in the storage type, divided at the end
    SMALL_HEADS_ZERO,  // FUSED, but wrong: heads of odd number are zero
    STYLES
};

static float element(const struct attention *a, struct tensor t, struct position at, int head, int64_t i,
                     int c) {
    return (float)number_load(a->dtype, t.data,
                              at.batch * t.stride_batch + head * t.stride_head + i * t.stride_row + c);
}

static float stored(const struct attention *a, float x) { return (float)number_round(a->dtype, (double)x); }

static void one_row(const struct attention *a, enum style style, int64_t query) {
    float p[MAX_KEYS], max = -INFINITY, sum = 0;
    struct position at = position_of(a, query);
    int n = visible_keys(a, at.i), kv_head = kv_head_of(a, at.head), is_8_bit = dtype_bytes(a->dtype) == 1;
    float up = is_8_bit ? 256 : 1;  // probabilities are stored that many times as large: see reference.h
    for (int j = n - 1; j >= 0; --j) {
        float s = 0, q_factor = style == FUSED ? a->scale : 1;
        for (int c = a->head_dim - 1; c >= 0; --c)
            s += element(a, a->q, at, at.head, at.i, c) * q_factor * element(a, a->k, at, kv_head, j, c);
        if (style != FUSED) s *= a->scale;
        if ((style == UNFUSED || style == SCORES_KEPT) && !is_8_bit) s = stored(a, s);
        p[j] = s, max = fmaxf(max, s);
    }
    for (int j = n - 1; j >= 0; --j) sum += p[j] = expf(p[j] - max);
    for (int c = 0; c < a->head_dim; ++c) {
        float o = 0;
        for (int j = n - 1; j >= 0; --j) {
            float weight = p[j];
            if (style == UNFUSED && !is_8_bit)
                weight = stored(a, p[j] / sum) * sum;
            else if (style == UNFUSED || style == TENSOR_CORES)
                weight = stored(a, p[j] * up) / up;
            o += weight * element(a, a->v, at, kv_head, j, c);
        }
        if (style == SMALL_HEADS_ZERO && kv_head % 2 == 1) o = 0;
        number_store(a->dtype, a->o.data, query * a->head_dim + c, n > 0 ? (double)(o / sum) : 0);
    }
    a->lse[query] = n > 0 ? max + logf(sum) : -INFINITY;
}

static void check(const struct problem *p, enum style style, const char *what) {
    const struct attention *a = &p->host;
    const struct reference *r = &p->reference;
    for (int64_t query = 0; query < query_count(a); ++query) one_row(a, style, query);
    struct comparison o = {.output = OUTPUT_O,
                           .dtype = a->dtype,
                           .actual = a->o,
                           .batch = a->batch,
                           .heads = a->heads,
                           .seqlen = a->seqlen_q,
                           .columns = a->head_dim,
                           .rows = &p->rows,
                           .expected = r->o,
                           .plain = r->plain_o,
                           .facts = r->facts,
                           .inputs_finite = 1,
                           .has_signal = 1};
    struct comparison lse = o;
    lse.output = OUTPUT_LSE, lse.dtype = DTYPE_FP32, lse.columns = 1, lse.has_signal = 0;
    lse.actual = tensor_view(a->lse, LAYOUT_BHSD, a->heads, a->seqlen_q, 1);
    lse.expected = r->lse, lse.plain = r->plain_lse;
    struct finding f = compare(&o), g = compare(&lse);
    enum verdict want = style == SMALL_HEADS_ZERO ? VERDICT_WRONG : VERDICT_RIGHT;
    EXPECT(f.verdict == want);
    EXPECT(g.verdict == VERDICT_RIGHT);
    if (f.verdict != want || g.verdict != VERDICT_RIGHT)
        printf("  that was: %s, style %d, O %g of %g, LSE %g of %g\n", what, style, f.err, f.bound, g.err,
               g.bound);
    if (style == SMALL_HEADS_ZERO) EXPECT(kv_head_of(a, (int)f.head) % 2 == 1);
}

// The plain implementation is honest: in no row is it off by more than the worst case.
static void check_worst_case(const struct problem *p) {
    const struct reference *r = &p->reference;
    int dim = p->host.head_dim;
    for (int64_t row = 0; row < p->rows.count; ++row) {
        const struct row_facts *facts = &r->facts[row];
        if (facts->keys == 0) continue;
        double err = 0;
        for (int64_t i = row * dim; i < (row + 1) * dim; ++i) err = fmax(err, fabs(r->plain_o[i] - r->o[i]));
        EXPECT(err <= facts->o.worst + dtype_min_positive(p->host.dtype));
        EXPECT(fabs(r->plain_lse[row] - r->lse[row]) <= facts->lse.worst + 0x1p-22 * (1 + fabs(r->lse[row])));
        EXPECT(fabs(r->lse[row]) <= facts->score + log((double)facts->keys) + 1e-9);
    }
}

// Number `n` of the cases, each of a few rows to many, of few keys to many.
static struct options random_options(uint64_t n, enum dtype dtype) {
    static const enum input_kind kinds[] = {INPUTS_NORMAL, INPUTS_ZERO_Q,   INPUTS_CONSTANT_V,
                                            INPUTS_RISING, INPUTS_OUTLIERS, INPUTS_TINY,
                                            INPUTS_UNEVEN, INPUTS_ONE_HOT,  INPUTS_STEEP};
    unsigned draw[8];
    for (int i = 0; i < 8; ++i) draw[i] = (unsigned)(fabs(inputs_normal(n, 0, 0, 0, 0, i)) * 1e6);
    int kv_heads = 1 + (int)(draw[0] % 3), dim = 8 * (1 + (int)(draw[1] % 5));
    return (struct options){.batch = 1 + (int)(draw[2] % 2),
                            .heads = kv_heads * (1 + (int)(draw[2] / 2 % 2)),
                            .kv_heads = kv_heads,
                            .seqlen_q = 1 + (int)(draw[3] % (n % 2 ? 3 : 12)),
                            .seqlen_k = 1 + (int)(draw[4] % (n % 3 ? MAX_KEYS : 4)),
                            .head_dim = dim,
                            .causal = (int)(draw[5] % 2),
                            .dtype = dtype,
                            .scale = (float)((draw[6] % 3 ? 1 : 3) / sqrt(dim)),
                            .inputs = kinds[draw[7] % (sizeof kinds / sizeof *kinds)],
                            .seed = n};
}

int main(void) {
    static const enum dtype types[] = {DTYPE_FP16, DTYPE_BF16, DTYPE_E4M3, DTYPE_E5M2, DTYPE_FP32};
    for (int t = 0; t < 5; ++t)
        for (uint64_t n = 0; n <= CASES; ++n) {
            struct options options = random_options(n, types[t]);
            int uneven = n == CASES;  // the last one: heads 1024 times as small as their neighbours
            if (uneven) {
                options.inputs = INPUTS_UNEVEN, options.heads = options.kv_heads = 4, options.causal = 0;
                options.seqlen_q = 9, options.seqlen_k = 20, options.head_dim = 16, options.scale = 0.25f;
            }
            struct problem p;
            struct message why = {""};
            char what[200];
            if (problem_make(&options, &p, &why) != 0 || problem_reference(&options, &p, &why) != 0) {
                printf("%s\n", why.text);
                return 1;
            }
            snprintf(what, sizeof what, "%s, case %d, inputs %s, %d queries, %d keys", dtype_name(types[t]),
                     (int)n, inputs_name(options.inputs), options.seqlen_q, options.seqlen_k);
            for (int style = 0; style < (uneven ? STYLES : SMALL_HEADS_ZERO); ++style)
                check(&p, (enum style)style, what);
            check_worst_case(&p);
            problem_free(&p);
        }
    return unit_end();
}
