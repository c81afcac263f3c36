// types_math.cu - device mathematics in a kernel, on either backend. Integer functions, conversions, minima
// and single operations must be right to the bit; the fast functions within the error that CUDA documents for
// the GPU.
#include <cuda_runtime.h>
#include <math.h>
#include <math_constants.h>
#include <stdint.h>
#include <string.h>

#include "device_memory.h"

constexpr int count = 1 << 14;

struct integer_results {
    int popc, popcll, clz, clzll, ffs, ffsll, mulhi, mul24, minimum, maximum;
    unsigned int brev, byte_perm, shift_left, shift_right, shift_left_clamped, shift_right_clamped, umulhi,
        umul24, sad;
    unsigned int unsigned_minimum, mixed_maximum;
    unsigned long long brevll, umul64hi;
    long long mul64hi, long_minimum;
};

__global__ void integer_kernel(const unsigned int *words, integer_results *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int a = words[3 * i], b = words[3 * i + 1], c = words[3 * i + 2];
    unsigned long long wide = (unsigned long long)a << 32 | b, other = (unsigned long long)c << 32 | a;
    integer_results r;
    r.popc = __popc(a);
    r.popcll = __popcll(wide);
    r.clz = __clz((int)a);
    r.clzll = __clzll((long long)wide);
    r.ffs = __ffs((int)a);
    r.ffsll = __ffsll((long long)wide);
    r.mulhi = __mulhi((int)a, (int)b);
    r.mul24 = __mul24((int)a, (int)b);
    r.minimum = min((int)a, (int)b);
    r.maximum = max((int)a, (int)b);
    r.brev = __brev(a);
    r.byte_perm = __byte_perm(a, b, c);
    r.shift_left = __funnelshift_l(a, b, c);
    r.shift_right = __funnelshift_r(a, b, c);
    r.shift_left_clamped = __funnelshift_lc(a, b, c % 48);
    r.shift_right_clamped = __funnelshift_rc(a, b, c % 48);
    r.umulhi = __umulhi(a, b);
    r.umul24 = __umul24(a, b);
    r.sad = __sad((int)a, (int)b, c);
    r.unsigned_minimum = min(a, b);
    r.mixed_maximum = max((int)a, b);  // compares as unsigned
    r.brevll = __brevll(wide);
    r.umul64hi = __umul64hi(wide, other);
    r.mul64hi = __mul64hi((long long)wide, (long long)other);
    r.long_minimum = min((long long)wide, (long long)other);
    out[i] = r;
}

static int bit(uint64_t x, int k) { return (int)(x >> k & 1); }
// Schoolbook multiplication in 32-bit digits: the high half of a 64-bit product.
static uint64_t high_product(uint64_t a, uint64_t b) {
    uint64_t a0 = a & 0xffffffff, a1 = a >> 32, b0 = b & 0xffffffff, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    uint64_t other = a0 * b1 + (middle & 0xffffffff);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}
static uint64_t shifted_bits(uint64_t x, int shift) {  // bit by bit; a negative shift goes right
    uint64_t result = 0;
    for (int k = 0; k < 64; k++)
        if (k + shift >= 0 && k + shift < 64 && bit(x, k)) result |= (uint64_t)1 << (k + shift);
    return result;
}

