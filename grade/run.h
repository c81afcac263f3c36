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

// 1 if the test's program runs on the GPU; races and bytes are looked for on the cpu backend.
int run_on_gpu(const struct grader *g, const struct test *test);

// Runs the test and puts what came of it into result->status, earned and text.
void run_test(const struct grader *g, const struct workshop *w, const struct test *test,
              struct test_result *result);

// Of a test: one run of a program on the inputs in folder/in, which is to leave its results in folder/out.
// Returns 1 if they are there to be judged; else what was wrong is in `result`.
int run_program(const struct grader *g, const struct workshop *w, const struct test *test,
                const char *program, const char *folder, struct test_result *result);

// Returns 1 if the results in folder/out are right; else what is wrong with them is in `result`.
int run_judge(const struct grader *g, const struct test *test, const char *folder,
              struct test_result *result);

// Paths that a confined run may not look into: limits->hide.
void run_hide(const struct grader *g, struct limits *limits);

#endif
