// tensor_map.cpp - cuTensorMapEncodeTiled with the driver's checks, and how a program finds it.
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "include/cudaTypedefs.h"
#include "include/cuda_runtime_api.h"
#include "internal.h"
#include "tensor_map.h"

namespace simt {

static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap), "a tensor map has 128 bytes");

static constexpr uint64_t tensor_map_magic = 0x70616d20726f736e;

// 0 for what is no type.
static unsigned bytes_of(unsigned type) {
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
        return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
        return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
        return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
        return 8;
    }
    return 0;
}

static bool is_float(unsigned type) { return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16; }

// Bytes that a row of the box may have; the swizzle's name in CUtensorMapSwizzle.
static unsigned span_of(unsigned swizzle) { return 16u << swizzle; }

static std::string broken_shape(unsigned rank, const cuuint64_t *dim, const cuuint64_t *stride,
                                const cuuint32_t *box, const cuuint32_t *step, unsigned unit) {
    for (unsigned i = 0; i < rank; ++i) {
        if (dim[i] < 1 || dim[i] > uint64_t(1) << 32)
            return format("globalDim[%u] is %llu, not 1 to 2^32", i, (unsigned long long)dim[i]);
        if (box[i] < 1 || box[i] > 256) return format("boxDim[%u] is %u, not 1 to 256", i, box[i]);
        if (step[i] < 1 || step[i] > 8) return format("elementStrides[%u] is %u, not 1 to 8", i, step[i]);
    }
    for (unsigned i = 0; i + 1 < rank; ++i) {
        if (stride[i] % unit)
            return format("globalStrides[%u] is %llu bytes, not a multiple of %u", i,
                          (unsigned long long)stride[i], unit);
        if (stride[i] >= uint64_t(1) << 40)
            return format("globalStrides[%u] is %llu bytes, not less than 2^40", i,
                          (unsigned long long)stride[i]);
    }
    return "";
}

