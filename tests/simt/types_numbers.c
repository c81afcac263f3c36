// types_numbers.c - common/numbers.h against a slow reference written from the definition of the formats: the
// value of every bit pattern as fraction times power of two, and rounding as a search for the nearest of all
// values.
#include <math.h>

#include "check.h"
#include "common/numbers.h"
#include "types_reference.h"

static struct format e4m3 = {"e4m3", 4, 3, 7, 0, 1, 0x7f, {0}, 0};
static struct format e5m2 = {"e5m2", 5, 2, 15, 1, 1, 0x7f, {0}, 0};

static uint32_t fast_from_float(const struct format *f, float x) {
    return f == &fp16   ? fp16_from_float(x)
           : f == &bf16 ? bf16_from_float(x)
           : f == &e4m3 ? e4m3_from_float(x)
                        : e5m2_from_float(x);
}
static uint32_t fast_from_double(const struct format *f, double x) {
    return f == &fp16   ? fp16_from_double(x)
           : f == &bf16 ? bf16_from_double(x)
           : f == &e4m3 ? e4m3_from_double(x)
                        : e5m2_from_double(x);
}
static float fast_to_float(const struct format *f, uint32_t bits) {
    return f == &fp16   ? float_from_fp16((uint16_t)bits)
           : f == &bf16 ? float_from_bf16((uint16_t)bits)
           : f == &e4m3 ? float_from_e4m3((uint8_t)bits)
                        : float_from_e5m2((uint8_t)bits);
}

static int same_double(double a, double b) { return bits_of_double(a) == bits_of_double(b); }

static void check_double(const struct format *f, double x) {
    if (!CHECK(fast_from_double(f, x) == slow_round(f, x)))
        fprintf(stderr, "  %s of %a: got %#x, want %#x\n", f->name, x, fast_from_double(f, x),
                slow_round(f, x));
}
static void check_float(const struct format *f, float x) {
    if (!CHECK(fast_from_float(f, x) == slow_round(f, (double)x)))
        fprintf(stderr, "  %s of %a: got %#x, want %#x\n", f->name, (double)x, fast_from_float(f, x),
                slow_round(f, (double)x));
    check_double(f, (double)x);
}
static void check_around(const struct format *f, double x) {
    for (int sign = -1; sign <= 1; sign += 2) {
        float single = (float)(sign * x);
        check_float(f, single);
        check_float(f, nextafterf(single, INFINITY));
        check_float(f, nextafterf(single, -INFINITY));
        check_double(f, sign * x);
        check_double(f, nextafter(sign * x, INFINITY));
        check_double(f, nextafter(sign * x, -INFINITY));
    }
}

static void check_format(struct format *f) {
    fill_values(f);
    uint32_t patterns = 1u << bits_in(f), sign_bit = patterns >> 1;

    // Every pattern has its value, and rounds to itself.
    for (uint32_t bits = 0; bits < patterns; bits++) {
        uint32_t magnitude = bits & (sign_bit - 1);
        float value = fast_to_float(f, bits);
        if (magnitude < (uint32_t)f->finite) {
            double want = bits & sign_bit ? -f->value[magnitude] : f->value[magnitude];
            CHECK(same_double((double)value, want));
            CHECK(fast_from_float(f, value) == bits);
            CHECK(fast_from_double(f, (double)value) == bits);
        } else if (f->has_infinity && magnitude == (uint32_t)f->finite) {
            CHECK(isinf(value) && !!signbit(value) == !!(bits & sign_bit));
            CHECK(fast_from_float(f, value) == (f->saturates ? bits - 1 : bits));
        } else {
            CHECK(isnan(value));
            CHECK(fast_from_float(f, value) == f->nan_bits);
            CHECK(fast_from_double(f, (double)value) == f->nan_bits);
        }
    }

    // Every value, every halfway point and their neighbours, both signs; past the largest value, too.
    for (int i = 0; i < f->finite; i++) {
        double next = i + 1 < f->finite ? f->value[i + 1] : 2 * f->value[i] - f->value[i - 1];
        check_around(f, f->value[i]);
        check_around(f, f->value[i] + (next - f->value[i]) / 2);
        // A double that a detour through float would round twice: a hair off the halfway point.
        double half = f->value[i] + (next - f->value[i]) / 2;
        check_double(f, half + half * 0x1p-40);
        check_double(f, half - half * 0x1p-40);
    }
    double special[] = {0.0,
                        -0.0,
                        0x1p-149,
                        0x1p-150,
                        0x1p-151,
                        0x1p-1074,
                        0x1p127,
                        0x1.fffffep127,
                        0x1p128,
                        0x1p500,
                        1e308,
                        1.0,
                        0x1.fffffefffffffp127};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) check_around(f, special[i]);
    check_float(f, INFINITY);
    check_float(f, -INFINITY);
    check_float(f, NAN);
    check_float(f, -NAN);

    // Floats and doubles of all sizes.
    for (int i = 0; i < 400000; i++) {
        check_float(f, float_of_bits(random_bits()));
        double x = double_of_bits((uint64_t)random_bits() << 32 | random_bits());
        check_double(f, x);
        check_double(f, ldexp(x - x == 0 ? frexp(x, &(int){0}) : 0.5, (int)(random_bits() % 40) - 20));
    }
}

