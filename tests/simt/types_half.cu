// types_half.cu - half precision, bfloat16 and fp8 in a kernel, on either backend, to the bit. Expected
// values come from the definition of the formats (types_reference.h), in double on the host.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "device_memory.h"
#include "types_reference.h"

// ---- One name for what the two types name differently ----

__device__ __half from_bits(unsigned short bits, __half) { return __ushort_as_half(bits); }
__device__ __nv_bfloat16 from_bits(unsigned short bits, __nv_bfloat16) { return __ushort_as_bfloat16(bits); }
__device__ unsigned short to_bits(__half a) { return __half_as_ushort(a); }
__device__ unsigned short to_bits(__nv_bfloat16 a) { return __bfloat16_as_ushort(a); }
__device__ __half round_zero(float x, __half) { return __float2half_rz(x); }
__device__ __half round_down(float x, __half) { return __float2half_rd(x); }
__device__ __half round_up(float x, __half) { return __float2half_ru(x); }
__device__ __nv_bfloat16 round_zero(float x, __nv_bfloat16) { return __float2bfloat16_rz(x); }
__device__ __nv_bfloat16 round_down(float x, __nv_bfloat16) { return __float2bfloat16_rd(x); }
__device__ __nv_bfloat16 round_up(float x, __nv_bfloat16) { return __float2bfloat16_ru(x); }
__device__ __half2 pair(__half low, __half high) { return __halves2half2(low, high); }
__device__ __nv_bfloat162 pair(__nv_bfloat16 low, __nv_bfloat16 high) {
    return __halves2bfloat162(low, high);
}
__device__ __half low(__half2 a) { return __low2half(a); }
__device__ __half high(__half2 a) { return __high2half(a); }
__device__ __nv_bfloat16 low(__nv_bfloat162 a) { return __low2bfloat16(a); }
__device__ __nv_bfloat16 high(__nv_bfloat162 a) { return __high2bfloat16(a); }

// What a thread computes from its operands a, b, c.
struct results {
    unsigned short add, subtract, multiply, divide, fma, maximum, minimum, maximum_nan, minimum_nan;
    unsigned short add_saturated, fma_relu, negated, absolute, rounded, toward_zero, down, up, from_double;
    unsigned int relations;  // bits 0-5: == != < <= > >=, 6-11: eq ne lt le gt ge, 12-17: the same for NaN
                             // operands too
    float widened;
};

template <class T>
__global__ void scalar_kernel(const unsigned short *abc, const float *floats, const double *doubles,
                              results *out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    T a = from_bits(abc[3 * i], T()), b = from_bits(abc[3 * i + 1], T()), c = from_bits(abc[3 * i + 2], T());
    results r;
    r.add = to_bits(a + b);
    r.subtract = to_bits(a - b);
    r.multiply = to_bits(a * b);
    r.divide = to_bits(a / b);
    r.fma = to_bits(__hfma(a, b, c));
    r.maximum = to_bits(__hmax(a, b));
    r.minimum = to_bits(__hmin(a, b));
    r.maximum_nan = to_bits(__hmax_nan(a, b));
    r.minimum_nan = to_bits(__hmin_nan(a, b));
    r.add_saturated = to_bits(__hadd_sat(a, b));
    r.fma_relu = to_bits(__hfma_relu(a, b, c));
    r.negated = to_bits(-a);
    r.absolute = to_bits(__habs(a));
    r.rounded = to_bits(T(floats[i]));
    r.toward_zero = to_bits(round_zero(floats[i], T()));
    r.down = to_bits(round_down(floats[i], T()));
    r.up = to_bits(round_up(floats[i], T()));
    r.from_double = to_bits(T(doubles[i]));
    r.relations = (a == b) | (a != b) << 1 | (a < b) << 2 | (a <= b) << 3 | (a > b) << 4 | (a >= b) << 5 |
                  __heq(a, b) << 6 | __hne(a, b) << 7 | __hlt(a, b) << 8 | __hle(a, b) << 9 |
                  __hgt(a, b) << 10 | __hge(a, b) << 11 | __hequ(a, b) << 12 | __hneu(a, b) << 13 |
                  __hltu(a, b) << 14 | __hleu(a, b) << 15 | __hgtu(a, b) << 16 | __hgeu(a, b) << 17;
    r.widened = float(a);
    out[i] = r;
}

