// tensors.h - the tensors of struct attention by number, for whoever does the same with each of them.
#ifndef TENSORS_H
#define TENSORS_H

#include "options.h"

// Inputs, then results; the first four are also the generator's numbers (inputs.h). A problem without a
// backward pass has the tensors that tensor_exists says, the others' data are null.
enum tensor_index {
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_DO,
    TENSOR_O,
    TENSOR_DQ,
    TENSOR_DK,
    TENSOR_DV,
    TENSORS
};

const char *tensor_name(enum tensor_index which);  // "dQ", in sentences
const char *tensor_file(enum tensor_index which);  // "dq", of .npy files
int tensor_exists(enum tensor_index which, int backward);

struct tensor *tensor_at(struct attention *a, enum tensor_index which);
const struct tensor *tensor_in(const struct attention *a, enum tensor_index which);

// Q, O and what is like them have the heads and tokens of queries, the others those of keys.
int tensor_is_of_queries(enum tensor_index which);
int tensor_heads(const struct attention *a, enum tensor_index which);
int tensor_tokens(const struct attention *a, enum tensor_index which);

// Bytes with the gaps of --pad; a double, since the product of a shape may pass every integer.
double tensor_bytes(const struct attention *a, enum tensor_index which);

// A tensor of that many elements in that order in memory.
struct tensor tensor_view(void *data, enum layout layout, int heads, int seqlen, int head_dim);

// The same for tensor `which` of this problem, in the layout that the options give it (gradients lie like the
// tensors that they are of), with gaps.
struct tensor tensor_place(const struct attention *a, enum tensor_index which, const enum layout layout[4],
                           void *data);

#endif
