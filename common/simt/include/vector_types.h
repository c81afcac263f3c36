// vector_types.h - CUDA's vector types (float4, int2, ...) and dim3 on the CPU, for C11 and C++17.
//
// Sizes and alignments are CUDA's (Programming Guide, "Built-in Vector Types"): a 2-vector or 4-vector is
// aligned to its size, but to 16 bytes at most; a 3-vector only to its element. On a GPU a float4 is loaded
// by one instruction, a float3 by three. The CPU backend counts accesses, so here, too, a 2- or 4-vector is
// copied by one machine access of its full size (two of 16 bytes for the 32-byte types) and a 3-vector
// element by element: in C++ the copy functions say so themselves, because a compiler may split or join the
// copies that it writes itself.
//
// Default constructors do nothing, as in CUDA, hence a shared array needs no initialisation; float4() is
// zero. Because their copies are not trivial, the C++ types must not cross a C interface by value (dim3 may).
#ifndef SIMT_VECTOR_TYPES_H
#define SIMT_VECTOR_TYPES_H

#ifdef __cplusplus

#include <cstdint>

// Inlined always, so that the access belongs to the code that copies; a debugger steps over it.
#define SIMT_COPY_FN inline __attribute__((always_inline, artificial))

namespace simt {
typedef uint8_t __attribute__((may_alias)) raw1;
typedef uint16_t __attribute__((may_alias)) raw2;
typedef uint32_t __attribute__((may_alias)) raw4;
typedef uint64_t __attribute__((may_alias)) raw8;
typedef long long raw16 __attribute__((vector_size(16), may_alias));

// Copies count * sizeof(Raw) bytes in `count` accesses.
template <class Raw, int count> SIMT_COPY_FN void copy_raw(void *to, const void *from) {
    static_cast<Raw *>(to)[0] = static_cast<const Raw *>(from)[0];
    if (count == 2) static_cast<Raw *>(to)[count - 1] = static_cast<const Raw *>(from)[count - 1];
}
}  // namespace simt

// The copy functions of `type`, by `count` accesses of the raw type.
#define SIMT_RAW_COPY(type, raw, count)                                                                      \
    SIMT_COPY_FN type(const type &other) { simt::copy_raw<simt::raw, count>(this, &other); }                 \
    SIMT_COPY_FN type &operator=(const type &other) {                                                        \
        simt::copy_raw<simt::raw, count>(this, &other);                                                      \
        return *this;                                                                                        \
    }

#define SIMT_VECTOR1(type, element, raw)                                                                     \
    struct type {                                                                                            \
        element x;                                                                                           \
        type() = default;                                                                                    \
        constexpr explicit type(element x) : x(x) {}                                                         \
        SIMT_RAW_COPY(type, raw, 1)                                                                          \
    };                                                                                                       \
    constexpr type make_##type(element x) { return type(x); }
#define SIMT_VECTOR2(type, element, raw)                                                                     \
    struct alignas(simt::raw) type {                                                                         \
        element x, y;                                                                                        \
        type() = default;                                                                                    \
        constexpr type(element x, element y) : x(x), y(y) {}                                                 \
        SIMT_RAW_COPY(type, raw, 1)                                                                          \
    };                                                                                                       \
    constexpr type make_##type(element x, element y) { return type(x, y); }
#define SIMT_VECTOR3(type, element)                                                                          \
    struct type {                                                                                            \
        element x, y, z;                                                                                     \
        type() = default;                                                                                    \
        constexpr type(element x, element y, element z) : x(x), y(y), z(z) {}                                \
        SIMT_COPY_FN constexpr type(const type &other) : x(other.x), y(other.y), z(other.z) {}               \
        SIMT_COPY_FN type &operator=(const type &other) {                                                    \
            x = other.x, y = other.y, z = other.z;                                                           \
            return *this;                                                                                    \
        }                                                                                                    \
    };                                                                                                       \
    constexpr type make_##type(element x, element y, element z) { return type(x, y, z); }
#define SIMT_VECTOR4(type, element, raw, count, alignment)                                                   \
    struct alignas(alignment) type {                                                                         \
        element x, y, z, w;                                                                                  \
        type() = default;                                                                                    \
        constexpr type(element x, element y, element z, element w) : x(x), y(y), z(z), w(w) {}               \
        SIMT_RAW_COPY(type, raw, count)                                                                      \
    };                                                                                                       \
    constexpr type make_##type(element x, element y, element z, element w) { return type(x, y, z, w); }