static int is_nan(const struct format *f, unsigned short bits) { return isnan(value_of(f, bits)); }

// Larger or smaller of two numbers, -0 < +0, a NaN only if both are.
static unsigned expected_extreme(const struct format *f, unsigned a, unsigned b, int want_larger) {
    if (is_nan(f, a) && is_nan(f, b)) return 0x7fff;
    if (is_nan(f, a)) return b;
    if (is_nan(f, b)) return a;
    double x = value_of(f, a), y = value_of(f, b);
    int a_is_larger = x > y || (x == y && !signbit(x));
    return a_is_larger == want_larger ? a : b;
}

// The nearest pattern below (direction -1) or above (1) the exact x, or toward zero (0).
static unsigned expected_directed(const struct format *f, double x, int direction) {
    if (isnan(x)) return 0x7fff;
    if (direction == 0) direction = signbit(x) ? 1 : -1;
    unsigned sign = signbit(x) ? 0x8000u : 0;
    double magnitude = fabs(x);
    if (isinf(x)) return sign | f->finite;
    int below = 0, end = f->finite;
    while (end - below > 1) {
        int middle = (below + end) / 2;
        if (f->value[middle] <= magnitude)
            below = middle;
        else
            end = middle;
    }
    int outward = (direction < 0) == (sign != 0) && f->value[below] != magnitude;
    return sign | (unsigned)(below + outward);
}

static int relation_bits(double x, double y, int unordered) {
    int nan = isnan(x) || isnan(y);
    int held[6] = {x == y, x < y || x > y, x<y, x <= y, x> y, x >= y};
    int bits = 0;
    for (int i = 0; i < 6; i++) bits |= (held[i] || (nan && unordered)) << i;
    return bits;
}

// A pattern: any, or a special one, or one of ordinary size, so that sums cancel and products stay in range.
static unsigned short random_pattern(const struct format *f) {
    unsigned special[] = {0,
                          1,
                          2,
                          3,
                          (1u << f->fraction_bits) - 1,
                          1u << f->fraction_bits,
                          (unsigned)f->finite - 1,
                          (unsigned)f->finite,
                          (unsigned)f->finite + 1,
                          0x7fff};
    uint32_t r = random_bits();
    unsigned sign = (r & 1) << 15, pattern = r >> 16 & 0x7fff;
    switch (r >> 1 & 3) {
    case 0:
        pattern = special[(r >> 8) % 10];
        break;
    case 1:
        pattern = ((unsigned)f->bias << f->fraction_bits) + (r >> 8) % (6u << f->fraction_bits);
        break;
    }
    return (unsigned short)(sign | (pattern & 0x7fff));
}

