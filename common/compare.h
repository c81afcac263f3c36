// compare.h - is what a kernel wrote right? A pure function on host memory: tests/unit plants every
// fault in it.
//
// The order of the checks: an element nobody wrote, then NaN and infinity that differ from the reference,
// then numbers. (Launch errors and guard bands come before, in lab.c.) It passes only if err <= bound,
// written in that direction because every comparison with NaN is false.
//
// Every (batch, head) has its own bound, so that a head of small numbers cannot hide behind one of large
// ones:
//
//     bound = 2 x E + one rounding of the output type at M + 2^-20 x max(M, sums)
//
// E is the error of a plain implementation in the same storage type on the same inputs (reference.h), M the
// largest |reference|, both of this head. The last term is what any kernel may be off by because its sums are
// in fp32, whatever the storage type: sixteen roundings of the largest magnitude that they pass through
// (row_error in reference.h), which is |scale| |q| |k| for a score, and that times |V| for O. The plain
// implementation may be lucky in a head of few rows, so E is at least the smallest of
//   - its error in all heads together,
//   - its largest error in proportion to the head's `scale` (row_error in reference.h), of all heads,
//   - the worst case of honest arithmetic in this head.
// Hence no bound is above that of the whole tensor. Of gradients, and of kernels that quantise, E is also at
// least the head's `least` (row_error).
#ifndef COMPARE_H
#define COMPARE_H

#include <stddef.h>
#include <stdint.h>

#include "reference.h"

enum verdict {
    VERDICT_RIGHT,
    VERDICT_EMPTY,       // there was nothing to compute, and nothing was launched (lab.c); as good as right
    VERDICT_UNWRITTEN,   // an element still holds the 0xFF bytes it was filled with
    VERDICT_NAN,         // NaN or infinity where the reference is not the same, or the reverse
    VERDICT_WRONG,       // err > bound
    VERDICT_NOTHING,     // no element was compared: that proves nothing
    VERDICT_ALL_ZERO,    // the reference is all zero though queries see nonzero V: the check itself is broken
    VERDICT_NOT_FINITE,  // queries see keys, and yet no element of the reference is finite: proves nothing
    VERDICT_GUARD,       // the kernel wrote outside a buffer (found by lab.c)
    VERDICT_INPUT,       // the kernel changed its inputs (found by lab.c)
    VERDICT_UNSTEADY,    // two runs on the same inputs differ in a bit (found by lab.c)
    VERDICT_RACE,        // accesses that nothing orders (found by the simulated device, --sanitize)
    VERDICT_TRACE,       // its traced launch left no timeline that can be one (found by lab.c)
    VERDICT_TOO_FAST,    // faster than the device can be: the timing is wrong (found by lab.c)
};
const char *verdict_text(enum verdict verdict);  // a few words

// Of the gradients (backward.h) the errors are in facts->o, as for O.
enum output { OUTPUT_O, OUTPUT_LSE, OUTPUT_DQ, OUTPUT_DK, OUTPUT_DV };

// What a kernel wrote, and what it should have written.
struct comparison {
    enum output output;
    enum dtype dtype;      // of `actual`
    struct tensor actual;  // host memory
    int batch, heads, seqlen, columns;
    const struct rows *rows;        // the rows that `expected` and `plain` hold
    const double *expected;         // [rows->count][columns]
    const double *plain;            // [rows->count][columns]
    const struct row_facts *facts;  // [rows->count]
    double
        expected_roundoff;  // relative rounding in `expected` itself (a reference loaded from fp16), else 0
    int inputs_finite;      // no NaN or infinity went in: then none may come out, in no row
    int has_signal;         // reference.h; 0 for outputs that may be all zero
};

struct finding {
    enum verdict verdict;
    double err, bound;  // of the head where err / bound is largest; NaN if the comparison ended before that
    double rmse, plain_rmse;  // root of the mean square error of all that is finite, and the plain one's
    int64_t compared;         // elements compared with the reference
    int64_t finite;           // of them, in rows that see a key, those where the reference is finite
    int64_t rows, rows_total;
    // The first bad element (of that head) and the values there; meaningful if verdict is UNWRITTEN, NAN or
    // WRONG.
    int64_t batch, head, row, column;
    double actual, expected;
};

struct finding compare(const struct comparison *c);

// Root of the mean square of values - expected, [count] each, where both are finite; NaN where that is
// nowhere.
double root_mean_square_error(const double *values, const double *expected, int64_t count);

#endif
