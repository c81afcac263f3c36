// ptx_tma.cu - the TMA instructions of common/ptx/copy.h on either backend (sm_90): boxes of every rank, type
// and swizzle, in and out of the tensor, are loaded, stored and added, and every byte compared with what
// box_reference.h says.
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

#include "box_reference.h"
#include "common/numbers.h"
#include "common/ptx.h"
#include "common/tensor_map.h"
#include "device_memory.h"

constexpr int threads = 64;

enum box_work { LOAD, LOAD_WITH_POLICY, STORE, ADD };
constexpr int image_bytes = 16 * 1024;  // the largest box has 11664, and may start at 3968

struct box_task {
    enum box_work work;
    int at[5];
    uint32_t base, bytes;  // of the box
    unsigned char *image;  // [image_bytes]: shared memory before, and then after
};

template <int rank>
static __device__ void move_box(const CUtensorMap *map, const struct box_task *task, uint32_t box,
                                uint32_t bar) {
    const int *x = task->at;
    if (task->work == LOAD) {
        if constexpr (rank == 2) tma_load_2d(box, map, bar, x[0], x[1]);
        if constexpr (rank == 3) tma_load_3d(box, map, bar, x[0], x[1], x[2]);
        if constexpr (rank == 4) tma_load_4d(box, map, bar, x[0], x[1], x[2], x[3]);
        if constexpr (rank == 5) tma_load_5d(box, map, bar, x[0], x[1], x[2], x[3], x[4]);
    } else if (task->work == LOAD_WITH_POLICY) {
        if constexpr (rank == 2) tma_load_2d(box, map, bar, x[0], x[1], L2_EVICT_FIRST);
        if constexpr (rank == 3) tma_load_3d(box, map, bar, x[0], x[1], x[2], L2_EVICT_LAST);
        if constexpr (rank == 4) tma_load_4d(box, map, bar, x[0], x[1], x[2], x[3], L2_EVICT_NORMAL);
        if constexpr (rank == 5) tma_load_5d(box, map, bar, x[0], x[1], x[2], x[3], x[4], L2_EVICT_FIRST);
    } else if (task->work == STORE) {
        if constexpr (rank == 2) tma_store_2d(map, box, x[0], x[1]);
        if constexpr (rank == 3) tma_store_3d(map, box, x[0], x[1], x[2]);
        if constexpr (rank == 4) tma_store_4d(map, box, x[0], x[1], x[2], x[3]);
        if constexpr (rank == 5) tma_store_5d(map, box, x[0], x[1], x[2], x[3], x[4]);
    } else {
        if constexpr (rank == 2) tma_reduce_add_2d(map, box, x[0], x[1]);
        if constexpr (rank == 3) tma_reduce_add_3d(map, box, x[0], x[1], x[2]);
        if constexpr (rank == 4) tma_reduce_add_4d(map, box, x[0], x[1], x[2], x[3]);
        if constexpr (rank == 5) tma_reduce_add_5d(map, box, x[0], x[1], x[2], x[3], x[4]);
    }
}

// Each block moves the same box; block 0 writes back the image.
template <int rank>
__global__ void __launch_bounds__(threads)
    box_kernel(const __grid_constant__ CUtensorMap map, struct box_task task) {
#if defined(SIMT_CPU) || __CUDA_ARCH__ >= 900                  // main does not launch it on an older GPU
    extern __shared__ __align__(1024) unsigned char memory[];  // the image, then the mbarrier
    int t = (int)threadIdx.x;
    uint32_t image = shared_address(memory), bar = image + image_bytes;
    if (t == 0) {
        tma_prefetch_map(&map);
        mbarrier_init(bar, 1);
        fence_mbarrier_init();
    }
    for (int i = t; i < image_bytes / 16; i += threads) ((uint4 *)memory)[i] = ((const uint4 *)task.image)[i];
    fence_proxy_async();  // what this thread wrote, for TMA
    __syncthreads();      // the image and the mbarrier are ready
    bool load = task.work == LOAD || task.work == LOAD_WITH_POLICY;
    if (t == 0) {
        if (load) mbarrier_arrive_expect_tx(bar, task.bytes);
        move_box<rank>(&map, &task, image + task.base, bar);
        if (!load) {
            bulk_commit();
            bulk_wait<0>();
        }
    }
    if (load) mbarrier_wait(bar, 0);
    if (load && blockIdx.x == 0)
        for (int i = t; i < image_bytes / 16; i += threads)
            ((uint4 *)task.image)[i] = ((const uint4 *)memory)[i];
#else
    (void)map, (void)task;
#endif
}