#define SIMT_VECTORS(name, element, raw1, raw2, raw4, size4)                                                 \
    SIMT_VECTOR1(name##1, element, raw1)                                                                     \
    SIMT_VECTOR2(name##2, element, raw2)                                                                     \
    SIMT_VECTOR3(name##3, element)                                                                           \
    SIMT_VECTOR4(name##4, element, raw4, 1, size4)
// Four elements of 8 bytes: CUDA has them aligned to 16 (also under the old name) and to 32 bytes.
#define SIMT_WIDE_VECTORS(name, element)                                                                     \
    SIMT_VECTOR1(name##1, element, raw8)                                                                     \
    SIMT_VECTOR2(name##2, element, raw16)                                                                    \
    SIMT_VECTOR3(name##3, element)                                                                           \
    SIMT_VECTOR4(name##4, element, raw16, 2, 16)                                                             \
    SIMT_VECTOR4(name##4_16a, element, raw16, 2, 16)                                                         \
    SIMT_VECTOR4(name##4_32a, element, raw16, 2, 32)

#else  // C11

// A vector of 2, 3 or 4 elements and its make_ function; `alignment` in bytes.
#define SIMT_VECTOR1(type, element)                                                                          \
    typedef struct type {                                                                                    \
        element x;                                                                                           \
    } type;                                                                                                  \
    static inline type make_##type(element x) {                                                              \
        type v = {x};                                                                                        \
        return v;                                                                                            \
    }
#define SIMT_VECTOR2(type, element, alignment)                                                               \
    typedef struct type {                                                                                    \
        _Alignas(alignment) element x;                                                                       \
        element y;                                                                                           \
    } type;                                                                                                  \
    static inline type make_##type(element x, element y) {                                                   \
        type v = {x, y};                                                                                     \
        return v;                                                                                            \
    }
#define SIMT_VECTOR3(type, element)                                                                          \
    typedef struct type {                                                                                    \
        element x, y, z;                                                                                     \
    } type;                                                                                                  \
    static inline type make_##type(element x, element y, element z) {                                        \
        type v = {x, y, z};                                                                                  \
        return v;                                                                                            \
    }
#define SIMT_VECTOR4(type, element, alignment)                                                               \
    typedef struct type {                                                                                    \
        _Alignas(alignment) element x;                                                                       \
        element y, z, w;                                                                                     \
    } type;                                                                                                  \
    static inline type make_##type(element x, element y, element z, element w) {                             \
        type v = {x, y, z, w};                                                                               \
        return v;                                                                                            \
    }
#define SIMT_VECTORS(name, element, raw1, raw2, raw4, size4)                                                 \
    SIMT_VECTOR1(name##1, element)                                                                           \
    SIMT_VECTOR2(name##2, element, 2 * sizeof(element))                                                      \
    SIMT_VECTOR3(name##3, element)                                                                           \
    SIMT_VECTOR4(name##4, element, size4)
#define SIMT_WIDE_VECTORS(name, element)                                                                     \
    SIMT_VECTOR1(name##1, element)                                                                           \
    SIMT_VECTOR2(name##2, element, 16)                                                                       \
    SIMT_VECTOR3(name##3, element)                                                                           \
    SIMT_VECTOR4(name##4, element, 16)                                                                       \
    SIMT_VECTOR4(name##4_16a, element, 16)                                                                   \
    SIMT_VECTOR4(name##4_32a, element, 32)

#endif

SIMT_VECTORS(char, signed char, raw1, raw2, raw4, 4)
SIMT_VECTORS(uchar, unsigned char, raw1, raw2, raw4, 4)
SIMT_VECTORS(short, short, raw2, raw4, raw8, 8)
SIMT_VECTORS(ushort, unsigned short, raw2, raw4, raw8, 8)
SIMT_VECTORS(int, int, raw4, raw8, raw16, 16)
SIMT_VECTORS(uint, unsigned int, raw4, raw8, raw16, 16)
SIMT_VECTORS(float, float, raw4, raw8, raw16, 16)
SIMT_WIDE_VECTORS(longlong, long long)
SIMT_WIDE_VECTORS(ulonglong, unsigned long long)
SIMT_WIDE_VECTORS(double, double)

#undef SIMT_VECTOR1
#undef SIMT_VECTOR2
#undef SIMT_VECTOR3
#undef SIMT_VECTOR4
#undef SIMT_VECTORS
#undef SIMT_WIDE_VECTORS

// Sizes of grids and blocks; what is left out is 1.
typedef struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(const uint3 &v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3(x, y, z); }
#endif
} dim3;

#endif
