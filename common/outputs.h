// outputs.h - --outputs: runs kernels and writes what they computed, without knowing what is right. Who wants
// to know whether it is has another program look at the files (grade/check.c does).
#ifndef OUTPUTS_H
#define OUTPUTS_H

#include "device.h"
#include "options.h"

// Runs each chosen kernel and writes its results into the folder of --outputs, as problem_save_result does,
// in the bits that the kernel left: an element that was never written still is 0xFF bytes there. Also says
// what needs no reference: memory outside the results or inputs that were written, races and results that
// differ between thread schedules (--sanitize). With --profile, and with --bench, the file of --json gets
// what was counted, or timed; it is opened before any kernel runs.
//
// Prints a line for each kernel. Returns a lab_exit code, or -1 with a sentence.
int outputs_run(const struct lab *lab, const struct options *options, const struct device *device,
                struct message *why);

#endif