template <int rank> static void launch(int blocks, const CUtensorMap &map, const struct box_task &task) {
    box_kernel<rank><<<blocks, threads, image_bytes + 8>>>(map, task);
}

// Moves the box in each of `blocks` blocks. image[image_bytes] is shared memory before and after, tensor the
// bytes of global memory before and after.
static void move(const struct box_reference *b, enum box_work work, int blocks, uint32_t base,
                 unsigned char *image, unsigned char *tensor) {
    size_t tensor_bytes = (size_t)tensor_bytes_of(b);
    unsigned char *device_tensor = to_device(tensor, tensor_bytes),
                  *device_image = to_device(image, image_bytes);
    CUtensorMap map;
    CUresult result =
        tensor_map_encoder()(&map, (CUtensorMapDataType)b->type, b->rank, device_tensor, b->dim, b->stride,
                             b->box, b->step, CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)b->swizzle,
                             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (!CHECK(result == CUDA_SUCCESS)) fprintf(stderr, "  CUresult %d\n", (int)result);
    struct box_task task;
    task.work = work;
    memcpy(task.at, b->at, sizeof task.at);
    task.base = base;
    task.bytes = (uint32_t)box_bytes_of(b);
    task.image = device_image;
    if (b->rank == 2) launch<2>(blocks, map, task);
    if (b->rank == 3) launch<3>(blocks, map, task);
    if (b->rank == 4) launch<4>(blocks, map, task);
    if (b->rank == 5) launch<5>(blocks, map, task);
    from_device(image, device_image, image_bytes);
    from_device(tensor, device_tensor, tensor_bytes);
}

// Says which box it was, after its first wrong byte.
static void check_bytes(const struct box_reference *b, const char *work, uint32_t base, long wrong) {
    if (CHECK(wrong == 0)) return;
    fprintf(stderr, "  %ld wrong bytes: %s, rank %u, type %u, swizzle %u, shared address %u", wrong, work,
            b->rank, b->type, b->swizzle, base);
    for (int i = 0; i < (int)b->rank; i++)
        fprintf(stderr, "; %d: dim %llu, box %u, step %u, at %d", i, (unsigned long long)b->dim[i], b->box[i],
                b->step[i], b->at[i]);
    fprintf(stderr, "\n");
}

static unsigned char *random_bytes(size_t count) {
    unsigned char *bytes = (unsigned char *)malloc(count);
    for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)(1 + random_bits() % 255);
    return bytes;
}

static void check_load(const struct box_reference *b, enum box_work work, uint32_t base) {
    size_t bytes = (size_t)tensor_bytes_of(b);
    unsigned char *tensor = random_bytes(bytes), *after = (unsigned char *)malloc(bytes),
                  *image = (unsigned char *)malloc(image_bytes);
    memcpy(after, tensor, bytes);
    memset(image, 0xee, image_bytes);
    move(b, work, 1, base, image, after);
    long wrong = memcmp(tensor, after, bytes) != 0;
    for (int i = 0; i < image_bytes; i++) {
        int64_t source = box_source(b, base, i, 0);
        wrong += image[i] != (source == NOT_IN_BOX ? 0xee : source == NOT_IN_TENSOR ? 0 : tensor[source]);
    }
    check_bytes(b, "load", base, wrong);
    free(tensor), free(after), free(image);
}

static void check_store(const struct box_reference *b, uint32_t base) {
    size_t bytes = (size_t)tensor_bytes_of(b);
    unsigned char *tensor = random_bytes(bytes), *expected = (unsigned char *)malloc(bytes),
                  *image = random_bytes(image_bytes);
    memcpy(expected, tensor, bytes);
    for (int i = 0; i < image_bytes; i++) {
        int64_t source = box_source(b, base, i, 1);
        if (source >= 0) expected[source] = image[i];
    }
    move(b, STORE, 1, base, image, tensor);
    long wrong = 0;
    for (size_t i = 0; i < bytes; i++) wrong += tensor[i] != expected[i];
    check_bytes(b, "store", base, wrong);
    free(tensor), free(expected), free(image);
}

