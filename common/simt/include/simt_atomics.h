// simt_atomics.h - CUDA's atomic functions and memory fences on the CPU.
//
// Blocks run side by side on threads of the operating system, so these are true atomic operations,
// sequentially consistent, whatever the scope in the name (_block, _system). Each first tells the backend
// which memory it will touch and from which source line. Every function returns the old value. Source: CUDA
// C++ Programming Guide, "Atomic Functions" and "Memory Fence Functions".
//
// Known difference: on a GPU atomicAdd of float flushes subnormal numbers to zero in global memory; here they
// are kept. The order of concurrent additions is open on both: sums of float may differ in the last bits from
// run to run.
#ifndef SIMT_ATOMICS_H
#define SIMT_ATOMICS_H

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "simt_math.h"
#include "vector_types.h"

// Must not be instrumented: to the checks an atomic is what atomic_access says, not a plain read and write.
// clang instruments atomic operations in spite of no_sanitize, and has an attribute of its own against that;
// but not where it inlines them into a function that has only no_sanitize.
#if __has_attribute(disable_sanitizer_instrumentation)
#define SIMT_ATOMIC_FN                                                                                       \
    inline __attribute__((noinline, no_sanitize("thread"), disable_sanitizer_instrumentation))
#else
#define SIMT_ATOMIC_FN inline __attribute__((no_sanitize("thread")))
#endif
// Where the kernel called the function: default arguments are evaluated at the call.
#define SIMT_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace simt {

// Checks that a kernel may do an atomic operation on these bytes: address, alignment, and that they were
// written before.
void atomic_access(const void *address, size_t bytes, const char *file, int line);

// The unsigned integer with the size of a T, through which its memory is read and exchanged.
template <size_t bytes> struct RawOfSize;
template <> struct RawOfSize<2> { typedef raw2 type; };
template <> struct RawOfSize<4> { typedef raw4 type; };
template <> struct RawOfSize<8> { typedef raw8 type; };

