// inputs_test.c - the inputs never change: the same seed gives the same bits on every machine,
// in every layout.
#include "common/inputs.h"
#include "common/problem.h"

#include "unit.h"

enum { BATCH = 2, HEADS = 6, KV_HEADS = 2, TOKENS = 21, DIM = 16, MAX = BATCH * HEADS * TOKENS * DIM };

struct memory {
    double q[MAX], k[MAX], v[MAX];  // room for any type
    struct attention a;
};

static void make(struct memory *m, enum input_kind kind, uint64_t seed, enum dtype dtype, enum layout layout,
                 int causal) {
    memset(m, 0, sizeof *m);
    m->a = (struct attention){.batch = BATCH,
                              .heads = HEADS,
                              .kv_heads = KV_HEADS,
                              .seqlen_q = TOKENS,
                              .seqlen_k = TOKENS,
                              .head_dim = DIM,
                              .scale = 0.25f,
                              .causal = causal,
                              .dtype = dtype};
    m->a.q = tensor_view(m->q, layout, HEADS, TOKENS, DIM);
    m->a.k = tensor_view(m->k, layout, KV_HEADS, TOKENS, DIM);
    m->a.v = tensor_view(m->v, layout, KV_HEADS, TOKENS, DIM);
    inputs_fill(kind, seed, &m->a);
}

static double at(const struct memory *m, char which, int b, int h, int i, int c) {
    struct tensor t = which == 'q' ? m->a.q : which == 'k' ? m->a.k : m->a.v;
    return number_load(m->a.dtype, t.data, b * t.stride_batch + h * t.stride_head + i * t.stride_row + c);
}

// FNV-1a over the bits of all elements in logical order.
static uint64_t checksum(const struct memory *m) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int t = 0; t < 3; ++t)
        for (int b = 0; b < BATCH; ++b)
            for (int h = 0; h < (t ? KV_HEADS : HEADS); ++h)
                for (int i = 0; i < TOKENS; ++i)
                    for (int c = 0; c < DIM; ++c) {
                        double value = at(m, "qkv"[t], b, h, i, c);
                        uint64_t bits = isnan(value) ? 1 : bits_of_double(value);
                        for (int byte = 0; byte < 8; ++byte)
                            hash = (hash ^ (bits >> 8 * byte & 255)) * 0x100000001b3u;
                    }
    return hash;
}

