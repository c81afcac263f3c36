// wgmma.h - the matrix product of a warpgroup (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
// sm_90a only: on other architectures the functions trap, so that a .cu that has them compiles.
//
// Four consecutive warps, the first one's number a multiple of 4, compute D = A B or D = A B + D together: A
// is 64 x K, B is K x N, D is 64 x N in fp32. K is 32 bytes of elements: 16 of fp16 or bf16, 32 of e4m3. B is
// in shared memory, A there too (wgmma_ss) or in registers (wgmma_rs). The product runs beside the warps:
//
//     wgmma_pin(d);                       // d was written by ordinary code just now
//     wgmma_fence();                      // its registers, and those of A, are ready for the products
//     wgmma_ss<...>(d, a0, b0);           // any number of products, also into the same d
//     wgmma_ss<...>(d, a1, b1);
//     wgmma_commit();                     // makes them one group
//     ...                                 // d, A's registers, A's and B's memory must not be touched
//     wgmma_wait<0>();                    // until at most 0 committed groups are unfinished
//     wgmma_pin(d);
//
// Needed besides: whatever ordinary stores wrote of A or B must have passed fence_proxy_async() in the
// threads that wrote it and then a barrier; what TMA wrote, a wait for its mbarrier. d is one local array
// that is indexed with constants only and passed whole. All 128 threads execute every one of these functions.
//
// D: thread t has d[0] to d[N/2 - 1]. In each block of 8 columns a warp holds 16 rows like this (l its lane):
//
//                     columns 8j ..  0   1    2   3    4   5    6   7       l = 4 g + c
//     row 16 w + g                  [ c=0 ]  [ c=1 ]  [ c=2 ]  [ c=3 ]      d[4j]     d[4j + 1]
//     row 16 w + g + 8              [ c=0 ]  [ c=1 ]  [ c=2 ]  [ c=3 ]      d[4j + 2] d[4j + 3]
//
// A in registers: a row's K elements are 32 bytes; each register holds 4 of them, the first in its low byte.
//
//                     bytes  0-3   4-7   8-11  12-15     16-19 20-23 24-27 28-31
//     row 16 w + g          [c=0] [c=1] [c=2] [c=3] a[0] [c=0] [c=1] [c=2] [c=3] a[2]
//     row 16 w + g + 8      [c=0] [c=1] [c=2] [c=3] a[1] [c=0] [c=1] [c=2] [c=3] a[3]
//
// So for 16-bit types, 16 columns of a D (blocks 2i, 2i + 1), packed in pairs in order, are the A of the next
// product; for e4m3 they are not.
#ifndef PTX_WGMMA_H
#define PTX_WGMMA_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <type_traits>

#include "base.h"
#if !defined(__CUDACC__)
#include <simt_wgmma.h>
#endif

