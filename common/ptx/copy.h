// copy.h - copies between global and shared memory that run beside the threads: cp.async (sm_80), and from
// sm_90 on TMA, which moves boxes of a tensor, and bulk copies, which move plain bytes.
//
//                      completes           who waits                     moved by
//     cp_async         commit, wait        the thread itself, then a     each thread its own bytes
//                                          barrier for the others
//     tma_load,        an mbarrier's       whoever waits for the phase   one thread for all
//     bulk_load        bytes
//     tma_store, ...   bulk_commit, wait   the thread itself             one thread for all
//
// TMA and the bulk copies reach shared memory by a path of their own, the async proxy (PTX ISA, "Asynchronous
// Operations", "Proxies"). What ordinary stores or cp_async wrote there is visible to them after
// fence_proxy_async by each thread that wrote, then a barrier. What they wrote needs no fence: waiting for it
// is enough, for ordinary loads and for wgmma. cp_async is an ordinary access that comes later: what it wrote
// needs the fence before wgmma or a store of these kinds reads it.
#ifndef PTX_COPY_H
#define PTX_COPY_H

#include <cuda.h>

#include "base.h"
#if !defined(__CUDACC__)
#include <simt_copy.h>
#endif

// ---- cp.async: 4, 8 or 16 bytes for each thread (PTX ISA, "cp.async"; sm_80) ----
// `to` and `from` are aligned to the size. The first valid_bytes are copied and the rest is filled with
// zeros: 0 at a row past the end, and then `from` is not read (but give it an address that exists). Neither a
// barrier nor __syncthreads waits for the bytes: commit and wait do, or cp_async_mbarrier_arrive (barrier.h).
// After the wait they are visible to the thread that copied, after a barrier that follows to the others.
#if defined(__CUDACC__)
PTX_FN void cp_async_4(uint32_t to, const void *from, int valid_bytes = 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid_bytes)
                 : "memory");
}
#else
PTX_FN void cp_async_4(uint32_t to, const void *from, int valid_bytes = 4, SIMT_HERE) {
    simt::cp_async(to, from, 4, valid_bytes, file, line);
}
#endif

#if defined(__CUDACC__)
PTX_FN void cp_async_8(uint32_t to, const void *from, int valid_bytes = 8) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(valid_bytes)
                 : "memory");
}
#else
PTX_FN void cp_async_8(uint32_t to, const void *from, int valid_bytes = 8, SIMT_HERE) {
    simt::cp_async(to, from, 8, valid_bytes, file, line);
}
#endif

// This one goes past L1 (.cg): a tile is read once.
#if defined(__CUDACC__)
PTX_FN void cp_async_16(uint32_t to, const void *from, int valid_bytes = 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid_bytes)
                 : "memory");
}
#else
PTX_FN void cp_async_16(uint32_t to, const void *from, int valid_bytes = 16, SIMT_HERE) {
    simt::cp_async(to, from, 16, valid_bytes, file, line);
}
#endif

// The same for what nobody will read again: it is the first that makes room in the L2 cache. (The policy is
// what createpolicy.fractional.L2::evict_first makes for all addresses.)
#if defined(__CUDACC__)
PTX_FN void cp_async_16_once(uint32_t to, const void *from, int valid_bytes = 16) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to),
                 "l"(from), "r"(valid_bytes), "l"(0x12F0000000000000ull)
                 : "memory");
}
#else
PTX_FN void cp_async_16_once(uint32_t to, const void *from, int valid_bytes = 16, SIMT_HERE) {
    simt::cp_async(to, from, 16, valid_bytes, file, line);
}
#endif

// Makes one group of all cp_async of this thread since its last commit; none make an empty group.
#if defined(__CUDACC__)
PTX_FN void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
#else
PTX_FN void cp_async_commit(SIMT_HERE) { simt::cp_async_commit(file, line); }
#endif

// Waits until at most `pending` of this thread's groups are still on their way, the newest ones: with S
// stages ahead, cp_async_wait<S - 1> waits for the oldest.
#if defined(__CUDACC__)
template <int pending> PTX_FN void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
#else
template <int pending> PTX_FN void cp_async_wait(SIMT_HERE) { simt::cp_async_wait(pending, file, line); }
#endif

// Waits for all cp_async of this thread, committed or not.
#if defined(__CUDACC__)
PTX_FN void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
PTX_FN void cp_async_wait_all(SIMT_HERE) { simt::cp_async_wait_all(file, line); }
#endif

