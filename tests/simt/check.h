// check.h - what the small test programs need: CHECK(condition) counts and reports, `return check_done();`
// ends main. C11 and CUDA C; host code only (a kernel writes its results to memory and main checks them).
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>

static long check_count, check_failures;

// Prints file:line and the expression when the condition is false. After 20 such lines it only counts.
#define CHECK(condition) check_report((condition) ? 1 : 0, #condition, __FILE__, __LINE__)

static inline int check_report(int passed, const char *condition, const char *file, int line) {
    check_count++;
    if (passed) return 1;
    if (++check_failures <= 20) fprintf(stderr, "%s:%d: failed: %s\n", file, line, condition);
    return 0;
}

// Prints the totals and returns main's exit code: 0 if all passed, 1 if any failed or none ran.
static inline int check_done(void) {
    printf("%ld checks, %ld failed\n", check_count, check_failures);
    return check_count > 0 && check_failures == 0 ? 0 : 1;
}

// 32 random bits; the same sequence in every run.
static inline uint32_t random_bits(void) {
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

#endif
