// tensor_map_test.c - which layouts TMA is said not to take, and that the others become the tensor map that
// they should: bit by bit the one that the driver makes of numbers written down here.
#include "common/tensor_map.h"

#include "common/device.h"
#include "common/lab.h"

#include "unit.h"

static const struct lab lab = {.name = "tensor_map_test00", .min_sm = 90};

// What tensor_map_try is asked, apart from the map.
struct question {
    struct tensor t;
    enum dtype dtype;
    int batch, heads, seqlen, head_dim, box_rows, box_dim;
};

// [2][3][100][72] fp16, contiguous.
static struct question contiguous(void *data) {
    struct question q = {{data, 21600, 7200, 72}, DTYPE_FP16, 2, 3, 100, 72, 128, 64};
    return q;
}

static int ask(CUtensorMap *map, const struct question *q, struct message *why) {
    return tensor_map_try(map, "K", &q->t, q->dtype, q->batch, q->heads, q->seqlen, q->head_dim, q->box_rows,
                          q->box_dim, why);
}

static void refuses(struct question q, const char *words) {
    CUtensorMap map;
    struct message why = {""};
    EXPECT(ask(&map, &q, &why) == -1);
    EXPECT_SAYS(why.text, "TMA cannot move K");
    EXPECT_SAYS(why.text, words);
    EXPECT(strchr(why.text, '\n') == NULL);
}

// All that is refused before the driver is asked.
static void test_refusals(void) {
    char *data = (char *)(uintptr_t)0x100000;  // nobody looks there
    struct question q = contiguous(data + 8);
    refuses(q, "data start at address 0x100008, not at a multiple of 16 bytes");
    q.t.data = NULL;
    refuses(q, "data start at address");

    q = contiguous(data), q.t.stride_row = 76;
    refuses(q, "its rows are 152 bytes apart, not a multiple of 16");
    q = contiguous(data), q.t.stride_head += 4;
    refuses(q, "its heads are 14408 bytes apart");
    q = contiguous(data), q.t.stride_batch += 1;
    refuses(q, "its batches are 43202 bytes apart");
    q = contiguous(data), q.dtype = DTYPE_E4M3;  // 72 bytes a row
    refuses(q, "its rows are 72 bytes apart");
    q = contiguous(data), q.t.stride_row = 0;
    refuses(q, "its rows are 0 elements apart, and must follow each other");
    q = contiguous(data), q.t.stride_head = -7200;
    refuses(q, "its heads are -7200 elements apart");
    q = contiguous(data), q.t.stride_batch = (int64_t)1 << 39;
    refuses(q, "its batches are 549755813888 elements apart, not less than 2^40 bytes");
    q.t.stride_batch = INT64_MAX;
    refuses(q, "less than 2^40 bytes");

    q = contiguous(data), q.dtype = DTYPE_FP64;
    refuses(q, "no type like fp64");
    q = contiguous(data), q.head_dim = 0;
    refuses(q, "rows have 0 elements");
    q = contiguous(data), q.box_rows = 257;
    refuses(q, "boxes of 257 rows of 64 elements");
    q = contiguous(data), q.box_rows = 0;
    refuses(q, "boxes of 0 rows");
    q = contiguous(data), q.box_dim = 264;
    refuses(q, "boxes of 128 rows of 264 elements");
    q = contiguous(data), q.box_dim = 60;
    refuses(q, "120 bytes: it takes multiples of 16");

    // The printing form: one line on stderr.
    fflush(stderr);
    CUtensorMap map;
    q = contiguous(data + 2);
    printf("One refusal is meant to be seen here:\n");
    EXPECT(tensor_map_make(&map, "K", &q.t, q.dtype, q.batch, q.heads, q.seqlen, q.head_dim, q.box_rows,
                           q.box_dim) == -1);
}

struct expected {
    CUtensorMapDataType type;
    cuuint64_t dim[4], stride[3];
    cuuint32_t box[2];
    CUtensorMapSwizzle swizzle;
};