template <class T> static void check_scalar(const struct format *f) {
    const int count = 1 << 16;
    unsigned short *abc = (unsigned short *)malloc(3 * count * sizeof *abc);
    float *floats = (float *)malloc(count * sizeof *floats);
    double *doubles = (double *)malloc(count * sizeof *doubles);
    results *out = (results *)malloc(count * sizeof *out);
    for (int i = 0; i < count; i++) {
        abc[3 * i] = (unsigned short)i;  // every pattern once
        abc[3 * i + 1] = i % 8 == 0 ? (unsigned short)(i ^ (random_bits() & 0x8003)) : random_pattern(f);
        if (i % 0x8000 == 0) abc[3 * i + 1] = (unsigned short)(i ^ 0x8000);  // zeros of both signs
        abc[3 * i + 2] = random_pattern(f);
        if (i % 4 == 0) {  // c nearly cancels the product, or is half an ulp of it
            double product = value_of(f, abc[3 * i]) * value_of(f, abc[3 * i + 1]);
            abc[3 * i + 2] = (unsigned short)slow_round(f, ldexp(-product, i % 8 ? 0 : f->fraction_bits + 1));
        }
        // Halfway points, their neighbours, and numbers of any kind.
        double value = value_of(f, (unsigned)i), next = value_of(f, (unsigned)i ^ 1);
        uint32_t any = random_bits();
        floats[i] = (float)(value + (next - value) / 2);
        if (i % 4 == 1) memcpy(&floats[i], &any, 4);
        if (i % 4 == 2) floats[i] = nextafterf(floats[i], 0);
        doubles[i] = (value + (next - value) / 2) * (1 + (i % 3 - 1) * 0x1p-45);
    }
    unsigned short *device_abc = to_device(abc, 3 * count);
    float *device_floats = to_device(floats, count);
    double *device_doubles = to_device(doubles, count);
    results *device_out = to_device((const results *)nullptr, count);
    scalar_kernel<T><<<count / 256, 256>>>(device_abc, device_floats, device_doubles, device_out, count);
    from_device(out, device_out, count);
    expect_success(cudaFree(device_abc));
    expect_success(cudaFree(device_floats));
    expect_success(cudaFree(device_doubles));

    for (int i = 0; i < count; i++) {
        unsigned short a = abc[3 * i], b = abc[3 * i + 1], c = abc[3 * i + 2];
        double x = value_of(f, a), y = value_of(f, b), z = value_of(f, c);
        const results *r = &out[i];
        unsigned sum = slow_add(f, x, y), fma = slow_add(f, x * y, z);
        CHECK(r->add == sum);
        CHECK(r->subtract == slow_add(f, x, -y));
        CHECK(r->multiply == slow_round(f, x * y));
        CHECK(r->divide == slow_round(f, x / y));
        CHECK(r->fma == fma);
        CHECK(r->maximum == expected_extreme(f, a, b, 1));
        CHECK(r->minimum == expected_extreme(f, a, b, 0));
        int nan = isnan(x) || isnan(y);
        CHECK(r->maximum_nan == (nan ? 0x7fff : expected_extreme(f, a, b, 1)));
        CHECK(r->minimum_nan == (nan ? 0x7fff : expected_extreme(f, a, b, 0)));
        unsigned one = slow_round(f, 1);
        CHECK(r->add_saturated == (is_nan(f, sum) || sum & 0x8000 ? 0 : sum > one ? one : sum));
        CHECK(r->fma_relu == (is_nan(f, fma) ? 0x7fff : fma & 0x8000 ? 0 : fma));
        if (!isnan(x)) {
            CHECK(r->negated == (a ^ 0x8000));
            CHECK(r->absolute == (a & 0x7fff));
            CHECK((double)r->widened == x && signbit(r->widened) == signbit(x));
        } else {
            CHECK(is_nan(f, r->negated) && is_nan(f, r->absolute) && isnan(r->widened));
        }
        CHECK(r->rounded == slow_round(f, (double)floats[i]));
        CHECK(r->toward_zero == expected_directed(f, (double)floats[i], 0));
        CHECK(r->down == expected_directed(f, (double)floats[i], -1));
        CHECK(r->up == expected_directed(f, (double)floats[i], 1));
        // The conversion from double has NaNs of its own (the header for GPUs before sm_90 does it by
        // software).
        unsigned nan_of_double = (f == &fp16 ? 0x7e00 : 0x7fc0) | (signbit(doubles[i]) ? 0x8000 : 0);
        if (!CHECK(r->from_double == (isnan(doubles[i]) ? nan_of_double : slow_round(f, doubles[i]))))
            fprintf(stderr, "    %s from %a: 0x%04x\n", f->name, doubles[i], r->from_double);
        int ordered = relation_bits(x, y, 0), unordered = relation_bits(x, y, 1);
        int operators = (ordered & ~2) | (unordered & 2);  // the operator != holds for a NaN
        CHECK(r->relations == (unsigned)(operators | ordered << 6 | unordered << 12));
    }
    free(abc), free(floats), free(doubles), free(out);
}

// ---- Pairs: each element as if alone, the first in the low half of the word ----