static void frozen(void) {
    static struct memory m;
    static const struct {
        enum input_kind kind;
        enum dtype dtype;
        uint64_t seed, checksum;
    } known[] = {
        {INPUTS_NORMAL, DTYPE_FP16, 1, 0xbd92913f3576eb7eu},
        {INPUTS_ZERO_Q, DTYPE_FP16, 1, 0x32bb515dff22d328u},
        {INPUTS_CONSTANT_V, DTYPE_FP16, 1, 0x073c64d031372b4fu},
        {INPUTS_ONE_HOT, DTYPE_FP16, 1, 0x09e76cb81a1c29f1u},
        {INPUTS_LN3, DTYPE_FP16, 1, 0x12eb9c8d698626a5u},
        {INPUTS_RISING, DTYPE_FP16, 1, 0x0bafbf159308daf1u},
        {INPUTS_FALLING, DTYPE_FP16, 1, 0x2c0b7447856398f1u},
        {INPUTS_LOW, DTYPE_FP16, 1, 0x902ddcd36cff19f1u},
        {INPUTS_HUGE, DTYPE_FP16, 1, 0x54f5320537a839f1u},
        {INPUTS_OUTLIERS, DTYPE_FP16, 1, 0xc8bbb408c82960d0u},
        {INPUTS_TINY, DTYPE_FP16, 1, 0xedc47c121081dbbau},
        {INPUTS_NAN, DTYPE_FP16, 1, 0xefc1d9e01b80f082u},
        {INPUTS_NAN_Q, DTYPE_FP16, 1, 0xac05ff7d3494197du},
        {INPUTS_NAN_V, DTYPE_FP16, 1, 0x5af566d581868105u},
        {INPUTS_STEEP, DTYPE_FP16, 1, 0x5b512239fb6dddf1u},
        {INPUTS_UNEVEN, DTYPE_FP16, 1, 0x2d025f1a53434a63u},
        {INPUTS_ONE_ROW, DTYPE_FP16, 1, 0xbd92913f3576eb7eu},  // but for dO, the normal one
        {INPUTS_ADDED_OUTLIERS, DTYPE_FP16, 1, 0xd722529e94d4eb13u},
        {INPUTS_STEPS, DTYPE_FP16, 1, 0xbd92913f3576eb7eu},  // of no more than 128 tokens, the normal one
        {INPUTS_PEAK, DTYPE_FP16, 1, 0xb82c661e7fac41a5u},
        {INPUTS_NORMAL, DTYPE_FP16, 2, 0x1972c05745595098u},
        {INPUTS_NORMAL, DTYPE_BF16, 1, 0x65b99fde26bd2325u},
        {INPUTS_NORMAL, DTYPE_E4M3, 1, 0x9a128265798a7473u},
        {INPUTS_NORMAL, DTYPE_FP32, 1, 0xb0d856062e918e8bu},
        {INPUTS_HUGE, DTYPE_BF16, 1, 0x11d75dfaeb94ca83u},
        {INPUTS_HUGE, DTYPE_E4M3, 1, 0xe373bc2516497e1cu},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
        make(&m, known[i].kind, known[i].seed, known[i].dtype, LAYOUT_BHSD, 1);
        uint64_t got = checksum(&m);
        EXPECT(got == known[i].checksum);
        if (got != known[i].checksum)
            printf("        {INPUTS %s, %s, %llu, 0x%016llxu},\n", inputs_name(known[i].kind),
                   dtype_name(known[i].dtype), (unsigned long long)known[i].seed, (unsigned long long)got);
    }
}

static void layouts(void) {
    static struct memory one, other;
    for (int kind = 0; kind < INPUTS_COUNT; ++kind) {
        make(&one, (enum input_kind)kind, 5, DTYPE_FP16, LAYOUT_BHSD, 0);
        make(&other, (enum input_kind)kind, 5, DTYPE_FP16, LAYOUT_BSHD, 0);
        EXPECT(checksum(&one) == checksum(&other));
    }
    make(&other, INPUTS_NORMAL, 6, DTYPE_FP16, LAYOUT_BHSD, 0);
    make(&one, INPUTS_NORMAL, 5, DTYPE_FP16, LAYOUT_BHSD, 0);
    EXPECT(checksum(&one) != checksum(&other));
    // What --help prints, and back.
    for (int kind = 0; kind < INPUTS_COUNT; ++kind) {
        EXPECT(inputs_from_name(inputs_name((enum input_kind)kind)) == (enum input_kind)kind);
        EXPECT(strlen(inputs_purpose((enum input_kind)kind)) > 10);
    }
    EXPECT(inputs_from_name("none") == INPUTS_COUNT);
}

// Mean 0, variance 1, hardly any correlation between neighbours in any direction, tensors and seeds.
static void normal(void) {
    enum { SIDE = 64 };
    double sum = 0, squares = 0, neighbour[6] = {0}, beyond_2 = 0, count = (double)SIDE * SIDE * SIDE;
    for (int h = 0; h < SIDE; ++h)
        for (int i = 0; i < SIDE; ++i)
            for (int c = 0; c < SIDE; ++c) {
                double x = inputs_normal(1, 0, 0, h, i, c);
                sum += x, squares += x * x, beyond_2 += fabs(x) > 2;
                neighbour[0] += x * inputs_normal(1, 0, 0, h, i, c + 1);
                neighbour[1] += x * inputs_normal(1, 0, 0, h, i + 1, c);
                neighbour[2] += x * inputs_normal(1, 0, 0, h + 1, i, c);
                neighbour[3] += x * inputs_normal(1, 0, 1, h, i, c);
                neighbour[4] += x * inputs_normal(1, 1, 0, h, i, c);
                neighbour[5] += x * inputs_normal(2, 0, 0, h, i, c);
            }
    double four_sigma = 4 / sqrt(count);
    EXPECT_NEAR(sum / count, 0, four_sigma);
    EXPECT_NEAR(squares / count, 1, 2 * four_sigma);
    EXPECT_NEAR(beyond_2 / count, 0.0455, 0.002);  // the normal distribution's two-sided tail
    for (int i = 0; i < 6; ++i) EXPECT_NEAR(neighbour[i] / count, 0, four_sigma);
}

