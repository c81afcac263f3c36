// base.h - what the other headers of this folder share.
#ifndef PTX_BASE_H
#define PTX_BASE_H

#include <cuda_runtime.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define PTX_FN __device__ __forceinline__
#else
#define PTX_FN SIMT_HIDDEN inline
#endif

// For instructions that came with sm_90. A program compiled for an older GPU as well may contain
// them; the kernel that runs into one there stops.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define PTX_ASM_SM90(...) __trap()
#else
#define PTX_ASM_SM90(...) asm volatile(__VA_ARGS__)
#endif

// Address of shared memory as the instructions take it: 32 bits, from the start of the block's window.
PTX_FN uint32_t shared_address(const void *pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }

#endif
