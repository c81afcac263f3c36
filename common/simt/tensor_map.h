// tensor_map.h - tensor maps on the CPU: what cuTensorMapEncodeTiled writes into a CUtensorMap, and the walk
// over the box that a TMA instruction moves. Nothing here waits, counts or touches the memory it speaks of;
// when copies land is copies.cpp's business.
//
// A tensor map describes a tensor in global memory of up to five dimensions, the innermost (contiguous) one
// first, and a box of elements. An instruction names the coordinates of the box's first element; the box lies
// in shared memory row after row, and the 16-byte chunks of a row change places (the swizzle). Sources: CUDA
// Driver API, "cuTensorMapEncodeTiled"; PTX ISA, "Tensors"; CUDA C++ Programming Guide, "TMA swizzle".
#ifndef SIMT_TENSOR_MAP_H
#define SIMT_TENSOR_MAP_H

#include <cstddef>
#include <cstdint>
#include <string>

#include "include/cuda.h"

namespace simt {

constexpr int tensor_max_rank = 5;
constexpr uint32_t tensor_chunk_bytes = 16;  // what the swizzle moves as one
constexpr size_t tensor_map_alignment = 64;  // of a CUtensorMap

// What lies in a CUtensorMap's 128 bytes.
struct TensorMap {
    uint64_t magic;                        // tells a map from 128 bytes that nobody encoded
    char *address;                         // in global memory
    uint64_t dim[tensor_max_rank];         // elements of the tensor; from `rank` on 1, like all that follows
    uint64_t stride[tensor_max_rank - 1];  // bytes from one index of dimension i + 1 to the next
    uint16_t box[tensor_max_rank];         // elements that the box spans in the tensor
    uint8_t step[tensor_max_rank];         // of these, every step-th is copied; step[0] is 1
    uint8_t rank;
    uint8_t element_bytes;
    uint8_t type;          // CUtensorMapDataType: how tma_reduce_add adds
    uint8_t swizzle_mask;  // of the row number within 128-byte lines: 0, 1, 3 or 7
};

// The work of cuTensorMapEncodeTiled (its enumerations as numbers, for they may hold anything). On anything
// but CUDA_SUCCESS, `why` is a sentence and the map is as it was: CUDA_ERROR_INVALID_VALUE is what the driver
// says too, CUDA_ERROR_NOT_SUPPORTED is the simulation's limit.
CUresult encode_tiled(CUtensorMap *map, unsigned type, unsigned rank, void *address, const cuuint64_t *dim,
                      const cuuint64_t *stride, const cuuint32_t *box, const cuuint32_t *step,
                      unsigned interleave, unsigned swizzle, unsigned l2_promotion, unsigned fill,
                      std::string &why);

// The map that lies there; null if nobody encoded one.
const TensorMap *tensor_map_of(const CUtensorMap *at);

// Elements of dimension i that a box holds: ceil(box / step).
inline uint32_t box_length(const TensorMap &map, int i) {
    return (map.box[i] + map.step[i] - 1u) / map.step[i];
}

// Bytes of a box in shared memory. That many complete on the mbarrier, also for what lies outside the tensor.
inline uint32_t box_bytes(const TensorMap &map) {
    uint32_t bytes = map.element_bytes;
    for (int i = 0; i < map.rank; ++i) bytes *= box_length(map, i);
    return bytes;
}

// Where the swizzle puts a byte of shared memory: the chunk's number within its row is XORed with the number
// of the 128-byte line it lies in. This goes by the address itself, not by the distance from the box's start:
// a box that does not start at a multiple of the pattern's length (8, 4 or 2 lines: 1024, 512 or 256 bytes)
// sees the pattern shifted, which is why 1024 bytes are the customary alignment.
//
//     128 bytes: address bits 4-6 ^= bits 7-9    64: bits 4-5 ^= bits 7-8    32: bit 4 ^= bit 7
inline uint32_t swizzled(const TensorMap &map, uint32_t shared) {
    return shared ^ (shared >> 7 & map.swizzle_mask) << 4;
}

// Walks over a box that starts at that address of shared memory and whose first element has these
// coordinates (`rank` of them; they may be negative or lie beyond the tensor). Calls
//     visit(char *global, uint32_t shared, uint32_t bytes)
// for each run of at most 16 bytes that is contiguous on both sides; `global` is null for what lies outside
// of the tensor: a load writes zeros there, a store leaves it out. Shared memory's addresses are those after
// the swizzle. Together the runs are the whole box, in the order of the unswizzled addresses.
template <class Visit>
void traverse_box(const TensorMap &map, const int *coordinates, uint32_t shared, Visit &&visit) {
    const int64_t bytes = map.element_bytes;
    const int64_t per_chunk = tensor_chunk_bytes / bytes;
    const int64_t width = map.box[0];
    // Of a row, elements [inside, beyond) lie in the tensor.
    int64_t inside = -int64_t(coordinates[0]), beyond = int64_t(map.dim[0]) - coordinates[0];
    uint32_t length[tensor_max_rank], index[tensor_max_rank] = {};
    for (int i = 0; i < tensor_max_rank; ++i) length[i] = box_length(map, i);
    for (;;) {
        char *row = map.address;  // of the element at coordinate 0 of the innermost dimension
        bool row_exists = true;
        for (int i = 1; i < map.rank; ++i) {
            int64_t at = int64_t(coordinates[i]) + int64_t(index[i]) * map.step[i];
            if (uint64_t(at) >= map.dim[i]) {  // negative ones, too, are larger then
                row_exists = false;
                break;
            }
            row += at * int64_t(map.stride[i - 1]);
        }
        for (int64_t first = 0; first < width; first += per_chunk) {
            uint32_t to = swizzled(map, shared);
            for (int64_t x = first, end; x < first + per_chunk; x = end) {
                bool exists = row_exists && x >= inside && x < beyond;
                end = first + per_chunk;
                if (exists && beyond < end) end = beyond;
                if (row_exists && x < inside && inside < end) end = inside;
                visit(exists ? row + (coordinates[0] + x) * bytes : nullptr,
                      to + uint32_t((x - first) * bytes), uint32_t((end - x) * bytes));
            }
            shared += tensor_chunk_bytes;
        }
        int i = 1;
        while (i < map.rank && ++index[i] == length[i]) index[i++] = 0;
        if (i >= map.rank) return;
    }
}

}  // namespace simt

#endif
