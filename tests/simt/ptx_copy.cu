// ptx_copy.cu - cp.async with its zero fill and its groups, and (sm_90) the bulk copies of common/ptx/copy.h,
// on either backend, byte by byte.
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

#include "box_reference.h"
#include "common/ptx.h"
#include "device_memory.h"

constexpr int threads = 64;

// ---- cp.async ----

// out[threads][bytes + 16]: thread t copies valid[t] bytes from data + 16 * (13 t % threads) to its place in
// shared memory, where 0xee was. all_valid: without the last argument. groups: waits with commit and wait.
template <int bytes>
__global__ void small_copies(const unsigned char *data, const int *valid, unsigned char *out, int all_valid,
                             int groups) {
    __shared__ __align__(16) unsigned char tile[threads * (bytes + 16)];
    int t = (int)threadIdx.x;
    for (int i = t; i < (int)sizeof tile; i += threads) tile[i] = 0xee;
    __syncthreads();  // before the copies write there
    uint32_t to = shared_address(&tile[t * (bytes + 16)]);
    const unsigned char *from = data + 16 * (13 * t % threads);
    if (all_valid) {
        if (bytes == 4) cp_async_4(to, from);
        if (bytes == 8) cp_async_8(to, from);
        if (bytes == 16 && t % 2) cp_async_16(to, from);
        if (bytes == 16 && t % 2 == 0) cp_async_16_once(to, from);
    } else {
        if (bytes == 4) cp_async_4(to, from, valid[t]);
        if (bytes == 8) cp_async_8(to, from, valid[t]);
        if (bytes == 16 && t % 3) cp_async_16(to, from, valid[t]);
        if (bytes == 16 && t % 3 == 0) cp_async_16_once(to, from, valid[t]);
    }
    if (groups) {
        cp_async_commit();
        cp_async_wait<0>();
    } else {
        cp_async_wait_all();
    }
    __syncthreads();  // everybody's copies are there
    for (int i = t; i < (int)sizeof tile; i += threads) out[i] = tile[i];
}

template <int bytes> static void check_small_copies(int all_valid, int groups) {
    const int size = threads * (bytes + 16);
    unsigned char data[16 * threads], out[size];
    int valid[threads];
    for (int i = 0; i < 16 * threads; i++) data[i] = (unsigned char)(1 + random_bits() % 255);
    for (int t = 0; t < threads; t++) valid[t] = all_valid ? bytes : t % (bytes + 1);
    unsigned char *device_data = to_device(data, sizeof data),
                  *device_out = to_device((unsigned char *)nullptr, sizeof out);
    int *device_valid = to_device(valid, threads);
    small_copies<bytes><<<1, threads>>>(device_data, device_valid, device_out, all_valid, groups);
    from_device(out, device_out, sizeof out);
    expect_success(cudaFree(device_data));
    expect_success(cudaFree(device_valid));
    for (int i = 0; i < size; i++) {
        int t = i / (bytes + 16), byte = i % (bytes + 16);
        int expected = byte >= bytes ? 0xee : byte >= valid[t] ? 0 : data[16 * (13 * t % threads) + byte];
        CHECK(out[i] == expected);
    }
}

// Four stages in flight; as each is waited for, it is read, and its place copied into anew. Some groups are
// empty, and count.
__global__ void staged_copies(const int *data, int *out) {
    __shared__ int stages[4][threads];
    int t = (int)threadIdx.x;
    for (int i = 0; i < 3; i++) {
        cp_async_4(shared_address(&stages[i][t]), data + i * threads + t);
        cp_async_commit();
    }
    for (int i = 0; i < 12; i++) {
        if (i + 3 < 12) cp_async_4(shared_address(&stages[(i + 3) % 4][t]), data + (i + 3) * threads + t);
        cp_async_commit();
        cp_async_wait<3>();
        out[i * threads + t] = stages[i % 4][t];  // its own copy: no barrier
    }
}