// Replaces *address by Operation::apply(*address, operand) in one step.
template <class Operation, class T> SIMT_ATOMIC_FN T exchange_with(T *address, T operand) {
    typedef typename RawOfSize<sizeof(T)>::type Raw;
    Raw *memory = reinterpret_cast<Raw *>(address);
    Raw old_bits = __atomic_load_n(memory, __ATOMIC_SEQ_CST), new_bits;
    T old_value, new_value;
    do {
        memcpy(static_cast<void *>(&old_value), &old_bits, sizeof(T));
        new_value = Operation::apply(old_value, operand);
        memcpy(&new_bits, static_cast<const void *>(&new_value), sizeof(T));
    } while (
        !__atomic_compare_exchange_n(memory, &old_bits, new_bits, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old_value;
}

template <class Operation, class T>
SIMT_ATOMIC_FN T atomic_operation(T *address, T operand, const char *file, int line) {
    atomic_access(address, sizeof(T), file, line);
    return exchange_with<Operation>(address, operand);
}

template <class T>
SIMT_ATOMIC_FN T atomic_compare(T *address, T expected, T value, const char *file, int line) {
    typedef typename RawOfSize<sizeof(T)>::type Raw;
    atomic_access(address, sizeof(T), file, line);
    Raw old_bits = static_cast<Raw>(expected);
    __atomic_compare_exchange_n(reinterpret_cast<Raw *>(address), &old_bits, static_cast<Raw>(value), false,
                                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return static_cast<T>(old_bits);  // `expected` if it was equal, else what was there
}

// What each operation makes of the old value and its operand.
#define SIMT_OPERATION(name, T, result)                                                                      \
    struct name {                                                                                            \
        template <class T> static SIMT_VALUE_FN T apply(T old, T operand) { return result; }                 \
    };
// Integers wrap. A signed sum is computed unsigned, where wrapping is defined.
struct Add {
    template <class T> static SIMT_VALUE_FN T apply(T old, T operand) { return old + operand; }
    static SIMT_VALUE_FN float apply(float old, float operand) { return sum(old, operand); }
    static SIMT_VALUE_FN int apply(int old, int operand) {
        return static_cast<int>(static_cast<unsigned int>(old) + static_cast<unsigned int>(operand));
    }
};
struct Subtract {
    static SIMT_VALUE_FN unsigned int apply(unsigned int old, unsigned int operand) { return old - operand; }
    static SIMT_VALUE_FN int apply(int old, int operand) {
        return static_cast<int>(static_cast<unsigned int>(old) - static_cast<unsigned int>(operand));
    }
};
SIMT_OPERATION(Exchange, T, (static_cast<void>(old), operand))
SIMT_OPERATION(Minimum, T, old < operand ? old : operand)
SIMT_OPERATION(Maximum, T, old > operand ? old : operand)
SIMT_OPERATION(And, T, old &operand)
SIMT_OPERATION(Or, T, old | operand)
SIMT_OPERATION(Xor, T, old ^ operand)
// Counts 0 ... operand and starts again; counts operand ... 0 and starts again (also from anything above
// operand).
SIMT_OPERATION(Increment, T, old >= operand ? 0 : old + 1)
SIMT_OPERATION(Decrement, T, old == 0 || old > operand ? operand : old - 1)
#undef SIMT_OPERATION

}  // namespace simt

// Defines name, name_block and name_system for one type.
#define SIMT_ATOMIC_SCOPE(name, type, operation)                                                             \
    SIMT_ATOMIC_FN type name(type *address, type value, SIMT_CALLER) {                                       \
        return simt::atomic_operation<simt::operation>(address, value, file, line);                          \
    }
#define SIMT_ATOMIC(name, type, operation)                                                                   \
    SIMT_ATOMIC_SCOPE(name, type, operation)                                                                 \
    SIMT_ATOMIC_SCOPE(name##_block, type, operation)                                                         \
    SIMT_ATOMIC_SCOPE(name##_system, type, operation)

SIMT_ATOMIC(atomicAdd, int, Add)
SIMT_ATOMIC(atomicAdd, unsigned int, Add)
SIMT_ATOMIC(atomicAdd, unsigned long long, Add)
SIMT_ATOMIC(atomicAdd, float, Add)
SIMT_ATOMIC(atomicAdd, double, Add)
SIMT_ATOMIC(atomicSub, int, Subtract)
SIMT_ATOMIC(atomicSub, unsigned int, Subtract)
SIMT_ATOMIC(atomicExch, int, Exchange)
SIMT_ATOMIC(atomicExch, unsigned int, Exchange)
SIMT_ATOMIC(atomicExch, unsigned long long, Exchange)
SIMT_ATOMIC(atomicExch, float, Exchange)
SIMT_ATOMIC(atomicMin, int, Minimum)
SIMT_ATOMIC(atomicMin, unsigned int, Minimum)
SIMT_ATOMIC(atomicMin, long long, Minimum)
SIMT_ATOMIC(atomicMin, unsigned long long, Minimum)
SIMT_ATOMIC(atomicMax, int, Maximum)
SIMT_ATOMIC(atomicMax, unsigned int, Maximum)
SIMT_ATOMIC(atomicMax, long long, Maximum)
SIMT_ATOMIC(atomicMax, unsigned long long, Maximum)
SIMT_ATOMIC(atomicAnd, int, And)
SIMT_ATOMIC(atomicAnd, unsigned int, And)
SIMT_ATOMIC(atomicAnd, unsigned long long, And)
SIMT_ATOMIC(atomicOr, int, Or)
SIMT_ATOMIC(atomicOr, unsigned int, Or)
SIMT_ATOMIC(atomicOr, unsigned long long, Or)
SIMT_ATOMIC(atomicXor, int, Xor)
SIMT_ATOMIC(atomicXor, unsigned int, Xor)
SIMT_ATOMIC(atomicXor, unsigned long long, Xor)
SIMT_ATOMIC(atomicInc, unsigned int, Increment)
SIMT_ATOMIC(atomicDec, unsigned int, Decrement)

#define SIMT_ATOMIC_CAS_SCOPE(name, type)                                                                    \
    SIMT_ATOMIC_FN type name(type *address, type expected, type value, SIMT_CALLER) {                        \
        return simt::atomic_compare(address, expected, value, file, line);                                   \
    }
#define SIMT_ATOMIC_CAS(type)                                                                                \
    SIMT_ATOMIC_CAS_SCOPE(atomicCAS, type)                                                                   \
    SIMT_ATOMIC_CAS_SCOPE(atomicCAS_block, type)                                                             \
    SIMT_ATOMIC_CAS_SCOPE(atomicCAS_system, type)
SIMT_ATOMIC_CAS(int)
SIMT_ATOMIC_CAS(unsigned int)
SIMT_ATOMIC_CAS(unsigned long long)
SIMT_ATOMIC_CAS(unsigned short)
#undef SIMT_ATOMIC_CAS
#undef SIMT_ATOMIC_CAS_SCOPE

// Vectors (compute capability 9.0, global memory): each element is added atomically, not the vector as a
// whole.
SIMT_ATOMIC_FN float2 atomicAdd(float2 *address, float2 value, SIMT_CALLER) {
    simt::atomic_access(address, sizeof *address, file, line);
    float x = simt::exchange_with<simt::Add>(&address->x, value.x);
    float y = simt::exchange_with<simt::Add>(&address->y, value.y);
    return make_float2(x, y);
}
SIMT_ATOMIC_FN float4 atomicAdd(float4 *address, float4 value, SIMT_CALLER) {
    simt::atomic_access(address, sizeof *address, file, line);
    float x = simt::exchange_with<simt::Add>(&address->x, value.x);
    float y = simt::exchange_with<simt::Add>(&address->y, value.y);
    float z = simt::exchange_with<simt::Add>(&address->z, value.z);
    float w = simt::exchange_with<simt::Add>(&address->w, value.w);
    return make_float4(x, y, z, w);
}

// The thread's writes before the fence are seen before its writes after it. A fence is not a barrier.
SIMT_ATOMIC_FN void __threadfence() { __sync_synchronize(); }
SIMT_ATOMIC_FN void __threadfence_block() { __sync_synchronize(); }
SIMT_ATOMIC_FN void __threadfence_system() { __sync_synchronize(); }

#endif
