// unit.h - the two macros of the unit tests. A test program ends with `return unit_end();`: exit 0, or 1
// after a line for each expectation that failed, or if nothing was expected at all.
#ifndef UNIT_H
#define UNIT_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int unit_failures, unit_expectations;

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        ++unit_expectations;                                                                                 \
        if (!(condition)) ++unit_failures, printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);    \
    } while (0)

// |got - want| <= tolerance; in this direction, so that NaN fails.
#define EXPECT_NEAR(got, want, tolerance)                                                                    \
    do {                                                                                                     \
        ++unit_expectations;                                                                                 \
        double unit_got = (got), unit_want = (want);                                                         \
        if (!(fabs(unit_got - unit_want) <= (tolerance)))                                                    \
            ++unit_failures,                                                                                 \
                printf("%s:%d: %s is %.17g, not %.17g\n", __FILE__, __LINE__, #got, unit_got, unit_want);    \
    } while (0)

// The sentence must say this.
#define EXPECT_SAYS(text, words)                                                                             \
    do {                                                                                                     \
        ++unit_expectations;                                                                                 \
        if (!strstr((text), (words)))                                                                        \
            ++unit_failures,                                                                                 \
                printf("%s:%d: \"%s\" does not say \"%s\"\n", __FILE__, __LINE__, (text), words);            \
    } while (0)

static inline int unit_end(void) {
    if (unit_expectations == 0) printf("nothing was tested\n");
    printf("%d expectations, %d failed\n", unit_expectations, unit_failures);
    return unit_failures != 0 || unit_expectations == 0;
}

#endif