// q.k * scale
static double logit(const struct memory *m, int b, int h, int i, int j) {
    double sum = 0;
    for (int c = 0; c < DIM; ++c) sum += at(m, 'q', b, h, i, c) * at(m, 'k', b, kv_head_of(&m->a, h), j, c);
    return sum * (double)m->a.scale;
}

static int count_nan(const struct memory *m) {
    int count = 0;
    for (int b = 0; b < BATCH; ++b)
        for (int h = 0; h < HEADS; ++h)
            for (int i = 0; i < TOKENS; ++i)
                for (int c = 0; c < DIM; ++c) {
                    count += isnan(at(m, 'q', b, h, i, c));
                    if (h < KV_HEADS) count += isnan(at(m, 'k', b, h, i, c)) + isnan(at(m, 'v', b, h, i, c));
                }
    return count;
}

static void kinds(void) {
    static struct memory m;
    make(&m, INPUTS_ZERO_Q, 1, DTYPE_FP16, LAYOUT_BHSD, 0);
    EXPECT(at(&m, 'q', 1, 5, 20, 15) == 0 && at(&m, 'k', 1, 1, 20, 15) != 0);
    make(&m, INPUTS_CONSTANT_V, 1, DTYPE_FP16, LAYOUT_BHSD, 0);
    EXPECT(at(&m, 'v', 1, 1, 20, 15) == 1);

    // One-hot: some key wins by far, and it is visible; often the last visible one.
    make(&m, INPUTS_ONE_HOT, 1, DTYPE_FP16, LAYOUT_BHSD, 1);
    int last_wins = 0;
    for (int i = 0; i < TOKENS; ++i) {
        int best = 0;
        for (int j = 1; j < TOKENS; ++j)
            if (logit(&m, 1, 4, i, j) > logit(&m, 1, 4, i, best)) best = j;
        EXPECT(logit(&m, 1, 4, i, best) == 64);  // 16 columns of 4 * 4, times 1/4
        EXPECT(best <= i);
        last_wins += best == i;
    }
    EXPECT(last_wins > TOKENS / 3);

    make(&m, INPUTS_LN3, 1, DTYPE_FP32, LAYOUT_BHSD, 0);
    EXPECT_NEAR(logit(&m, 0, 3, 2, 4), 0, 0);
    EXPECT_NEAR(logit(&m, 0, 3, 2, 5), log(3), 1e-6);
    EXPECT(at(&m, 'k', 0, 0, 5, DIM - 1) != 0 && at(&m, 'k', 0, 0, 5, 0) != 0 &&
           at(&m, 'k', 0, 0, 5, 1) == 0);

    for (int j = 1; j < TOKENS; ++j) {
        make(&m, INPUTS_RISING, 1, DTYPE_FP16, LAYOUT_BHSD, 0);
        EXPECT(logit(&m, 0, 0, 3, j) > logit(&m, 0, 0, 3, j - 1));
        make(&m, INPUTS_FALLING, 1, DTYPE_FP16, LAYOUT_BHSD, 0);
        EXPECT(logit(&m, 0, 0, 3, j) < logit(&m, 0, 0, 3, j - 1));
    }
    make(&m, INPUTS_LOW, 1, DTYPE_FP16, LAYOUT_BHSD, 0);
    EXPECT_NEAR(logit(&m, 0, 0, 3, 7), -200, 0.1);

    // Huge: beyond any "minus infinity" of -50000, yet scores that fp16 can store; key 0 is ahead
    // in both signs.
    static const enum dtype types[] = {DTYPE_FP16, DTYPE_BF16, DTYPE_E4M3};
    for (int t = 0; t < 3; ++t) {
        make(&m, INPUTS_HUGE, 1, types[t], LAYOUT_BHSD, 0);
        for (int h = 0; h < HEADS; ++h) {
            double first = logit(&m, 0, h, 3, 0), second = logit(&m, 0, h, 3, 1);
            if (types[t] != DTYPE_E4M3)
                EXPECT(fabs(first) > 45000 && fabs(first) < 65504 && fabs(second) < 65504);
            EXPECT(first > second + 100);
            EXPECT((first > 0) == (kv_head_of(&m.a, h) == 1));
        }
        EXPECT(logit(&m, 0, 0, 3, 0) < -50000 || types[t] == DTYPE_E4M3);
    }

    make(&m, INPUTS_NAN, 1, DTYPE_FP16, LAYOUT_BHSD, 0);
    EXPECT(count_nan(&m) == 2);
    EXPECT(isnan(at(&m, 'k', 1, 1, TOKENS - 1, 0)) && isnan(at(&m, 'v', 1, 1, TOKENS - 1, 0)));

    // One NaN each, in a row that others stand beside.
    make(&m, INPUTS_NAN_Q, 1, DTYPE_FP16, LAYOUT_BHSD, 0);
    EXPECT(isnan(at(&m, 'q', 1, HEADS - 1, TOKENS / 2, DIM - 1)) && count_nan(&m) == 1);
    make(&m, INPUTS_NAN_V, 1, DTYPE_FP16, LAYOUT_BHSD, 0);
    EXPECT(isnan(at(&m, 'v', 1, KV_HEADS - 1, TOKENS / 2, 0)) && count_nan(&m) == 1);

    make(&m, INPUTS_STEEP, 1, DTYPE_FP16, LAYOUT_BHSD, 0);
    for (int j = 1; j < TOKENS; ++j) EXPECT_NEAR(logit(&m, 0, 0, 3, j) - logit(&m, 0, 0, 3, j - 1), 2, 0.05);
    EXPECT_NEAR(logit(&m, 0, 0, 3, 0), -(TOKENS - 1), 0.05);

    make(&m, INPUTS_UNEVEN, 1, DTYPE_FP32, LAYOUT_BHSD, 0);
    EXPECT_NEAR(at(&m, 'v', 1, 0, 5, 3), 16 * inputs_normal(1, 2, 1, 0, 5, 3), 1e-5);
    EXPECT_NEAR(at(&m, 'v', 1, 1, 5, 3), inputs_normal(1, 2, 1, 1, 5, 3) / 64, 1e-8);
    EXPECT_NEAR(at(&m, 'k', 1, 1, 5, 3), inputs_normal(1, 1, 1, 1, 5, 3), 1e-6);
}