static void check_integers() {
    static unsigned int words[3 * count];
    static integer_results out[count];
    for (int i = 0; i < 3 * count; i++) {
        words[i] = random_bits();
        if (i % 7 == 0) words[i] >>= random_bits() % 32;
        if (i % 11 == 0) words[i] <<= random_bits() % 32;
        if (i % 97 == 0) words[i] = i % 2 ? 0 : 0x80000000u;
    }
    unsigned int *device_words = to_device(words, 3 * count);
    integer_results *device_out = to_device((const integer_results *)nullptr, count);
    integer_kernel<<<count / 128, 128>>>(device_words, device_out);
    from_device(out, device_out, count);
    expect_success(cudaFree(device_words));
    for (int i = 0; i < count; i++) {
        unsigned int a = words[3 * i], b = words[3 * i + 1], c = words[3 * i + 2];
        uint64_t wide = (uint64_t)a << 32 | b, other = (uint64_t)c << 32 | a;
        const integer_results *r = &out[i];
        int popc = 0, popcll = 0, clz = 32, clzll = 64, ffs = 0, ffsll = 0;
        uint64_t reversed = 0;
        for (int k = 63; k >= 0; k--) {
            popcll += bit(wide, k);
            if (bit(wide, k)) ffsll = k + 1;
            if (bit(wide, k) && clzll == 64) clzll = 63 - k;
            if (bit(wide, k)) reversed |= (uint64_t)1 << (63 - k);
            if (k >= 32) continue;
            popc += bit(a, k);
            if (bit(a, k)) ffs = k + 1;
            if (bit(a, k) && clz == 32) clz = 31 - k;
        }
        CHECK(r->popc == popc && r->popcll == popcll);
        CHECK(r->clz == clz && r->clzll == clzll);
        CHECK(r->ffs == ffs && r->ffsll == ffsll);
        CHECK(r->brevll == reversed);
        CHECK(r->brev == (reversed & 0xffffffff));  // a is the high word, so its reverse is the low one
        long long product = (long long)(int)a * (int)b;
        CHECK(r->mulhi == (int)(product >> 32));
        CHECK(r->umulhi == (unsigned int)((uint64_t)a * b >> 32));
        CHECK(r->umul24 == (unsigned int)((uint64_t)(a % 16777216) * (b % 16777216)));
        long long a24 = a % 16777216, b24 = b % 16777216;
        if (a24 >= 8388608) a24 -= 16777216;
        if (b24 >= 8388608) b24 -= 16777216;
        CHECK(r->mul24 == (int)(unsigned int)(uint64_t)(a24 * b24));
        CHECK(r->minimum == ((int)a < (int)b ? (int)a : (int)b));
        CHECK(r->maximum == ((int)a > (int)b ? (int)a : (int)b));
        CHECK(r->unsigned_minimum == (a < b ? a : b));
        CHECK(r->mixed_maximum == (a > b ? a : b));
        CHECK(r->long_minimum == ((int64_t)wide < (int64_t)other ? (int64_t)wide : (int64_t)other));
        unsigned char bytes[8], chosen[4];
        memcpy(bytes, &a, 4);
        memcpy(bytes + 4, &b, 4);
        for (int k = 0; k < 4; k++) chosen[k] = bytes[c >> 4 * k & 7];
        CHECK(memcmp(&r->byte_perm, chosen, 4) == 0);
        uint64_t high_low = (uint64_t)b << 32 | a;
        int clamped = c % 48 < 32 ? (int)(c % 48) : 32;
        CHECK(r->shift_left == (unsigned int)(shifted_bits(high_low, (int)(c % 32)) >> 32));
        CHECK(r->shift_right == (unsigned int)shifted_bits(high_low, -(int)(c % 32)));
        CHECK(r->shift_left_clamped == (unsigned int)(shifted_bits(high_low, clamped) >> 32));
        CHECK(r->shift_right_clamped == (unsigned int)shifted_bits(high_low, -clamped));
        long long difference = (long long)(int)a - (int)b;
        CHECK(r->sad == (unsigned int)(uint64_t)((difference < 0 ? -difference : difference) + c));
        CHECK(r->umul64hi == high_product(wide, other));
        uint64_t signed_high =
            high_product(wide, other) - (bit(wide, 63) ? other : 0) - (bit(other, 63) ? wide : 0);
        CHECK((uint64_t)r->mul64hi == signed_high);
    }
}

// ---- Floating point, exact ----

struct float_results {
    float add, subtract, multiply, divide, reciprocal, root, fused, maximum, minimum, max_overload, saturated;
    unsigned int bits;
    int to_int[4];
    unsigned int to_uint[4];
    long long to_long[4];
    double max_double, same_double;
};

__global__ void float_kernel(const float *values, float_results *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = values[3 * i], b = values[3 * i + 1], c = values[3 * i + 2];
    float_results r;
    r.add = __fadd_rn(a, b);
    r.subtract = __fsub_rn(a, b);
    r.multiply = __fmul_rn(a, b);
    r.divide = __fdiv_rn(a, b);
    r.reciprocal = __frcp_rn(a);
    r.root = __fsqrt_rn(a);
    r.fused = i % 2 ? fmaf(a, b, c) : __fmaf_rn(a, b, c);
    r.maximum = fmaxf(a, b);
    r.minimum = fminf(a, b);
    r.max_overload = max(a, b);
    r.saturated = __saturatef(a);
    r.bits = __float_as_uint(__int_as_float(__float_as_int(a)));
    r.to_int[0] = __float2int_rn(a), r.to_int[1] = __float2int_rz(a);
    r.to_int[2] = __float2int_rd(a), r.to_int[3] = __float2int_ru(a);
    r.to_uint[0] = __float2uint_rn(a), r.to_uint[1] = __float2uint_rz(a);
    r.to_uint[2] = __float2uint_rd(a), r.to_uint[3] = __float2uint_ru(a);
    r.to_long[0] = __float2ll_rn(a), r.to_long[1] = __float2ll_rz(a);
    r.to_long[2] = __float2ll_rd(a), r.to_long[3] = __float2ll_ru(a);
    r.max_double = max(a, 0.5);
    double d = __fma_rn((double)a, (double)b, (double)c);
    r.same_double = __hiloint2double(__double2hiint(d), __double2loint(d));
    out[i] = r;
}

