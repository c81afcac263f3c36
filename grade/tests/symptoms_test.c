// symptoms_test.c - each symptom that the checker knows, planted exactly, and what is said of it.
#include "grade/mistakes.h"
#include "grade/symptoms.h"

#include "tests/unit/unit.h"

#include "tests/unit/case.h"

static char said[4000];

// What is said of the results in problem.host.
static const char *say(enum output first, enum output last) {
    FILE *file = tmpfile();
    if (!file) exit(1);
    symptoms_print(file, &problem, first, last, QUANTISED_NOT);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = '\0';
    fclose(file);
    return said;
}

static void store(const double *o, const double *lse) {
    struct attention *a = &problem.host;
    for (int64_t query = 0; query < query_count(a); ++query) {
        struct position at = position_of(a, query);
        int64_t row = at.batch * a->o.stride_batch + at.head * a->o.stride_head + at.i * a->o.stride_row;
        for (int c = 0; c < a->head_dim; ++c)
            number_store(a->dtype, a->o.data, row + c, o[query * a->head_dim + c]);
        a->lse[query] = (float)lse[query];
    }
}

static void make_right(const char *line) {
    make(line);
    store(problem.reference.o, problem.reference.lse);
}

// The results of attention with that mistake.
static const char *say_of(const char *line, struct mistake mistake) {
    make(line);
    size_t rows = (size_t)query_count(&problem.host), columns = (size_t)problem.host.head_dim;
    double *o = malloc(rows * (columns + 1) * sizeof *o);
    if (!o || mistake_compute(&problem.host, &mistake, o, o + rows * columns) != 0) exit(1);
    store(o, o + rows * columns);
    free(o);
    say(OUTPUT_O, OUTPUT_LSE);
    problem_free(&problem);
    return said;
}

static void mistakes(void) {
    static const char plain[] = "--seqlen-q 20 --seqlen-k 70 --dim 32";
    static const char causal[] = "--seqlen-q 20 --seqlen-k 45 --dim 32 --causal";
    EXPECT_SAYS(say_of(plain, (struct mistake){.uniform = 1}), "the scores never reached the softmax");
    EXPECT_SAYS(say_of(causal, (struct mistake){.uniform = 1}), "all rows are the mean of the V they see");
    EXPECT_SAYS(say_of(plain, (struct mistake){.scale_is_1 = 1}), "not multiplied by the scale");
    EXPECT_SAYS(say_of(plain, (struct mistake){.base_2 = 1}), "the softmax is in base 2");
    EXPECT_SAYS(say_of(causal, (struct mistake){.mask = MASK_NONE}), "there is no mask");
    EXPECT_SAYS(say_of(causal, (struct mistake){.mask = MASK_TOP_LEFT}), "aligned top left");
    EXPECT_SAYS(say_of(causal, (struct mistake){.mask = MASK_NOT_ITSELF}), "j <= i became j < i");
    EXPECT_SAYS(say_of(plain, (struct mistake){.mask = MASK_NOT_ITSELF}), "the last key is left out");
    EXPECT_SAYS(say_of("--heads 6 --kv-heads 2", (struct mistake){.kv_head = KV_REMAINDER}),
                "head % kv_heads");
    EXPECT_SAYS(say_of("--heads 8 --kv-heads 2", (struct mistake){.kv_head = KV_BY_COUNT}),
                "head / kv_heads stands");
    EXPECT_SAYS(say_of("--heads 6 --kv-heads 3", (struct mistake){.kv_head = KV_FIRST}),
                "the first head of K and V");
    EXPECT_SAYS(say_of(plain, (struct mistake){.not_divided = 1}), "O is not divided by l");
    EXPECT_SAYS(say_of(plain, (struct mistake){.not_divided = 1}), "LSE is right, O is not");
    EXPECT_SAYS(say_of(plain, (struct mistake){.o_kept = 1, .tile = 32}),
                "O is not rescaled when the maximum rises (from tile to tile of 32 keys)");
    EXPECT_SAYS(say_of("--seqlen 140 --dim 16", (struct mistake){.o_kept = 1, .tile = 64}),
                "tile of 64 keys");
    EXPECT_SAYS(say_of(plain, (struct mistake){.l_kept = 1, .tile = 32}), "the sum l is not rescaled");
    EXPECT_SAYS(say_of(plain, (struct mistake){.keys_of = 32}),
                "only whole tiles of keys count, of 8 or a multiple");
    EXPECT_SAYS(say_of(plain, (struct mistake){.zeros_to = 64}),
                "counted as keys of zeros (up to a multiple of 64)");
    EXPECT(strcmp(say_of(plain, (struct mistake){.tile = 32}), "") == 0);  // tiles alone are no mistake
}

static void blank(void) {
    struct attention *a = &problem.host;
    make_right("--seqlen 40");
    memset(a->o.data, 0xff, problem.bytes[TENSOR_O]);
    EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), "nothing was written to O");
    EXPECT_SAYS(said, "LSE is right, O is not");
    memset(a->o.data, 0, problem.bytes[TENSOR_O]);
    EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), "all of O is 0");
    memset(a->o.data, 0x7e, problem.bytes[TENSOR_O]);  // NaN in fp16
    EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), "all of O is NaN");
    problem_free(&problem);
}