// ---- Operands in shared memory ----
// PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout" and "Matrix Descriptor Format".
//
// Memory is read in chunks of 16 bytes, and chunks lie in lines of S bytes: S = 128, 64 or 32, the swizzle,
// or 16 without one. Eight lines, one after the other, are an atom. What a line holds is the "major":
//
//       K-major: a line is a row, one m of A or       MN-major (16-bit types only): a line is one k,
//       one n of B, and holds k after k               and holds m after m of A, n after n of B
//
//                 k ->                                          m or n ->
//       m or n=0 [chunk][chunk] .. S bytes                k=0  [chunk][chunk] .. S bytes
//              1 [chunk][chunk] ..                          1  [chunk][chunk] ..
//              : 8 lines: an atom                           :  8 lines: an atom
//              8 [chunk][chunk] .. `stride` bytes on        8  [chunk][chunk] .. `stride` bytes on
//
// Swizzle: chunk c of line i lies in place c ^ (i % 8) of its line if S = 128, c ^ (i / 2 % 4) if S = 64,
// c ^ (i / 4 % 2) if S = 32. In terms of addresses: bits 4-6 (4-5, 4) are XORed with bits 7-9 (7-8, 7). So an
// atom starts at a multiple of 8 S bytes. TMA with the swizzle of the same name writes exactly this; a box
// whose inner dimension is S bytes, rows of them below each other, is a "panel".
//
// What the two offsets mean, in bytes, and what is added to the address for the next K elements:
//
//                        leading                       stride                       next K
//     K-major, S >= 32   not used (give 16)            from 8 rows to the next 8    + 32 until S bytes are
//                                                      (8 S in a panel)             used, then next panel
//     K-major, S = 16    from a chunk of a row         from 8 rows to the next 8    + 2 leading
//                        to the row's next
//     MN-major, S >= 32  from S bytes of a line to     from 8 k to the next 8       + 2 stride
//                        its next S: panel to panel    (8 S in a panel)
//     MN-major, S = 16   from 8 k to the next 8        from 8 m or n to the next 8  + 2 leading
//
// Example: 128 keys of a [key][64] fp16 panel, S = 128. As the K of Q K^T it is B, N = 128 keys, K-major:
// stride 1024, four steps of 32 bytes. As the V of P V it is B, N = 64, MN-major: stride 1024, and each step
// of 16 keys is 2048 bytes; a head of 128 has two panels, N = 128 and leading is the size of one.
//
// The address must be a multiple of 16, or of 8 S for the first step; it is below 256 KB. Bits of the result:
// 0-13 address / 16, 16-29 leading / 16, 32-45 stride / 16, 49-51 base offset (0: atoms start at multiples of
// 8 S), 62-63 swizzle (0 none, 1 for 128 bytes, 2 for 64, 3 for 32). An advance of x bytes is + x / 16.
PTX_FN uint64_t wgmma_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes,
#if defined(__CUDACC__)
                                 int swizzle_bytes) {
#else
                                 int swizzle_bytes, SIMT_HERE) {
    simt::wgmma_check_descriptor(address, leading_bytes, stride_bytes, swizzle_bytes, file, line);
#endif
    uint64_t swizzle = swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : swizzle_bytes == 32 ? 3 : 0;
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)((leading_bytes & 0x3ffff) >> 4) << 16 |
           (uint64_t)((stride_bytes & 0x3ffff) >> 4) << 32 | swizzle << 62;
}

#if defined(__CUDACC__)

// ---- On the GPU ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA_ASM(...) asm volatile(__VA_ARGS__)
#else
#define WGMMA_ASM(...) __trap()
#endif

// wgmma.fence: orders earlier accesses to the registers of d and of A before the products that follow. Needed
// before the first product and after every access to such registers; not between products into the same d.
PTX_FN void wgmma_fence() { WGMMA_ASM("wgmma.fence.sync.aligned;" ::: "memory"); }

