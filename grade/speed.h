// speed.h - points for speed: the time of a submission's kernel beside that of the reference solution, timed
// in turns on the same GPU.
#ifndef SPEED_H
#define SPEED_H

#include "run.h"

// One timed run with results that are right. Returns 1 if it was that, and out.json in the folder has the
// time.
typedef int speed_run(const struct grader *g, const struct workshop *w, const struct test *test,
                      const char *program, int on_gpu, const char *folder, struct test_result *result);

// The share of the points, 0 to 1, after a first run of the submission's program: 1 from 0.9 of the
// reference's speed on, 0 up to 0.45, and what lies between in between. The result says both times.
double speed_share(const struct grader *g, const struct workshop *w, const struct test *test,
                   const char *folder, speed_run *run, struct test_result *result);

// The share for a ratio of speeds.
double speed_share_of(double ratio);

#endif
