// types_vectors.cu - CUDA's vector types in a kernel: sizes, alignments, element order in memory, copies.
#include <cuda_runtime.h>
#include <string.h>

#include "device_memory.h"

#define EXPECT_LAYOUT(type, bytes, alignment)                                                                \
    static_assert(sizeof(type) == bytes && alignof(type) == alignment, "layout of " #type)
EXPECT_LAYOUT(char1, 1, 1);
EXPECT_LAYOUT(char2, 2, 2);
EXPECT_LAYOUT(char3, 3, 1);
EXPECT_LAYOUT(char4, 4, 4);
EXPECT_LAYOUT(uchar1, 1, 1);
EXPECT_LAYOUT(uchar2, 2, 2);
EXPECT_LAYOUT(uchar3, 3, 1);
EXPECT_LAYOUT(uchar4, 4, 4);
EXPECT_LAYOUT(short1, 2, 2);
EXPECT_LAYOUT(short2, 4, 4);
EXPECT_LAYOUT(short3, 6, 2);
EXPECT_LAYOUT(short4, 8, 8);
EXPECT_LAYOUT(ushort1, 2, 2);
EXPECT_LAYOUT(ushort2, 4, 4);
EXPECT_LAYOUT(ushort3, 6, 2);
EXPECT_LAYOUT(ushort4, 8, 8);
EXPECT_LAYOUT(int1, 4, 4);
EXPECT_LAYOUT(int2, 8, 8);
EXPECT_LAYOUT(int3, 12, 4);
EXPECT_LAYOUT(int4, 16, 16);
EXPECT_LAYOUT(uint1, 4, 4);
EXPECT_LAYOUT(uint2, 8, 8);
EXPECT_LAYOUT(uint3, 12, 4);
EXPECT_LAYOUT(uint4, 16, 16);
EXPECT_LAYOUT(float1, 4, 4);
EXPECT_LAYOUT(float2, 8, 8);
EXPECT_LAYOUT(float3, 12, 4);
EXPECT_LAYOUT(float4, 16, 16);
EXPECT_LAYOUT(longlong1, 8, 8);
EXPECT_LAYOUT(longlong2, 16, 16);
EXPECT_LAYOUT(longlong3, 24, 8);
EXPECT_LAYOUT(ulonglong2, 16, 16);
EXPECT_LAYOUT(ulonglong3, 24, 8);
EXPECT_LAYOUT(double1, 8, 8);
EXPECT_LAYOUT(double2, 16, 16);
EXPECT_LAYOUT(double3, 24, 8);
EXPECT_LAYOUT(dim3, 12, 4);
#if defined(SIMT_CPU) || CUDART_VERSION >= 13000  // the 32-byte types: new names since CUDA 13
EXPECT_LAYOUT(longlong4_16a, 32, 16);
EXPECT_LAYOUT(ulonglong4_32a, 32, 32);
EXPECT_LAYOUT(double4_16a, 32, 16);
EXPECT_LAYOUT(double4_32a, 32, 32);
#endif

// Reverses the elements of each vector; through shared memory, a copy by assignment and a copy by value.
template <class V> __device__ V same(V v) { return v; }

template <class V1, class V2, class V3, class V4>
__global__ void reverse_kernel(const V1 *in1, V1 *out1, const V2 *in2, V2 *out2, const V3 *in3, V3 *out3,
                               const V4 *in4, V4 *out4) {
    __shared__ V4 quads[32];
    __shared__ V3 triples[32];
    int i = threadIdx.x;
    quads[i] = in4[i];
    triples[i] = in3[i];
    __syncthreads();
    V4 quad = quads[31 - i];
    V4 reversed_quad;
    reversed_quad.x = quad.w;
    reversed_quad.y = quad.z;
    reversed_quad.z = quad.y;
    reversed_quad.w = quad.x;
    out4[31 - i] = same(reversed_quad);
    V3 triple = triples[31 - i], reversed_triple = triple;
    reversed_triple.x = triple.z;
    reversed_triple.z = triple.x;
    out3[31 - i] = same(reversed_triple);
    V2 twin = in2[i], reversed_twin;
    reversed_twin.x = twin.y;
    reversed_twin.y = twin.x;
    out2[i] = reversed_twin;
    out1[i] = same(in1[i]);
}

// Checks that vector k of `out` is vector k of `in` backwards, element by element, in memory.
template <class Element> static void check_reversed(const Element *in, const Element *out, int width) {
    for (int k = 0; k < 32; k++)
        for (int j = 0; j < width; j++)
            CHECK(memcmp(&out[k * width + j], &in[k * width + width - 1 - j], sizeof(Element)) == 0);
}

template <class Element, class V1, class V2, class V3, class V4> static void check_vectors() {
    Element in[4 * 32], out[4][4 * 32];
    for (int i = 0; i < 4 * 32; i++) in[i] = (Element)(i - 50);
    V1 *out1 = (V1 *)to_device((const Element *)nullptr, 32), *in1 = (V1 *)to_device(in, 32);
    V2 *out2 = (V2 *)to_device((const Element *)nullptr, 64), *in2 = (V2 *)to_device(in, 64);
    V3 *out3 = (V3 *)to_device((const Element *)nullptr, 96), *in3 = (V3 *)to_device(in, 96);
    V4 *out4 = (V4 *)to_device((const Element *)nullptr, 128), *in4 = (V4 *)to_device(in, 128);
    reverse_kernel<V1, V2, V3, V4><<<1, 32>>>(in1, out1, in2, out2, in3, out3, in4, out4);
    from_device(out[0], (Element *)out1, 32);
    from_device(out[1], (Element *)out2, 64);
    from_device(out[2], (Element *)out3, 96);
    from_device(out[3], (Element *)out4, 128);
    expect_success(cudaFree(in1));
    expect_success(cudaFree(in2));
    expect_success(cudaFree(in3));
    expect_success(cudaFree(in4));
    for (int width = 1; width <= 4; width++) check_reversed(in, out[width - 1], width);
}

// make_ functions, unions and arrays, as kernels use them.
__global__ void make_kernel(float4 *quads, int2 *twins, uchar4 *bytes) {
    union {
        float4 vector;
        float element[4];
    } both;
    for (int k = 0; k < 4; k++) both.element[k] = (float)(k + 1);
    quads[0] = both.vector;
    float4 copies[2] = {make_float4(5, 6, 7, 8), both.vector};
    quads[1] = copies[0];
    quads[2] = float4();
    twins[0] = make_int2(-1, 2);
    bytes[0] = make_uchar4(1, 2, 3, 255);
    dim3 size(7, 8);
    twins[1] = make_int2((int)(size.x * 10 + size.y), (int)size.z);
}

int main() {
    check_vectors<signed char, char1, char2, char3, char4>();
    check_vectors<unsigned char, uchar1, uchar2, uchar3, uchar4>();
    check_vectors<short, short1, short2, short3, short4>();
    check_vectors<unsigned short, ushort1, ushort2, ushort3, ushort4>();
    check_vectors<int, int1, int2, int3, int4>();
    check_vectors<unsigned int, uint1, uint2, uint3, uint4>();
    check_vectors<float, float1, float2, float3, float4>();
#if defined(SIMT_CPU) || CUDART_VERSION >= 13000
    check_vectors<long long, longlong1, longlong2, longlong3, longlong4_16a>();
    check_vectors<unsigned long long, ulonglong1, ulonglong2, ulonglong3, ulonglong4_32a>();
    check_vectors<double, double1, double2, double3, double4_16a>();
#endif

    float quads[12];
    int twins[4];
    unsigned char bytes[4];
    float *device_quads = to_device((const float *)nullptr, 12);
    int *device_twins = to_device((const int *)nullptr, 4);
    unsigned char *device_bytes = to_device((const unsigned char *)nullptr, 4);
    make_kernel<<<1, 1>>>((float4 *)device_quads, (int2 *)device_twins, (uchar4 *)device_bytes);
    from_device(quads, device_quads, 12);
    from_device(twins, device_twins, 4);
    from_device(bytes, device_bytes, 4);
    for (int k = 0; k < 12; k++) CHECK(quads[k] == (k < 8 ? (float)(k + 1) : 0.0f));
    CHECK(twins[0] == -1 && twins[1] == 2 && twins[2] == 78 && twins[3] == 1);
    CHECK(bytes[0] == 1 && bytes[1] == 2 && bytes[2] == 3 && bytes[3] == 255);
    return check_done();
}
