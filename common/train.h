// train.h - --train: a layer of attention learns with a kernel's gradients, beside one that learns with exact
// ones.
//
// The layer (learner.h) is to give what a teacher gives, the same layer with other weights: the loss is the
// mean of (O - the teacher's O)^2. Scores have a deviation of about 2, attention that is worth learning. It
// descends with momentum 0.9. The rate is a quarter of 1 / curvature at the start, where learning is steady
// and what differs a little stays near.
//
// The same training is run
//   - with exact gradients, in double from Q, K, V and dO in fp32: the reference;
//   - with the plain implementation (reference.h, backward.h), which rounds these and all that it stores to
//     the storage type. Three times, in bases of head_dim that are mirrored in different directions. In exact
//     arithmetic that changes nothing, so that what it changes is by what accident roundings fell;
//   - with each kernel, from Q, K, V and dO in the storage type.
// A kernel is right if its loss falls, and is at no step farther from the reference's, in proportion to that,
// than twice the most that any of the three plain ones was. (The 2 x of compare.h. A gradient that is wrong
// by a factor drives the curves apart a hundred times as far.)
#ifndef TRAIN_H
#define TRAIN_H

#include "device.h"
#include "options.h"

// The layer that is trained unless the options give another shape.
struct shape train_shape(const struct lab *lab);

// Trains with every backward kernel that the options choose; prints the losses side by side, and for each
// kernel whether it is right. Returns LAB_OK or LAB_WRONG, or -1 with a sentence: a shape that a kernel or
// the machine cannot do, or options under which the reference itself does not learn.
int train_run(const struct lab *lab, const struct options *options, const struct device *device,
              struct message *why);

#endif
