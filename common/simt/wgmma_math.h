// wgmma_math.h - what one wgmma computes and which bytes of shared memory it reads. Functions of their
// arguments only: when an instruction runs, and whether it may, is decided elsewhere.
#ifndef SIMT_WGMMA_MATH_H
#define SIMT_WGMMA_MATH_H

#include <cstdint>
#include <string>

#include "include/simt_wgmma.h"

namespace simt {

// An operand in shared memory: what its descriptor says. Its memory is made of lines. A line of a K-major
// operand is a row (one m of A, one n of B) and holds k after k; a line of an MN-major operand is one k and
// holds row after row. Eight lines of line_bytes each, one after the other, are an atom, in which the 16-byte
// chunks are swizzled. (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".)
struct WgmmaOperand {
    bool mn_major;
    uint32_t start;         // shared address
    uint32_t line_bytes;    // 16 (no swizzle), 32, 64 or 128
    uint32_t swizzle_bits;  // those of the address bits 4 to 6 that are XORed with the ones three places up
    uint32_t lines_step;    // bytes from the start of eight lines to the next eight
    uint32_t panel_step;    // bytes from line_bytes of a line to its next line_bytes

    // Shared address of a line's chunk. The XOR takes the bits of the address itself, not of an offset from
    // the start: so a start moved on along a line still finds the right chunks.
    uint32_t address(uint32_t line, uint32_t chunk) const {
        uint32_t chunks_in_line = line_bytes / 16;
        uint32_t linear = start + line % 8 * line_bytes + line / 8 * lines_step +
                          chunk % chunks_in_line * 16 + chunk / chunks_in_line * panel_step;
        return linear ^ (linear >> 3 & swizzle_bits);
    }
};

enum class WgmmaMatrix { a, b };

// Reads the descriptor of A (64 rows) or B (n rows) into `operand`. Returns "" if all is right, otherwise
// what is wrong, as a clause for a message: what the hardware leaves undefined, and base offsets, which are
// not simulated.
std::string wgmma_decode(const WgmmaShape &shape, WgmmaMatrix matrix, uint64_t descriptor,
                         WgmmaOperand &operand);

// Calls visit(address, row, k) for each 16-byte chunk of the operand's rows first_row to first_row + rows - 1
// (multiples of 8): its shared address, and the row and k of its first element.
template <class Visit>
void wgmma_for_each_chunk(const WgmmaShape &shape, const WgmmaOperand &operand, int first_row, int rows,
                          Visit visit) {
    if (operand.mn_major) {
        for (int row = first_row; row < first_row + rows; row += 8)
            for (int k = 0; k < shape.k; k++) visit(operand.address(k, row / 8), row, k);
    } else {
        for (int row = first_row; row < first_row + rows; row++)
            for (int chunk = 0; chunk < 2; chunk++)
                visit(operand.address(row, chunk), row, chunk * shape.k / 2);
    }
}

// B as floats, in blocks of 8 columns: element (k, n) at [n / 8][k][n % 8]. The four warps of an instruction
// read the same B, so that it need be decoded only once for all.
constexpr int wgmma_b_floats = 256 * 32;
void wgmma_decode_b(const WgmmaShape &shape, const char *window, uint64_t b_descriptor, float *b);

// Computes rows 16 w to 16 w + 15 of D, w = warp_in_group, in the accumulators of that warp's 32 lanes.
// `window` is where shared address 0 is; `a_registers` is null if A is in shared memory; `b` is decoded. The
// descriptors have passed wgmma_decode, and all that they reach is in the window.
void wgmma_warp(const WgmmaShape &shape, int warp_in_group, const char *window, uint64_t a_descriptor,
                const uint32_t (*a_registers)[4], const float *b, float *const d[32]);

}  // namespace simt

#endif
