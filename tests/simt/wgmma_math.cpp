// wgmma_math.cpp - the arithmetic of the CPU's wgmma against the layouts of the PTX ISA, written down again
// here: as nested coordinates and strides for the canonical layouts, the swizzle as an exchange of a line's
// chunks, the register fragments from element to lane. In those only matrices of small integers, so that
// every sum is exact; what e4m3 sums lose is e4m3_sum.cpp's matter.
#include "common/simt/wgmma_math.h"

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "check.h"
#include "common/numbers.h"
#include "common/ptx/wgmma.h"
#include "types_reference.h"

using simt::WgmmaMatrix;
using simt::WgmmaOperand;
using simt::WgmmaShape;
using simt::WgmmaType;

static const enum dtype dtype_of[3] = {DTYPE_FP16, DTYPE_BF16, DTYPE_E4M3};
static int bytes_of(WgmmaType type) { return dtype_bytes(dtype_of[static_cast<int>(type)]); }

// The instructions of one product read 128 bytes of each row together: four steps of 32 bytes.
constexpr int steps = 4;

// One operand of the whole product in memory: `rows` rows of 128 bytes.
struct Layout {
    WgmmaType type;
    bool mn_major;
    int chunks;  // in a line: 1 without swizzle, else swizzle bytes / 16
    int rows;
    uint32_t base, leading, stride, panel;  // `panel`: where the next K begins that the strides do not reach

    int swizzle_bytes() const { return chunks == 1 ? 0 : 16 * chunks; }
    int k_in_step() const { return 32 / bytes_of(type); }

    // Where element (row, k) lies.
    uint32_t place(int row, int k) const {
        uint32_t size = bytes_of(type), T = 16 / size, W = chunks;
        uint32_t step = k / k_in_step(), chunk, line, linear;
        if (mn_major) {
            // ((T, W, m), (8, k)) : ((1, T, leading), (W T, stride)); without swizzle leading and stride
            // change places.
            uint32_t along_rows = W == 1 ? stride : leading, along_k = W == 1 ? leading : stride;
            uint32_t k_local = k % k_in_step();
            chunk = row / T % W;
            line = k_local;
            linear =
                row % T * size + row / (T * W) * along_rows + k_local % 8 * W * 16 + k_local / 8 * along_k;
            linear += step * panel;
        } else if (W == 1) {
            // ((8, m), (T, 2)) : ((T, stride), (1, leading))
            chunk = 0;
            line = row;
            linear = row % 8 * 16 + row / 8 * stride + k % T * size + k / T % 2 * leading + step * panel;
        } else {
            // ((8, m), (T, W)) : ((W T, stride), (1, T)): several steps side by side
            chunk = k / T % W;
            line = row;
            linear = row % 8 * W * 16 + row / 8 * stride + k % T * size + k / (T * W) * panel;
        }
        // Within an atom of 8 lines, line l has its chunks exchanged by l (128 bytes), l / 2 (64) or l / 4
        // (32).
        uint32_t l = line % 8, exchange = W == 8 ? l : W == 4 ? l / 2 : W == 2 ? l / 4 : 0;
        return base + linear + (chunk ^ exchange) * 16;
    }

    // The descriptor for step s.
    uint64_t descriptor(int s) const {
        uint32_t start = base;
        if (mn_major || chunks == 1)
            start += s * panel;
        else
            start += 32 * s / (16 * chunks) * panel + 32 * s % (16 * chunks);
        return wgmma_descriptor(start, leading, stride, swizzle_bytes());
    }
};

// A layout with a gap behind every repetition, so that each stride has a value of its own.
static Layout spacious_layout(WgmmaType type, bool mn_major, int chunks, int rows, uint32_t base) {
    Layout layout{type, mn_major, chunks, rows, base, 16, 0, 0};
    uint32_t atom = 128 * chunks, groups = rows / 8;
    if (mn_major && chunks == 1) {
        layout.stride = atom + 16;
        layout.leading = layout.stride * groups + 32;
        layout.panel = 2 * layout.leading + 48;
    } else if (mn_major) {
        layout.leading = 3 * atom;
        layout.stride = layout.leading * ((groups + chunks - 1) / chunks) + atom;
        layout.panel = 2 * layout.stride + atom;
    } else {
        layout.stride = 2 * atom + (chunks == 1 ? 16 : 0);
        layout.panel = layout.stride * groups + atom;
        if (chunks == 1) layout.leading = layout.panel, layout.panel = 2 * layout.leading + 16;
    }
    return layout;
}