static double d_o_at(const struct attention *a, int b, int h, int i, int c) {
    struct tensor t = a->d_o;
    return number_load(a->dtype, t.data, b * t.stride_batch + h * t.stride_head + i * t.stride_row + c);
}

// dO: N(0,1) of its own numbers, in any layout; in one-row, 0 in all rows but the middle one of each head.
static void gradients(void) {
    static struct memory m;
    static double d_o[MAX];
    for (int layout = 0; layout < LAYOUT_COUNT; ++layout)
        for (int kind = 0; kind < INPUTS_COUNT; ++kind) {
            make(&m, INPUTS_NORMAL, 1, DTYPE_FP32, LAYOUT_BHSD, 0);
            m.a.d_o = tensor_view(d_o, (enum layout)layout, HEADS, TOKENS, DIM);
            inputs_fill_gradient((enum input_kind)kind, 7, &m.a);
            int differ = 0;
            for (int h = 0; h < HEADS; ++h)
                for (int i = 0; i < TOKENS; ++i) {
                    double want = inputs_normal(7, 3, 1, h, i, 5);
                    if (kind == INPUTS_ONE_ROW && i != TOKENS / 2) want = 0;
                    differ += d_o_at(&m.a, 1, h, i, 5) != want;
                }
            EXPECT(differ == 0);
        }
    // Of packed sequences, the middle row of each.
    static const int cu[] = {0, 5, 5, 18};
    m.a.batch = 1, m.a.sequences = 3, m.a.seqlen_q = 18, m.a.cu_seqlens_q = m.a.cu_seqlens_k = cu;
    m.a.d_o = tensor_view(d_o, LAYOUT_BSHD, HEADS, 18, DIM);
    inputs_fill_gradient(INPUTS_ONE_ROW, 7, &m.a);
    for (int i = 0; i < 18; ++i) EXPECT((d_o_at(&m.a, 0, 3, i, 2) != 0) == (i == 2 || i == 5 + 13 / 2));
    EXPECT_NEAR(d_o_at(&m.a, 0, 3, 11, 2), inputs_normal(7, 3, 2, 3, 6, 2), 0);
}