// ---- What L2 keeps ----
// Last argument of a tma_load: whether these lines leave L2 as any other, first, or last. FIRST and LAST are
// what createpolicy.fractional makes for all lines (PTX ISA, "createpolicy"; the numbers are opaque there):
// bits 57-58 are the priority, 52-55 the share of lines in sixteenths, less one (libcu++,
// cuda/std/detail/__access_property). CUTLASS has the three in include/cute/arch/copy_sm90_desc.hpp. The CPU
// ignores them.
constexpr uint64_t L2_EVICT_NORMAL = 0x1000000000000000;
constexpr uint64_t L2_EVICT_FIRST = 0x12F0000000000000;
constexpr uint64_t L2_EVICT_LAST = 0x14F0000000000000;

// ---- TMA: boxes of a tensor (PTX ISA, "cp.async.bulk.tensor"; sm_90) ----
// `map` describes tensor, box and swizzle (common/tensor_map.h makes it): a kernel parameter
// `const __grid_constant__ CUtensorMap`, or global memory. x0, x1, ... are the coordinates of the box's first
// element, counted in elements, the contiguous dimension first; any box may reach out of the tensor, or lie
// outside of it. x0 is a multiple of 16 bytes' worth of elements, and only loads may have negative
// coordinates (the PTX ISA is silent; an H200 stops with "illegal instruction").
//
// In shared memory the box starts at a multiple of 128 bytes (1024 is customary with the 128-byte swizzle,
// see below), lies row after row, and has all its bytes, whatever lies outside.
//
// The swizzle moves 16-byte chunks within 128-byte lines of shared memory, by the number of the line, so that
// the same chunk of eight rows lies in different banks:
//
//     128-byte swizzle: address bits 4-6 ^= bits 7-9        line 0 | 0 1 2 3 4 5 6 7   which chunk lies where
//      64-byte swizzle: address bits 4-5 ^= bits 7-8        line 1 | 1 0 3 2 5 4 7 6   (128-byte swizzle)
//      32-byte swizzle: address bit 4    ^= bit 7           line 2 | 2 3 0 1 6 7 4 5   ...
//
// These are the bits of the address, not of the distance from the box's start: only a box at a multiple of
// 1024 (512, 256) bytes has the pattern from its first row on.

// Brings the descriptor near before the first load: hides its latency, changes nothing.
#if defined(__CUDACC__)
PTX_FN void tma_prefetch_map(const CUtensorMap *map) {
    PTX_ASM_SM90("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
#else
PTX_FN void tma_prefetch_map(const CUtensorMap *) {}
#endif

// Global to shared memory; elements outside of the tensor become zeros. The bytes of the whole box, those
// zeros too, complete on the mbarrier at `bar`, whose phase was told of them (mbarrier_arrive_expect_tx); a
// wait for the phase then sees them. One thread issues it. Before it, everybody must be done with the old
// content: readers through a barrier, writers through fence_proxy_async and a barrier.
#if defined(__CUDACC__)
PTX_FN void tma_load_2d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1) {
    PTX_ASM_SM90("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x0), "r"(x1)
                 : "memory");
}
PTX_FN void tma_load_2d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, uint64_t policy) {
    PTX_ASM_SM90("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to),
                 "l"(map), "r"(bar), "l"(policy), "r"(x0), "r"(x1)
                 : "memory");
}
PTX_FN void tma_load_3d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2) {
    PTX_ASM_SM90("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x0), "r"(x1), "r"(x2)
                 : "memory");
}
PTX_FN void tma_load_3d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2,
                        uint64_t policy) {
    PTX_ASM_SM90("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(to),
                 "l"(map), "r"(bar), "l"(policy), "r"(x0), "r"(x1), "r"(x2)
                 : "memory");
}
PTX_FN void tma_load_4d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2, int x3) {
    PTX_ASM_SM90("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
                 : "memory");
}
PTX_FN void tma_load_4d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2, int x3,
                        uint64_t policy) {
    PTX_ASM_SM90("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(to),
                 "l"(map), "r"(bar), "l"(policy), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
                 : "memory");
}
PTX_FN void tma_load_5d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2, int x3,
                        int x4) {
    PTX_ASM_SM90("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
                 : "memory");
}
PTX_FN void tma_load_5d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2, int x3,
                        int x4, uint64_t policy) {
    PTX_ASM_SM90("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(to),
                 "l"(map), "r"(bar), "l"(policy), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
                 : "memory");
}
#else
PTX_FN void tma_load_2d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, SIMT_HERE) {
    const int coordinates[] = {x0, x1};
    simt::tma_load(to, map, bar, 2, coordinates, file, line);
}
PTX_FN void tma_load_2d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, uint64_t,
                        SIMT_HERE) {
    tma_load_2d(to, map, bar, x0, x1, file, line);
}
PTX_FN void tma_load_3d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2,
                        SIMT_HERE) {
    const int coordinates[] = {x0, x1, x2};
    simt::tma_load(to, map, bar, 3, coordinates, file, line);
}
PTX_FN void tma_load_3d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2, uint64_t,
                        SIMT_HERE) {
    tma_load_3d(to, map, bar, x0, x1, x2, file, line);
}
PTX_FN void tma_load_4d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2, int x3,
                        SIMT_HERE) {
    const int coordinates[] = {x0, x1, x2, x3};
    simt::tma_load(to, map, bar, 4, coordinates, file, line);
}
PTX_FN void tma_load_4d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2, int x3,
                        uint64_t, SIMT_HERE) {
    tma_load_4d(to, map, bar, x0, x1, x2, x3, file, line);
}
PTX_FN void tma_load_5d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2, int x3,
                        int x4, SIMT_HERE) {
    const int coordinates[] = {x0, x1, x2, x3, x4};
    simt::tma_load(to, map, bar, 5, coordinates, file, line);
}
PTX_FN void tma_load_5d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x0, int x1, int x2, int x3,
                        int x4, uint64_t, SIMT_HERE) {
    tma_load_5d(to, map, bar, x0, x1, x2, x3, x4, file, line);
}
#endif

