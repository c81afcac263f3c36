// preflight.h - can a case be done at all? Answered from its shape alone, before inputs and reference are
// computed, which may take minutes. Sizes are doubles here: the product of a shape may pass every integer.
#ifndef PREFLIGHT_H
#define PREFLIGHT_H

#include "message.h"
#include "options.h"

// What keeps a kernel from a case.
enum obstacle { NO_OBSTACLE, NOT_SUPPORTED, TOO_LARGE };

// The verb of a sentence about it: "kernel X does not support ...", "kernel X needs ...".
const char *obstacle_verb(enum obstacle obstacle, int plural);

// Looks at one kernel, when `left` bytes of device memory remain for its workspace. `what` gets the object of
// the verb: "--dim 12 (but multiples of 8 up to 128)", "180.0 GB of workspace at this shape, 12.0 GB ...".
// What it lacks another kernel of its lab may have, or another lab, and then the sentence says which.
enum obstacle preflight_kernel(const struct lab *lab, const struct kernel *kernel, const struct attention *a,
                               double left, struct message *what);

// Bytes of workspace that the kernel needs, 0 if none.
double preflight_workspace(const struct kernel *kernel, const struct attention *a);

// Whether the kernel is right for scores as large as these: `largest_score`, the largest |score|
// (reference.h), is within what its table says, and, if it keeps its scores in global memory, fits into the
// storage type. Known by its workspace, which holds a matrix of scores.
// Returns NO_OBSTACLE, or NOT_SUPPORTED and what is not supported.
enum obstacle preflight_scores(const struct kernel *kernel, const struct attention *a, double largest_score,
                               struct message *what);

// Bytes of q, k, v, o and lse, with `backward` also of d_o, dq, dk and dv, and of cu_seqlens.
double preflight_tensors(const struct attention *a, int backward);

// Checks that the same fits into the device's memory as it is now, and everything that the host keeps into
// the host's. Returns 0, with what then remains for workspace in *left, or -1 with a sentence.
int preflight_case(const struct attention *a, int backward, double *left, struct message *why);

// Looks at all kernels that the options choose. Refuses a case that no kernel can do, and one that a kernel
// which the user named cannot. Returns 0, or -1 with a sentence. Under left = INFINITY nothing is too large.
int preflight_kernels(const struct lab *lab, const struct options *options, const struct attention *a,
                      double left, struct message *why);

// All of it, for a case that the options describe in full (no --load, no --sweep).
int preflight(const struct lab *lab, const struct options *options, struct message *why);

#endif
