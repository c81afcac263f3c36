// kernel_run.h - everything that a run does with one kernel.
#ifndef KERNEL_RUN_H
#define KERNEL_RUN_H

#include "case.h"
#include "preflight.h"
#include "report.h"

// An empty result of this kernel at this shape.
void result_begin(struct result *result, const struct kernel *kernel, const struct attention *a);

// The kernel did not run: `what` goes with the obstacle, or is a sentence of its own.
void result_refuse(struct result *result, enum obstacle obstacle, const struct message *what);

// Makes the kernel's workspace, which the caller frees, and returns 1; or 0 if the kernel cannot run, and the
// result says why.
int kernel_prepare(struct device_case *c, const struct kernel *kernel, const struct lab *lab,
                   struct result *result);

// Runs the kernel on the case: check, check again, and what else was asked for. The result says how that
// went; with --profile, the report gets one profile more (cpu backend). Returns 0, or -1 with a sentence if
// the gradients that a backward kernel is held against cannot be had.
int run_kernel(struct device_case *c, const struct kernel *kernel, struct report *report,
               struct result *result, struct message *why);

// What outputs_run uses of it. Repetitions of a timed launch:
int kernel_repetitions(void);
// From here on races are looked for, if --sanitize asks for that; and after a first launch the verdict:
// races, and results that differ between thread schedules (cpu backend).
void kernel_watch_for_races(const struct device_case *c);
void kernel_look_for_races(struct device_case *c, const struct kernel *kernel, struct result *result);
// One launch more that is counted, as a profile more of the report (cpu backend).
void kernel_count(struct device_case *c, const struct kernel *kernel, struct report *report);

#endif
