// compare.h - is what a kernel wrote right? A pure function on host memory: tests/unit plants every
// fault in it.
//
// The order of the checks: an element nobody wrote, then NaN and infinity that differ from the reference,
// then numbers. (Launch errors and guard bands come before, in lab.c.) It passes only if err <= bound,
// written in that direction because every comparison with NaN is false; bound = 2 x the error of a plain
// implementation in the same storage type on the same inputs (reference.h) + one rounding of the output type
// at the largest |reference| + `floor`.
#ifndef COMPARE_H
#define COMPARE_H

#include <stddef.h>
#include <stdint.h>

#include "reference.h"

enum verdict {
    VERDICT_RIGHT,
    VERDICT_EMPTY,      // there was nothing to compute, and nothing was launched (lab.c); as good as right
    VERDICT_UNWRITTEN,  // an element still holds the 0xFF bytes it was filled with
    VERDICT_NAN,        // NaN or infinity where the reference is not the same, or the reverse
    VERDICT_WRONG,      // err > bound
    VERDICT_NOTHING,    // no element was compared: that proves nothing
    VERDICT_ALL_ZERO,   // the reference is all zero though queries see nonzero V: the check itself is broken
    VERDICT_GUARD,      // the kernel wrote outside a buffer (found by lab.c)
    VERDICT_INPUT,      // the kernel changed its inputs (found by lab.c)
    VERDICT_UNSTEADY,   // two runs on the same inputs differ in a bit (found by lab.c)
    VERDICT_RACE,       // accesses that nothing orders (found by the simulated device, --sanitize)
    VERDICT_TOO_FAST,   // faster than the device can be: the timing is wrong (found by lab.c)
};
const char *verdict_text(enum verdict verdict);  // a few words

// What a kernel wrote, and what it should have written.
struct comparison {
    const char *name;      // "O", "LSE"
    enum dtype dtype;      // of `actual`
    struct tensor actual;  // host memory
    int batch, heads, seqlen, columns;
    const struct rows *rows;   // the rows that `expected` and `plain` hold
    const double *expected;    // [rows->count][columns]
    const double *plain;       // [rows->count][columns]
    double expected_rounding;  // largest rounding in `expected` itself (a reference loaded from fp16), else 0
    double floor;              // error that any kernel may have on top
    int inputs_finite;         // no NaN or infinity went in: then none may come out, in no row
    int has_signal;            // reference.h; 0 for outputs that may be all zero
};

struct finding {
    enum verdict verdict;
    double err, bound;  // err is NaN if the comparison ended before the numbers
    int64_t compared;   // elements compared with the reference
    int64_t rows, rows_total;
    // The first bad element and the values there; meaningful if verdict is UNWRITTEN, NAN or WRONG.
    int64_t batch, head, row, column;
    double actual, expected;
};

struct finding compare(const struct comparison *c);

// Error that any kernel may have because all sums are in fp32, whatever the storage type:
// 2^-20 * max(least, largest finite |expected|). For O least is 0; for the LSE, a difference of sums, 1.
double fp32_floor(const double *expected, int64_t count, double least);

#endif