// The same element of a packed problem and of an ordinary one whose batch `batch` is that sequence.
static void same_element(const struct memory *packed, int first, const struct memory *plain, int batch,
                         int tokens, char which, int heads) {
    int differ = 0;
    for (int h = 0; h < heads; ++h)
        for (int i = 0; i < tokens; ++i)
            for (int c = 0; c < DIM; ++c) {
                double x = at(packed, which, 0, h, first + i, c), y = at(plain, which, batch, h, i, c);
                differ += !(x == y || (isnan(x) && isnan(y)));
            }
    EXPECT(differ == 0);
}

// Sequence s of a packed problem holds what batch s of an ordinary one of its lengths holds.
static void packed_sequences(void) {
    enum { SEQUENCES = 3 };
    static const struct {
        int cu_q[SEQUENCES + 1], cu_k[SEQUENCES + 1];
    } lengths[] = {{{0, 7, 14, 21}, {0, 7, 14, 21}}, {{0, 5, 5, 18}, {0, 9, 17, 20}}};
    static struct memory packed, plain;
    for (int kind = 0; kind < INPUTS_COUNT; ++kind)
        for (int n = 0; n < 2; ++n) {
            const int *cu_q = lengths[n].cu_q, *cu_k = lengths[n].cu_k;
            make(&packed, INPUTS_NORMAL, 1, DTYPE_FP16, LAYOUT_BSHD, 1);
            packed.a.batch = 1, packed.a.seqlen_q = cu_q[SEQUENCES], packed.a.seqlen_k = cu_k[SEQUENCES];
            packed.a.sequences = SEQUENCES, packed.a.cu_seqlens_q = cu_q, packed.a.cu_seqlens_k = cu_k;
            inputs_fill((enum input_kind)kind, 3, &packed.a);
            for (int s = 0; s < SEQUENCES; ++s) {
                make(&plain, INPUTS_NORMAL, 1, DTYPE_FP16, LAYOUT_BSHD, 1);
                plain.a.batch = SEQUENCES;
                plain.a.seqlen_q = cu_q[s + 1] - cu_q[s], plain.a.seqlen_k = cu_k[s + 1] - cu_k[s];
                plain.a.q = tensor_view(plain.q, LAYOUT_BHSD, HEADS, plain.a.seqlen_q, DIM);
                plain.a.k = tensor_view(plain.k, LAYOUT_BHSD, KV_HEADS, plain.a.seqlen_k, DIM);
                plain.a.v = tensor_view(plain.v, LAYOUT_BHSD, KV_HEADS, plain.a.seqlen_k, DIM);
                inputs_fill((enum input_kind)kind, 3, &plain.a);
                same_element(&packed, cu_q[s], &plain, s, plain.a.seqlen_q, 'q', HEADS);
                same_element(&packed, cu_k[s], &plain, s, plain.a.seqlen_k, 'k', KV_HEADS);
                same_element(&packed, cu_k[s], &plain, s, plain.a.seqlen_k, 'v', KV_HEADS);
            }
        }
}

