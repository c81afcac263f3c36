// time.h - what a kernel can know of time and place: clocks, the multiprocessor that it runs on; and a store
// that takes no branch, with which trace.h keeps what it read.
#ifndef PTX_TIME_H
#define PTX_TIME_H

#include "base.h"

// Cycles of this multiprocessor's own clock (PTX ISA, "Special Registers: %clock64"). Each multiprocessor
// counts for itself, and at a frequency that changes under load: differences within one block are to the
// cycle, two multiprocessors cannot be compared. ptxas may move arithmetic across the reading, but not memory
// accesses and no other asm volatile.
//
// On the CPU, where the threads of a block take turns, each has a time of its own: the basic blocks of code
// (pieces without a jump) that it has executed, and where it waits, the time of the last one that it waits
// for. Copies and wgmma take what simt/thread_time.h says. It stands still unless launches are traced
// (simt_set_tracing).
#if defined(__CUDACC__)
PTX_FN uint64_t sm_clock() {
    uint64_t cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    return cycles;
}
#else
PTX_FN uint64_t sm_clock() { return simt::thread_time(); }
#endif

// Its low 32 bits, in one register (PTX ISA, "Special Registers: %clock"): they come round after two seconds.
#if defined(__CUDACC__)
PTX_FN uint32_t sm_clock_low() {
    uint32_t cycles;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycles)::"memory");
    return cycles;
}
#else
PTX_FN uint32_t sm_clock_low() { return (uint32_t)simt::thread_time(); }
#endif

// Nanoseconds, the same for the whole GPU, but in steps of 32 ns to about a microsecond (PTX ISA, "Special
// Registers: %globaltimer"). The CPU's own clock.
#if defined(__CUDACC__)
PTX_FN uint64_t global_timer() {
    uint64_t nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds)::"memory");
    return nanoseconds;
}
#else
PTX_FN uint64_t global_timer() { return simt::global_timer(); }
#endif

// The number of the multiprocessor (PTX ISA, "Special Registers: %smid"). The CPU deals blocks to its 132 one
// after the other.
#if defined(__CUDACC__)
PTX_FN uint32_t sm_id() {
    uint32_t number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}
#else
PTX_FN uint32_t sm_id() { return simt::multiprocessor(); }
#endif

// *to = {first, second} if `wanted`, as one predicated instruction (PTX ISA, "Predicated Execution"; "st").
// An if statement may become a branch, and a branch between two wgmma of a batch makes ptxas serialise them
// all. `to` is in global memory, aligned to 8 bytes.
#if defined(__CUDACC__)
PTX_FN void store_if(bool wanted, uint2 *to, uint32_t first, uint32_t second) {
    asm volatile("{\n"
                 ".reg .pred wanted;\n"
                 "setp.ne.u32 wanted, %0, 0;\n"
                 "@wanted st.global.v2.u32 [%1], {%2, %3};\n"
                 "}\n" ::"r"((uint32_t)wanted),
                 "l"(to), "r"(first), "r"(second)
                 : "memory");
}
#else
// Not PTX_FN: the store is one of the kernel's, checked as any other.
__forceinline__ void store_if(bool wanted, uint2 *to, uint32_t first, uint32_t second) {
    if (wanted) *to = make_uint2(first, second);
}
#endif

#endif