static void check_staged_copies() {
    int data[12 * threads], out[12 * threads];
    for (int i = 0; i < 12 * threads; i++) data[i] = (int)random_bits();
    int *device_data = to_device(data, 12 * threads), *device_out = to_device((int *)nullptr, 12 * threads);
    staged_copies<<<1, threads>>>(device_data, device_out);
    from_device(out, device_out, 12 * threads);
    expect_success(cudaFree(device_data));
    CHECK(memcmp(data, out, sizeof data) == 0);
}

// ---- Bulk copies ----

// in[2048] floats arrive in three pieces on one mbarrier, in two phases; out[3][1024]: copied, the same again
// from shared memory that was changed as soon as it had been read, and added to.
__global__ void __launch_bounds__(threads) bulk_kernel(const float *in, float *out) {
#if defined(SIMT_CPU) || __CUDA_ARCH__ >= 900  // main does not launch it on an older GPU
    __shared__ __align__(16) float tile[1024];
    __shared__ uint64_t barrier;
    int t = (int)threadIdx.x;
    uint32_t to = shared_address(tile), bar = shared_address(&barrier);
    if (t == 0) {
        mbarrier_init(bar, 1);
        fence_mbarrier_init();
    }
    __syncthreads();  // the mbarrier is ready
    for (int phase = 0; phase < 2; phase++) {
        if (t == 0) {
            const float *from = in + phase * 1024;
            mbarrier_arrive_expect_tx(bar, 4096);
            bulk_prefetch_l2(from, 4096);  // nothing comes of it but time
            bulk_load(to + 2048, from + 512, 2048, bar);
            bulk_load(to, from, 16, bar);
            bulk_load(to + 16, from + 4, 2032, bar);
        }
        mbarrier_wait(bar, (uint32_t)phase);
        if (t == 0) {
            if (phase == 0)
                bulk_store(out, to, 4096);
            else
                bulk_reduce_add_f32(out + 2048, to + 16, 4000);
            bulk_commit();
            bulk_wait_read<0>();
        }
        __syncthreads();  // tile has been read
        if (phase == 0) {
            for (int i = t; i < 1024; i += threads) tile[i] = -tile[i];
            fence_proxy_async();
            __syncthreads();  // tile is changed
            if (t == 0) {
                bulk_store(out + 1024, to, 4096);
                bulk_commit();
                bulk_wait_read<0>();
            }
            __syncthreads();  // tile may be loaded into
        }
    }
    if (t == 0) bulk_wait<0>();
#else
    (void)in, (void)out;
#endif
}

static void check_bulk_copies() {
    static float in[2048], out[3072], before[3072];
    for (int i = 0; i < 2048; i++) in[i] = (float)random_int(-1000, 1000) / 8;
    for (int i = 0; i < 3072; i++) before[i] = (float)random_int(-1000, 1000) / 8;
    float *device_in = to_device(in, 2048), *device_out = to_device(before, 3072);
    bulk_kernel<<<1, threads>>>(device_in, device_out);
    from_device(out, device_out, 3072);
    expect_success(cudaFree(device_in));
    for (int i = 0; i < 1024; i++) {
        CHECK(out[i] == in[i]);
        CHECK(out[1024 + i] == -in[i]);
        CHECK(out[2048 + i] == before[2048 + i] + (i < 1000 ? in[1024 + 4 + i] : 0));
    }
}

int main() {
    int devices = 0, major = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    expect_success(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
#ifdef SIMT_CPU
    for (unsigned schedule = 0; schedule < 4; schedule++) {
        simt_set_schedule(schedule);
        simt_set_sanitizing(schedule >= 2);
#endif
        for (int all_valid = 0; all_valid < 2; all_valid++)
            for (int groups = 0; groups < 2; groups++) {
                check_small_copies<4>(all_valid, groups);
                check_small_copies<8>(all_valid, groups);
                check_small_copies<16>(all_valid, groups);
            }
        check_staged_copies();
        if (major >= 9)
            check_bulk_copies();
        else
            printf("the bulk copies are left out: they need compute capability 9.0\n");
#ifdef SIMT_CPU
    }
    CHECK(simt_take_races() == 0);
#endif
    return check_done();
}
