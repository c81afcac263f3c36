// cudaTypedefs.h - the type of the one driver function that the CPU has, for the pointer that
// cudaGetDriverEntryPointByVersion returns. Plain C.
#ifndef SIMT_CUDA_TYPEDEFS_H
#define SIMT_CUDA_TYPEDEFS_H

#include "cuda.h"

typedef CUresult(CUDAAPI *PFN_cuTensorMapEncodeTiled_v12000)(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank, void *globalAddress,
    const cuuint64_t *globalDim, const cuuint64_t *globalStrides, const cuuint32_t *boxDim,
    const cuuint32_t *elementStrides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill);

#endif