// Equal bits, or both NaN (of which the GPU and the CPU make different ones).
static int same(float a, float b) { return (isnan(a) && isnan(b)) || memcmp(&a, &b, 4) == 0; }

static float extreme(float a, float b, int larger) {
    if (isnan(a)) return b;
    if (isnan(b)) return a;
    if (a == b) return (signbit(a) != 0) == larger ? b : a;
    return (a > b) == larger ? a : b;
}
// A whole number in double to an integer between two limits; a NaN becomes `for_nan`.
static double cut(double x, double lowest, double highest, double for_nan) {
    return isnan(x) ? for_nan : x < lowest ? lowest : x > highest ? highest : x;
}

static void check_floats() {
    static float values[3 * count];
    static float_results out[count];
    const float special[] = {
        0,         -0.0f, 1,      -1,    0.5f,         1.5f,         2.5f,          -2.5f,        INFINITY,
        -INFINITY, NAN,   1e-40f, 3e38f, 2147483520.f, 2147483648.f, -2147483648.f, 4294967040.f, 1e19f};
    for (int i = 0; i < 3 * count; i++) {
        uint32_t any = random_bits();
        switch (i % 5) {
        case 0:
            values[i] = special[any % 18];
            break;
        case 1:
            memcpy(&values[i], &any, 4);
            break;
        case 2:
            values[i] = (float)(int)any * 0.25f;
            break;
        default:
            values[i] = ldexpf((float)(int)any, -32);
            break;
        }
        // First every pair of special values, as the operands a and b.
        if (i < 3 * 18 * 18) values[i] = special[i % 3 == 0 ? i / 3 / 18 : i / 3 % 18];
        if (i % 3 == 2 && i % 4 == 0)
            values[i] = -(values[i - 1] * values[i - 2]);  // the product nearly cancels
    }
    float *device_values = to_device(values, 3 * count);
    float_results *device_out = to_device((const float_results *)nullptr, count);
    float_kernel<<<count / 128, 128>>>(device_values, device_out);
    from_device(out, device_out, count);
    expect_success(cudaFree(device_values));
    for (int i = 0; i < count; i++) {
        float a = values[3 * i], b = values[3 * i + 1], c = values[3 * i + 2];
        double x = (double)a, y = (double)b;
        const float_results *r = &out[i];
        // In double these are exact, or so long that rounding again changes nothing.
        CHECK(same(r->add, (float)(x + y)));
        CHECK(same(r->subtract, (float)(x - y)));
        CHECK(same(r->multiply, (float)(x * y)));
        CHECK(same(r->divide, (float)(x / y)));
        CHECK(same(r->reciprocal, (float)(1 / x)));
        CHECK(same(r->root, (float)sqrt(x)));
        // The product is exact in double; a sum that is exact, too, shows whether there was one rounding.
        double sum = x * y + (double)c, part = sum - x * y;
        if ((x * y - (sum - part)) + ((double)c - part) == 0) CHECK(same(r->fused, (float)sum));
        CHECK(isnan(sum) ? isnan(r->same_double) : r->same_double == sum);
        CHECK(same(r->maximum, extreme(a, b, 1)));
        CHECK(same(r->max_overload, extreme(a, b, 1)));
        CHECK(same(r->minimum, extreme(a, b, 0)));
        CHECK(r->max_double == (x > 0.5 ? x : 0.5));
        CHECK(same(r->saturated, a > 0 ? (a < 1 ? a : 1.0f) : 0.0f));
        CHECK(memcmp(&r->bits, &a, 4) == 0);
        const double whole[4] = {rint(x), trunc(x), floor(x), ceil(x)};
        for (int k = 0; k < 4; k++) {
            CHECK((double)r->to_int[k] == cut(whole[k], -2147483648.0, 2147483647.0, 0));
            CHECK((double)r->to_uint[k] == cut(whole[k], 0, 4294967295.0, 0));
            // As a double the largest integer is 2^63, which is what it is cut to in double.
            CHECK((double)r->to_long[k] == cut(whole[k], -0x1p63, 0x1p63, -0x1p63));
        }
    }
}

