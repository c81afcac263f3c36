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
    case VERDICT_GUARD:
        return "wrote outside a buffer";
    case VERDICT_INPUT:
        return "changed its inputs";
    case VERDICT_UNSTEADY:
        return "two runs differ";
    case VERDICT_RACE:
        return "race";
    case VERDICT_TOO_FAST:
        return "faster than the device can be";
    }
    return "?";
}

double fp32_floor(const double *expected, int64_t count, double least) {
    double largest = least;
    for (int64_t i = 0; i < count; ++i)
        if (isfinite(expected[i]) && fabs(expected[i]) > largest) largest = fabs(expected[i]);
    return ldexp(largest, -20);
}

static double smallest_subnormal(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_FP16:
        return 0x1p-24;
    case DTYPE_BF16:
        return 0x1p-133;
    case DTYPE_E4M3:
        return 0x1p-9;
    case DTYPE_E5M2:
        return 0x1p-16;
    case DTYPE_FP32:
        return 0x1p-149;
    default:
        return 0;
    }
}

// Half a unit in the last place at x: what rounding a result that size to the type may cost.
static double one_rounding(enum dtype dtype, double x) {
    return fmax(fabs(x) * dtype_unit_roundoff(dtype), smallest_subnormal(dtype) / 2);
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

struct finding compare(const struct comparison *c) {
    struct finding f = {.verdict = VERDICT_RIGHT, .rows = c->rows->count, .rows_total = c->rows->total};
    double largest = 0, plain_err = 0;
    int all_zero = 1;
    for (int64_t i = 0; i < c->rows->count * c->columns; ++i) {
        double expected = c->expected[i], plain_distance = fabs(c->plain[i] - expected);
        if (expected != 0) all_zero = 0;
        if (!isfinite(expected)) continue;
        largest = fmax(largest, fabs(expected));
        // Where the plain implementation overflows it is no yardstick: the others decide.
        if (isfinite(plain_distance)) plain_err = fmax(plain_err, plain_distance);
    }
    f.bound = 2 * plain_err + one_rounding(c->dtype, largest) + c->expected_rounding + c->floor;
    if (!every_row_is_sound(c, &f)) {
        f.err = NAN;
        return f;
    }

    int64_t wrong_row = -1, wrong_column = 0;
    double wrong_actual = 0, wrong_expected = 0;
    for (int64_t r = 0; r < c->rows->count; ++r) {
        int64_t row = rows_at(c->rows, r), offset = offset_of(c, row);
        for (int64_t column = 0; column < c->columns; ++column) {
            double actual = number_load(c->dtype, c->actual.data, offset + column);
            double expected = c->expected[r * c->columns + column];
            ++f.compared;
            if (!same_kind(actual, expected)) {
                blame(c, &f, VERDICT_NAN, row, column, actual, expected);
                f.err = NAN;
                return f;
            }
            if (!isfinite(expected)) continue;
            double err = fabs(actual - expected);
            if (err > f.err) f.err = err;
            if (err <= f.bound || wrong_row >= 0) continue;
            wrong_row = row, wrong_column = column, wrong_actual = actual, wrong_expected = expected;
        }
    }
    if (wrong_row >= 0)
        blame(c, &f, VERDICT_WRONG, wrong_row, wrong_column, wrong_actual, wrong_expected);
    else if (f.compared == 0)
        f.verdict = VERDICT_NOTHING;
    else if (all_zero && c->has_signal)
        f.verdict = VERDICT_ALL_ZERO;
    return f;
}
