// box_reference.h - what a box of a tensor looks like in shared memory, byte by byte, from the definition of
// a box and the swizzle formula of the CUDA C++ Programming Guide ("TMA swizzle": smem[y][x] <-> smem[y][((y
// + offset) % 8) ^ x], of 16-byte chunks x in lines y of 128 bytes). For the tests of TMA; knows nothing of
// common/simt.
#ifndef BOX_REFERENCE_H
#define BOX_REFERENCE_H

#include <cuda.h>
#include <stdint.h>

#include "check.h"

// A tensor, a box of it and the coordinates where the box begins; as for cuTensorMapEncodeTiled.
struct box_reference {
    unsigned type, rank;
    cuuint64_t dim[5], stride[4];
    cuuint32_t box[5], step[5];
    unsigned swizzle;
    int element_bytes, at[5];
};

// Elements of the box along dimension i.
static inline int box_length_of(const struct box_reference *b, int i) {
    if (i >= (int)b->rank) return 1;
    if (i == 0) return (int)b->box[0];  // TMA knows no step along the innermost dimension
    int length = 0;
    for (unsigned x = 0; x < b->box[i]; x += b->step[i]) length++;
    return length;
}

static inline int64_t box_bytes_of(const struct box_reference *b) {
    int64_t bytes = b->element_bytes;
    for (int i = 0; i < 5; i++) bytes *= box_length_of(b, i);
    return bytes;
}

// Bytes from the tensor's first element to the end of its last one, in whole chunks of 16.
static inline int64_t tensor_bytes_of(const struct box_reference *b) {
    int64_t bytes = (int64_t)b->dim[0] * b->element_bytes;
    for (unsigned i = 1; i < b->rank; i++) bytes += (int64_t)((b->dim[i] - 1) * b->stride[i - 1]);
    return (bytes + 15) / 16 * 16;
}

constexpr int64_t NOT_IN_BOX = -2, NOT_IN_TENSOR = -1;

// The byte of the tensor that lies at address `shared` when the box was put to address `base`. A store or
// addition moves whole chunks of 16 bytes (measured on an H200): where a row ends within one, what is in
// memory behind the row is written as well. A load fills that with zeros.
static inline int64_t box_source(const struct box_reference *b, int64_t base, int64_t shared, int stores) {
    int64_t lines = (int64_t)1 << b->swizzle;  // after which the pattern repeats
    int64_t line = shared / 128, chunk = (line % lines) ^ (shared / 16 % 8);
    int64_t linear = line * 128 + chunk * 16 + shared % 16 - base;  // where it would be without swizzle
    if (linear < 0 || linear >= box_bytes_of(b)) return NOT_IN_BOX;
    int64_t rest = linear / b->element_bytes, offset = linear % b->element_bytes;
    int exists = 1;
    for (int i = 0; i < (int)b->rank; i++) {
        int64_t x = b->at[i] + rest % box_length_of(b, i) * (i == 0 ? 1 : (int64_t)b->step[i]);
        rest /= box_length_of(b, i);
        int64_t first = i == 0 && stores ? x - linear % 16 / b->element_bytes : x;
        exists = exists && first >= 0 && first < (int64_t)b->dim[i];
        offset += x * (i == 0 ? b->element_bytes : (int64_t)b->stride[i - 1]);
    }
    return exists ? offset : NOT_IN_TENSOR;
}

static inline int random_int(int64_t low, int64_t high) {
    return (int)(low + (int64_t)random_bits() % (high - low + 1));
}

// A small box, inside, half outside or outside of a small tensor without overlaps, at coordinates that a load
// may have. Rank, type and swizzle go by `round`, so that 100 rounds in a row have all combinations.
static inline struct box_reference random_box(int round, int with_steps) {
    static const struct {
        unsigned type;
        int bytes;
    } types[5] = {{CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},
                  {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2},
                  {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2},
                  {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4},
                  {CU_TENSOR_MAP_DATA_TYPE_INT64, 8}};
    struct box_reference b = {};
    b.rank = 1 + (unsigned)round % 5;
    b.type = types[round / 5 % 5].type;
    b.element_bytes = types[round / 5 % 5].bytes;
    b.swizzle = (unsigned)(round / 25 % 4);
    int row = b.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 16 * random_int(1, 9) : 16 << b.swizzle;
    cuuint64_t stride = 0;
    for (int i = 0; i < (int)b.rank; i++) {
        int far = random_int(0, 9) ? 0 : 100000;
        b.box[i] = (cuuint32_t)(i == 0 ? row / b.element_bytes : random_int(1, b.rank > 3 ? 3 : 9));
        b.step[i] = (cuuint32_t)(with_steps ? random_int(1, 8) : 1);
        b.dim[i] = (cuuint64_t)(i == 0 ? random_int(1, 2 * row / b.element_bytes) : random_int(1, 7));
        b.at[i] = random_int(0, 2) ? random_int(-(int)b.box[i] - far, (int)b.dim[i] + far) : 0;
        if (i == 0)
            b.at[0] -= b.at[0] % (16 / b.element_bytes);  // whole chunks, or the instruction is illegal
        if (i == 0)
            stride = (b.dim[0] * (cuuint64_t)b.element_bytes + 15) / 16 * 16;
        else
            b.stride[i - 1] = stride, stride *= b.dim[i];
        stride += 16 * (cuuint64_t)random_int(0, 2);
    }
    if (b.rank > 2 && random_int(0, 1)) {  // the strides not in order of size
        cuuint64_t other = b.stride[0], length = b.dim[1];
        b.stride[0] = b.stride[1], b.stride[1] = other;
        b.dim[1] = b.dim[2], b.dim[2] = length;
    }
    return b;
}

#endif
