// ptx_math.cu - ex2 and the packing conversions of common/ptx/math.h on either backend, held to the formats'
// definitions (types_reference.h) and to exp2 in double.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/ptx.h"
#include "device_memory.h"
#include "types_reference.h"

static struct format e4m3 = {"e4m3", 4, 3, 7, 0, 1, 0x7f, {0}, 0};

struct converted {
    float exp2;
    uint32_t half, bfloat, quad;
};
__global__ void math_kernel(const float4 *in, struct converted *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 x = in[i];
    out[i].exp2 = ex2(x.x);
    out[i].half = pack2<__half>(x.x, x.y);
    out[i].bfloat = pack2<__nv_bfloat16>(x.x, x.y);
    out[i].quad = pack4_e4m3(x.x, x.y, x.z, x.w);
}

static void check_exp2(float x, float got) {
    double exact = exp2((double)x);
    int right = 0;
    if (isnan(x))
        right = isnan(got);
    else if (x >= 128 || x < -126 || fabsf(x) < 0x1p-126f)  // infinite; flushed, result or argument
        right = got == (x >= 128 ? INFINITY : x < -126 ? 0.0f : 1.0f) && !signbit(got);
    else  // 2 units in the last place
        right = fabs((double)got - exact) <= 2 * ldexp(1, ilogb(exact) - 23);
    if (!CHECK(right)) fprintf(stderr, "    ex2(%a) = %a, wanted %a\n", (double)x, (double)got, exact);
}

static void check_math() {
    const int count = 8192;
    float4 *in = (float4 *)malloc(count * sizeof *in);
    struct converted *out = (struct converted *)malloc(count * sizeof *out);
    const float almost_normal = 0x1.fffffcp-127f;
    const float specials[] = {0,           -0.0f,      0x1p-149f,  -0x1p-149f, almost_normal, -almost_normal,
                              0x1p-126f,   NAN,        1,          -1,         -125,          -126,
                              -126.00001f, -126.5f,    -127,       -NAN,       -149,          -150,
                              -1000,       127,        127.99999f, 128,        129,           1e30f,
                              -1e30f,      INFINITY,   -INFINITY,  448,        463.99997f,    464,
                              464.0001f,   65504,      65519.99f,  65520,      3.4e38f,       0x1p-24f,
                              0x1p-25f,    0x1.8p-25f, -448.1f,    0x1p-10f,   0x1.8p-10f,    0x1p-9f};
    const int special_count = (int)(sizeof specials / sizeof *specials);
    for (int i = 0; i < count; i++) {
        float x[4];
        for (int k = 0; k < 4; k++) {
            uint32_t any = random_bits();
            if (i < special_count * special_count && k < 2)
                x[k] = specials[k == 0 ? i % special_count : i / special_count];
            else if (random_bits() >> 31)
                memcpy(&x[k], &any, 4);
            else
                x[k] = (float)((double)any * 0x1p-32 * 280 - 140);
        }
        if (i < special_count) x[2] = x[0], x[3] = x[1], x[0] = 1.5f;
        in[i] = make_float4(x[0], x[1], x[2], x[3]);
    }
    float4 *device_in = to_device((const float4 *)in, count);
    struct converted *device_out = to_device((struct converted *)nullptr, count);
    math_kernel<<<count / 128, 128>>>(device_in, device_out);
    from_device(out, device_out, count);
    expect_success(cudaFree(device_in));
    for (int i = 0; i < count; i++) {
        double x[4] = {(double)in[i].x, (double)in[i].y, (double)in[i].z, (double)in[i].w};
        check_exp2(in[i].x, out[i].exp2);
        CHECK(out[i].half == (slow_round(&fp16, x[0]) | slow_round(&fp16, x[1]) << 16));
        CHECK(out[i].bfloat == (slow_round(&bf16, x[0]) | slow_round(&bf16, x[1]) << 16));
        uint32_t quad = 0;
        for (int k = 0; k < 4; k++) quad |= slow_round(&e4m3, x[k]) << 8 * k;
        if (!CHECK(out[i].quad == quad))
            fprintf(stderr, "    e4m3 of %a %a %a %a: got 0x%08x, wanted 0x%08x\n", x[0], x[1], x[2], x[3],
                    out[i].quad, quad);
    }
    free(in), free(out);
}

int main() {
    fill_values(&fp16);
    fill_values(&bf16);
    fill_values(&e4m3);
    check_math();
    return check_done();
}
