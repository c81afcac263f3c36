// types_accesses.cpp - how the CPU backend's types touch memory, as the compiler's instrumentation reports
// it: a float4 is one access of 16 bytes, a __half2 one of 4, arithmetic adds none, and atomic functions are
// not seen at all.
//
// Compiled like a kernel (-fsanitize=thread, compile only) at -O0 and -O1, but linked with the hooks below
// instead of common/simt, which count the accesses to one buffer. Not for the gpu backend.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <string.h>

#include "check.h"
#include "common/numbers.h"
#include "simt_atomics.h"
#include "vector_types.h"

#define HIDDEN __attribute__((no_sanitize("thread"), noinline))
#define NOT_INLINED __attribute__((noinline))

// ---- The hooks ----

alignas(64) static unsigned char buffer[256];
static int reads[33], writes[33], atomics,
    others;  // by size in bytes; `others`: ranges and calls of memcpy and memset

static HIDDEN bool in_buffer(const void *address) {
    return static_cast<const unsigned char *>(address) >= buffer &&
           static_cast<const unsigned char *>(address) < buffer + sizeof buffer;
}

#define HOOKS(size)                                                                                          \
    HIDDEN void __tsan_read##size(void *address) { reads[size] += in_buffer(address); }                      \
    HIDDEN void __tsan_write##size(void *address) { writes[size] += in_buffer(address); }                    \
    HIDDEN void __tsan_unaligned_read##size(void *address) { reads[size] += in_buffer(address); }            \
    HIDDEN void __tsan_unaligned_write##size(void *address) { writes[size] += in_buffer(address); }
extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
HIDDEN void __tsan_init() {}
HIDDEN void __tsan_func_entry(void *) {}
HIDDEN void __tsan_func_exit() {}
HIDDEN void __tsan_read_range(void *address, size_t) { others += in_buffer(address); }
HIDDEN void __tsan_write_range(void *address, size_t) { others += in_buffer(address); }
HIDDEN void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    others += in_buffer(to) || in_buffer(from);
    return memmove(to, from, bytes);
}
HIDDEN void *__tsan_memset(void *to, int value, size_t bytes) {
    others += in_buffer(to);
    for (size_t i = 0; i < bytes; i++)
        static_cast<volatile unsigned char *>(to)[i] = static_cast<unsigned char>(value);
    return to;
}
}

namespace simt {
HIDDEN void atomic_access(const void *address, size_t, const char *file, int line) {
    atomics += in_buffer(address) && strstr(file, "types_accesses") && line > 0;
}
}  // namespace simt

static HIDDEN void expect(int line, int read_size, int read_count, int write_size, int write_count) {
    int total_reads = 0, total_writes = 0;
    for (int size = 0; size <= 32; size++) total_reads += reads[size], total_writes += writes[size];
    bool right = total_reads == read_count && total_writes == write_count && others == 0 &&
                 reads[read_size] == read_count && writes[write_size] == write_count;
    if (!CHECK(right)) {
        fprintf(stderr,
                "  case at line %d: %d reads (%d of %d bytes), %d writes (%d of %d bytes), %d others\n", line,
                total_reads, reads[read_size], read_size, total_writes, writes[write_size], write_size,
                others);
    }
    memset(reads, 0, sizeof reads);
    memset(writes, 0, sizeof writes);
    others = 0;
}
#define EXPECT(read_size, read_count, write_size, write_count)                                               \
    expect(__LINE__, read_size, read_count, write_size, write_count)

// ---- Cases: small functions as a kernel has them, not inlined so that each compiles alone ----

template <class T> NOT_INLINED void copy(T *to, const T *from) { *to = *from; }
template <class T> NOT_INLINED void copy_through_local(T *to, const T *from) {
    T value = *from;
    T another;
    another = value;
    *to = another;
}
template <class T> NOT_INLINED T by_value(T value) { return value; }
template <class T> NOT_INLINED void copy_through_call(T *to, const T *from) { *to = by_value(*from); }

template <class T> void check_copies(int size, int count) {
    T *v = reinterpret_cast<T *>(buffer);
    copy(v, v + 1);
    EXPECT(size, count, size, count);
    copy_through_local(v, v + 1);
    EXPECT(size, count, size, count);
    copy_through_call(v, v + 1);
    EXPECT(size, count, size, count);
}