// The rule that the arguments break, as a sentence; empty if the driver takes them.
static std::string broken_rule(const CUtensorMap *map, unsigned type, unsigned rank, const void *address,
                               const cuuint64_t *dim, const cuuint64_t *stride, const cuuint32_t *box,
                               const cuuint32_t *step, unsigned interleave, unsigned swizzle,
                               unsigned l2_promotion, unsigned fill) {
    if (!map || uintptr_t(map) % tensor_map_alignment)
        return format("the CUtensorMap lies at %p, not at a multiple of 64 bytes", (const void *)map);
    if (!bytes_of(type)) return format("tensorDataType %u is not known", type);
    if (interleave > CU_TENSOR_MAP_INTERLEAVE_32B) return format("interleave %u is not known", interleave);
    if (swizzle > CU_TENSOR_MAP_SWIZZLE_128B) return format("swizzle %u is not known", swizzle);
    if (l2_promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B)
        return format("l2Promotion %u is not known", l2_promotion);
    if (fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
        return format("oobFill %u is not known", fill);
    if (fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && !is_float(type))
        return "oobFill asks for NaN, and the elements are integers";
    if (rank < 1 || rank > tensor_max_rank) return format("tensorRank is %u, not 1 to 5", rank);
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE && rank < 3)
        return format("tensorRank is %u, and an interleaved layout has at least 3", rank);
    if (interleave == CU_TENSOR_MAP_INTERLEAVE_32B && swizzle != CU_TENSOR_MAP_SWIZZLE_32B)
        return "interleave is 32B and swizzle is not 32B";
    const unsigned unit = interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
    if (uintptr_t(address) % unit)
        return format("globalAddress is %p, not a multiple of %u bytes", address, unit);
    if (!dim || !box || !step || (rank > 1 && !stride)) return "an array is a null pointer";
    std::string why = broken_shape(rank, dim, stride, box, step, unit);
    if (!why.empty() || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return why;
    const unsigned row = box[0] * bytes_of(type);
    if (row % tensor_chunk_bytes)
        return format("a row of the box, boxDim[0] elements, has %u bytes, not a multiple of 16", row);
    if (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && row > span_of(swizzle))
        return format("a row of the box, boxDim[0] elements, has %u bytes, and swizzle allows %u", row,
                      span_of(swizzle));
    return "";
}

// What the driver takes and the simulated device does not do, as a sentence.
static std::string missing_here(unsigned type, const cuuint32_t *box, unsigned interleave, unsigned swizzle,
                                unsigned fill) {
    if (type > CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
        return "the types that change numbers on their way (FTZ, TFLOAT32) are not simulated on the CPU";
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
        return "interleaved layouts are not simulated on the CPU";
    if (fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
        return "only zeros for what lies outside of the tensor are simulated on the CPU, not NaN";
    // NVIDIA's documents leave open where the rows of such a box begin.
    const unsigned row = box[0] * bytes_of(type);
    if (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && row < span_of(swizzle))
        return format("a row of the box has %u bytes: on the CPU it must fill the swizzle's %u", row,
                      span_of(swizzle));
    return "";
}

CUresult encode_tiled(CUtensorMap *map, unsigned type, unsigned rank, void *address, const cuuint64_t *dim,
                      const cuuint64_t *stride, const cuuint32_t *box, const cuuint32_t *step,
                      unsigned interleave, unsigned swizzle, unsigned l2_promotion, unsigned fill,
                      std::string &why) {
    why = broken_rule(map, type, rank, address, dim, stride, box, step, interleave, swizzle, l2_promotion,
                      fill);
    if (!why.empty()) return CUDA_ERROR_INVALID_VALUE;
    why = missing_here(type, box, interleave, swizzle, fill);
    if (!why.empty()) return CUDA_ERROR_NOT_SUPPORTED;

    TensorMap it = {};
    it.magic = tensor_map_magic;
    it.address = static_cast<char *>(address);
    for (int i = 0; i < tensor_max_rank; ++i) {
        bool exists = unsigned(i) < rank;
        it.dim[i] = exists ? dim[i] : 1;
        it.box[i] = uint16_t(exists ? box[i] : 1);
        // TMA has no step along the innermost dimension and ignores what is asked for there.
        it.step[i] = uint8_t(exists && i > 0 ? step[i] : 1);
        if (exists && i > 0) it.stride[i - 1] = stride[i - 1];
    }
    it.rank = uint8_t(rank);
    it.element_bytes = uint8_t(bytes_of(type));
    it.type = uint8_t(type);
    it.swizzle_mask = uint8_t((1u << swizzle) - 1);
    memset(map, 0, sizeof *map);
    memcpy(map, &it, sizeof it);
    return CUDA_SUCCESS;
}

const TensorMap *tensor_map_of(const CUtensorMap *at) {
    const TensorMap *map = reinterpret_cast<const TensorMap *>(at);
    return map && map->magic == tensor_map_magic ? map : nullptr;
}

}  // namespace simt

extern "C" {

static CUresult cu_tensor_map_encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                           void *address, const cuuint64_t *dim, const cuuint64_t *stride,
                                           const cuuint32_t *box, const cuuint32_t *step,
                                           CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                           CUtensorMapL2promotion l2_promotion,
                                           CUtensorMapFloatOOBfill fill) {
    std::string why;
    CUresult result = simt::encode_tiled(map, type, rank, address, dim, stride, box, step, interleave,
                                         swizzle, l2_promotion, fill, why);
    // The driver returns its number and leaves one guessing.
    if (result != CUDA_SUCCESS) fprintf(stderr, "simt: cuTensorMapEncodeTiled: %s\n", why.c_str());
    return result;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    if (!symbol || !function || flags > cudaEnablePerThreadDefaultStream) return cudaErrorInvalidValue;
    PFN_cuTensorMapEncodeTiled_v12000 encode = cu_tensor_map_encode_tiled;
    bool known = strcmp(symbol, "cuTensorMapEncodeTiled") == 0, old = version < 12000;
    *function = known && !old ? reinterpret_cast<void *>(encode) : nullptr;
    if (result)
        *result = !known ? cudaDriverEntryPointSymbolNotFound
                  : old  ? cudaDriverEntryPointVersionNotSufficent
                         : cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result) {
    return cudaGetDriverEntryPointByVersion(symbol, function, 12000, flags, result);
}

}  // extern "C"
