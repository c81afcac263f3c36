// plan.h - what is graded, and for how many points: tests/points.csv and the hidden folder's.
#ifndef PLAN_H
#define PLAN_H

#include <stdint.h>

#include "common/message.h"

// What a test looks at beside the results, which have to be right in every kind.
enum kind {
    KIND_CORRECT,   // nothing
    KIND_SANITIZE,  // races, and results that depend on the order of threads (cpu backend)
    KIND_IO,        // counted bytes (cpu backend)
    KIND_SPEED,     // time beside that of the reference solution (gpu backend)
    KINDS
};
const char *kind_name(enum kind kind);

enum { TEST_NAME = 96, TEST_WORD = 48, TEST_OPTIONS = 500 };

struct test {
    char name[TEST_NAME];  // "lab02.fused.n65_causal"; what results are keyed by
    char lab[TEST_WORD], kernel[TEST_WORD];
    enum kind kind;
    char judged[TEST_WORD];  // how the checker judges the kernel: check.c
    double points;
    char options[TEST_OPTIONS];  // the whole case, in the words of a lab's command line
    int hidden;
};

struct plan {
    struct test *tests;
    int count;
    uint64_t checksum;  // of everything that was read
};

// Reads ROOT/tests/points.csv with the cases of ROOT/tests/cases.cmake, and, unless hidden is null,
// points.csv and cases.cmake of that folder. Returns 0, or -1 with a sentence that names file and line.
int plan_read(struct plan *plan, const char *root, const char *hidden, struct message *why);
void plan_free(struct plan *plan);

#endif
