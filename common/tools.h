// tools.h - NVIDIA's checkers and profiler, run on the very command that the user gave.
#ifndef TOOLS_H
#define TOOLS_H

#include "options.h"
#include "profile.h"

// --sanitize on a GPU: runs this command line without --sanitize under compute-sanitizer's memcheck,
// racecheck, synccheck and initcheck, one after the other. Returns a lab_exit code: wrong if any of them
// finds something, skipped (with a sentence) if compute-sanitizer is neither on the PATH nor in the CUDA
// folder. `options` are what the command line was understood as: what it leaves to a default is spelt out to
// the command, which has other defaults.
int tools_sanitize(int argc, char **argv, const struct options *options);

// --profile on a GPU: the same under Nsight Compute (ncu), for the one kernel of the profile, to which the
// counters of its launches are added. Only the first run of the kernel is counted (device_set_counted).
// Skipped (with a sentence) also where the driver keeps the counters from this user.
int tools_profile(int argc, char **argv, const struct options *options, struct profile *profile);

#endif