static std::vector<char> window(256 * 1024);

// A matrix of random integers from -4 to 4, [row][k], written to its places; all other bytes of the window
// are NaN.
static std::vector<int> fill(const Layout &layout) {
    int k_count = steps * layout.k_in_step();
    std::vector<int> matrix(layout.rows * k_count);
    for (int row = 0; row < layout.rows; row++)
        for (int k = 0; k < k_count; k++) {
            int value = static_cast<int>(random_bits() % 9) - 4;
            matrix[row * k_count + k] = value;
            number_store(dtype_of[static_cast<int>(layout.type)], &window[layout.place(row, k)], 0, value);
        }
    return matrix;
}

// The chunks that for_each_chunk names are those in which the elements of that step lie, each once.
static void check_chunks(const WgmmaShape &shape, const WgmmaOperand &operand, const Layout &layout, int step,
                         int first_row, int rows) {
    std::set<uint32_t> expected, seen;
    int calls = 0, right_first_element = 0;
    for (int row = first_row; row < first_row + rows; row++)
        for (int k = 0; k < shape.k; k++) expected.insert(layout.place(row, step * shape.k + k) / 16 * 16);
    simt::wgmma_for_each_chunk(shape, operand, first_row, rows, [&](uint32_t address, int row, int k) {
        calls++;
        seen.insert(address);
        right_first_element += address == layout.place(row, step * shape.k + k);
    });
    CHECK(seen == expected);
    CHECK(calls == static_cast<int>(expected.size()));
    CHECK(right_first_element == calls);
}

// The product of 64 x 128 bytes and n x 128 bytes in four steps, all warps, and every element of it.
static void check_product(WgmmaType type, int n, const Layout &a, const Layout &b, bool a_in_registers) {
    memset(window.data(), 0xff, window.size());
    std::vector<int> a_matrix = fill(a), b_matrix = fill(b);
    int k_count = steps * a.k_in_step();
    std::vector<float> d(128 * (n / 2), NAN);
    std::vector<float> b_floats(simt::wgmma_b_floats);
    for (int step = 0; step < steps; step++) {
        WgmmaShape shape{type, n, a.k_in_step(), a_in_registers, a.mn_major, b.mn_major, step > 0};
        WgmmaOperand a_operand, b_operand;
        CHECK(simt::wgmma_decode(shape, WgmmaMatrix::a, a.descriptor(step), a_operand) == "");
        CHECK(simt::wgmma_decode(shape, WgmmaMatrix::b, b.descriptor(step), b_operand) == "");
        check_chunks(shape, b_operand, b, step, 0, n);
        simt::wgmma_decode_b(shape, window.data(), b.descriptor(step), b_floats.data());
        for (int warp = 0; warp < 4; warp++) {
            check_chunks(shape, a_operand, a, step, 16 * warp, 16);
            uint32_t registers[32][4] = {};
            int per_register = shape.k / 8, size = bytes_of(type);
            for (int row = 0; row < 16; row++)
                for (int k = 0; k < shape.k; k++) {
                    int lane = row % 8 * 4 + k % (shape.k / 2) / per_register;
                    int number = 2 * (k / (shape.k / 2)) + row / 8;
                    memcpy(reinterpret_cast<char *>(&registers[lane][number]) + k % per_register * size,
                           &window[a.place(16 * warp + row, step * shape.k + k)], size);
                }
            float *lanes[32];
            for (int lane = 0; lane < 32; lane++) lanes[lane] = &d[(32 * warp + lane) * (n / 2)];
            simt::wgmma_warp(shape, warp, window.data(), a_in_registers ? 0 : a.descriptor(step),
                             a_in_registers ? registers : nullptr, b_floats.data(), lanes);
        }
    }
    int wrong = 0;
    for (int m = 0; m < 64; m++)
        for (int j = 0; j < n; j++) {
            int sum = 0;
            for (int k = 0; k < k_count; k++) sum += a_matrix[m * k_count + k] * b_matrix[j * k_count + k];
            int thread = m / 16 * 32 + m % 8 * 4 + j % 8 / 2, number = j / 8 * 4 + m % 16 / 8 * 2 + j % 2;
            wrong += !(d[thread * (n / 2) + number] == static_cast<float>(sum));
        }
    if (!CHECK(wrong == 0))
        fprintf(stderr, "  %d of %d elements: type %d, n %d, A %s %d bytes%s, B %s %d bytes\n", wrong, 64 * n,
                static_cast<int>(type), n, a.mn_major ? "MN" : "K", a.swizzle_bytes(),
                a_in_registers ? " in registers" : "", b.mn_major ? "MN" : "K", b.swizzle_bytes());
}