template <class T, class T2>
__global__ void pair_kernel(const T2 *operands, T2 *out, unsigned int *masks, unsigned int *mismatches) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    T2 a = operands[3 * i], b = operands[3 * i + 1], c = operands[3 * i + 2];
    T2 pairs[6] = {a + b, a - b, a * b, __hfma2(a, b, c), __hmax2(a, b), __lowhigh2highlow(a)};
    T alone_low[6] = {low(a) + low(b),        low(a) - low(b),
                      low(a) * low(b),        __hfma(low(a), low(b), low(c)),
                      __hmax(low(a), low(b)), high(a)};
    T alone_high[6] = {high(a) + high(b),        high(a) - high(b),
                       high(a) * high(b),        __hfma(high(a), high(b), high(c)),
                       __hmax(high(a), high(b)), low(a)};
    unsigned int wrong = 0;
    for (int k = 0; k < 6; k++)
        if (to_bits(low(pairs[k])) != to_bits(alone_low[k]) ||
            to_bits(high(pairs[k])) != to_bits(alone_high[k]))
            wrong |= 1u << k;
    if (__low2float(a) != float(a.x) || __high2float(a) != float(a.y)) wrong |= 1u << 6;
    if (__hbeq2(a, b) != (a.x == b.x && a.y == b.y) || (a != b) != (a.x != b.x && a.y != b.y))
        wrong |= 1u << 7;
    masks[i] = __hlt2_mask(a, b);
    mismatches[i] = wrong;
    out[i] = pair(a.y, b.x);
}

template <class T, class T2> static void check_pairs(const struct format *f) {
    const int count = 4096;
    uint32_t operands[3 * count], out[count], masks[count], mismatches[count];
    for (int i = 0; i < 3 * count; i++) {
        uint32_t low_bits = random_pattern(f), high_bits = random_pattern(f);
        if (is_nan(f, (unsigned short)low_bits)) low_bits = 0x3c00;  // NaN was tested above
        if (is_nan(f, (unsigned short)high_bits)) high_bits = 0xbc00;
        operands[i] = low_bits | high_bits << 16;
    }
    uint32_t *device_operands = to_device(operands, 3 * count),
             *device_out = to_device((uint32_t *)nullptr, count);
    uint32_t *device_masks = to_device((uint32_t *)nullptr, count);
    uint32_t *device_mismatches = to_device((uint32_t *)nullptr, count);
    pair_kernel<T, T2><<<count / 128, 128>>>((const T2 *)device_operands, (T2 *)device_out, device_masks,
                                             device_mismatches);
    from_device(out, device_out, count);
    from_device(masks, device_masks, count);
    from_device(mismatches, device_mismatches, count);
    expect_success(cudaFree(device_operands));
    for (int i = 0; i < count; i++) {
        uint32_t a = operands[3 * i], b = operands[3 * i + 1];
        CHECK(out[i] == (a >> 16 | b << 16));
        int low_less = value_of(f, a & 0xffff) < value_of(f, b & 0xffff);
        int high_less = value_of(f, a >> 16) < value_of(f, b >> 16);
        CHECK(masks[i] == ((low_less ? 0xffffu : 0) | (high_less ? 0xffff0000u : 0)));
        CHECK(mismatches[i] == 0);
    }
}

// ---- fp8 ----

static struct format e4m3 = {"e4m3", 4, 3, 7, 0, 1, 0x7f, {0}, 0};
static struct format e5m2 = {"e5m2", 5, 2, 15, 1, 1, 0x7f, {0}, 0};

__global__ void fp8_kernel(const float *floats, uchar4 *narrow, unsigned short *pairs, unsigned int *quads) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = floats[i];
    narrow[i] = make_uchar4(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3), __nv_fp8_e5m2(x).__x,
                            __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3),
                            __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2));
    pairs[i] = __nv_cvt_float2_to_fp8x2(make_float2(x, 1.5f), __NV_SATFINITE, __NV_E4M3);
    quads[i] = __nv_fp8x4_e4m3(make_float4(1.0f, x, -2.0f, 448.0f)).__x;
}
__global__ void fp8_widen_kernel(float2 *widened, unsigned short *halves) {
    unsigned char bits = (unsigned char)threadIdx.x;
    __nv_fp8_e4m3 number;
    number.__x = bits;
    __nv_fp8_e5m2 other;
    other.__x = bits;
    widened[bits] = make_float2(float(number), float(other));
    halves[bits] = __nv_cvt_fp8_to_halfraw(bits, __NV_E4M3).x;
}

