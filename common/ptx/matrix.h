// matrix.h - a warp's matrices: from shared memory into registers (ldmatrix), back (stmatrix), and multiplied
// by a tensor core (mma.sync).
//
// All 32 lanes of a warp execute each of these together, at the same place, whatever the instruction does
// with their values. A matrix is spread over the lanes: what a lane holds of it, its fragment, is 32-bit
// registers of two 16-bit elements each, the one with the lower index in the low half.
#ifndef PTX_MATRIX_H
#define PTX_MATRIX_H

#include "base.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>
#if !defined(__CUDACC__)
#include <simt_matrix.h>
#endif

// ---- ldmatrix: one, two or four 8 x 8 matrices of 16-bit elements from shared memory ----
// PTX ISA, "Warp-level matrix load instruction: ldmatrix"; sm_75, and sm_80 for what is said of unused lanes.
//
// Lane 8 i + j gives the address of row j of matrix i: 8 elements side by side, the address a multiple of 16.
// The rows may lie anywhere. So _x1 uses the addresses of lanes 0 to 7, _x2 those of lanes 0 to 15, _x4 all;
// the other lanes' addresses are ignored, but all lanes take part and receive.
//
// r[i] is the lane's fragment of matrix i. Rows and columns as they lie in shared memory; in the boxes, the
// lane:
//
//     plain: two columns a register             _trans: two rows a register (the fragment of the transpose)
//
//           column 0 1    2 3    4 5    6 7           column 0      1      2    ...    7
//     row 0   [  0  ][  1  ][  2  ][  3  ]      row 0    [  0  ][  4  ][  8  ]     [ 28  ]  low half
//     row 1   [  4  ][  5  ][  6  ][  7  ]      row 1    [  0  ][  4  ][  8  ]     [ 28  ]  high half
//      ...                                      row 2    [  1  ][  5  ][  9  ]     [ 29  ]  low half
//     row 7   [ 28  ][ 29  ][ 30  ][ 31  ]       ...
//             low high                          row 7    [  3  ][  7  ][ 11  ]     [ 31  ]  high half
//
// Lane l holds row l / 4, columns 2 (l % 4) and + 1; with _trans rows 2 (l % 4) and + 1 of column l / 4.
//
// It is synchronous, but no barrier: a row that another thread wrote needs a __syncwarp or barrier before.
// Eight rows are read at a time; they have no bank conflict if their 16-byte pieces lie in different banks.
#if defined(__CUDACC__)
PTX_FN void ldmatrix_x1(uint32_t (&r)[1], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(address)
                 : "memory");
}
PTX_FN void ldmatrix_x2(uint32_t (&r)[2], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}
PTX_FN void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
PTX_FN void ldmatrix_x1_trans(uint32_t (&r)[1], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(address)
                 : "memory");
}
PTX_FN void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}
PTX_FN void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
#else
PTX_FN void ldmatrix_x1(uint32_t (&r)[1], uint32_t address, SIMT_HERE) {
    simt::load_matrices(r, 1, false, address, file, line);
}
PTX_FN void ldmatrix_x2(uint32_t (&r)[2], uint32_t address, SIMT_HERE) {
    simt::load_matrices(r, 2, false, address, file, line);
}
PTX_FN void ldmatrix_x4(uint32_t (&r)[4], uint32_t address, SIMT_HERE) {
    simt::load_matrices(r, 4, false, address, file, line);
}
PTX_FN void ldmatrix_x1_trans(uint32_t (&r)[1], uint32_t address, SIMT_HERE) {
    simt::load_matrices(r, 1, true, address, file, line);
}
PTX_FN void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address, SIMT_HERE) {
    simt::load_matrices(r, 2, true, address, file, line);
}
PTX_FN void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address, SIMT_HERE) {
    simt::load_matrices(r, 4, true, address, file, line);
}
#endif

