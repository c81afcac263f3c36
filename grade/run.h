// run.h - one test of one program: inputs, the confined run, the checker's verdict.
#ifndef RUN_H
#define RUN_H

#include "grader.h"

// Of each file that a run writes. What is timed on a GPU has results of 67 MB.
enum { RUN_FILES_MB = 64, RUN_GPU_FILES_MB = 512 };

// Where one submission's lab is graded: a temporary folder, and what was built in it.
struct workshop {
    char folder[MAX_PATH];
    char program[MAX_PATH], gpu_program[MAX_PATH];  // empty: not built
    int slot;
};

// 1 if the test's program runs on the GPU; races and bytes are looked for on the cpu backend.
int run_on_gpu(const struct grader *g, const struct test *test);

// Runs a test that is not of speed and puts what came of it into result->status, earned and text.
void run_test(const struct grader *g, const struct workshop *w, const struct test *test,
              struct test_result *result);

// The parts of that. First a folder with the inputs in it: -1, and the grader failed, or 0.
int run_begin(const struct grader *g, const struct workshop *w, const struct test *test,
              char folder[MAX_PATH], struct test_result *result);

// One run of a program, which is to leave its results in folder/out; of several tests of one case it runs all
// their kernels. Returns 1 if results are there to be judged; else what was wrong is in `result`.
int run_program(const struct grader *g, const struct workshop *w, const struct test *const *tests, int count,
                const char *program, const char *folder, struct test_result *result);

// Returns 1 if the results in folder/results are right; else what is wrong with them is in `result`.
int run_judge(const struct grader *g, const struct test *test, const char *folder, const char *results,
              struct test_result *result);

// At last: `share` of the points, if nothing but that is known of the test. `folder` is removed; null: kept.
void run_end(const char *folder, const struct test *test, double share, struct test_result *result);

// Paths that a confined run may not look into: limits->hide.
void run_hide(const struct grader *g, struct limits *limits);

#endif
