#include "tensor_map.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "message.h"

enum { CHUNK = 16, LARGEST_BOX = 256 };
#define LARGEST_STRIDE ((int64_t)1 << 40)  // bytes

PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder(void) {
    void *symbol = NULL;
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    // The older of the two functions is deprecated since CUDA 13, the newer exists since 12.5.
#if defined(SIMT_CPU) || CUDART_VERSION >= 12050
    cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol, 12000,
                                                          cudaEnableDefault, &result);
#else
    cudaError_t status =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &symbol, cudaEnableDefault, &result);
#endif
    if (status != cudaSuccess) {
        (void)cudaGetLastError();  // the caller sees the null pointer; no later CUDA_CHECK should
        return NULL;
    }
    if (result != cudaDriverEntryPointSuccess) return NULL;
    PFN_cuTensorMapEncodeTiled_v12000 encode;
    memcpy(&encode, &symbol, sizeof encode);  // C has no cast from an object's address to a function's
    return encode;
}

static int map_type(enum dtype dtype, CUtensorMapDataType *type) {
    switch (dtype) {
    case DTYPE_FP16:
        *type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        return 1;
    case DTYPE_BF16:
        *type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
        return 1;
    case DTYPE_E4M3:
    case DTYPE_E5M2:
        *type = CU_TENSOR_MAP_DATA_TYPE_UINT8;  // TMA moves the bytes and asks no more
        return 1;
    case DTYPE_FP32:
        *type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
        return 1;
    case DTYPE_FP64:
    case DTYPE_COUNT:
        break;
    }
    return 0;
}

static CUtensorMapSwizzle swizzle_for(int row_bytes) {
    switch (row_bytes) {
    case 128:
        return CU_TENSOR_MAP_SWIZZLE_128B;
    case 64:
        return CU_TENSOR_MAP_SWIZZLE_64B;
    case 32:
        return CU_TENSOR_MAP_SWIZZLE_32B;
    default:
        return CU_TENSOR_MAP_SWIZZLE_NONE;
    }
}

int tensor_map_try(CUtensorMap *map, const char *name, const struct tensor *t, enum dtype dtype, int batch,
                   int heads, int seqlen, int head_dim, int box_rows, int box_dim, struct message *why) {
    CUtensorMapDataType type;
    if (!map_type(dtype, &type))
        return fail(why, "TMA cannot move %s: it has no type like %s", name, dtype_name(dtype));
    const int element = dtype_bytes(dtype);
    if (head_dim < 1) return fail(why, "TMA cannot move %s: its rows have %d elements", name, head_dim);
    if (box_rows < 1 || box_rows > LARGEST_BOX || box_dim < 1 || box_dim > LARGEST_BOX)
        return fail(why, "TMA cannot move %s in boxes of %d rows of %d elements: each is 1 to %d", name,
                    box_rows, box_dim, LARGEST_BOX);
    if (box_dim * element % CHUNK)
        return fail(why, "TMA cannot move %s in boxes whose rows have %d bytes: it takes multiples of %d",
                    name, box_dim * element, CHUNK);
    if (!t->data || (uintptr_t)t->data % CHUNK)
        return fail(why, "TMA cannot move %s: its data start at address %p, not at a multiple of %d bytes",
                    name, t->data, CHUNK);

    const struct {
        const char *what;
        int size;
        int64_t stride;  // elements
    } outer[3] = {{"rows", seqlen, t->stride_row},
                  {"heads", heads, t->stride_head},
                  {"batches", batch, t->stride_batch}};
    const int is_empty = seqlen == 0 || heads == 0 || batch == 0;
    cuuint64_t dim[4] = {(cuuint64_t)head_dim}, stride[3];
    for (int i = 0; i < 3; ++i) {
        const int size = is_empty ? 1 : outer[i].size;  // 0 is no size that a map can have
        dim[i + 1] = (cuuint64_t)size;
        if (size == 1) {
            // Nobody steps along this dimension, so its stride means nothing, but the driver looks at it.
            stride[i] = (cuuint64_t)(head_dim * (int64_t)element + CHUNK - 1) / CHUNK * CHUNK;
            continue;
        }
        if (outer[i].stride <= 0)
            return fail(why, "TMA cannot move %s: its %s are %lld elements apart, and must follow each other",
                        name, outer[i].what, (long long)outer[i].stride);
        if (outer[i].stride >= LARGEST_STRIDE / element)
            return fail(why, "TMA cannot move %s: its %s are %lld elements apart, not less than 2^40 bytes",
                        name, outer[i].what, (long long)outer[i].stride);
        if (outer[i].stride * element % CHUNK)
            return fail(why, "TMA cannot move %s: its %s are %lld bytes apart, not a multiple of %d", name,
                        outer[i].what, (long long)(outer[i].stride * element), CHUNK);
        stride[i] = (cuuint64_t)(outer[i].stride * element);
    }

    const PFN_cuTensorMapEncodeTiled_v12000 encode = tensor_map_encoder();
    if (!encode)
        return fail(
            why,
            "TMA cannot move %s: this driver has no cuTensorMapEncodeTiled; it must be of CUDA 12.0 or newer",
            name);
    const cuuint32_t box[4] = {(cuuint32_t)box_dim, (cuuint32_t)box_rows, 1, 1}, step[4] = {1, 1, 1, 1};
    const CUresult result = encode(map, type, 4, t->data, dim, stride, box, step,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_for(box_dim * element),
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        return fail(
            why,
            "TMA cannot move %s: it needs a GPU of compute capability 9.0 (the driver says: not supported)",
            name);
    if (result != CUDA_SUCCESS)
        return fail(why, "TMA cannot move %s: the driver refuses the tensor map (CUresult %d)", name,
                    (int)result);
    return 0;
}

int tensor_map_make(CUtensorMap *map, const char *name, const struct tensor *t, enum dtype dtype, int batch,
                    int heads, int seqlen, int head_dim, int box_rows, int box_dim) {
    struct message why;
    if (tensor_map_try(map, name, t, dtype, batch, heads, seqlen, head_dim, box_rows, box_dim, &why) == 0)
        return 0;
    fflush(stdout);
    fprintf(stderr, "%s\n", why.text);
    return -1;
}
