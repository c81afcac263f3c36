// types_atomics.cu - atomic functions under contention, in global and in shared memory, on either backend.
//
// Every test is built so that the outcome does not depend on the order of the threads, but a lost update or a
// wrong old value shows: tickets must all be different, sums of whole numbers exact, chains of exchanges lose
// no value.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <string.h>

#include "device_memory.h"

constexpr int blocks = 32, threads = 256, total = blocks * threads;

struct counters {
    int add, subtract, minimum, maximum, exchanged;
    unsigned int unsigned_add, unsigned_minimum, unsigned_maximum, bits_and, bits_or, bits_xor, increment,
        decrement, lock;
    unsigned long long long_add, long_maximum, exchange_sum, cas_sum, system_add;
    long long signed_minimum;
    float float_add, float_exchange;
    double double_add;
    __half2 half_pair;  // a pair of 4 bytes first: alignment
    __half half_add, padding;
    __nv_bfloat162 bfloat_pair;
    unsigned short short_cas, short_padding;
    float2 vector2;
    float4 vector4;
};

// Compare-and-swap by hand: multiplies, which no atomic does.
__device__ void atomic_multiply(unsigned long long *address, unsigned long long factor) {
    unsigned long long old = atomicAdd(address, 0ull), seen;
    do {
        seen = old;
        old = atomicCAS(address, seen, seen * factor);
    } while (old != seen);
}

__global__ void global_kernel(counters *c, int *tickets, unsigned int *increments, unsigned int *decrements,
                              unsigned long long *product) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tickets[i] = atomicAdd(&c->add, 1);
    atomicSub(&c->subtract, 3);
    atomicMin(&c->minimum, (i * 7919) % total - 5000);
    atomicMax(&c->maximum, (i * 7919) % total - 5000);
    atomicAdd(&c->unsigned_add, 0x01000001u);
    atomicMin(&c->unsigned_minimum, 0x80000000u + (unsigned int)i);
    atomicMax(&c->unsigned_maximum, 0x80000000u + (unsigned int)i);
    atomicAnd(&c->bits_and, ~(1u << i % 16));
    atomicOr(&c->bits_or, 1u << i % 16);
    atomicXor(&c->bits_xor, (unsigned int)i);
    increments[i] = atomicInc(&c->increment, 99);
    decrements[i] = atomicDec(&c->decrement, 99);
    atomicAdd(&c->long_add, 0x100000001ull);
    atomicMax(&c->long_maximum, 0x700000000ull + (unsigned int)i);
    atomicMin(&c->signed_minimum, -0x700000000ll - i);
    atomicAdd(&c->exchange_sum, (unsigned long long)atomicExch(&c->exchanged, i));
    atomicAdd(&c->float_add, 1.0f);
    atomicAdd(&c->double_add, 0.5);
    atomicAdd_system(&c->system_add, 2ull);
    if (i < 512) {  // few enough that fp16 and bf16 count exactly
        atomicAdd(&c->half_pair, __floats2half2_rn(1.0f, -2.0f));
        atomicAdd(&c->half_add, __float2half(0.5f));
        if (i < 128) atomicAdd(&c->bfloat_pair, __floats2bfloat162_rn(1.0f, 2.0f));
    }
#if defined(SIMT_CPU) || __CUDA_ARCH__ >= 900
    atomicAdd(&c->vector2, make_float2(1, 2));
    atomicAdd(&c->vector4, make_float4(1, 2, 3, 4));
#endif
    if (i % 1024 == 0) atomic_multiply(product, 3);
    if (i == 77) {  // the 16-bit exchange succeeds once, then fails and returns what is there
        unsigned short first = atomicCAS(&c->short_cas, (unsigned short)5, (unsigned short)6);
        unsigned short second = atomicCAS(&c->short_cas, (unsigned short)5, (unsigned short)7);
        atomicAdd(&c->cas_sum, (unsigned long long)(first * 100 + second));
        c->lock = (unsigned int)atomicCAS(&c->lock, 1u, 2u);
        c->float_exchange = atomicExch(&c->float_exchange, 9.0f);
    }
    __threadfence();
    __threadfence_block();
    __threadfence_system();
}

// Threads of a block count in shared memory; one of them adds the block's count to the whole.
__global__ void shared_kernel(unsigned int *histogram, float *sum) {
    __shared__ unsigned int bins[16];
    __shared__ float block_sum;
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    if (threadIdx.x == 0) block_sum = 0;
    __syncthreads();
    atomicAdd_block(&bins[threadIdx.x * threadIdx.x % 16], 1u);
    atomicAdd(&block_sum, 0.25f);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&histogram[threadIdx.x], bins[threadIdx.x]);
    if (threadIdx.x == 0) atomicAdd(sum, block_sum);
}

// Nothing but contention: many additions to one word, so that one which is not atomic loses some.
constexpr int rounds = 500;
__global__ void contention_kernel(unsigned int *sum, float *float_sum) {
    for (int k = 0; k < rounds; k++) {
        atomicAdd(sum, 1u);
        if (k % 50 == 0) atomicAdd(float_sum, 1.0f);
    }
}

