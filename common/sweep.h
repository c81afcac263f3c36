// sweep.h - --sweep: memory and time of the kernels over a range of lengths.
#ifndef SWEEP_H
#define SWEEP_H

#include "message.h"
#include "report.h"

enum { MAX_SWEEP = 16 };  // lengths: the report needs room for as many results of each kernel

// Sets what --sweep means by options that it sets itself.
void sweep_settle(struct options *options);

// Runs the sweep and prints its table. Returns 0, or -1 with a sentence.
int sweep_run(const struct lab *lab, const struct options *options, struct report *report,
              struct message *why);

#endif
