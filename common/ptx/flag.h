// flag.h - a number in global memory by which blocks tell each other what is done, and loads of that.
//
// add_release: whatever this thread wrote before, and what it saw of others' writes through a barrier, is
// there for whoever reads the new number with load_acquire, and for the threads that a barrier follows it to.
// (PTX ISA, "Memory Consistency Model": release and acquire patterns at the scope of the GPU.)
#ifndef PTX_FLAG_H
#define PTX_FLAG_H

#include "base.h"

// count_round: what a block that takes part in a round of `last` + 1 blocks calls when it is done. Returns
// how many were done before it, and sets the number back to 0 for the next round when that is `last`. Both a
// release and an acquire: whoever gets `last` sees what all others wrote before their calls (through barriers
// as above), as do the threads that a barrier follows it to. (PTX ISA, "atom", .inc and .acq_rel.)
#if defined(__CUDACC__)
PTX_FN unsigned count_round(unsigned *done, unsigned last) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(done), "r"(last)
                 : "memory");
    return before;
}
#else
PTX_FN unsigned count_round(unsigned *done, unsigned last) {
    __threadfence();
    unsigned before = atomicInc(done, last);
    __threadfence();
    return before;
}
#endif

#if defined(__CUDACC__)
PTX_FN int load_acquire(const int *from) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
PTX_FN void add_release(int *to, int value) {
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
#else
PTX_FN int load_acquire(const int *from) {
    int value = atomicAdd((int *)from, 0);
    __threadfence();
    return value;
}
PTX_FN void add_release(int *to, int value) {
    __threadfence();
    atomicAdd(to, value);
}
#endif

// load_relaxed: what an ordinary load does, but where the program says. Ordinary loads the compiler may move
// down to where their values are used, to save registers: then each waits for memory anew. These stay in
// their order, so that all are on their way while the first is waited for. They order nothing else: what
// others wrote they see if an acquire, a barrier after one, or the launch's own beginning was before them.
// (PTX ISA, "ld", .relaxed.)
#if defined(__CUDACC__)
PTX_FN float2 load_relaxed(const float2 *from) {
    float2 x;
    asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x.x), "=f"(x.y)
                 : "l"(from)
                 : "memory");
    return x;
}
PTX_FN float4 load_relaxed(const float4 *from) {
    float4 x;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "l"(from)
                 : "memory");
    return x;
}
#else
SIMT_COPY_FN float2 load_relaxed(const float2 *from) { return *from; }
SIMT_COPY_FN float4 load_relaxed(const float4 *from) { return *from; }
#endif

#endif
