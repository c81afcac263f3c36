// generate.h - --generate: text is made token by token. Each step gives every sequence one token more, and
// every layer attends from it to all that came before.
//
// The layers' caches of K and V are packed, with room for what is to come: sequence s has rows
// cu_seqlens_k[s] ... cu_seqlens_k[s + 1] - 1, of which the first seqused_k[s] hold keys. There is no model
// around: the projections of every token are random numbers that lie ready in a table, and what stands in for
// the model takes the step's from there. All that a step does, of all layers, is captured in one CUDA graph.
// It is the same graph in each step, so nothing in it may depend on a number that the host has: how long the
// sequences are stands in device memory.
//
// All steps together are one causal problem, in which as many queries as there are steps stand at the end of
// the keys. That is what they are checked against.
#ifndef GENERATE_H
#define GENERATE_H

#include "device.h"
#include "growth.h"
#include "options.h"

// What is generated from unless the options give another shape: --seqlen is the prompt's.
struct shape generate_shape(const struct lab *lab);

// Generates with every kernel that the options choose; checks every step, then times all of them, and prints
// a table. Returns LAB_OK or LAB_WRONG, or -1 with a sentence: a shape that a kernel or the machine cannot
// do.
int generate_run(const struct lab *lab, const struct options *options, const struct device *device,
                 struct message *why);

#endif
