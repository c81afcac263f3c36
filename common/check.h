// check.h - is what a kernel left on the device right, and what surrounds it untouched? A fault goes into the
// result: a verdict and a sentence.
#ifndef CHECK_H
#define CHECK_H

#include "case.h"
#include "report.h"

// Looks at what the last launch left: guard bands and gaps, the outputs against the reference, the inputs.
void check_outputs(struct device_case *c, struct result *result);

// Runs the kernel again and requires the same bits: `how` says under which circumstances.
void check_again(struct device_case *c, const struct kernel *kernel, const char *how, struct result *result);

#endif