static void check_products() {
    for (WgmmaType type : {WgmmaType::fp16, WgmmaType::bf16, WgmmaType::e4m3}) {
        for (int chunks : {1, 2, 4, 8})
            for (int majors = 0; majors < (type == WgmmaType::e4m3 ? 1 : 4); majors++)
                for (int n : {8, 16, 64, 80, 128, 256}) {
                    Layout a = spacious_layout(type, majors & 1, 8 / chunks, 64, 1024);
                    Layout b = spacious_layout(type, majors & 2, chunks, n, 100 * 1024);
                    check_product(type, n, a, b, false);
                    if (!(majors & 1)) check_product(type, n, a, b, true);
                }
    }
}

// Layouts that the PTX ISA gives in numbers (elements of 16 bits, in elements): address of every chunk.
static void check_isa_examples() {
    WgmmaShape shape{WgmmaType::bf16, 64, 16, false, true, true, 0};
    WgmmaOperand operand;
    // Swizzle<0,4,3> o ((8,1,2),(8,2)):((1,8,64),(8,128)); LBO 128, SBO 64 elements
    CHECK(simt::wgmma_decode(shape, WgmmaMatrix::b, wgmma_descriptor(0x800, 256, 128, 0), operand) == "");
    for (uint32_t row = 0; row < 16; row += 8)
        for (uint32_t k = 0; k < 16; k++)
            CHECK(operand.address(k, row / 8) == 0x800 + 2 * (row / 8 * 64 + k % 8 * 8 + k / 8 * 128));
    // Swizzle<1,4,3> o ((8,2,2),(8,2)):((1,8,128),(16,256)); LBO 128, SBO 256
    CHECK(simt::wgmma_decode(shape, WgmmaMatrix::b, wgmma_descriptor(0x800, 256, 512, 32), operand) == "");
    for (uint32_t row = 0; row < 32; row += 8)
        for (uint32_t k = 0; k < 16; k++) {
            uint32_t linear = 2 * (row / 8 % 2 * 8 + row / 16 * 128 + k % 8 * 16 + k / 8 * 256);
            CHECK(operand.address(k, row / 8) == 0x800 + (linear ^ (linear >> 3 & 0x10)));
        }
    // Swizzle<2,4,3> o ((8,4,2),(8,2)):((1,8,256),(32,512)); LBO 256, SBO 512
    CHECK(simt::wgmma_decode(shape, WgmmaMatrix::b, wgmma_descriptor(0x800, 512, 1024, 64), operand) == "");
    for (uint32_t row = 0; row < 64; row += 8)
        for (uint32_t k = 0; k < 16; k++) {
            uint32_t linear = 2 * (row / 8 % 4 * 8 + row / 32 * 256 + k % 8 * 32 + k / 8 * 512);
            CHECK(operand.address(k, row / 8) == 0x800 + (linear ^ (linear >> 3 & 0x30)));
        }
    // The K of the lecture's kernels: [key][64] fp16, 128 bytes. Third step: bytes 64-95 of each row.
    shape.b_mn_major = false;
    CHECK(simt::wgmma_decode(shape, WgmmaMatrix::b, wgmma_descriptor(0x2000, 16, 1024, 128) + 4, operand) ==
          "");
    CHECK(operand.address(0, 0) == 0x2040 && operand.address(0, 1) == 0x2050);
    CHECK(operand.address(1, 0) == 0x20d0 && operand.address(1, 1) == 0x20c0);
    CHECK(operand.address(7, 0) == 0x23b0 && operand.address(7, 1) == 0x23a0);
    CHECK(operand.address(13, 0) == 0x2690 && operand.address(63, 1) == 0x3fa0);
}

