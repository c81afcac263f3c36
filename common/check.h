// check.h - is what a kernel left on the device right, and what surrounds it untouched? A fault goes into the
// result: a verdict and a sentence.
#ifndef CHECK_H
#define CHECK_H

#include "case.h"
#include "report.h"

// Guard bands of all buffers, and the gaps of --pad in the results. Returns 1 if they are as they were.
int check_guards(struct device_case *c, struct result *result);

// After case_launch: all that can be said without a reference, which is the guard bands, the gaps, and that
// the inputs are what they were. Returns 1 if all is well.
int check_surroundings(struct device_case *c, const struct kernel *kernel, struct result *result);

// Compares results first ... last of a problem on the host with its reference: `as` says how the kernel
// quantises. An output of no rows has nothing wrong. Returns 1 if all are right; else the result has the
// verdict and says where the first fault is.
int check_results(const struct problem *problem, enum output first, enum output last, enum quantised as,
                  struct result *result);

// After case_begin of a backward kernel: guard bands and gaps, O and LSE of its forward pass against the
// reference, the inputs. Returns 1 if all is well.
int check_forward(struct device_case *c, struct result *result);

// After case_launch: the same with the results of the launch. For a backward kernel problem.gradients have to
// be there, and O and LSE are among the inputs, which may not change; for one that quantises,
// problem.quantised has to.
void check_outputs(struct device_case *c, const struct kernel *kernel, struct result *result);

// Runs the kernel again, its forward pass included, and requires the same bits of all results: `how` says
// under which circumstances. Of a dQ that the kernel's table calls unordered it requires that it is right.
void check_again(struct device_case *c, const struct kernel *kernel, const char *how, struct result *result);

#endif