// Shared to global memory; what lies outside of the tensor is not written, but whole chunks of 16 bytes are:
// if a row ends within one, so is the memory behind the row. No coordinate may be negative. Whoever wrote the
// box does fence_proxy_async, then comes a barrier, then one thread stores, commits and, before the box is
// written anew, waits: bulk_commit, bulk_wait_read.
#if defined(__CUDACC__)
PTX_FN void tma_store_2d(const CUtensorMap *map, uint32_t from, int x0, int x1) {
    PTX_ASM_SM90("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(from), "r"(x0), "r"(x1)
                 : "memory");
}
PTX_FN void tma_store_3d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2) {
    PTX_ASM_SM90("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(from), "r"(x0), "r"(x1), "r"(x2)
                 : "memory");
}
PTX_FN void tma_store_4d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, int x3) {
    PTX_ASM_SM90(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
        "r"(from), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
        : "memory");
}
PTX_FN void tma_store_5d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, int x3, int x4) {
    PTX_ASM_SM90(
        "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
        "r"(from), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
        : "memory");
}
#else
PTX_FN void tma_store_2d(const CUtensorMap *map, uint32_t from, int x0, int x1, SIMT_HERE) {
    const int coordinates[] = {x0, x1};
    simt::tma_store(map, from, 2, coordinates, false, file, line);
}
PTX_FN void tma_store_3d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, SIMT_HERE) {
    const int coordinates[] = {x0, x1, x2};
    simt::tma_store(map, from, 3, coordinates, false, file, line);
}
PTX_FN void tma_store_4d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, int x3, SIMT_HERE) {
    const int coordinates[] = {x0, x1, x2, x3};
    simt::tma_store(map, from, 4, coordinates, false, file, line);
}
PTX_FN void tma_store_5d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, int x3, int x4,
                         SIMT_HERE) {
    const int coordinates[] = {x0, x1, x2, x3, x4};
    simt::tma_store(map, from, 5, coordinates, false, file, line);
}
#endif