// Three blocks add the same box; small integers, so that the order does not matter.
static void check_addition(struct box_reference b, enum dtype dtype, uint32_t base) {
    const int blocks = 3;
    size_t bytes = (size_t)tensor_bytes_of(&b);
    int width = dtype_bytes(dtype);
    unsigned char *tensor = (unsigned char *)malloc(bytes), *expected = (unsigned char *)malloc(bytes),
                  *image = (unsigned char *)malloc(image_bytes);
    for (int64_t i = 0; i < (int64_t)bytes / width; i++) number_store(dtype, tensor, i, random_int(-40, 40));
    for (int i = 0; i < image_bytes / width; i++) number_store(dtype, image, i, random_int(-20, 20));
    memcpy(expected, tensor, bytes);
    for (int i = 0; i < image_bytes / width; i++) {
        int64_t source = box_source(&b, base, i * width, 1);
        if (source < 0) continue;
        number_store(dtype, expected, source / width,
                     number_load(dtype, tensor, source / width) + blocks * number_load(dtype, image, i));
    }
    move(&b, ADD, blocks, base, image, tensor);
    long wrong = 0;
    for (int64_t i = 0; i < (int64_t)bytes / width; i++)
        wrong += number_load(dtype, tensor, i) != number_load(dtype, expected, i);
    check_bytes(&b, "addition", base, wrong);
    free(tensor), free(expected), free(image);
}

// Rounds from 200 on have steps, which are for loads.
static void check_boxes(int begin, int end) {
    for (int round = begin; round < end; round++) {
        struct box_reference b = random_box(round, round >= 200);
        if (b.rank < 2) continue;  // the labs have no tensors of one dimension
        uint32_t base = 128 * (uint32_t)random_int(0, 31);
        check_load(&b, round % 2 ? LOAD : LOAD_WITH_POLICY, base);
        if (round >= 200) continue;
        for (int i = 0; i < (int)b.rank; i++)
            if (b.at[i] < 0) b.at[i] = 0;  // no negative coordinates for stores
        check_store(&b, base);
        if (b.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32) check_addition(b, DTYPE_FP32, base);
        if (b.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16) check_addition(b, DTYPE_FP16, base);
        if (b.type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) check_addition(b, DTYPE_BF16, base);
    }
}

// The map that the labs use, at the end of a head: of the box's 16 tokens 1 exists, of its 64 columns 8.
static void check_lab_map() {
    const int batch = 2, heads = 3, seqlen = 33, head_dim = 72;
    const int count = batch * heads * seqlen * head_dim;
    uint16_t *k = (uint16_t *)malloc(count * sizeof *k);
    for (int i = 0; i < count; i++) k[i] = (uint16_t)(1 + i);
    uint16_t *device_k = to_device(k, (size_t)count);
    unsigned char *image = (unsigned char *)malloc(image_bytes);
    memset(image, 0xee, image_bytes);
    struct tensor t;
    t.data = device_k;
    t.stride_row = heads * head_dim;  // (batch, seq, head, dim)
    t.stride_head = head_dim;
    t.stride_batch = seqlen * heads * head_dim;
    CUtensorMap map;
    CHECK(tensor_map_make(&map, "K", &t, DTYPE_FP16, batch, heads, seqlen, head_dim, 16, 64) == 0);
    struct box_task task;
    task.work = LOAD;
    task.at[0] = 64, task.at[1] = 32, task.at[2] = 2, task.at[3] = 1, task.at[4] = 0;
    task.base = 1024, task.bytes = 16 * 64 * 2;
    task.image = to_device(image, image_bytes);
    launch<4>(1, map, task);
    from_device(image, task.image, image_bytes);
    expect_success(cudaFree(device_k));
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 64; column++) {
            int chunk = (column / 8) ^ (row % 8);
            uint16_t found;
            memcpy(&found, image + 1024 + 128 * row + 16 * chunk + 2 * (column % 8), 2);
            int exists = row < 1 && column < 8;
            CHECK(found == (exists ? k[((1 * seqlen + 32 + row) * heads + 2) * head_dim + 64 + column] : 0));
        }
    free(k), free(image);
}

#if defined(__CUDACC__)
// The constants are the policies that the instruction makes.
__global__ void policies(uint64_t *out) {
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(out[0]));
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(out[1]));
}

static void check_policies() {
    uint64_t found[2], *device = to_device((uint64_t *)nullptr, 2);
    policies<<<1, 1>>>(device);
    from_device(found, device, 2);
    if (!CHECK(found[0] == L2_EVICT_FIRST) || !CHECK(found[1] == L2_EVICT_LAST))
        fprintf(stderr, "  %016llx %016llx\n", (unsigned long long)found[0], (unsigned long long)found[1]);
}
#endif

int main() {
    int devices = 0, major = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0)
        expect_success(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    if (major < 9) {
        printf("skipped: TMA needs a GPU of compute capability 9.0 (H100, H200)\n");
        return 77;
    }
    check_lab_map();
    check_boxes(0, 300);
#ifdef SIMT_CPU
    simt_set_sanitizing(1);
    check_boxes(0, 100);
    CHECK(simt_take_races() == 0);
#endif
#if defined(__CUDACC__)
    check_policies();
#endif
    return check_done();
}
