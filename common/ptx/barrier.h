// barrier.h - waiting for other threads and for copies: named barriers, mbarriers, fences; and two
// instructions of warp-specialised kernels, elect and setmaxnreg.
#ifndef PTX_BARRIER_H
#define PTX_BARRIER_H

#include "base.h"
#if !defined(__CUDACC__)
#include <simt_barrier.h>
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

// ---- mbarriers: 8 bytes of shared memory, aligned to 8 (PTX ISA, "mbarrier"; sm_90 for what is here) ----
// An mbarrier counts, phase by phase. A phase ends when `count` arrivals have come and all bytes that were
// announced (expect_tx) have landed; then the next phase begins with the same count. Whoever waits names the
// phase by its parity: 0 for the first, third, ... phase, 1 for the second, fourth, ... A fresh barrier lets
// a wait for parity 1 pass at once, as if a phase before the first had ended: a producer's first wait for an
// empty stage. What a thread did before it arrived, and what copies wrote, is seen by whoever waited.

// Makes an mbarrier that each phase expects `count` arrivals (1 to 2^20 - 1). One thread does it;
// fence_mbarrier_init and a block barrier must come before anybody else, or a copy, uses it.
#if defined(__CUDACC__)
PTX_FN void mbarrier_init(uint32_t bar, uint32_t count) {
    PTX_ASM_SM90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
#else
PTX_FN void mbarrier_init(uint32_t bar, uint32_t count, SIMT_HERE) {
    simt::mbarrier_init(bar, count, file, line);
}
#endif

// Ends the life of an mbarrier that nobody uses any more, so that its memory can serve something else.
#if defined(__CUDACC__)
PTX_FN void mbarrier_inval(uint32_t bar) {
    PTX_ASM_SM90("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
#else
PTX_FN void mbarrier_inval(uint32_t bar, SIMT_HERE) { simt::mbarrier_inval(bar, file, line); }
#endif

// One arrival.
#if defined(__CUDACC__)
PTX_FN void mbarrier_arrive(uint32_t bar) {
    PTX_ASM_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
#else
PTX_FN void mbarrier_arrive(uint32_t bar, SIMT_HERE) { simt::mbarrier_arrive(bar, file, line); }
#endif

// Announces that `bytes` bytes will be copied and complete on the barrier's present phase.
#if defined(__CUDACC__)
PTX_FN void mbarrier_expect_tx(uint32_t bar, uint32_t bytes) {
    PTX_ASM_SM90("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
#else
PTX_FN void mbarrier_expect_tx(uint32_t bar, uint32_t bytes, SIMT_HERE) {
    simt::mbarrier_expect_tx(bar, bytes, file, line);
}
#endif

// Announces the bytes, then arrives: what a producer does before it issues a stage's loads.
#if defined(__CUDACC__)
PTX_FN void mbarrier_arrive_expect_tx(uint32_t bar, uint32_t bytes) {
    PTX_ASM_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
#else
PTX_FN void mbarrier_arrive_expect_tx(uint32_t bar, uint32_t bytes, SIMT_HERE) {
    simt::mbarrier_expect_tx(bar, bytes, file, line);
    simt::mbarrier_arrive(bar, file, line);
}
#endif

// Whether the phase with this parity has ended; looks once (but may wait a little).
#if defined(__CUDACC__)
PTX_FN bool mbarrier_test(uint32_t bar, uint32_t parity) {
    uint32_t ended = 0;
    PTX_ASM_SM90("{\n"
                 ".reg .pred ended;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, ended;\n"
                 "}\n"
                 : "=r"(ended)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return ended != 0;
}
#else
PTX_FN bool mbarrier_test(uint32_t bar, uint32_t parity, SIMT_HERE) {
    return simt::mbarrier_test(bar, parity, file, line);
}
#endif

// Waits until the phase with this parity has ended.
#if defined(__CUDACC__)
PTX_FN void mbarrier_wait(uint32_t bar, uint32_t parity) {
    while (!mbarrier_test(bar, parity)) {
    }
}
#else
PTX_FN void mbarrier_wait(uint32_t bar, uint32_t parity, SIMT_HERE) {
    simt::mbarrier_wait(bar, parity, file, line);
}
#endif

// One arrival that comes when all cp.async of this thread so far have landed. It counts as one of the
// barrier's `count` (.noinc): a barrier for 32 copying lanes is made with count 32. (PTX ISA,
// "cp.async.mbarrier.arrive"; sm_80)
#if defined(__CUDACC__)
PTX_FN void cp_async_mbarrier_arrive(uint32_t bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
#else
PTX_FN void cp_async_mbarrier_arrive(uint32_t bar, SIMT_HERE) {
    simt::cp_async_mbarrier_arrive(bar, file, line);
}
#endif

// ---- Fences (PTX ISA, "membar / fence"; sm_90) ----

// Makes the mbarriers that this thread has initialised known to copies (the async proxy).
#if defined(__CUDACC__)
PTX_FN void fence_mbarrier_init() { PTX_ASM_SM90("fence.mbarrier_init.release.cluster;" ::: "memory"); }
#else
PTX_FN void fence_mbarrier_init() { simt::fence_mbarrier_init(); }
#endif

// What this thread has written to shared memory by ordinary stores or cp.async becomes visible to TMA and
// wgmma, which read shared memory on another path (the async proxy). Each thread that wrote does it, before
// the barrier after which TMA or wgmma starts.
#if defined(__CUDACC__)
PTX_FN void fence_proxy_async() { PTX_ASM_SM90("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
PTX_FN void fence_proxy_async() { simt::fence_proxy_async(); }
#endif

// ---- Warp-specialised kernels ----

// True in one lane of a converged warp (PTX ISA, "elect.sync"; sm_90). All 32 lanes call it.
#if defined(__CUDACC__)
PTX_FN bool elect_one() {
    uint32_t mine = 0;
    PTX_ASM_SM90("{\n"
                 ".reg .pred mine;\n"
                 "elect.sync _|mine, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, mine;\n"
                 "}\n"
                 : "=r"(mine));
    return mine != 0;
}
#else
PTX_FN bool elect_one(SIMT_HERE) { return simt::elect_one(file, line); }
#endif

// Changes how many registers each thread of this warpgroup owns (PTX ISA, "setmaxnreg"; sm_90a): a multiple
// of 8 from 24 to 256. All warps of a warpgroup execute the same one. `inc` waits until other warpgroups have
// given back enough (`dec`). The kernel must be compiled for a fixed number of registers (launch bounds).
#if defined(__CUDACC__)
template <int registers> PTX_FN void setmaxnreg_inc() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}
template <int registers> PTX_FN void setmaxnreg_dec() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}
#else
template <int registers> PTX_FN void setmaxnreg_inc(SIMT_HERE) {
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0,
                  "a multiple of 8 from 24 to 256");
    simt::setmaxnreg(registers, true, file, line);
}
template <int registers> PTX_FN void setmaxnreg_dec(SIMT_HERE) {
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0,
                  "a multiple of 8 from 24 to 256");
    simt::setmaxnreg(registers, false, file, line);
}
#endif

#endif
