// simt_matrix.h - what common/ptx/matrix.h and common/ptx/math.h call on the CPU. The comments stand there.
#ifndef SIMT_MATRIX_H
#define SIMT_MATRIX_H

#include "simt_device.h"

namespace simt {

// ldmatrix and stmatrix of `count` matrices: 1, 2 or 4.
void load_matrices(uint32_t *registers, int count, bool transposed, uint32_t address, const char *file,
                   int line);
void store_matrices(uint32_t address, const uint32_t *registers, int count, bool transposed, const char *file,
                    int line);

// mma.sync.m16n8k16: d[4] += a[4] b[2].
void multiply_fp16(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line);
void multiply_bf16(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line);

// ex2.approx.ftz. exp2f gives 1 for a subnormal x by itself.
SIMT_VALUE_FN float exp2_flushed(float x) {
    float result = exp2f(x);
    if (result != result) return float_of_bits(0x7fffffffu);  // the NaN of a GPU
    return result < 0x1p-126f ? 0.0f : result;
}

}  // namespace simt

#endif
