// wgmma_math.cpp - what one wgmma computes. See wgmma_math.h.
//
// Products of two fp16, bf16 or e4m3 numbers are exact in fp32 (but where a product of bf16 leaves fp32's
// range). Sums of e4m3 are cut off as the hardware does it: see common/e4m3_sum.h. Those of 16-bit types are
// rounded to fp32 here, k after k, while the hardware adds in an order of its own and cuts off digits that
// ours keeps: they agree to within that rounding, not to the bit, unless every sum is exact.
#include "wgmma_math.h"

#include <cstring>

#include "../e4m3_sum.h"
#include "../numbers.h"
#include "internal.h"

namespace simt {

// ---- Descriptors ----

static uint32_t field(uint64_t descriptor, int low_bit) { return (descriptor >> low_bit & 0x3fff) << 4; }

std::string wgmma_decode(const WgmmaShape &shape, WgmmaMatrix matrix, uint64_t descriptor,
                         WgmmaOperand &operand) {
    // Swizzle modes 0 to 3: none, 128, 64 and 32 bytes.
    static const uint32_t line_bytes[4] = {16, 128, 64, 32}, swizzle_bits[4] = {0, 0x70, 0x30, 0x10};
    int mode = static_cast<int>(descriptor >> 62);
    uint32_t leading = field(descriptor, 16), stride = field(descriptor, 32);
    bool swizzled = mode != 0;
    operand.mn_major = matrix == WgmmaMatrix::a ? shape.a_mn_major : shape.b_mn_major;
    operand.start = field(descriptor, 0);
    operand.line_bytes = line_bytes[mode];
    operand.swizzle_bits = swizzle_bits[mode];
    // Without swizzle, "leading" always goes along K and "stride" along M or N. With it, "leading" goes from
    // panel to panel and "stride" from eight lines to the next.
    bool exchanged = !swizzled && operand.mn_major;
    operand.lines_step = exchanged ? leading : stride;
    operand.panel_step = exchanged ? stride : leading;

    const uint64_t no_field = 0x3ff1c000c000c000u;  // bits 14-15, 30-31, 46-48 and 52-61
    if (descriptor & no_field)
        return format(
            "0x%016llx is no matrix descriptor: bits are set that belong to no field (an advance added past "
            "the end of the address field?)",
            static_cast<unsigned long long>(descriptor));
    int base_offset = descriptor >> 49 & 7;
    if (base_offset)
        return format(
            "its base offset is %d: the simulated device only knows 0, for swizzle patterns that start at a "
            "multiple of 1024 bytes",
            base_offset);
    if (!swizzled) return "";

    const uint32_t rows = matrix == WgmmaMatrix::a ? 64 : static_cast<uint32_t>(shape.n);
    const uint32_t lines = operand.mn_major ? static_cast<uint32_t>(shape.k) : rows;
    const uint32_t bytes_along_line = operand.mn_major ? 2 * rows : 32;  // MN-major is for 16-bit types only
    const uint32_t atom = 8 * operand.line_bytes;
    if (operand.start % atom >= operand.line_bytes)
        return format(
            "it starts at shared address 0x%x, %u bytes past a multiple of %u: the %u-byte swizzle pattern "
            "begins at such a multiple, and a start may lie in its first %u bytes only",
            operand.start, operand.start % atom, atom, operand.line_bytes, operand.line_bytes);
    uint32_t into_line = operand.start % operand.line_bytes;
    uint32_t used = bytes_along_line < operand.line_bytes ? bytes_along_line : operand.line_bytes;
    if (into_line + used > operand.line_bytes)
        return format(
            "it starts %u bytes into a line of %u bytes and reads %u: past the line's end, where the next "
            "line lies and not the next panel",
            into_line, operand.line_bytes, used);
    if (lines > 8 && operand.lines_step % atom)
        return format(
            "its stride is %u bytes: eight lines of the %u-byte swizzle pattern start at a multiple of %u",
            operand.lines_step, operand.line_bytes, atom);
    if (bytes_along_line > operand.line_bytes && operand.panel_step % atom)
        return format(
            "its leading offset is %u bytes: panels of the %u-byte swizzle pattern start at a multiple of %u",
            operand.panel_step, operand.line_bytes, atom);
    return "";
}

// ---- Operands as floats: element (row, k) at [row / 8][k][row % 8] ----

namespace {
struct E4m3Table {
    float value[256];
    E4m3Table() {
        for (int bits = 0; bits < 256; bits++) value[bits] = float_from_e4m3(static_cast<uint8_t>(bits));
    }
};
const E4m3Table e4m3;
}  // namespace

// The elements of one 16-byte chunk, to every step-th float.
static void widen_chunk(WgmmaType type, const char *chunk, float *to, int step) {
    uint16_t halves[8];
    uint8_t bytes[16];
    switch (type) {
    case WgmmaType::fp16:
        memcpy(halves, chunk, 16);
        for (int i = 0; i < 8; i++) to[i * step] = float_from_fp16(halves[i]);
        break;
    case WgmmaType::bf16:
        memcpy(halves, chunk, 16);
        for (int i = 0; i < 8; i++) to[i * step] = float_from_bf16(halves[i]);
        break;
    case WgmmaType::e4m3:
        memcpy(bytes, chunk, 16);
        for (int i = 0; i < 16; i++) to[i * step] = e4m3.value[bytes[i]];
        break;
    }
}

static void widen_rows(const WgmmaShape &shape, const WgmmaOperand &operand, int first_row, int rows,
                       const char *window, float *to) {
    int step = operand.mn_major ? 1 : 8;
    wgmma_for_each_chunk(shape, operand, first_row, rows, [&](uint32_t address, int row, int k) {
        int local = row - first_row;
        widen_chunk(shape.type, window + address, to + (local / 8 * shape.k + k) * 8 + local % 8, step);
    });
}

void wgmma_decode_b(const WgmmaShape &shape, const char *window, uint64_t b_descriptor, float *b) {
    WgmmaOperand operand;
    wgmma_decode(shape, WgmmaMatrix::b, b_descriptor, operand);
    widen_rows(shape, operand, 0, shape.n, window, b);
}

// A's fragment: register r of lane l holds 4 bytes of row l / 4 + 8 (r % 2), from byte 4 (l % 4) + 16 (r / 2)
// on.
static void widen_registers(const WgmmaShape &shape, const uint32_t (*registers)[4], float *to) {
    for (int row = 0; row < 16; row++) {
        for (int chunk = 0; chunk < 2; chunk++) {
            uint32_t words[4];
            for (int i = 0; i < 4; i++) words[i] = registers[row % 8 * 4 + i][row / 8 + 2 * chunk];
            char bytes[16];
            memcpy(bytes, words, 16);
            widen_chunk(shape.type, bytes, to + (row / 8 * shape.k + chunk * shape.k / 2) * 8 + row % 8, 8);
        }
    }
}

// ---- The product ----

// Four floats for the compiler's vector unit, whichever the processor has.
typedef float Float4 __attribute__((vector_size(16)));

// tile (16 x 8) += A (16 x k, as above) b (k x 8). Four rows by eight columns at a time stay in registers.
static void multiply_tile(const float *a, const float *b, int k_count, Float4 tile[16][2]) {
    for (int row = 0; row < 16; row += 4) {
        const float *a_row = a + row / 8 * k_count * 8 + row % 8;
        Float4 sum[4][2];
        memcpy(sum, tile[row], sizeof sum);
        for (int k = 0; k < k_count; k++) {
            const float *factor = a_row + 8 * k;
            Float4 left, right;
            memcpy(&left, b + 8 * k, sizeof left);
            memcpy(&right, b + 8 * k + 4, sizeof right);
            // Written out: g++ at -O2 would not unroll a loop, and index the sums in memory.
            sum[0][0] += factor[0] * left, sum[0][1] += factor[0] * right;
            sum[1][0] += factor[1] * left, sum[1][1] += factor[1] * right;
            sum[2][0] += factor[2] * left, sum[2][1] += factor[2] * right;
            sum[3][0] += factor[3] * left, sum[3][1] += factor[3] * right;
        }
        memcpy(tile[row], sum, sizeof sum);
    }
}

// The same of e4m3: `rows` are the 16 rows of A.
static void multiply_tile_e4m3(const e4m3_row *rows, const float *b, Float4 tile[16][2]) {
    float sums[E4M3_COLUMNS];
    e4m3_columns columns;
    e4m3_set_columns(b, 8, E4M3_TERMS, &columns);
    for (int row = 0; row < 16; row++) {
        memcpy(sums, tile[row], sizeof sums);
        e4m3_add(&rows[row], &columns, sums);
        memcpy(tile[row], sums, sizeof sums);
    }
}

void wgmma_warp(const WgmmaShape &shape, int warp_in_group, const char *window, uint64_t a_descriptor,
                const uint32_t (*a_registers)[4], const float *b, float *const d[32]) {
    float a[16 * 32];
    if (a_registers) {
        widen_registers(shape, a_registers, a);
    } else {
        WgmmaOperand operand;
        wgmma_decode(shape, WgmmaMatrix::a, a_descriptor, operand);
        widen_rows(shape, operand, 16 * warp_in_group, 16, window, a);
    }
    bool is_e4m3 = shape.type == WgmmaType::e4m3;
    e4m3_row rows[16];
    for (int row = 0; is_e4m3 && row < 16; row++)
        e4m3_set_row(a + row / 8 * shape.k * 8 + row % 8, 8, shape.k, &rows[row]);
    for (int block = 0; block < shape.n / 8; block++) {
        // Accumulators 4 block to 4 block + 3 of a lane: two neighbours of a row, and two of the row 8 below.
        Float4 tile[16][2] = {};
        float *element = reinterpret_cast<float *>(tile);
        for (int lane = 0; shape.scale_d && lane < 32; lane++)
            for (int half = 0; half < 2; half++)
                memcpy(element + (lane / 4 + 8 * half) * 8 + 2 * (lane % 4), d[lane] + 4 * block + 2 * half,
                       8);
        if (is_e4m3)
            multiply_tile_e4m3(rows, b + block * shape.k * 8, tile);
        else
            multiply_tile(a, b + block * shape.k * 8, shape.k, tile);
        for (int lane = 0; lane < 32; lane++)
            for (int half = 0; half < 2; half++)
                memcpy(d[lane] + 4 * block + 2 * half, element + (lane / 4 + 8 * half) * 8 + 2 * (lane % 4),
                       8);
    }
}

}  // namespace simt
