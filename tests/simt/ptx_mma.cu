// ptx_mma.cu - mma.sync on either backend. Where an element must be follows from the PTX ISA's tables,
// element by element; values come from the formats' definitions (types_reference.h), in double.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/ptx.h"
#include "device_memory.h"
#include "types_reference.h"

constexpr int rows = 16, columns = 8, depth = 16;

// One product: A is 16 x 16 row by row, B 16 x 8 column by column (column n is b[n]).
struct product {
    uint16_t a[rows][depth], b[columns][depth];
    float c[rows][columns];
};

// Element i of a lane's fragments (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type").
__device__ int group_of(int lane) { return lane >> 2; }
__device__ int a_row(int lane, int i) {
    return i < 2 || (i >= 4 && i < 6) ? group_of(lane) : group_of(lane) + 8;
}
__device__ int a_column(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8); }
__device__ int b_row(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8); }
__device__ int d_row(int lane, int i) { return i < 2 ? group_of(lane) : group_of(lane) + 8; }
__device__ int d_column(int lane, int i) { return lane % 4 * 2 + (i & 1); }

// The fragments of one product, element by element from global memory.
__device__ void take_a(uint32_t (&a)[4], const product *from, int lane) {
    for (int i = 0; i < 8; i += 2)
        a[i / 2] = from->a[a_row(lane, i)][a_column(lane, i)] |
                   (uint32_t)from->a[a_row(lane, i + 1)][a_column(lane, i + 1)] << 16;
}
__device__ void take_b(uint32_t (&b)[2], const product *from, int lane) {
    for (int i = 0; i < 4; i += 2)
        b[i / 2] = from->b[group_of(lane)][b_row(lane, i)] |
                   (uint32_t)from->b[group_of(lane)][b_row(lane, i + 1)] << 16;
}
__device__ void take_c(float (&d)[4], const product *from, int lane) {
    for (int i = 0; i < 4; i++) d[i] = from->c[d_row(lane, i)][d_column(lane, i)];
}

// Each warp takes one product. out[product][lane][4].
template <class T> __global__ void multiply_kernel(const product *in, float *out) {
    int warp = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = (int)threadIdx.x % 32;
    uint32_t a[4], b[2];
    float d[4];
    take_a(a, in + warp, lane);
    take_b(b, in + warp, lane);
    take_c(d, in + warp, lane);
    mma_m16n8k16<T>(d, a, b);
    for (int i = 0; i < 4; i++) out[(warp * 32 + lane) * 4 + i] = d[i];
}

// As kernels do it: A from row-major memory by ldmatrix; B from memory that holds its columns as rows, or,
// with `transposed`, its rows.
template <class T, bool transposed> __global__ void tile_kernel(const product *in, float *out) {
    __shared__ alignas(16) uint16_t a_smem[16 * 16], b_smem[8 * 16];
    int lane = (int)threadIdx.x;
    for (int i = lane; i < rows * depth; i += 32) a_smem[i] = in->a[i / depth][i % depth];
    for (int i = lane; i < columns * depth; i += 32)
        b_smem[transposed ? i % depth * columns + i / depth : i] = in->b[i / depth][i % depth];
    __syncwarp();  // the tiles are written
    uint32_t a[4], b[2];
    ldmatrix_x4(a, shared_address(&a_smem[lane % 16 * depth + lane / 16 * 8]));
    if constexpr (transposed)
        ldmatrix_x2_trans(b, shared_address(&b_smem[lane % 16 * columns]));
    else
        ldmatrix_x2(b, shared_address(&b_smem[lane % 8 * depth + lane / 8 % 2 * 8]));
    float d[4];
    take_c(d, in, lane);
    mma_m16n8k16<T>(d, a, b);
    for (int i = 0; i < 4; i++) out[4 * lane + i] = d[i];
}

// (A B of products 0 and 1, side by side) B of product 2 + C of product 2: the first results are packed into
// the second A where they are.
template <class T> __global__ void chain_kernel(const product *in, float *out) {
    int lane = (int)threadIdx.x;
    uint32_t a[4], b[2], packed[4];
    float d[4];
    for (int side = 0; side < 2; side++) {
        take_a(a, in + side, lane);
        take_b(b, in + side, lane);
        for (int i = 0; i < 4; i++) d[i] = 0;
        mma_m16n8k16<T>(d, a, b);
        packed[2 * side] = pack2<T>(d[0], d[1]);
        packed[2 * side + 1] = pack2<T>(d[2], d[3]);
    }
    take_b(b, in + 2, lane);
    take_c(d, in + 2, lane);
    mma_m16n8k16<T>(d, packed, b);
    for (int i = 0; i < 4; i++) out[4 * lane + i] = d[i];
}