static void check_global() {
    counters c;
    memset((void *)&c, 0, sizeof c);
    c.minimum = 1 << 30, c.maximum = -(1 << 30), c.unsigned_minimum = 0xffffffffu, c.bits_and = 0xffffffffu;
    c.exchanged = -1, c.short_cas = 5, c.lock = 1, c.float_exchange = 4.0f;
    unsigned long long product = 1;
    static int tickets[total];
    static unsigned int increments[total], decrements[total];
    counters *device = (counters *)to_device((const char *)&c, sizeof c);
    int *device_tickets = to_device((const int *)nullptr, total);
    unsigned int *device_increments = to_device((const unsigned int *)nullptr, total);
    unsigned int *device_decrements = to_device((const unsigned int *)nullptr, total);
    unsigned long long *device_product = to_device(&product, 1);
    global_kernel<<<blocks, threads>>>(device, device_tickets, device_increments, device_decrements,
                                       device_product);
    from_device((char *)&c, (char *)device, sizeof c);
    from_device(tickets, device_tickets, total);
    from_device(increments, device_increments, total);
    from_device(decrements, device_decrements, total);
    from_device(&product, device_product, 1);

    CHECK(c.add == total);
    static unsigned char seen[total];
    int distinct = 0;
    for (int i = 0; i < total; i++)
        if (tickets[i] >= 0 && tickets[i] < total && !seen[tickets[i]]) seen[tickets[i]] = 1, distinct++;
    CHECK(distinct == total);
    CHECK(c.subtract == -3 * total);
    CHECK(c.minimum == -5000);
    CHECK(c.maximum == total - 1 - 5000);
    CHECK(c.unsigned_add == (unsigned int)total * 0x01000001u);
    CHECK(c.unsigned_minimum == 0x80000000u);
    CHECK(c.unsigned_maximum == 0x80000000u + total - 1);
    CHECK(c.bits_and == 0xffff0000u);
    CHECK(c.bits_or == 0xffffu);
    CHECK(c.bits_xor == 0);  // of 0 ... 2^13 - 1
    CHECK(c.increment == total % 100);
    CHECK(c.decrement == (100 - total % 100) % 100);
    int increment_counts[100] = {0}, decrement_counts[100] = {0};
    for (int i = 0; i < total; i++) {
        CHECK(increments[i] < 100 && decrements[i] < 100);
        increment_counts[increments[i] % 100]++, decrement_counts[decrements[i] % 100]++;
    }
    for (int k = 0; k < 100; k++) {
        CHECK(increment_counts[k] == total / 100 + (k < total % 100));
        CHECK(decrement_counts[(100 - k) % 100] == total / 100 + (k < total % 100));
    }
    CHECK(c.long_add == total * 0x100000001ull);
    CHECK(c.long_maximum == 0x700000000ull + total - 1);
    CHECK(c.signed_minimum == -0x700000000ll - (total - 1));
    // Every value but the last came out of some exchange, and so did the first, -1.
    CHECK((long long)c.exchange_sum + c.exchanged == (long long)total * (total - 1) / 2 - 1);
    CHECK(c.float_add == (float)total);
    CHECK(c.double_add == total * 0.5);
    CHECK(c.system_add == 2ull * total);
    CHECK(__low2float(c.half_pair) == 512 && __high2float(c.half_pair) == -1024);
    CHECK(__half2float(c.half_add) == 256);
    CHECK(__low2float(c.bfloat_pair) == 128 && __high2float(c.bfloat_pair) == 256);
    CHECK(c.short_cas == 6 && c.cas_sum == 506);
    CHECK(c.lock == 1);  // the old value, which overwrote the 2
    CHECK(c.float_exchange == 4.0f);
    CHECK(product == 6561);  // 3^8
}

int main() {
    check_global();

    unsigned int histogram[16];
    float sum;
    unsigned int *device_histogram = to_device((const unsigned int *)nullptr, 16);
    float *device_sum = to_device((const float *)nullptr, 1);
    shared_kernel<<<blocks, threads>>>(device_histogram, device_sum);
    from_device(histogram, device_histogram, 16);
    from_device(&sum, device_sum, 1);
    // Squares modulo 16 are 0, 1, 4 and 9, each equally often.
    for (int k = 0; k < 16; k++) {
        int is_square = k == 0 || k == 1 || k == 4 || k == 9;
        CHECK(histogram[k] == (is_square ? total / 4u : 0u));
    }
    CHECK(sum == total * 0.25f);

    unsigned int whole_sum;
    unsigned int *device_whole_sum = to_device((const unsigned int *)nullptr, 1);
    device_sum = to_device((const float *)nullptr, 1);
    contention_kernel<<<blocks, threads>>>(device_whole_sum, device_sum);
    from_device(&whole_sum, device_whole_sum, 1);
    from_device(&sum, device_sum, 1);
    CHECK(whole_sum == (unsigned int)(total * rounds));
    CHECK(sum == (float)(total * (rounds / 50)));
    return check_done();
}
