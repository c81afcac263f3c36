// probe.h - before anything is graded: what a run is kept apart from on this machine, and whether it finds a
// GPU.
#ifndef PROBE_H
#define PROBE_H

#include "grader.h"

// Says on standard error what submissions cannot be kept apart from. Returns -1 with a sentence if none could
// run at all.
int probe_runs(const struct grader *g, struct message *why);

// With g->gpu: sets g->gpu_name and g->gpu_shared, or g->no_gpu and says so on standard error.
int probe_gpu(struct grader *g, struct message *why);

#endif
