#include "symptoms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mistakes.h"

// Two results are the same if they differ by no more than this share of the largest number of the head:
// several times what fp16 and bf16 cost, and far less than any mistake does.
static const double same_share = 0.03;
static const double largest_work = 4e7;  // multiply-adds of one mistake: a tenth of a second

// One result and what it should be, plainly numbered.
struct view {
    const struct problem *p;
    enum output output;
    int64_t heads, rows, columns;  // heads: of all batches
    double *actual, *expected;     // [heads][rows][columns]
    char *written;                 // of each element
    int64_t count;
    struct finding finding;
};

static const char *name_of(enum output output) {
    static const char *const names[] = {"O", "LSE", "dQ", "dK", "dV"};
    return names[output];
}

static void view_free(struct view *v) {
    free(v->actual);
    free(v->expected);
    free(v->written);
}

// Returns 0, or -1 if there is no memory, or a reference of some rows only.
static int view_make(struct view *v, const struct problem *p, enum output output, enum quantised as) {
    static const unsigned char poison[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    struct comparison c = problem_comparison(p, output, as);
    memset(v, 0, sizeof *v);
    v->p = p, v->output = output, v->finding.verdict = VERDICT_RIGHT;
    v->heads = (int64_t)c.batch * c.heads, v->rows = c.seqlen, v->columns = c.columns;
    v->count = v->heads * v->rows * v->columns;
    if (v->count == 0) return 0;
    if (c.rows->count != c.rows->total) return -1;
    v->actual = calloc((size_t)v->count, sizeof *v->actual);
    v->expected = calloc((size_t)v->count, sizeof *v->expected);
    v->written = malloc((size_t)v->count);
    if (!v->actual || !v->expected || !v->written) {
        view_free(v);
        return -1;
    }
    memcpy(v->expected, c.expected, (size_t)v->count * sizeof *v->expected);
    size_t bytes = (size_t)dtype_bytes(c.dtype);
    for (int64_t n = 0; n < v->count; ++n) {
        int64_t row = n / v->columns, head = row / v->rows;
        int64_t at = head / c.heads * c.actual.stride_batch + head % c.heads * c.actual.stride_head +
                     row % v->rows * c.actual.stride_row + n % v->columns;
        v->actual[n] = number_load(c.dtype, c.actual.data, at);
        v->written[n] = (char)(memcmp((const char *)c.actual.data + (size_t)at * bytes, poison, bytes) != 0);
    }
    v->finding = compare(&c);
    return 0;
}

// ---------------------------------------------------------------- the same

// Numbers that are the same, or the same infinity or NaN.
static int is_near(double x, double y, double tolerance) {
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    if (isinf(x) || isinf(y)) return x == y;
    return fabs(x - y) <= tolerance;
}

static double largest_of(const double *x, int64_t count) {
    double largest = 0;
    for (int64_t i = 0; i < count; ++i)
        if (isfinite(x[i])) largest = fmax(largest, fabs(x[i]));
    return largest;
}

static double tolerance_of(const double *expected, int64_t count) {
    return same_share * largest_of(expected, count) + 1e-7;
}

// Whether `actual` is what `other` says, in each head on its own scale, and `other` is not what is expected.
static int is_other(const struct view *v, const double *other) {
    int64_t each = v->rows * v->columns;
    int differs = 0;
    for (int64_t h = 0; h < v->heads; ++h) {
        double tolerance =
            fmin(tolerance_of(other + h * each, each), tolerance_of(v->expected + h * each, each));
        for (int64_t n = h * each; n < (h + 1) * each; ++n) {
            if (!is_near(v->actual[n], other[n], tolerance)) return 0;
            differs |= !is_near(v->expected[n], other[n], 2 * tolerance);
        }
    }
    return differs;
}

// ---------------------------------------------------------------- nothing, NaN, zero

static int print_blank(FILE *out, const struct view *v) {
    int64_t written = 0, nan = 0, zero = 0;
    for (int64_t n = 0; n < v->count; ++n) {
        written += v->written[n], nan += isnan(v->actual[n]), zero += v->actual[n] == 0;
    }
    const char *name = name_of(v->output);
    if (written == 0)
        fprintf(out,
                "means: nothing was written to %s: the kernel was not launched, or it has no store yet\n",
                name);
    else if (nan == v->count)
        fprintf(out,
                "means: all of %s is NaN: 0/0, an exponential that overflowed because no maximum was "
                "subtracted, or -inf - -inf\n",
                name);
    else if (zero == v->count)
        fprintf(out, "means: all of %s is 0: what was summed is not what was stored\n", name);
    else
        return 0;
    return 1;
}

// ---------------------------------------------------------------- O and LSE with one mistake

struct known {
    struct mistake mistake;
    const char *text;
};
static const struct known known[] = {
    {{.uniform = 1}, "all rows are the mean of the V they see: the scores never reached the softmax"},
    {{.scale_is_1 = 1}, "the scores are not multiplied by the scale (1 / sqrt(head_dim) unless given)"},
    {{.base_2 = 1}, "the softmax is in base 2: exp2 stands where exp should, without the factor log2(e)"},
    {{.mask = MASK_NONE}, "there is no mask: keys behind the query are seen, too"},
    {{.mask = MASK_TOP_LEFT},
     "the mask is aligned top left: query i has to see keys j <= i + seqlen_k - seqlen_q"},
    {{.mask = MASK_NOT_ITSELF}, "the mask hides one key too many: j <= i became j < i"},
    {{.kv_head = KV_REMAINDER},
     "query heads read the wrong heads of K and V: head % kv_heads stands where head / (heads / kv_heads) "
     "should"},
    {{.kv_head = KV_BY_COUNT},
     "query heads read the wrong heads of K and V: head / kv_heads stands where head / (heads / kv_heads) "
     "should"},
    {{.kv_head = KV_FIRST}, "all query heads read the first head of K and V"},
    {{.not_divided = 1}, "O is not divided by l, the sum of the exponentials"},
    {{.o_kept = 1, .tile = 8}, "O is not rescaled when the maximum rises (from tile to tile of 8 keys)"},
    {{.o_kept = 1, .tile = 16}, "O is not rescaled when the maximum rises (from tile to tile of 16 keys)"},
    {{.o_kept = 1, .tile = 32}, "O is not rescaled when the maximum rises (from tile to tile of 32 keys)"},
    {{.o_kept = 1, .tile = 64}, "O is not rescaled when the maximum rises (from tile to tile of 64 keys)"},
    {{.o_kept = 1, .tile = 128}, "O is not rescaled when the maximum rises (from tile to tile of 128 keys)"},
    {{.l_kept = 1, .tile = 32},
     "the sum l is not rescaled when the maximum rises (from tile to tile of 32 keys)"},
    {{.l_kept = 1, .tile = 64},
     "the sum l is not rescaled when the maximum rises (from tile to tile of 64 keys)"},
    {{.l_kept = 1, .tile = 128},
     "the sum l is not rescaled when the maximum rises (from tile to tile of 128 keys)"},
    {{.keys_of = 8}, "only whole tiles of keys count, of 8 or a multiple: the last keys are left out"},
    {{.keys_of = 16}, "only whole tiles of keys count, of 16 or a multiple: the last keys are left out"},
    {{.keys_of = 32}, "only whole tiles of keys count, of 32 or a multiple: the last keys are left out"},
    {{.keys_of = 64}, "only whole tiles of keys count, of 64 or a multiple: the last keys are left out"},
    {{.keys_of = 128}, "only whole tiles of keys count, of 128 or a multiple: the last keys are left out"},
    {{.zeros_to = 8}, "keys past the last one are counted as keys of zeros (up to a multiple of 8)"},
    {{.zeros_to = 16}, "keys past the last one are counted as keys of zeros (up to a multiple of 16)"},
    {{.zeros_to = 32}, "keys past the last one are counted as keys of zeros (up to a multiple of 32)"},
    {{.zeros_to = 64}, "keys past the last one are counted as keys of zeros (up to a multiple of 64)"},
    {{.zeros_to = 128}, "keys past the last one are counted as keys of zeros (up to a multiple of 128)"},
};

static int print_mistake(FILE *out, const struct view *v) {
    const struct attention *a = &v->p->host;
    if (v->output > OUTPUT_LSE || mistake_work(a) > largest_work) return 0;
    double *o = calloc((size_t)query_count(a) * ((size_t)a->head_dim + 1), sizeof *o);
    int found = 0;
    for (size_t i = 0; o && i < sizeof known / sizeof *known && !found; ++i) {
        double *lse = o + query_count(a) * a->head_dim;
        if (mistake_compute(a, &known[i].mistake, o, lse) != 0) break;
        found = is_other(v, v->output == OUTPUT_O ? o : lse);
        int last = known[i].mistake.mask == MASK_NOT_ITSELF && !a->causal;
        if (found) fprintf(out, "means: %s\n", last ? "the last key is left out" : known[i].text);
    }
    free(o);
    return found;
}

// ---------------------------------------------------------------- a factor, a summand

// The middle of what is left by `form` of expected and actual, over all elements large enough to tell.
static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle_quotient(const struct view *v) {
    double *quotient = calloc((size_t)v->count, sizeof *quotient);
    double enough = largest_of(v->expected, v->count) / 10, middle = NAN;
    int64_t count = 0;
    for (int64_t n = 0; quotient && n < v->count; ++n)
        if (isfinite(v->actual[n]) && isfinite(v->expected[n]) && fabs(v->expected[n]) > enough)
            quotient[count++] = v->actual[n] / v->expected[n];
    if (count > 0) {
        qsort(quotient, (size_t)count, sizeof *quotient, by_size);
        middle = quotient[count / 2];
    }
    free(quotient);
    return middle;
}

static int is_times(const struct view *v, double factor) {
    double *other = calloc((size_t)v->count, sizeof *other);
    for (int64_t n = 0; other && n < v->count; ++n) other[n] = v->expected[n] * factor;
    int is = other && is_other(v, other);
    free(other);
    return is;
}

static int print_factor(FILE *out, const struct view *v) {
    double factor = middle_quotient(v), scale = (double)v->p->host.scale;
    if (!isfinite(factor) || !is_times(v, factor)) return 0;
    if (v->output == OUTPUT_LSE && fabs(factor * log(2.0) - 1) < 0.02)
        fprintf(out,
                "means: LSE is off by a factor ln 2: it is in base 2, and has to be the natural logarithm\n");
    else if (v->output >= OUTPUT_DQ && fabs(factor * scale - 1) < 0.02)
        fprintf(out, "means: %s is right but for the scale, which a gradient of Q and K takes, too\n",
                name_of(v->output));
    else
        fprintf(out, "means: %s is right times a constant, %.3g\n", name_of(v->output), factor);
    return 1;
}

// Of LSE: what was left out of m + log(l).
static int print_lse(FILE *out, const struct view *v) {
    const struct attention *a = &v->p->host;
    if (v->output != OUTPUT_LSE || mistake_work(a) > largest_work) return 0;
    const struct mistake none = {.tile = 0}, undivided = {.not_divided = 1};
    size_t rows = (size_t)v->count, columns = (size_t)a->head_dim;
    double *o = calloc(rows * (2 * columns + 2), sizeof *o);
    int found = 0;
    if (o) {
        double *whole = o + rows * columns, *lse = whole + rows * columns, *log_sum = lse + rows;
        int failed = mistake_compute(a, &none, o, lse) | mistake_compute(a, &undivided, whole, lse);
        for (size_t r = 0; r < rows && !failed; ++r) {
            size_t at = r * columns;
            for (size_t c = 0; c < columns; ++c)
                if (fabs(o[r * columns + c]) > fabs(o[at])) at = r * columns + c;
            log_sum[r] = isinf(lse[r]) ? lse[r] : log(whole[at] / o[at]);
        }
        if (!failed && is_other(v, log_sum)) found = 1;
        for (size_t r = 0; r < rows && !failed; ++r)
            if (isfinite(lse[r])) lse[r] -= log_sum[r];
        if (!failed && !found && is_other(v, lse)) found = 2;
    }
    free(o);
    if (found == 1) fprintf(out, "means: LSE is log(l) alone: the maximum has to be added\n");
    if (found == 2) fprintf(out, "means: LSE is the maximum alone: log(l) has to be added\n");
    return found != 0;
}

// ---------------------------------------------------------------- where

// What is wrong, as ranges: the first and last head, row and column with a wrong element, and whether all
// elements in between are nearly all wrong.
struct where {
    int64_t first[3], last[3], wrong;
};

static int is_wrong(const struct view *v, int64_t n) {
    int64_t each = v->rows * v->columns, head = n / each;
    double bound = v->finding.bound;
    if (!(bound > 0)) bound = 0;
    double limit = fmax(bound, tolerance_of(v->expected + head * each, each) / 8);
    return !v->written[n] || !is_near(v->actual[n], v->expected[n], limit);
}

static struct where find_where(const struct view *v) {
    struct where w = {{v->heads, v->rows, v->columns}, {-1, -1, -1}, 0};
    for (int64_t n = 0; n < v->count; ++n) {
        if (!is_wrong(v, n)) continue;
        int64_t at[3] = {n / v->columns / v->rows, n / v->columns % v->rows, n % v->columns};
        for (int i = 0; i < 3; ++i) {
            if (at[i] < w.first[i]) w.first[i] = at[i];
            if (at[i] > w.last[i]) w.last[i] = at[i];
        }
        ++w.wrong;
    }
    return w;
}

static int print_where(FILE *out, const struct view *v) {
    struct where w = find_where(v);
    const char *name = name_of(v->output);
    int of_keys = v->output == OUTPUT_DK || v->output == OUTPUT_DV;
    int64_t span = 1;
    for (int i = 0; i < 3; ++i) span *= w.last[i] - w.first[i] + 1;
    // Where wrong and right elements lie mixed, the ranges say nothing.
    if (w.wrong == 0 || (double)w.wrong < 0.5 * (double)span) return 0;
    int64_t row = w.first[1], tile = row;
    while (tile % 2 == 0 && tile > 0) tile /= 2;
    if (w.first[0] == 1 && w.last[0] == v->heads - 1 && row == 0)
        fprintf(out, "means: right only in the first head: how the address depends on the head is wrong\n");
    else if (w.first[0] > 0 && row == 0)
        fprintf(out, "means: %s is right up to head %lld of %lld and wrong after it (heads of all batches)\n",
                name, (long long)w.first[0] - 1, (long long)v->heads);
    else if (row >= 8 && w.last[1] == v->rows - 1 && row % 8 == 0)
        fprintf(
            out,
            "means: rows from %lld on are %s, of %lld: only whole tiles of %s are done, or only the first\n",
            (long long)row, v->finding.verdict == VERDICT_UNWRITTEN ? "not written" : "wrong",
            (long long)v->rows, of_keys ? "keys" : "queries");
    else if (v->columns > 1 && w.first[2] >= 8 && w.last[2] == v->columns - 1)
        fprintf(out, "means: columns from %lld on are wrong, of %lld: not all of head_dim is done\n",
                (long long)w.first[2], (long long)v->columns);
    else
        return 0;
    return 1;
}

void symptoms_print(FILE *out, const struct problem *p, enum output first, enum output last,
                    enum quantised as) {
    static const struct {
        int (*print)(FILE *out, const struct view *v);
    } of[] = {{print_blank}, {print_mistake}, {print_factor}, {print_lse}, {print_where}};
    int said = 0;
    const char *right = NULL, *wrong = NULL;
    for (int i = first; i <= (int)last; ++i) {
        struct view v;
        if (view_make(&v, p, i, as) != 0) return;
        int is_right = v.count == 0 || v.finding.verdict == VERDICT_RIGHT;
        if (is_right && v.count > 0) right = name_of(i);
        if (!is_right && !wrong) wrong = name_of(i);
        for (size_t s = 0; s < sizeof of / sizeof *of && !is_right && !said; ++s) said = of[s].print(out, &v);
        view_free(&v);
    }
    if (right && wrong) fprintf(out, "means: %s is right, %s is not\n", right, wrong);
}