// The compiler's own half precision type, where it has one.
static void check_against_compiler(void) {
#if defined(__FLT16_MANT_DIG__)
    typedef _Float16 half;
#elif defined(__ARM_FP16_FORMAT_IEEE)
    typedef __fp16 half;
#endif
#if defined(__FLT16_MANT_DIG__) || defined(__ARM_FP16_FORMAT_IEEE)
    for (int i = 0; i < 3000000; i++) {
        uint32_t bits = i < 200000 ? (uint32_t)i << 13 | 0x1000u : random_bits();
        float x = float_of_bits(bits);
        if (isnan(x)) continue;
        half h = (half)x;
        uint16_t want;
        memcpy(&want, &h, 2);
        CHECK(fp16_from_float(x) == want);
    }
#endif
}

static void check_by_type(void) {
    static const char *const names[] = {"fp16", "bf16", "e4m3", "e5m2", "fp32", "fp64"};
    static const int bytes[] = {2, 2, 1, 1, 4, 8};
    for (int i = 0; i < DTYPE_COUNT; i++) {
        enum dtype type = (enum dtype)i;
        CHECK(strcmp(dtype_name(type), names[i]) == 0);
        CHECK(dtype_from_name(names[i]) == type);
        CHECK(dtype_bytes(type) == bytes[i]);

        // The unit roundoff is half the distance from 1 to the next number; the largest finite value is just
        // that.
        double u = dtype_unit_roundoff(type), largest = dtype_max_finite(type);
        CHECK(number_round(type, 1 + 2 * u) == 1 + 2 * u);
        CHECK(number_round(type, 1 + u) == 1);
        CHECK(number_round(type, largest) == largest);
        if (type == DTYPE_E4M3 || type == DTYPE_E5M2)
            CHECK(number_round(type, INFINITY) == largest);
        else
            CHECK(isinf(number_round(type, largest * (1 + 2 * u))));
        CHECK(isnan(number_round(type, NAN)));
        CHECK(signbit(number_round(type, -0.0)));

        // Elements land where they belong, and nowhere else.
        unsigned char memory[10 * 8 + 1], before[sizeof memory];
        memset(memory, 0x5a, sizeof memory);
        memcpy(before, memory, sizeof memory);
        void *unaligned = memory + 1;
        number_store(type, unaligned, 3, -1.5);
        CHECK(number_load(type, unaligned, 3) == -1.5);
        size_t first = 1 + 3 * (size_t)bytes[i], end = first + (size_t)bytes[i];
        CHECK(memcmp(memory, before, first) == 0);
        CHECK(memcmp(memory + end, before + end, sizeof memory - end) == 0);
    }
    CHECK(dtype_from_name("fp8") == DTYPE_E4M3);
    CHECK(dtype_from_name("float16") == DTYPE_COUNT);
    CHECK(dtype_from_name("") == DTYPE_COUNT);
    CHECK(number_round(DTYPE_FP32, 1 + 0x1p-24 + 0x1p-50) == 1 + 0x1p-23);
    CHECK(number_round(DTYPE_FP64, 0.1) == 0.1);
}

int main(void) {
    check_format(&fp16);
    check_format(&bf16);
    check_format(&e4m3);
    check_format(&e5m2);
    check_against_compiler();
    check_by_type();
    return check_done();
}