static void check_descriptors() {
    CHECK(wgmma_descriptor(0x2000, 16, 1024, 128) == 0x4000004000010200u);
    CHECK(wgmma_descriptor(0x3fff0, 0x3fff0, 0x3fff0, 64) == 0x80003fff3fff3fffu);
    CHECK(wgmma_descriptor(0x400, 128, 256, 32) == 0xc000001000080040u);
    CHECK(wgmma_descriptor(0x400, 128, 256, 0) == 0x0000001000080040u);

    // What is refused, and a word that tells why; right ones that are close to it.
    struct Case {
        bool mn_major;
        int n;
        uint64_t descriptor;
        const char *because;  // null: accepted
    };
    const uint64_t base_offset = 1ull << 49;
    const Case cases[] = {
        {false, 64, wgmma_descriptor(0x2000, 16, 1024, 128), nullptr},
        {false, 64, wgmma_descriptor(0x2000, 16, 1024, 128) | base_offset, "base offset is 1"},
        {false, 64, wgmma_descriptor(0x2000, 16, 1024, 128) | 1ull << 14, "no matrix descriptor"},
        {false, 64, wgmma_descriptor(0x3fff0, 16, 1024, 0) + 2, "no matrix descriptor"},  // past 256 KB
        {false, 64, wgmma_descriptor(0x2000, 16, 1024, 128) | 1ull << 52, "no matrix descriptor"},
        {false, 64, wgmma_descriptor(0x2060, 16, 1024, 128), nullptr},
        {false, 64, wgmma_descriptor(0x2070, 16, 1024, 128), "112 bytes into a line"},
        {false, 64, wgmma_descriptor(0x2080, 16, 1024, 128), "128 bytes past a multiple of 1024"},
        {false, 64, wgmma_descriptor(0x2200, 16, 1024, 128), "512 bytes past a multiple of 1024"},
        {false, 64, wgmma_descriptor(0x2200, 16, 512, 64), nullptr},
        {false, 64, wgmma_descriptor(0x2100, 16, 512, 64), "256 bytes past a multiple of 512"},
        {false, 64, wgmma_descriptor(0x2100, 16, 256, 32), nullptr},
        {false, 64, wgmma_descriptor(0x2010, 16, 256, 32), "16 bytes into a line of 32"},
        {false, 64, wgmma_descriptor(0x2010, 48, 80, 0), nullptr},
        {false, 64, wgmma_descriptor(0x2000, 16, 128, 128), "stride is 128 bytes"},
        {false, 8, wgmma_descriptor(0x2000, 16, 128, 128), nullptr},  // one atom: unused
        {false, 64, wgmma_descriptor(0x2000, 16, 512, 128), "stride is 512 bytes"},
        {true, 64, wgmma_descriptor(0x2000, 16, 1024, 128), nullptr},
        {true, 64, wgmma_descriptor(0x2000, 16, 128, 128), "stride is 128 bytes"},
        {true, 128, wgmma_descriptor(0x2000, 16, 1024, 128), "leading offset is 16 bytes"},
        {true, 128, wgmma_descriptor(0x2000, 8192, 1024, 128), nullptr},
        {true, 32, wgmma_descriptor(0x2040, 16, 1024, 128), nullptr},
        {true, 64, wgmma_descriptor(0x2040, 16, 1024, 128), "64 bytes into a line of 128"},
    };
    for (const Case &it : cases) {
        WgmmaShape shape{WgmmaType::fp16, it.n, 16, false, false, it.mn_major, 0};
        WgmmaOperand operand;
        std::string reason = simt::wgmma_decode(shape, WgmmaMatrix::b, it.descriptor, operand);
        if (!CHECK(it.because ? reason.find(it.because) != std::string::npos : reason.empty()))
            fprintf(stderr, "  case %d: \"%s\"\n", static_cast<int>(&it - cases), reason.c_str());
    }
}