// wgmma.commit_group: all products since the last commit become one group.
PTX_FN void wgmma_commit() { WGMMA_ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// wgmma.wait_group: waits until at most `pending` groups, the last committed, are unfinished. Only then may
// the other groups' d be read and their A and B be overwritten.
template <int pending> PTX_FN void wgmma_wait() {
    WGMMA_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Keeps the compiler from moving what is done with d across this place: what follows a wait to before it, or
// what comes before a fence to after it (ptxas then adds a fence of its own, C7519). No instruction.
template <int N> PTX_FN void wgmma_pin(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// The same for A's registers: they keep what they hold until here, where a wait has come after their product.
template <int N> PTX_FN void wgmma_pin(uint32_t (&a)[N][4]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

// The registers of d as the instruction names them, and as operands of asm: by their number, N / 2.
#define WGMMA_R4 "%0, %1, %2, %3"
#define WGMMA_R8 WGMMA_R4 ", %4, %5, %6, %7"
#define WGMMA_R16 WGMMA_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_R24 WGMMA_R16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_R32 WGMMA_R24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_R40 WGMMA_R32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_R48 WGMMA_R40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_R56 WGMMA_R48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_R64 WGMMA_R56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_R72 WGMMA_R64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_R80 WGMMA_R72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_R88 WGMMA_R80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_R96 WGMMA_R88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_R104 WGMMA_R96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define WGMMA_R112 WGMMA_R104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_R120 WGMMA_R112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define WGMMA_R128 WGMMA_R120 ", %120, %121, %122, %123, %124, %125, %126, %127"

#define WGMMA_D4_FROM(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_D8_FROM(i) WGMMA_D4_FROM(i), WGMMA_D4_FROM(i + 4)
#define WGMMA_D4 WGMMA_D4_FROM(0)
#define WGMMA_D8 WGMMA_D8_FROM(0)
#define WGMMA_D16 WGMMA_D8, WGMMA_D8_FROM(8)
#define WGMMA_D24 WGMMA_D16, WGMMA_D8_FROM(16)
#define WGMMA_D32 WGMMA_D24, WGMMA_D8_FROM(24)
#define WGMMA_D40 WGMMA_D32, WGMMA_D8_FROM(32)
#define WGMMA_D48 WGMMA_D40, WGMMA_D8_FROM(40)
#define WGMMA_D56 WGMMA_D48, WGMMA_D8_FROM(48)
#define WGMMA_D64 WGMMA_D56, WGMMA_D8_FROM(56)
#define WGMMA_D72 WGMMA_D64, WGMMA_D8_FROM(64)
#define WGMMA_D80 WGMMA_D72, WGMMA_D8_FROM(72)
#define WGMMA_D88 WGMMA_D80, WGMMA_D8_FROM(80)
#define WGMMA_D96 WGMMA_D88, WGMMA_D8_FROM(88)
#define WGMMA_D104 WGMMA_D96, WGMMA_D8_FROM(96)
#define WGMMA_D112 WGMMA_D104, WGMMA_D8_FROM(104)
#define WGMMA_D120 WGMMA_D112, WGMMA_D8_FROM(112)
#define WGMMA_D128 WGMMA_D120, WGMMA_D8_FROM(120)

// One instruction if T is `type`. In the text after d: A, B, scale-d, 1, 1 (signs of A and B) and, for 16-bit
// types, whether A (in shared memory) and B are MN-major.
#define WGMMA_IF(type, SHAPE, TYPES, COUNT, TEXT, ...)                                                       \
    if constexpr (std::is_same_v<T, type>)                                                                   \
    WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n" SHAPE ".f32." TYPES " {" WGMMA_R##COUNT "}, " TEXT ";"     \
              : WGMMA_D##COUNT                                                                               \
              : __VA_ARGS__)

// The same with a scale-d that is known only when the kernel runs: operand ADDS of asm.
#define WGMMA_ADDING_IF(type, SHAPE, TYPES, COUNT, ADDS, TEXT, ...)                                          \
    if constexpr (std::is_same_v<T, type>)                                                                   \
    WGMMA_ASM("{ .reg .pred adds; setp.ne.b32 adds, %" #ADDS ", 0; wgmma.mma_async.sync.aligned.m64n" SHAPE  \
              ".f32." TYPES " {" WGMMA_R##COUNT "}, " TEXT "; }"                                             \
              : WGMMA_D##COUNT                                                                               \
              : __VA_ARGS__)

// All products with d of COUNT = N / 2 registers, overloaded by the length of d. o0 to o6 are the numbers of
// the operands after d: COUNT, COUNT + 1, ...
#define WGMMA_N(N, COUNT, o0, o1, o2, o3, o4, o5, o6)                                                        \
    template <class T, int scale_d, int a_mn, int b_mn>                                                      \
    PTX_FN void wgmma_ss_n(float(&d)[COUNT], uint64_t a, uint64_t b) {                                       \
        WGMMA_IF(__half, #N "k16", "f16.f16", COUNT, "%" #o0 ", %" #o1 ", %" #o2 ", 1, 1, %" #o3 ", %" #o4,  \
                 "l"(a), "l"(b), "n"(scale_d), "n"(a_mn), "n"(b_mn));                                        \
        WGMMA_IF(__nv_bfloat16, #N "k16", "bf16.bf16", COUNT,                                                \
                 "%" #o0 ", %" #o1 ", %" #o2 ", 1, 1, %" #o3 ", %" #o4, "l"(a), "l"(b), "n"(scale_d),        \
                 "n"(a_mn), "n"(b_mn));                                                                      \
        WGMMA_IF(__nv_fp8_e4m3, #N "k32", "e4m3.e4m3", COUNT, "%" #o0 ", %" #o1 ", %" #o2 ", 1, 1", "l"(a),  \
                 "l"(b), "n"(scale_d));                                                                      \
    }                                                                                                        \
    template <class T, int scale_d, int b_mn>                                                                \
    PTX_FN void wgmma_rs_n(float(&d)[COUNT], const uint32_t(&a)[4], uint64_t b) {                            \
        WGMMA_IF(__half, #N "k16", "f16.f16", COUNT,                                                         \
                 "{%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", %" #o5 ", 1, 1, %" #o6, "r"(a[0]),     \
                 "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(scale_d), "n"(b_mn));                          \
        WGMMA_IF(__nv_bfloat16, #N "k16", "bf16.bf16", COUNT,                                                \
                 "{%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", %" #o5 ", 1, 1, %" #o6, "r"(a[0]),     \
                 "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(scale_d), "n"(b_mn));                          \
        WGMMA_IF(__nv_fp8_e4m3, #N "k32", "e4m3.e4m3", COUNT,                                                \
                 "{%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", %" #o5 ", 1, 1", "r"(a[0]), "r"(a[1]), \
                 "r"(a[2]), "r"(a[3]), "l"(b), "n"(scale_d));                                                \
    }                                                                                                        \
    template <class T, int b_mn>                                                                             \
    PTX_FN void wgmma_rs_adding_n(float(&d)[COUNT], const uint32_t(&a)[4], uint64_t b, int adds) {           \
        WGMMA_ADDING_IF(__half, #N "k16", "f16.f16", COUNT, o5,                                              \
                        "{%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", adds, 1, 1, %" #o6, "r"(a[0]),  \
                        "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds), "n"(b_mn));                      \
        WGMMA_ADDING_IF(__nv_bfloat16, #N "k16", "bf16.bf16", COUNT, o5,                                     \
                        "{%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", adds, 1, 1, %" #o6, "r"(a[0]),  \
                        "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds), "n"(b_mn));                      \
        WGMMA_ADDING_IF(__nv_fp8_e4m3, #N "k32", "e4m3.e4m3", COUNT, o5,                                     \
                        "{%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", adds, 1, 1", "r"(a[0]),         \
                        "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));                                 \
    }
WGMMA_N(8, 4, 4, 5, 6, 7, 8, 9, 10)
WGMMA_N(16, 8, 8, 9, 10, 11, 12, 13, 14)
WGMMA_N(32, 16, 16, 17, 18, 19, 20, 21, 22)
WGMMA_N(48, 24, 24, 25, 26, 27, 28, 29, 30)
WGMMA_N(64, 32, 32, 33, 34, 35, 36, 37, 38)
WGMMA_N(80, 40, 40, 41, 42, 43, 44, 45, 46)
WGMMA_N(96, 48, 48, 49, 50, 51, 52, 53, 54)
WGMMA_N(112, 56, 56, 57, 58, 59, 60, 61, 62)
WGMMA_N(128, 64, 64, 65, 66, 67, 68, 69, 70)
WGMMA_N(144, 72, 72, 73, 74, 75, 76, 77, 78)
WGMMA_N(160, 80, 80, 81, 82, 83, 84, 85, 86)
WGMMA_N(176, 88, 88, 89, 90, 91, 92, 93, 94)
WGMMA_N(192, 96, 96, 97, 98, 99, 100, 101, 102)
WGMMA_N(208, 104, 104, 105, 106, 107, 108, 109, 110)
WGMMA_N(224, 112, 112, 113, 114, 115, 116, 117, 118)
WGMMA_N(240, 120, 120, 121, 122, 123, 124, 125, 126)
WGMMA_N(256, 128, 128, 129, 130, 131, 132, 133, 134)
#undef WGMMA_N
#undef WGMMA_IF
#undef WGMMA_ADDING_IF

#else

// ---- On the CPU: the same in common/simt ----

PTX_FN void wgmma_fence(SIMT_HERE) { simt::wgmma_fence(file, line); }
PTX_FN void wgmma_commit(SIMT_HERE) { simt::wgmma_commit(file, line); }
template <int pending> PTX_FN void wgmma_wait(SIMT_HERE) { simt::wgmma_wait(pending, file, line); }
template <int N> PTX_FN void wgmma_pin(float (&)[N]) {}
template <int N> PTX_FN void wgmma_pin(uint32_t (&)[N][4]) {}

#endif

// ---- The products: wgmma.mma_async ----
// T is __half, __nv_bfloat16 or __nv_fp8_e4m3. scale_d 0: D = A B, whatever d held; 1: D = A B + D.
// Precision: fp32 sums in an order and with a rounding of the hardware's own; of e4m3 only 14 bits of a sum
// are kept, and of each term no more than reaches as far down as these (common/e4m3_sum.h).

template <class T, int N, int scale_d, bool a_mn_major, bool b_mn_major>
constexpr bool wgmma_exists = (std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16> ||
                               (std::is_same_v<T, __nv_fp8_e4m3> && !a_mn_major && !b_mn_major)) &&
                              (N == 8 || (N >= 16 && N <= 256 && N % 16 == 0)) &&
                              (scale_d == 0 || scale_d == 1);
#define WGMMA_EXISTS                                                                                         \
    "wgmma: T is __half, __nv_bfloat16 or (K-major only) __nv_fp8_e4m3; N is 8 or a multiple of 16 up to "   \
    "256; scale_d is 0 or 1"

#if defined(__CUDACC__)

// A and B in shared memory, which their descriptors describe.
template <class T, int N, int scale_d, bool a_mn_major, bool b_mn_major>
PTX_FN void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b) {
    static_assert(wgmma_exists<T, N, scale_d, a_mn_major, b_mn_major>, WGMMA_EXISTS);
    wgmma_ss_n<T, scale_d, a_mn_major, b_mn_major>(d, a, b);
}

// A in registers: this thread's part of it.
template <class T, int N, int scale_d, bool b_mn_major>
PTX_FN void wgmma_rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b) {
    static_assert(wgmma_exists<T, N, scale_d, false, b_mn_major>, WGMMA_EXISTS);
    wgmma_rs_n<T, scale_d, b_mn_major>(d, a, b);
}

// The same with scale_d 1 if `adds`, else 0; the same for all threads.
template <class T, int N, bool b_mn_major>
PTX_FN void wgmma_rs_adding(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool adds) {
    static_assert(wgmma_exists<T, N, 0, false, b_mn_major>, WGMMA_EXISTS);
    wgmma_rs_adding_n<T, b_mn_major>(d, a, b, adds);
}

#else

template <class T>
constexpr simt::WgmmaType wgmma_type = std::is_same_v<T, __half> ? simt::WgmmaType::fp16
                                       : std::is_same_v<T, __nv_bfloat16> ? simt::WgmmaType::bf16
                                                                          : simt::WgmmaType::e4m3;

template <class T, int N, int scale_d, bool a_mn_major, bool b_mn_major>
PTX_FN void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b, SIMT_HERE) {
    static_assert(wgmma_exists<T, N, scale_d, a_mn_major, b_mn_major>, WGMMA_EXISTS);
    simt::wgmma_issue({wgmma_type<T>, N, 32 / (int)sizeof(T), false, a_mn_major, b_mn_major, scale_d}, d,
                      nullptr, a, b, file, line);
}

template <class T, int N, int scale_d, bool b_mn_major>
PTX_FN void wgmma_rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, SIMT_HERE) {
    static_assert(wgmma_exists<T, N, scale_d, false, b_mn_major>, WGMMA_EXISTS);
    simt::wgmma_issue({wgmma_type<T>, N, 32 / (int)sizeof(T), true, false, b_mn_major, scale_d}, d, a, 0, b,
                      file, line);
}

template <class T, int N, bool b_mn_major>
PTX_FN void wgmma_rs_adding(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool adds, SIMT_HERE) {
    static_assert(wgmma_exists<T, N, 0, false, b_mn_major>, WGMMA_EXISTS);
    simt::wgmma_issue({wgmma_type<T>, N, 32 / (int)sizeof(T), true, false, b_mn_major, adds}, d, a, 0, b,
                      file, line);
}

#endif

#endif
