// speed.h - points for speed: the submission beside the reference solution.
#ifndef SPEED_H
#define SPEED_H

#include "run.h"

// The share of the points for a speed of `ratio` times the reference's: 1 from 0.9 on, 0 up to 0.45.
double speed_share_of(double ratio);

// Times both in turns, alone on the GPU, on the inputs in folder/in, and has all results of the submission
// judged. Returns the share of the points; 0 with what was wrong in `result`.
double speed_share(const struct grader *g, const struct workshop *w, const struct test *test,
                   const char *folder, struct test_result *result);

#endif