// ---- Fast functions ----

struct fast_results {
    float exponential, power_of_ten, logarithm, logarithm2, quotient, reciprocal_root, exp2, sine, cosine,
        tanh;
};

__global__ void fast_kernel(const float *values, fast_results *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = values[i], positive = fabsf(x) + 1e-3f;
    fast_results r;
    r.exponential = __expf(x);
    r.power_of_ten = __exp10f(x * 0.25f);
    r.logarithm = __logf(positive);
    r.logarithm2 = __log2f(positive);
    r.quotient = __fdividef(x, positive);
    r.reciprocal_root = rsqrtf(positive);
    r.exp2 = exp2f(x);
    r.sine = __sinf(x * 0.03f);
    r.cosine = __cosf(x * 0.03f);
    r.tanh = tanhf(x);
    out[i] = r;
}

__global__ void special_kernel(float *out) {
    out[0] = __expf(-CUDART_INF_F);
    out[1] = __expf(CUDART_INF_F);
    out[2] = __expf(0.0f);
    out[3] = __logf(0.0f);
    out[4] = __fdividef(3.0f, 0x1.8p126f);
    out[5] = exp2f(-CUDART_INF_F);
    out[6] = rsqrtf(0.0f);
    out[7] = exp2f(-3.0f);
    out[8] = expf(-CUDART_INF_F);
    out[9] = CUDART_NAN_F;
    out[10] = fmaxf(-CUDART_INF_F, CUDART_NAN_F);
    out[11] = CUDART_L2E_F * CUDART_LN2_F;
}

static int close(float got, double want, double relative, double absolute) {
    return fabs((double)got - want) <= relative * fabs(want) + absolute;
}

static void check_fast() {
    static float values[count];
    static fast_results out[count];
    for (int i = 0; i < count; i++) values[i] = (float)(i - count / 2) * (80.0f / (count / 2));
    float *device_values = to_device(values, count);
    fast_results *device_out = to_device((const fast_results *)nullptr, count);
    fast_kernel<<<count / 128, 128>>>(device_values, device_out);
    from_device(out, device_out, count);
    expect_success(cudaFree(device_values));
    const double ulp = 0x1p-23;
    for (int i = 0; i < count; i++) {
        double x = (double)values[i], positive = (double)(fabsf(values[i]) + 1e-3f);
        const fast_results *r = &out[i];
        // Bounds: CUDA C++ Programming Guide, tables of intrinsic functions.
        CHECK(close(r->exponential, exp(x), (2 + floor(1.173 * fabs(x))) * ulp, 0));
        CHECK(close(r->power_of_ten, pow(10, x * 0.25), (2 + floor(2.97 * fabs(x * 0.25))) * ulp, 0));
        CHECK(close(r->logarithm, log(positive), 3 * ulp, 0x1p-21));
        CHECK(close(r->logarithm2, log2(positive), 2 * ulp, 0x1p-21));
        CHECK(close(r->quotient, x / positive, 2 * ulp, 0));
        CHECK(close(r->reciprocal_root, 1 / sqrt(positive), 2 * ulp, 0));
        CHECK(close(r->exp2, exp2(x), 2 * ulp, 0));
        CHECK(close(r->sine, sin((double)(values[i] * 0.03f)), 0, 0x1p-21));
        CHECK(close(r->cosine, cos((double)(values[i] * 0.03f)), 0, 0x1p-21));
        CHECK(close(r->tanh, tanh(x), 2 * ulp, 0));
    }

    float special[12];
    float *device_special = to_device((const float *)nullptr, 12);
    special_kernel<<<1, 1>>>(device_special);
    from_device(special, device_special, 12);
    const float expected[9] = {0, INFINITY, 1, -INFINITY, 0, 0, INFINITY, 0.125f, 0};
    for (int i = 0; i < 9; i++) CHECK(special[i] == expected[i]);
    CHECK(isnan(special[9]));
    CHECK(special[10] == -INFINITY);
    CHECK(close(special[11], 1, 2 * ulp, 0));
}

int main() {
    check_integers();
    check_floats();
    check_fast();
    return check_done();
}