NOT_INLINED float sum4(const float4 *v) {
    float4 a = *v;
    return a.x + a.y + a.z + a.w;
}
NOT_INLINED void set4(float4 *v, float x) { *v = make_float4(x, x + 1, x + 2, x + 3); }
NOT_INLINED float widen(const __half *h) { return __half2float(*h); }
NOT_INLINED float2 widen2(const __half2 *h) { return __half22float2(*h); }
NOT_INLINED void narrow(__half *h, float x) { *h = __float2half(x); }
NOT_INLINED void narrow2(__half2 *h, float x, float y) { *h = __floats2half2_rn(x, y); }
NOT_INLINED void add(__half *to, const __half *a) { to[0] = a[1] + a[2]; }
NOT_INLINED void fma2(__half2 *to, const __half2 *a) { to[0] = __hfma2(a[1], a[2], a[3]); }
NOT_INLINED void accumulate(__nv_bfloat162 *to, const __nv_bfloat162 *a) { *to += *a; }
NOT_INLINED float widen8(const __nv_fp8_e4m3 *a) { return float(*a); }
NOT_INLINED void narrow8(__nv_fp8_e5m2 *a, float x) { *a = __nv_fp8_e5m2(x); }
NOT_INLINED float widen_bits(const uint16_t *bits) {
    return float_from_fp16(*bits) + float_from_bf16(bits[1]);
}
NOT_INLINED float one_element(const float4 *v) { return v->z; }

int main() {
    check_copies<float4>(16, 1);
    check_copies<int4>(16, 1);
    check_copies<uint4>(16, 1);
    check_copies<double2>(16, 1);
    check_copies<longlong2>(16, 1);
    check_copies<double4_16a>(16, 2);
    check_copies<float2>(8, 1);
    check_copies<uint2>(8, 1);
    check_copies<short4>(8, 1);
    check_copies<double1>(8, 1);
    check_copies<uchar4>(4, 1);
    check_copies<short2>(4, 1);
    check_copies<float1>(4, 1);
    check_copies<char2>(2, 1);
    check_copies<float3>(4, 3);
    check_copies<uchar3>(1, 3);
    check_copies<double3>(8, 3);
    check_copies<__half>(2, 1);
    check_copies<__half2>(4, 1);
    check_copies<__nv_bfloat16>(2, 1);
    check_copies<__nv_bfloat162>(4, 1);
    check_copies<__nv_fp8_e4m3>(1, 1);
    check_copies<__nv_fp8x2_e5m2>(2, 1);
    check_copies<__nv_fp8x4_e4m3>(4, 1);

    void *start = buffer;
    set4(static_cast<float4 *>(start), 1);
    EXPECT(0, 0, 16, 1);
    CHECK(sum4(static_cast<float4 *>(start)) == 10);
    EXPECT(16, 1, 0, 0);
    CHECK(one_element(static_cast<float4 *>(start)) == 3);
    EXPECT(4, 1, 0, 0);
    narrow(static_cast<__half *>(start), 1.5f);
    EXPECT(0, 0, 2, 1);
    CHECK(widen(static_cast<__half *>(start)) == 1.5f);
    EXPECT(2, 1, 0, 0);
    narrow2(static_cast<__half2 *>(start), 1, 2);
    EXPECT(0, 0, 4, 1);
    CHECK(widen2(static_cast<__half2 *>(start)).y == 2);
    EXPECT(4, 1, 0, 0);
    add(static_cast<__half *>(start), static_cast<__half *>(start));
    EXPECT(2, 2, 2, 1);
    fma2(static_cast<__half2 *>(start), static_cast<__half2 *>(start));
    EXPECT(4, 3, 4, 1);
    accumulate(static_cast<__nv_bfloat162 *>(start), static_cast<__nv_bfloat162 *>(start) + 1);
    EXPECT(4, 2, 4, 1);
    narrow8(static_cast<__nv_fp8_e5m2 *>(start), 2);
    EXPECT(0, 0, 1, 1);
    CHECK(widen8(static_cast<__nv_fp8_e4m3 *>(start)) == 2);  // 2 has the same bits in both formats
    EXPECT(1, 1, 0, 0);
    memset(buffer, 0, sizeof buffer);
    others = 0;
    CHECK(widen_bits(static_cast<uint16_t *>(start)) == 0);
    EXPECT(2, 2, 0, 0);

    // numbers.h is the backend's own: not seen even when it goes through a pointer.
    number_store(DTYPE_BF16, start, 3, 2.5);
    CHECK(number_load(DTYPE_BF16, start, 3) == 2.5);
    EXPECT(0, 0, 0, 0);

    // Atomic functions announce themselves, with the caller's line, and do nothing that the instrumentation
    // sees.
    memset(buffer, 0, sizeof buffer);
    others = 0;
    CHECK(atomicAdd(static_cast<int *>(start), 5) == 0);
    CHECK(atomicAdd(static_cast<float *>(start) + 1, 2.0f) == 0);
    CHECK(atomicCAS(static_cast<unsigned long long *>(start) + 1, 0ull, 9ull) == 0);
    CHECK(float(atomicAdd(static_cast<__half *>(start) + 8, __half(1.0f))) == 0);
    CHECK(float(atomicAdd(static_cast<__half2 *>(start) + 8, __half2(1.0f, 2.0f)).y) == 0);
    CHECK(atomicAdd(static_cast<float4 *>(start) + 4, make_float4(1, 2, 3, 4)).w == 0);
    CHECK(atomicMax_block(static_cast<int *>(start), 7) == 5);
    __threadfence();
    CHECK(atomics == 7);
    EXPECT(0, 0, 0, 0);
    return check_done();
}