// The same, but adds to what is in global memory, each element in one step that nobody comes between, in the
// map's type (PTX ISA, "cp.reduce.async.bulk.tensor"). In which order several blocks add is open.
#if defined(__CUDACC__)
PTX_FN void tma_reduce_add_2d(const CUtensorMap *map, uint32_t from, int x0, int x1) {
    PTX_ASM_SM90(
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
        "r"(from), "r"(x0), "r"(x1)
        : "memory");
}
PTX_FN void tma_reduce_add_3d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2) {
    PTX_ASM_SM90(
        "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
            map),
        "r"(from), "r"(x0), "r"(x1), "r"(x2)
        : "memory");
}
PTX_FN void tma_reduce_add_4d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, int x3) {
    PTX_ASM_SM90(
        "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::
            "l"(map),
        "r"(from), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
        : "memory");
}
PTX_FN void tma_reduce_add_5d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, int x3, int x4) {
    PTX_ASM_SM90("cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4, %5, "
                 "%6}], [%1];" ::"l"(map),
                 "r"(from), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
                 : "memory");
}
#else
PTX_FN void tma_reduce_add_2d(const CUtensorMap *map, uint32_t from, int x0, int x1, SIMT_HERE) {
    const int coordinates[] = {x0, x1};
    simt::tma_store(map, from, 2, coordinates, true, file, line);
}
PTX_FN void tma_reduce_add_3d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, SIMT_HERE) {
    const int coordinates[] = {x0, x1, x2};
    simt::tma_store(map, from, 3, coordinates, true, file, line);
}
PTX_FN void tma_reduce_add_4d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, int x3,
                              SIMT_HERE) {
    const int coordinates[] = {x0, x1, x2, x3};
    simt::tma_store(map, from, 4, coordinates, true, file, line);
}
PTX_FN void tma_reduce_add_5d(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, int x3, int x4,
                              SIMT_HERE) {
    const int coordinates[] = {x0, x1, x2, x3, x4};
    simt::tma_store(map, from, 5, coordinates, true, file, line);
}
#endif

// ---- Bulk copies: plain bytes (PTX ISA, "cp.async.bulk" and "cp.reduce.async.bulk"; sm_90) ----
// Both addresses and the number of bytes are multiples of 16. Visibility and waiting as for TMA.

// Global to shared memory; completes `bytes` on the mbarrier at `bar`.
#if defined(__CUDACC__)
PTX_FN void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t bar) {
    PTX_ASM_SM90(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(bar)
        : "memory");
}
#else
PTX_FN void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t bar, SIMT_HERE) {
    simt::bulk_load(to, from, bytes, bar, file, line);
}
#endif

// Shared to global memory; completes through bulk_commit and a wait.
#if defined(__CUDACC__)
PTX_FN void bulk_store(void *to, uint32_t from, uint32_t bytes) {
    PTX_ASM_SM90("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}
#else
PTX_FN void bulk_store(void *to, uint32_t from, uint32_t bytes, SIMT_HERE) {
    simt::bulk_store(to, from, bytes, file, line);
}
#endif

// Adds bytes / 4 floats to those in global memory, each in one step that nobody comes between.
#if defined(__CUDACC__)
PTX_FN void bulk_reduce_add_f32(float *to, uint32_t from, uint32_t bytes) {
    PTX_ASM_SM90("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}
#else
PTX_FN void bulk_reduce_add_f32(float *to, uint32_t from, uint32_t bytes, SIMT_HERE) {
    simt::bulk_reduce_add_f32(to, from, bytes, file, line);
}
#endif

// Asks for bytes of global memory to come to the L2 cache, and waits for nothing: a hint, of which before
// sm_90 nothing becomes. As nothing is read, the bytes may be such as a kernel before still writes: what is
// in the cache is written there.
#if defined(__CUDACC__)
PTX_FN void bulk_prefetch_l2(const void *from, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}
#else
PTX_FN void bulk_prefetch_l2(const void *from, uint32_t bytes, SIMT_HERE) {
    simt::bulk_prefetch_l2(from, bytes, file, line);
}
#endif

// Makes one group of all tma_store, tma_reduce_add, bulk_store and bulk_reduce_add of this thread since its
// last commit. (Loads complete on their mbarrier and belong to no group.)
#if defined(__CUDACC__)
PTX_FN void bulk_commit() { PTX_ASM_SM90("cp.async.bulk.commit_group;" ::: "memory"); }
#else
PTX_FN void bulk_commit(SIMT_HERE) { simt::bulk_commit(file, line); }
#endif

// Waits until at most `pending` of this thread's groups, the newest, are still on their way. Then the others'
// writes to global memory are done and visible to this thread (to others through the end of the kernel, or a
// fence and a flag).
#if defined(__CUDACC__)
template <int pending> PTX_FN void bulk_wait() {
    PTX_ASM_SM90("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}
#else
template <int pending> PTX_FN void bulk_wait(SIMT_HERE) { simt::bulk_wait(pending, false, file, line); }
#endif

// The same, but only until they have read shared memory, which then may be written again. Also before a block
// ends: its shared memory lives no longer than it does.
#if defined(__CUDACC__)
template <int pending> PTX_FN void bulk_wait_read() {
    PTX_ASM_SM90("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
#else
template <int pending> PTX_FN void bulk_wait_read(SIMT_HERE) { simt::bulk_wait(pending, true, file, line); }
#endif

#endif