static void scaled(double o_factor, double lse_factor) {
    int64_t rows = query_count(&problem.host), columns = problem.host.head_dim;
    double *o = malloc((size_t)(rows * (columns + 1)) * sizeof *o);
    if (!o) exit(1);
    for (int64_t n = 0; n < rows * columns; ++n) o[n] = problem.reference.o[n] * o_factor;
    for (int64_t r = 0; r < rows; ++r) o[rows * columns + r] = problem.reference.lse[r] * lse_factor;
    store(o, o + rows * columns);
    free(o);
}

static void factors(void) {
    make_right("--seqlen 40");
    scaled(0.125, 1);
    EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), "O is right times a constant, 0.125");
    scaled(1, 1 / log(2));
    EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), "LSE is off by a factor ln 2");
    EXPECT_SAYS(said, "O is right, LSE is not");
    scaled(1, 3);
    EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), "LSE is right times a constant, 3");
    scaled(1, 1);
    EXPECT(strcmp(say(OUTPUT_O, OUTPUT_LSE), "") == 0);
    problem_free(&problem);
}

// LSE less its maximum, and its maximum alone.
static void half_lse(void) {
    for (int part = 0; part < 2; ++part) {
        make_right("--seqlen-q 30 --seqlen-k 50 --batch 1 --heads 2 --kv-heads 2");
        struct attention *a = &problem.host;
        for (int64_t query = 0; query < query_count(a); ++query) {
            struct position at = position_of(a, query);
            double m = -INFINITY;
            for (int key = 0; key < a->seqlen_k; ++key) {
                double score = 0;
                for (int c = 0; c < a->head_dim; ++c)
                    score += load(a->q, at.batch, at.head, at.i, c) * load(a->k, at.batch, at.head, key, c);
                m = fmax(m, (double)a->scale * score);
            }
            a->lse[query] = (float)(part ? m : problem.reference.lse[query] - m);
        }
        EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), part ? "LSE is the maximum alone" : "LSE is log(l) alone");
        problem_free(&problem);
    }
}

// Makes a part of O wrong: numbers of other signs, or unwritten.
static void spoil(int first_head, int first_row, int first_column, int unwritten) {
    struct attention *a = &problem.host;
    uint16_t *o = a->o.data;
    store(problem.reference.o, problem.reference.lse);
    for (int b = 0; b < a->batch; ++b)
        for (int h = 0; h < a->heads; ++h)
            for (int i = first_row; i < a->seqlen_q; ++i)
                for (int c = first_column; c < a->head_dim; ++c) {
                    uint16_t *at = o + b * a->o.stride_batch + h * a->o.stride_head + i * a->o.stride_row + c;
                    if (b * a->heads + h >= first_head) *at = unwritten ? 0xffff : (uint16_t)(*at ^ 0x8000);
                }
}

static void places(void) {
    make_right("--batch 1 --heads 4 --kv-heads 4 --seqlen 70 --dim 32");
    spoil(1, 0, 0, 0);
    EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), "right only in the first head");
    spoil(3, 0, 0, 0);
    EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), "O is right up to head 2 of 4");
    spoil(0, 64, 0, 0);
    EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), "rows from 64 on are wrong, of 70: only whole tiles of queries");
    spoil(0, 64, 0, 1);
    EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), "rows from 64 on are not written, of 70");
    spoil(0, 0, 16, 0);
    EXPECT_SAYS(say(OUTPUT_O, OUTPUT_LSE), "columns from 16 on are wrong, of 32");
    problem_free(&problem);
}

static void of_gradients(void) {
    static struct options options;
    char program[] = "unit_test";
    char *argv[] = {program};
    if (options_parse(1, argv, &lab, &shape, &options, &why) != 0) exit(1);
    options.backward = 1;
    if (problem_make(&options, &problem, &why) != 0 || problem_reference(&options, &problem, &why) != 0 ||
        problem_gradients(&options, &problem, INFINITY, &why) != 0)
        exit(1);
    for (int g = 0; g < GRADIENTS; ++g) {
        enum tensor_index which = gradient_tensor(g);
        const struct tensor *t = tensor_in(&problem.host, which);
        int64_t each = problem.host.head_dim;
        double factor = which == TENSOR_DQ ? 1 / (double)problem.host.scale : 1;
        for (int64_t n = 0; n < problem.gradients[g].rows.total * each; ++n)
            number_store(DTYPE_FP16, t->data, n, factor * problem.gradients[g].exact[n]);
    }
    EXPECT_SAYS(say(OUTPUT_DQ, OUTPUT_DV), "dQ is right but for the scale");
    EXPECT_SAYS(said, "dV is right, dQ is not");
    problem_free(&problem);
}

int main(void) {
    mistakes();
    blank();
    factors();
    half_lse();
    places();
    of_gradients();
    return unit_end();
}
