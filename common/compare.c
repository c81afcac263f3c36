#include "compare.h"

#include <math.h>
#include <string.h>

const char *verdict_text(enum verdict verdict) {
    switch (verdict) {
    case VERDICT_RIGHT:
        return "right";
    case VERDICT_EMPTY:
        return "nothing to compute";
    case VERDICT_UNWRITTEN:
        return "never written";
    case VERDICT_NAN:
        return "NaN or infinity in the wrong place";
    case VERDICT_WRONG:
        return "wrong";
    case VERDICT_NOTHING:
        return "nothing compared";
    case VERDICT_ALL_ZERO:
        return "the reference is all zero: no check";
    case VERDICT_NOT_FINITE:
        return "the reference holds nothing finite: no check";
    case VERDICT_GUARD:
        return "wrote outside a buffer";
    case VERDICT_INPUT:
        return "changed its inputs";
    case VERDICT_UNSTEADY:
        return "two runs differ";
    case VERDICT_RACE:
        return "race";
    case VERDICT_TRACE:
        return "has no timeline";
    case VERDICT_TOO_FAST:
        return "faster than the device can be";
    }
    return "?";
}

// Half a unit in the last place at x: what rounding a result that size to the type may cost.
static double one_rounding(enum dtype dtype, double x) {
    return fmax(fabs(x) * dtype_unit_roundoff(dtype), dtype_min_positive(dtype) / 2);
}

// Where a row lies in `actual`, in elements.
static int64_t offset_of(const struct comparison *c, int64_t row) {
    int64_t i = row % c->seqlen, head = row / c->seqlen % c->heads, batch = row / c->seqlen / c->heads;
    return batch * c->actual.stride_batch + head * c->actual.stride_head + i * c->actual.stride_row;
}

