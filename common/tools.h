// tools.h - NVIDIA's checkers and profiler, run on the very command that the user gave.
#ifndef TOOLS_H
#define TOOLS_H

#include "lab.h"

// --sanitize on a GPU: runs this command line without --sanitize under compute-sanitizer's memcheck,
// racecheck, synccheck and initcheck, one after the other. Returns a lab_exit code: wrong if any of them
// finds something, skipped (with a sentence) if compute-sanitizer is neither on the PATH nor in the CUDA
// folder. If `shape` is not null, it is given to the command: these checkers slow a kernel down a
// thousandfold, so a default shape has to be a small one.
int tools_sanitize(int argc, char **argv, const struct shape *shape);

// --profile on a GPU: the same under Nsight Compute (ncu): speed of light, memory, occupancy and launch of
// each kernel.
int tools_profile(int argc, char **argv);

#endif