// ---- stmatrix: the way back (PTX ISA, "Warp-level matrix store instruction: stmatrix"; sm_90) ----
// Addresses and fragments as of ldmatrix: storing what was loaded from the same addresses changes nothing.
// Lanes that read the rows need a __syncwarp or barrier after it; TMA and wgmma need fence_proxy_async before
// that.
#if defined(__CUDACC__)
PTX_FN void stmatrix_x1(uint32_t address, const uint32_t (&r)[1]) {
    PTX_ASM_SM90("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(address), "r"(r[0]) : "memory");
}
PTX_FN void stmatrix_x2(uint32_t address, const uint32_t (&r)[2]) {
    PTX_ASM_SM90("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(r[0]),
                 "r"(r[1])
                 : "memory");
}
PTX_FN void stmatrix_x4(uint32_t address, const uint32_t (&r)[4]) {
    PTX_ASM_SM90("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
PTX_FN void stmatrix_x1_trans(uint32_t address, const uint32_t (&r)[1]) {
    PTX_ASM_SM90("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address), "r"(r[0])
                 : "memory");
}
PTX_FN void stmatrix_x2_trans(uint32_t address, const uint32_t (&r)[2]) {
    PTX_ASM_SM90("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(r[0]),
                 "r"(r[1])
                 : "memory");
}
PTX_FN void stmatrix_x4_trans(uint32_t address, const uint32_t (&r)[4]) {
    PTX_ASM_SM90("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
#else
PTX_FN void stmatrix_x1(uint32_t address, const uint32_t (&r)[1], SIMT_HERE) {
    simt::store_matrices(address, r, 1, false, file, line);
}
PTX_FN void stmatrix_x2(uint32_t address, const uint32_t (&r)[2], SIMT_HERE) {
    simt::store_matrices(address, r, 2, false, file, line);
}
PTX_FN void stmatrix_x4(uint32_t address, const uint32_t (&r)[4], SIMT_HERE) {
    simt::store_matrices(address, r, 4, false, file, line);
}
PTX_FN void stmatrix_x1_trans(uint32_t address, const uint32_t (&r)[1], SIMT_HERE) {
    simt::store_matrices(address, r, 1, true, file, line);
}
PTX_FN void stmatrix_x2_trans(uint32_t address, const uint32_t (&r)[2], SIMT_HERE) {
    simt::store_matrices(address, r, 2, true, file, line);
}
PTX_FN void stmatrix_x4_trans(uint32_t address, const uint32_t (&r)[4], SIMT_HERE) {
    simt::store_matrices(address, r, 4, true, file, line);
}
#endif

// ---- mma.sync: D += A B on a tensor core; D is 16 x 8, A 16 x 16, B 16 x 8 ----
// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"; sm_80. T is __half or __nv_bfloat16,
// D is fp32. With g = lane / 4 and t = lane % 4:
//
//     A          column 2t, 2t+1   2t+8, 2t+9      B     column g     D          column 2t    2t+1
//     row g          a[0]            a[2]          row 2t, 2t+1       row g          d[0]     d[1]
//     row g + 8      a[1]            a[3]               b[0]          row g + 8      d[2]     d[3]
//                                                  row 2t+8, 2t+9
//                                                       b[1]
//
// In other words, four 8 x 8 matrices of A and two of B, in the order of a[] and b[]:
//
//     A   [ a[0] a[2] ]    each as ldmatrix loads it       B   [ b[0] ]   each as ldmatrix loads its
//     transpose:
//         [ a[1] a[3] ]    from a row-major A                  [ b[1] ]   plain if B's columns are the rows
//         in
//                                                                         memory (K in Q K^T), _trans if its
//                                                                         rows are (V in P V)
//
// Two D side by side (16 x 16), rounded and packed in the order d[0..1], d[2..3], then those of the right
// one, are the A of a following product: no lane needs another lane's values.
#if defined(__CUDACC__)
template <class T> PTX_FN void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    static_assert(std::is_same<T, __half>::value || std::is_same<T, __nv_bfloat16>::value,
                  "mma_m16n8k16 multiplies __half or __nv_bfloat16");
    if constexpr (std::is_same<T, __half>::value)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
template <class T>
PTX_FN void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_HERE) {
    static_assert(std::is_same<T, __half>::value || std::is_same<T, __nv_bfloat16>::value,
                  "mma_m16n8k16 multiplies __half or __nv_bfloat16");
    if constexpr (std::is_same<T, __half>::value)
        simt::multiply_fp16(d, a, b, file, line);
    else
        simt::multiply_bf16(d, a, b, file, line);
}
#endif

#endif