static int is_unwritten(const struct comparison *c, int64_t element) {
    static const unsigned char poison[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    size_t bytes = (size_t)dtype_bytes(c->dtype);
    return memcmp((const char *)c->actual.data + (size_t)element * bytes, poison, bytes) == 0;
}

static void blame(const struct comparison *c, struct finding *f, enum verdict verdict, int64_t row,
                  int64_t column, double actual, double expected) {
    f->verdict = verdict;
    f->row = row % c->seqlen, f->head = row / c->seqlen % c->heads, f->batch = row / c->seqlen / c->heads;
    f->column = column, f->actual = actual, f->expected = expected;
}

// Every row, examined or not: was it written, and, where no reference is at hand, is it free of NaN if
// nothing but finite numbers went in?
static int every_row_is_sound(const struct comparison *c, struct finding *f) {
    int look_for_nan = c->inputs_finite && c->rows->count != c->rows->total;
    for (int64_t row = 0; row < c->rows->total; ++row) {
        int64_t offset = offset_of(c, row);
        for (int64_t column = 0; column < c->columns; ++column) {
            if (is_unwritten(c, offset + column))
                blame(c, f, VERDICT_UNWRITTEN, row, column, NAN, NAN);
            else if (look_for_nan && isnan(number_load(c->dtype, c->actual.data, offset + column)))
                blame(c, f, VERDICT_NAN, row, column, NAN, NAN);
            if (f->verdict != VERDICT_RIGHT) return 0;
        }
    }
    return 1;
}

// The same NaN or the same infinity on both sides, or two finite numbers.
static int same_kind(double x, double y) {
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    if (isinf(x) || isinf(y)) return x == y;
    return 1;
}

// What one head gives to its bound.
struct head {
    double largest;          // finite |reference|
    double plain_err;        // of the plain implementation
    struct row_error facts;  // the largest of its rows
};

static int64_t head_of(const struct comparison *c, int64_t r) { return rows_at(c->rows, r) / c->seqlen; }

// The rows of one head are neighbours: the first that is not of the head of row `begin`.
static int64_t end_of_head(const struct comparison *c, int64_t begin) {
    int64_t end = begin + 1;
    while (end < c->rows->count && head_of(c, end) == head_of(c, begin)) ++end;
    return end;
}

static struct head measure(const struct comparison *c, int64_t begin, int64_t end) {
    struct head h = {.largest = 0};
    for (int64_t i = begin * c->columns; i < end * c->columns; ++i) {
        double distance = fabs(c->plain[i] - c->expected[i]);
        if (!isfinite(c->expected[i])) continue;
        h.largest = fmax(h.largest, fabs(c->expected[i]));
        // Where the plain implementation overflows it is no yardstick: the others decide.
        if (isfinite(distance)) h.plain_err = fmax(h.plain_err, distance);
    }
    for (int64_t r = begin; r < end; ++r) {
        const struct row_facts *facts = &c->facts[r];
        const struct row_error *e = c->output == OUTPUT_LSE ? &facts->lse : &facts->o;
        h.facts.scale = fmax(h.facts.scale, e->scale), h.facts.worst = fmax(h.facts.worst, e->worst);
        h.facts.sums = fmax(h.facts.sums, e->sums), h.facts.least = fmax(h.facts.least, e->least);
    }
    return h;
}

// `all`: the largest of all heads, and of plain_err / scale. See compare.h.
struct all_heads {
    double plain_err, plain_share;
};

static double bound_of(const struct comparison *c, const struct head *h, const struct all_heads *all) {
    double lucky = fmin(all->plain_err, fmin(all->plain_share * h->facts.scale, h->facts.worst));
    return 2 * fmax(fmax(h->plain_err, h->facts.least), lucky) + one_rounding(c->dtype, h->largest) +
           c->expected_roundoff * h->largest + 0x1p-20 * fmax(h->largest, h->facts.sums);
}

// a / b, where nothing is not too much of nothing.
static double ratio(double err, double bound) { return err == 0 ? 0 : err / bound; }

// Compares the numbers of one head, counts them, and keeps what it finds in f if no head before was worse.
// Returns 0 at the first NaN or infinity in the wrong place.
static int compare_head(const struct comparison *c, int64_t begin, int64_t end, double bound,
                        struct finding *f, int64_t *numbers) {
    struct finding bad = {.verdict = VERDICT_RIGHT};
    double largest = 0;
    for (int64_t r = begin; r < end; ++r) {
        int64_t row = rows_at(c->rows, r), offset = offset_of(c, row);
        for (int64_t column = 0; column < c->columns; ++column) {
            double actual = number_load(c->dtype, c->actual.data, offset + column);
            double expected = c->expected[r * c->columns + column];
            ++f->compared;
            if (!same_kind(actual, expected)) {
                blame(c, f, VERDICT_NAN, row, column, actual, expected);
                return 0;
            }
            if (!isfinite(expected)) continue;
            f->finite += c->facts[r].keys > 0, ++*numbers;
            double err = fabs(actual - expected);
            f->rmse += err * err;  // the sum, until compare ends
            largest = fmax(largest, err);
            if (!(err <= bound) && bad.verdict == VERDICT_RIGHT)
                blame(c, &bad, VERDICT_WRONG, row, column, actual, expected);
        }
    }
    double worse = ratio(largest, bound) - ratio(f->err, f->bound);
    if (begin > 0 && !(worse > 0 || (worse == 0 && bound > f->bound))) return 1;
    f->err = largest, f->bound = bound;
    if (bad.verdict == VERDICT_WRONG)
        blame(c, f, VERDICT_WRONG, bad.batch * c->heads * c->seqlen + bad.head * c->seqlen + bad.row,
              bad.column, bad.actual, bad.expected);
    return 1;
}

double root_mean_square_error(const double *values, const double *expected, int64_t count) {
    double squares = 0;
    int64_t numbers = 0;
    for (int64_t i = 0; i < count; ++i) {
        double err = values[i] - expected[i];
        if (isfinite(err)) squares += err * err, ++numbers;
    }
    return sqrt(squares / (double)numbers);
}

struct finding compare(const struct comparison *c) {
    struct finding f = {.verdict = VERDICT_RIGHT, .rows = c->rows->count, .rows_total = c->rows->total};
    struct all_heads all = {0, 0};
    int64_t numbers = 0;
    int all_zero = 1, sees_keys = 0, sound = every_row_is_sound(c, &f);
    for (int64_t begin = 0, end; begin < c->rows->count; begin = end) {
        end = end_of_head(c, begin);
        struct head h = measure(c, begin, end);
        all.plain_err = fmax(all.plain_err, h.plain_err);
        if (h.facts.scale > 0) all.plain_share = fmax(all.plain_share, h.plain_err / h.facts.scale);
    }
    for (int64_t begin = 0, end; begin < c->rows->count && sound; begin = end) {
        end = end_of_head(c, begin);
        struct head h = measure(c, begin, end);
        sound = compare_head(c, begin, end, bound_of(c, &h, &all), &f, &numbers);
    }
    if (!sound) {
        f.err = f.bound = f.rmse = f.plain_rmse = NAN;
        return f;
    }
    f.rmse = sqrt(f.rmse / (double)numbers);
    f.plain_rmse = root_mean_square_error(c->plain, c->expected, c->rows->count * c->columns);
    for (int64_t i = 0; i < c->rows->count * c->columns; ++i) all_zero &= c->expected[i] == 0;
    for (int64_t r = 0; r < c->rows->count; ++r) sees_keys |= c->facts[r].keys > 0;
    if (f.verdict != VERDICT_RIGHT) return f;
    if (f.compared == 0)
        f.verdict = VERDICT_NOTHING;
    else if (all_zero && c->has_signal)
        f.verdict = VERDICT_ALL_ZERO;
    else if (f.finite == 0 && sees_keys)
        f.verdict = VERDICT_NOT_FINITE;
    return f;
}