// Under a window, too, a query of one-hot equals a key that it sees.
static void one_hot_in_a_window(void) {
    static struct memory m;
    make(&m, INPUTS_NORMAL, 1, DTYPE_FP16, LAYOUT_BHSD, 0);
    m.a.window = 1, m.a.window_left = 4, m.a.window_right = 2;
    inputs_fill(INPUTS_ONE_HOT, 1, &m.a);
    int last_wins = 0;
    for (int i = 0; i < TOKENS; ++i) {
        int best = 0, last = i + 2 < TOKENS ? i + 2 : TOKENS - 1;
        for (int j = 1; j < TOKENS; ++j)
            if (logit(&m, 1, 4, i, j) > logit(&m, 1, 4, i, best)) best = j;
        EXPECT(logit(&m, 1, 4, i, best) == 64 && best >= i - 4 && best <= last);
        last_wins += best == last;
    }
    EXPECT(last_wins > TOKENS / 3 && last_wins < TOKENS);
}

// One element in 1000 is wider, by a number of variance 100 that is independent of its own; the rest are
// those of normal. Steps: whole blocks of 128 tokens times 1, 1/4 and 1/2.
static void tails(void) {
    enum { MANY = 8000 };
    static double q[MANY * DIM], k[MANY * DIM], v[MANY * DIM];
    struct attention a = {.batch = 1,
                          .heads = 1,
                          .kv_heads = 1,
                          .seqlen_q = MANY,
                          .seqlen_k = MANY,
                          .head_dim = DIM,
                          .scale = 1,
                          .dtype = DTYPE_FP64};
    double squares = 0, product = 0, rare = 0, count = 3.0 * MANY * DIM;
    a.q = tensor_view(q, LAYOUT_BHSD, 1, MANY, DIM);
    a.k = tensor_view(k, LAYOUT_BHSD, 1, MANY, DIM);
    a.v = tensor_view(v, LAYOUT_BHSD, 1, MANY, DIM);
    double *const tensors[] = {q, k, v};
    inputs_fill(INPUTS_ADDED_OUTLIERS, 1, &a);
    for (int t = 0; t < 3; ++t)
        for (int i = 0; i < MANY * DIM; ++i) {
            double normal = inputs_normal(1, t, 0, 0, i / DIM, i % DIM), added = tensors[t][i] - normal;
            if (added == 0) continue;
            ++rare, squares += added * added, product += added * normal;
        }
    EXPECT_NEAR(rare / count, 0.001, 4 * sqrt(0.001 / count));
    EXPECT_NEAR(squares / rare, 100, 4 * 100 * sqrt(2 / rare));
    EXPECT_NEAR(product / rare, 0, 4 * 10 / sqrt(rare));
    inputs_fill(INPUTS_PEAK, 1, &a);
    double dot[2] = {0};
    for (int i = 0; i < 2 * DIM; ++i) dot[i / DIM] += q[i % DIM] * k[i];
    EXPECT_NEAR(exp(dot[0]) / exp(dot[1]), 2048, 1e-9);
    EXPECT(v[0] == 1 && v[MANY * DIM - 1] == 1 && k[MANY * DIM - 1] == 0);
    inputs_fill(INPUTS_STEPS, 1, &a);
    int differ = 0;
    for (int t = 0; t < 3; ++t)
        for (int i = 0; i < MANY; ++i) {
            double factor = i / 128 % 3 == 0 ? 1 : i / 128 % 3 == 1 ? 0.25 : 0.5;
            differ += tensors[t][i * DIM + 1] != factor * inputs_normal(1, t, 0, 0, i, 1);
        }
    EXPECT(differ == 0);
}

int main(void) {
    frozen();
    layouts();
    normal();
    kinds();
    packed_sequences();
    one_hot_in_a_window();
    gradients();
    tails();
    return unit_end();
}
