// ptx.h - one inline function for each hardware instruction that CUDA C has no name for. Under nvcc its body
// is the instruction; otherwise the CPU backend does what the PTX ISA says. Labs contain no inline assembly
// of their own.
#ifndef PTX_H
#define PTX_H

#include <cuda_runtime.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define PTX_FN __device__ __forceinline__
#else
#define PTX_FN SIMT_HIDDEN inline
#endif

// ---- Named barriers: bar.sync and bar.arrive (PTX ISA, "Parallel Synchronization Instructions: barrier")
// ---- A block has barriers 0 to 15; 0 is what __syncthreads uses, so take 1 to 15. `threads` counts all that
// take part, whether they wait or only arrive, and is a multiple of 32: whole warps take part.

// Waits until `threads` threads have come to barrier `id`. Memory accesses before it are seen by all that
// wait.
#if defined(__CUDACC__)
PTX_FN void bar_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
#else
PTX_FN void bar_sync(int id, int threads, SIMT_HERE) { simt::named_barrier_sync(id, threads, file, line); }
#endif

// Counts as having come to barrier `id` and goes on: the producer's half of a hand-over.
#if defined(__CUDACC__)
PTX_FN void bar_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
#else
PTX_FN void bar_arrive(int id, int threads, SIMT_HERE) {
    simt::named_barrier_arrive(id, threads, file, line);
}
#endif

// Address of shared memory as the instructions below take it: 32 bits, from the start of the block's window.
PTX_FN uint32_t shared_address(const void *pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }

#endif
