// speed.h - points for speed: the submission beside the reference solution.
#ifndef SPEED_H
#define SPEED_H

#include "run.h"

enum { SPEED_TESTS = 16 };  // at most in a group

// Tests of speed of one lab and one case, which a run of the program takes together.
struct speed_group {
    const struct test *test[SPEED_TESTS];
    struct test_result *result[SPEED_TESTS];  // in memory that processes share
    int count;
};

// Times both in turns, alone on the GPU, has all results of the submission judged, and puts what came of it
// into the results.
void speed_run(const struct grader *g, const struct workshop *w, const struct speed_group *group);

#endif