// What element (m, n) of the result must be, in double, and the sum of the terms' magnitudes.
struct sum {
    double value, magnitude;
};
static struct sum sum_of(const struct format *f, const product *p, int m, int n) {
    struct sum s = {(double)p->c[m][n], fabs((double)p->c[m][n])};
    for (int k = 0; k < depth; k++) {
        double term = value_of(f, p->a[m][k]) * value_of(f, p->b[n][k]);
        s.value += term;
        s.magnitude += fabs(term);
    }
    return s;
}

// How far a result may be from the sum. The CPU rounds once to fp32 (2^-24 of the value, or half the smallest
// subnormal), after 16 additions in double. A tensor core adds blocks of 8 (sm_80) or 16 (sm_90) products and
// the sum so far at once: aligned to the largest exponent among them, each of these terms loses less than
// 2^-23 of the largest, and so does the block's result when it is cut off to 24 bits (Fasi, Higham, Mikaitis,
// Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021; for sm_90 Li et al., "FTTN", 2024). That is at
// most 16 products, 2 sums so far and 2 results, each 2^-23 of no more than all magnitudes together; one more
// for the terms of second order.
static double error_bound(struct sum s) {
#ifdef SIMT_CPU
    return 0x1p-24 * fabs(s.value) + 0x1p-150 + 17 * 0x1p-53 * s.magnitude;
#else
    return 21 * 0x1p-23 * s.magnitude;
#endif
}

// `exact`: every partial sum has at most 24 bits, so there is nothing to round.
static void check_product(const struct format *f, const product *p, const float *out, int exact) {
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            int m = lane / 4 + (i >= 2 ? 8 : 0), n = lane % 4 * 2 + i % 2;
            double got = (double)out[4 * lane + i];
            struct sum s = sum_of(f, p, m, n);
            int right = isnan(s.value)            ? isnan(got)
                        : isinf(s.value) || exact ? got == (double)(float)s.value
                                                  : fabs(got - s.value) <= error_bound(s);
            if (!CHECK(right))
                fprintf(stderr, "    %s, row %d, column %d: got %a, wanted %a\n", f->name, m, n, got,
                        s.value);
        }
}

template <class T>
static void check_products(const struct format *f, const product *p, int count, int exact) {
    float *out = (float *)malloc((size_t)count * 128 * sizeof *out);
    product *device_in = to_device(p, (size_t)count);
    float *device_out = to_device((float *)nullptr, (size_t)count * 128);
    multiply_kernel<T><<<(unsigned)count / 2, 64>>>(device_in, device_out);
    from_device(out, device_out, (size_t)count * 128);
    expect_success(cudaFree(device_in));
    for (int i = 0; i < count; i++) check_product(f, p + i, out + 128 * i, exact);
    free(out);
}

static uint16_t pattern_of(const struct format *f, double value) { return (uint16_t)slow_round(f, value); }
static int random_integer(int largest) { return (int)(random_bits() >> 8) % (2 * largest + 1) - largest; }

static void fill_integers(const struct format *f, product *p, int largest) {
    for (int k = 0; k < depth; k++) {
        for (int m = 0; m < rows; m++) p->a[m][k] = pattern_of(f, random_integer(largest));
        for (int n = 0; n < columns; n++) p->b[n][k] = pattern_of(f, random_integer(largest));
    }
    for (int i = 0; i < rows * columns; i++) p->c[i / columns][i % columns] = (float)random_integer(1000);
}

// (1 to 2) times a power of two from 2^-spread to 2^spread, of either sign.
static double random_number(int spread) {
    double significand = 1 + random_bits() * 0x1p-32;
    return ldexp(random_bits() >> 31 ? significand : -significand, random_integer(spread));
}

static void fill_numbers(const struct format *f, product *p, int spread) {
    for (int k = 0; k < depth; k++) {
        for (int m = 0; m < rows; m++) p->a[m][k] = pattern_of(f, random_number(spread));
        for (int n = 0; n < columns; n++) p->b[n][k] = pattern_of(f, random_number(spread));
    }
    for (int i = 0; i < rows * columns; i++) {
        int m = i / columns, n = i % columns;
        p->c[m][n] = 0;
        if (random_bits() >> 31)
            p->c[m][n] = (float)random_number(2 * spread);
        else  // C takes nearly everything away
            p->c[m][n] = -(float)sum_of(f, p, m, n).value;
    }
}

// A is the identity, so the result is B's rows + C; a test puts what it wants into them.
static void fill_identity(const struct format *f, product *p) {
    fill_integers(f, p, 4);
    for (int m = 0; m < rows; m++)
        for (int k = 0; k < depth; k++) p->a[m][k] = pattern_of(f, m == k);
    memset(p->c, 0, sizeof p->c);
}