static void becomes(const struct question *q, const struct expected *e) {
    CUtensorMap map, same;
    memset(&map, 0, sizeof map), memset(&same, 0xff, sizeof same);
    struct message why = {""};
    EXPECT(ask(&map, q, &why) == 0);
    EXPECT(why.text[0] == 0);
    const cuuint32_t box[4] = {e->box[0], e->box[1], 1, 1}, step[4] = {1, 1, 1, 1};
    EXPECT(tensor_map_encoder()(&same, e->type, 4, q->t.data, e->dim, e->stride, box, step,
                                CU_TENSOR_MAP_INTERLEAVE_NONE, e->swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
    EXPECT(memcmp(&map, &same, sizeof map) == 0);
}

static void test_maps(void *data) {
    const CUtensorMapDataType half = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    struct question q = contiguous(data);
    becomes(&q, &(struct expected){
                    half, {72, 100, 3, 2}, {144, 14400, 43200}, {64, 128}, CU_TENSOR_MAP_SWIZZLE_128B});
    q.box_dim = 32, q.box_rows = 16;
    becomes(&q, &(struct expected){
                    half, {72, 100, 3, 2}, {144, 14400, 43200}, {32, 16}, CU_TENSOR_MAP_SWIZZLE_64B});
    q.box_dim = 16, q.dtype = DTYPE_BF16;
    becomes(&q, &(struct expected){CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                   {72, 100, 3, 2},
                                   {144, 14400, 43200},
                                   {16, 16},
                                   CU_TENSOR_MAP_SWIZZLE_32B});
    q.box_dim = 72;
    becomes(&q, &(struct expected){CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                   {72, 100, 3, 2},
                                   {144, 14400, 43200},
                                   {72, 16},
                                   CU_TENSOR_MAP_SWIZZLE_NONE});

    // (batch, seq, head, dim): heads are closer to each other than tokens.
    q = contiguous(data), q.t.stride_row = 216, q.t.stride_head = 72;
    becomes(&q, &(struct expected){
                    half, {72, 100, 3, 2}, {432, 144, 43200}, {64, 128}, CU_TENSOR_MAP_SWIZZLE_128B});

    // One batch, one head, one token: whatever their strides are, nobody takes the step.
    q = contiguous(data), q.batch = 1, q.heads = 1;
    q.t.stride_batch = 0, q.t.stride_head = -3;
    becomes(&q, &(struct expected){
                    half, {72, 100, 1, 1}, {144, 144, 144}, {64, 128}, CU_TENSOR_MAP_SWIZZLE_128B});
    q.seqlen = 1, q.head_dim = 4, q.t.stride_row = 4, q.t.stride_batch = INT64_MAX;
    becomes(&q, &(struct expected){half, {4, 1, 1, 1}, {16, 16, 16}, {64, 128}, CU_TENSOR_MAP_SWIZZLE_128B});

    // Empty: a map that is valid, whatever the strides are, which nobody steps along.
    const struct expected empty = {
        half, {72, 1, 1, 1}, {144, 144, 144}, {64, 128}, CU_TENSOR_MAP_SWIZZLE_128B};
    q = contiguous(data), q.seqlen = 0;
    becomes(&q, &empty);
    q.t.stride_head = 0, q.t.stride_batch = 0;  // as of [batch][heads][0][head_dim]
    becomes(&q, &empty);
    q.batch = 0, q.heads = 0;
    becomes(&q, &empty);

    // The other types; farthest apart.
    q = contiguous(data), q.dtype = DTYPE_FP32, q.box_dim = 32, q.t.stride_batch = ((int64_t)1 << 38) - 4;
    becomes(&q, &(struct expected){CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                                   {72, 100, 3, 2},
                                   {288, 28800, ((cuuint64_t)1 << 40) - 16},
                                   {32, 128},
                                   CU_TENSOR_MAP_SWIZZLE_128B});
    q = contiguous(data), q.dtype = DTYPE_E4M3, q.box_dim = 128;
    q.t.stride_row = 80, q.t.stride_head = 8000, q.t.stride_batch = 24000;
    becomes(&q, &(struct expected){CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                   {72, 100, 3, 2},
                                   {80, 8000, 24000},
                                   {128, 128},
                                   CU_TENSOR_MAP_SWIZZLE_128B});
    q.dtype = DTYPE_E5M2, q.box_dim = 256, q.box_rows = 256;
    becomes(&q, &(struct expected){CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                   {72, 100, 3, 2},
                                   {80, 8000, 24000},
                                   {256, 256},
                                   CU_TENSOR_MAP_SWIZZLE_NONE});
}

int main(void) {
    test_refusals();
    struct device device;
    struct message why = {""};
    if (device_open(&lab, &device, &why) != 0) {
        printf("%s\n", why.text);
        return unit_end() ? LAB_WRONG : LAB_SKIPPED;
    }
    struct buffer buffer;
    EXPECT(buffer_make(&buffer, (size_t)2 * 3 * 100 * 72 * 2, "K", &why) == 0);
    test_maps(buffer.data);
    buffer_free(&buffer);
    return unit_end();
}
