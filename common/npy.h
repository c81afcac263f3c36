// npy.h - NumPy's .npy files, format 1.0 and 2.0: how tensors come from and go to NumPy and PyTorch.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#ifndef NPY_H
#define NPY_H

#include <stddef.h>
#include <stdint.h>

#include "message.h"
#include "numbers.h"

enum { NPY_MAX_RANK = 8 };

struct npy {
    enum dtype dtype;  // DTYPE_FP16, DTYPE_FP32 or DTYPE_FP64; little endian in the file
    int rank;
    int64_t shape[NPY_MAX_RANK];
    int64_t count;  // product of the shape
    void *data;     // C order, owned
};

// Reads a whole file. Nothing in it is trusted: every size is checked against the file's real length first.
// Returns 0, or -1 with a sentence that names the file and what to do.
int npy_read(const char *path, struct npy *array, struct message *why);
void npy_free(struct npy *array);

// Writes count = product of shape elements of `dtype` (fp16, fp32 or fp64) from data. Returns 0, or -1
// with a sentence.
int npy_write(const char *path, enum dtype dtype, int rank, const int64_t *shape, const void *data,
              struct message *why);

#endif
