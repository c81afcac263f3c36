// build.h - the programs of a submission's lab, and the reference solution's.
#ifndef BUILD_H
#define BUILD_H

#include "run.h"

// Looks through the source (result->remark) and compiles it for the backends that are used. What is wrong
// with the whole lab goes into `broken`. Returns -1 with a sentence if the grader failed.
int build_lab(const struct grader *g, struct workshop *w, const char *lab, const char *source,
              struct lab_result *result, struct test_result *broken, struct message *why);

// Where the reference solution's program for the GPU is, once build_lab has been there.
int build_reference_path(const struct grader *g, const char *lab, char path[MAX_PATH], struct message *why);

#endif
