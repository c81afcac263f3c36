// lanes.h - all tests of a lab: its kernels at the same time, the tests of each one after another.
#ifndef LANES_H
#define LANES_H

#include "run.h"

// `broken`: what is wrong with all of them, if the lab could not be built; else null. Returns 0 and
// result->tests, or -1 with a sentence.
int lanes_run(const struct grader *g, const struct workshop *w, const char *broken, struct lab_result *result,
              struct message *why);

#endif