static void check_fp8() {
    const int count = 1 << 15;
    float *floats = (float *)malloc(count * sizeof *floats);
    for (int i = 0; i < count; i++) {
        const struct format *f = i % 2 ? &e4m3 : &e5m2;
        unsigned bits = (unsigned)i >> 1 & 0xff;
        double value = value_of(f, bits), next = value_of(f, bits ^ 1);
        floats[i] = (float)(value + (next - value) / 2);
        if (i >= 512) floats[i] = nextafterf(floats[i], i & 512 ? INFINITY : -INFINITY);
        uint32_t any = random_bits();
        if (i >= 2048) memcpy(&floats[i], &any, 4);
        if (i >= 4096) floats[i] = ldexpf((float)(int32_t)any, (int)(random_bits() % 28) - 45);
    }
    const float edges[] = {448,   463.99997f, 464,   464.00003f, 57344, 61439.996f,
                           61440, 61440.004f, 1e30f, INFINITY,   0};
    for (int i = 0; i < 11; i++) floats[2048 + 2 * i] = edges[i], floats[2049 + 2 * i] = -edges[i];
    uchar4 *narrow = (uchar4 *)malloc(count * sizeof *narrow);
    unsigned short *pairs = (unsigned short *)malloc(count * sizeof *pairs);
    unsigned int *quads = (unsigned int *)malloc(count * sizeof *quads);
    float *device_floats = to_device(floats, count);
    uchar4 *device_narrow = to_device((uchar4 *)nullptr, count);
    unsigned short *device_pairs = to_device((unsigned short *)nullptr, count);
    unsigned int *device_quads = to_device((unsigned int *)nullptr, count);
    fp8_kernel<<<count / 256, 256>>>(device_floats, device_narrow, device_pairs, device_quads);
    from_device(narrow, device_narrow, count);
    from_device(pairs, device_pairs, count);
    from_device(quads, device_quads, count);
    expect_success(cudaFree(device_floats));
    for (int i = 0; i < count; i++) {
        double x = (double)floats[i];
        unsigned as_e4m3 = slow_round(&e4m3, x), as_e5m2 = slow_round(&e5m2, x);
        CHECK(narrow[i].x == as_e4m3);
        CHECK(narrow[i].y == as_e5m2);
        CHECK(narrow[i].z == (fabs(x) > 464 ? (as_e4m3 & 0x80) | 0x7f : as_e4m3));
        CHECK(narrow[i].w == (fabs(x) >= 61440 ? (as_e5m2 & 0x80) | 0x7c : as_e5m2));
        CHECK(pairs[i] == (as_e4m3 | 0x3c00));            // 1.5 is 0x3c
        CHECK(quads[i] == (0x7ec00038u | as_e4m3 << 8));  // 448, -2, x, 1
    }
    free(floats), free(narrow), free(pairs), free(quads);

    float2 widened[256];
    unsigned short halves[256];
    float2 *device_widened = to_device((float2 *)nullptr, 256);
    unsigned short *device_halves = to_device((unsigned short *)nullptr, 256);
    fp8_widen_kernel<<<1, 256>>>(device_widened, device_halves);
    from_device(widened, device_widened, 256);
    from_device(halves, device_halves, 256);
    for (unsigned bits = 0; bits < 256; bits++) {
        double x = value_of(&e4m3, bits), y = value_of(&e5m2, bits);
        CHECK(isnan(x) ? isnan(widened[bits].x) : (double)widened[bits].x == x);
        CHECK(isnan(y) ? isnan(widened[bits].y) : (double)widened[bits].y == y);
        CHECK(halves[bits] == slow_round(&fp16, x));
    }
}

int main() {
    fill_values(&fp16);
    fill_values(&bf16);
    fill_values(&e4m3);
    fill_values(&e5m2);
    check_scalar<__half>(&fp16);
    check_scalar<__nv_bfloat16>(&bf16);
    check_pairs<__half, __half2>(&fp16);
    check_pairs<__nv_bfloat16, __nv_bfloat162>(&bf16);
    check_fp8();
    return check_done();
}
