// run.h - one test of one program: inputs, the confined run, the checker's verdict.
#ifndef RUN_H
#define RUN_H

#include "grader.h"

// Where one submission's lab is graded: a temporary folder, and what was built in it.
struct workshop {
    char folder[MAX_PATH];
    char program[MAX_PATH], gpu_program[MAX_PATH];  // empty: not built
    int slot;
};

// Runs the test and puts what came of it into result->status, earned and text.
void run_test(const struct grader *g, const struct workshop *w, const struct test *test,
              struct test_result *result);

// Paths that a confined run may not look into: limits->hide.
void run_hide(const struct grader *g, struct limits *limits);

#endif