// NaN, infinities and subnormal numbers, in A, B and C.
template <class T> static void check_specials(const struct format *f) {
    static product p[6];
    uint16_t infinity = (uint16_t)f->finite, minus_infinity = (uint16_t)(infinity | 0x8000);
    uint16_t nan = (uint16_t)(infinity | 1 << (f->fraction_bits - 1)), one = pattern_of(f, 1);
    uint32_t subnormals = 1u << f->fraction_bits;  // patterns below this
    for (int i = 0; i < 6; i++) fill_identity(f, p + i);
    p[0].a[3][5] = nan;                       // row 3
    p[0].b[6][9] = (uint16_t)(nan | 0x8000);  // column 6, for 0 NaN is NaN
    p[1].a[2][4] = infinity;
    p[1].a[12][7] = minus_infinity;
    p[2].a[11][4] = p[2].a[11][5] = infinity;  // inf + inf in columns 0 to 3, inf - inf in the others
    p[2].b[6][3] = infinity, p[2].b[7][3] = minus_infinity;
    p[3].a[1][1] = minus_infinity;
    for (int n = 0; n < columns; n++) {
        p[1].b[n][4] = pattern_of(f, n % 3 - 1);  // inf, NaN (0 inf), -inf
        p[1].b[n][7] = pattern_of(f, 2 - n);
        p[2].b[n][4] = one, p[2].b[n][5] = pattern_of(f, n < 4 ? 1 : -1);
        p[3].c[1][n] = INFINITY, p[3].c[2][n] = -INFINITY, p[3].c[n + 4][n] = NAN;
    }
    for (int m = 0; m < rows; m++) p[2].a[m][3] = pattern_of(f, m % 2);  // columns 6, 7: 0 inf, 1 inf
    for (int n = 0; n < columns; n++)
        for (int k = 0; k < depth; k++) {
            // Subnormal numbers of the type; rows 8 to 11: an fp32 one alone; 12 to 15: both kinds added.
            uint32_t sign = random_bits() >> 16 & 0x8000;
            p[4].b[n][k] = k / 4 == 2 ? 0 : (uint16_t)(sign | random_bits() % subnormals);
            if (k >= 8)
                p[4].c[k][n] = ldexpf((float)random_integer(100), k / 4 == 2 || f == &bf16 ? -149 : -30);
            // Subnormal times large.
            p[5].b[n][k] = pattern_of(f, ldexp(random_integer(8), f->bias - 4));
            p[5].a[k][k] = (uint16_t)(1 + random_bits() % (subnormals - 1));
        }
    check_products<T>(f, p, 6, 1);
}

template <class T> static void check_multiply(const struct format *f) {
    const int count = 64;
    static product p[count];
    for (int i = 0; i < count; i++) fill_integers(f, p + i, i % 2 ? 8 : 1);
    check_products<T>(f, p, count, 1);
    for (int i = 0; i < count; i++) fill_numbers(f, p + i, i % 4 * 2);
    check_products<T>(f, p, count, 0);
    check_specials<T>(f);

    float out[128];
    for (int transposed = 0; transposed < 2; transposed++) {
        fill_integers(f, p, 8);
        product *device_in = to_device((const product *)p, 1);
        float *device_out = to_device((float *)nullptr, 128);
        if (transposed)
            tile_kernel<T, true><<<1, 32>>>(device_in, device_out);
        else
            tile_kernel<T, false><<<1, 32>>>(device_in, device_out);
        from_device(out, device_out, 128);
        expect_success(cudaFree(device_in));
        check_product(f, p, out, 1);
    }

    // Products of numbers up to 2: at most 64, which is exact in both types.
    for (int i = 0; i < 3; i++) fill_integers(f, p + i, 2);
    product *device_in = to_device((const product *)p, 3);
    float *device_out = to_device((float *)nullptr, 128);
    chain_kernel<T><<<1, 32>>>(device_in, device_out);
    from_device(out, device_out, 128);
    expect_success(cudaFree(device_in));
    memset(p[0].c, 0, sizeof p[0].c), memset(p[1].c, 0, sizeof p[1].c);
    for (int m = 0; m < rows; m++)
        for (int k = 0; k < depth; k++) p[2].a[m][k] = pattern_of(f, sum_of(f, p + k / 8, m, k % 8).value);
    check_product(f, p + 2, out, 1);
}

int main() {
    fill_values(&fp16);
    fill_values(&bf16);
#ifdef SIMT_CPU
    for (unsigned schedule = 0; schedule < 4; schedule++) {
        simt_set_schedule(schedule);
#endif
        check_multiply<__half>(&fp16);
        check_multiply<__nv_bfloat16>(&bf16);
#ifdef SIMT_CPU
    }
#endif
    return check_done();
}