// Every number of each type comes through as it is, if it is multiplied by 1 and nothing is added.
static void check_values(WgmmaType type, struct format *format) {
    memset(window.data(), 0, window.size());
    fill_values(format);
    int size = bytes_of(type), wrong = 0;
    WgmmaShape shape{type, 256, 32 / size, false, false, false, 0};
    uint64_t a = wgmma_descriptor(0, 128, 256, 0), b = wgmma_descriptor(0x1000, 128, 256, 0);
    for (int m = 0; m < 16; m++)
        number_store(dtype_of[static_cast<int>(type)], &window[m / 8 * 256 + m % 8 * 16], 0, 1);
    std::vector<float> d(32 * 128), b_floats(simt::wgmma_b_floats);
    float *lanes[32];
    for (int lane = 0; lane < 32; lane++) lanes[lane] = &d[lane * 128];
    for (uint32_t bits = 0; bits < 1u << (8 * size); bits++) {
        uint32_t n = bits % 256;
        memcpy(&window[0x1000 + n / 8 * 256 + n % 8 * 16], &bits, size);  // little-endian
        if (n != 255) continue;
        simt::wgmma_decode_b(shape, window.data(), b, b_floats.data());
        simt::wgmma_warp(shape, 0, window.data(), a, nullptr, b_floats.data(), lanes);
        for (uint32_t j = 0; j < 256; j++) {
            double expected = value_of(format, bits - 255 + j);
            float value = d[j % 8 / 2 * 128 + j / 8 * 4 + j % 2];  // row 0
            wrong += std::isnan(expected) ? !std::isnan(value) : !(value == static_cast<float>(expected));
        }
    }
    CHECK(wrong == 0);
}

// NaN and infinity go where IEEE 754 has them go, and nowhere else.
static void check_specials() {
    memset(window.data(), 0, window.size());
    WgmmaShape shape{WgmmaType::fp16, 8, 16, false, false, false, 1};
    uint64_t a = wgmma_descriptor(0, 128, 256, 0), b = wgmma_descriptor(0x1000, 128, 256, 0);
    const uint16_t one = 0x3c00, infinity = 0x7c00, nan = 0x7e00;
    auto put = [](uint32_t at, int row, uint16_t value) {
        memcpy(&window[at + row * 16], &value, 2);
    };  // k = 0
    for (int row = 0; row < 8; row++) put(0, row, one), put(0x1000, row, one);
    put(0, 2, infinity);
    put(0, 3, nan);
    put(0x1000, 5, 0);
    std::vector<float> d(32 * 4, 1.0f), b_floats(simt::wgmma_b_floats);
    float *lanes[32];
    for (int lane = 0; lane < 32; lane++) lanes[lane] = &d[lane * 4];
    auto at = [&](int row, int column) { return d[(row * 4 + column / 2) * 4 + column % 2]; };
    simt::wgmma_decode_b(shape, window.data(), b, b_floats.data());
    d[(1 * 4 + 0) * 4] = NAN;        // row 1, column 0
    d[(2 * 4 + 0) * 4] = -INFINITY;  // row 2, column 0
    simt::wgmma_warp(shape, 0, window.data(), a, nullptr, b_floats.data(), lanes);
    for (int row = 0; row < 8; row++)
        for (int column = 0; column < 8; column++) {
            bool is_nan = row == 3 || (row == 1 && column == 0) || (row == 2 && (column == 0 || column == 5));
            float expected = row == 2 ? INFINITY : column == 5 ? 1.0f : 2.0f;
            CHECK(is_nan ? std::isnan(at(row, column)) : at(row, column) == expected);
        }
    shape.scale_d = 0;  // what d holds does not matter, not even a NaN
    simt::wgmma_warp(shape, 0, window.data(), a, nullptr, b_floats.data(), lanes);
    CHECK(at(1, 0) == 1.0f && at(2, 0) == INFINITY && at(0, 5) == 0.0f);
}

int main() {
    check_descriptors();
    check_isa_examples();
    check_products();
    check_values(WgmmaType::fp16, &fp16);
    check_values(WgmmaType::bf16, &bf16);
    static struct format e4m3 = {"e4m3", 4, 3, 7, 0, 1, 0x7f, {0}, 0};
    check_values(WgmmaType::e4m3, &e4m3);
    check_specials();
    return check_done();
}
