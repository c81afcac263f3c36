// tensor_map_test.cpp - tensor maps of the simulated device, on the host: what cuTensorMapEncodeTiled
// refuses, and every byte of the boxes that traverse_box walks over, against the definition of a box and the
// swizzle formula of the CUDA C++ Programming Guide ("TMA swizzle": smem[y][((y + offset) % 8) ^ x]).
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <string.h>

#include <string>
#include <vector>

#include "box_reference.h"
#include "check.h"
#include "common/simt/tensor_map.h"

using namespace simt;

struct arguments : box_reference {
    char *address;
    unsigned interleave, l2_promotion, fill;
};

static CUresult encode(CUtensorMap *map, const arguments &it, std::string &why) {
    return encode_tiled(map, it.type, it.rank, it.address, it.dim, it.stride, it.box, it.step, it.interleave,
                        it.swizzle, it.l2_promotion, it.fill, why);
}

// ---- What is refused ----

static const arguments good = {{CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                                4,
                                {72, 1000, 8, 2},
                                {144, 144000, 1152000},
                                {64, 128, 1, 1},
                                {1, 1, 1, 1},
                                CU_TENSOR_MAP_SWIZZLE_128B,
                                2,
                                {}},
                               (char *)0x10000,
                               CU_TENSOR_MAP_INTERLEAVE_NONE,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE};

// Refused with this result and a sentence with these words in it; the map keeps what was in it.
static void refused(const arguments &it, CUresult expected, const char *words, int line) {
    CUtensorMap map, before;
    memset(&map, 0x5a, sizeof map);
    before = map;
    std::string why;
    CUresult result = encode(&map, it, why);
    if (!CHECK(result == expected) || !CHECK(why.find(words) != std::string::npos))
        fprintf(stderr, "  line %d: %d, \"%s\"\n", line, int(result), why.c_str());
    CHECK(memcmp(&map, &before, sizeof map) == 0);
    CHECK(!tensor_map_of(&map));
}

static void accepted(const arguments &it, int line) {
    CUtensorMap map;
    std::string why = "nothing";
    if (!CHECK(encode(&map, it, why) == CUDA_SUCCESS)) fprintf(stderr, "  line %d: %s\n", line, why.c_str());
    CHECK(why.empty());
    CHECK(tensor_map_of(&map) != nullptr);
}

// The good arguments with one change. __VA_ARGS__: the change, to `it`.
#define INVALID(words, ...)                                                                                  \
    {                                                                                                        \
        arguments it = good;                                                                                 \
        __VA_ARGS__;                                                                                         \
        refused(it, CUDA_ERROR_INVALID_VALUE, words, __LINE__);                                              \
    }
#define NOT_SIMULATED(words, ...)                                                                            \
    {                                                                                                        \
        arguments it = good;                                                                                 \
        __VA_ARGS__;                                                                                         \
        refused(it, CUDA_ERROR_NOT_SUPPORTED, words, __LINE__);                                              \
    }
#define ACCEPTED(...)                                                                                        \
    {                                                                                                        \
        arguments it = good;                                                                                 \
        __VA_ARGS__;                                                                                         \
        accepted(it, __LINE__);                                                                              \
    }

static void check_rules() {
    ACCEPTED();
    INVALID("tensorDataType 99", it.type = 99);
    INVALID("tensorRank is 0", it.rank = 0);
    INVALID("tensorRank is 6", it.rank = 6);
    INVALID("globalAddress is 0x10008, not a multiple of 16", it.address += 8);
    INVALID("globalDim[0] is 0", it.dim[0] = 0);
    INVALID("globalDim[3] is 0", it.dim[3] = 0);
    INVALID("globalDim[1] is 4294967297", it.dim[1] = (uint64_t(1) << 32) + 1);
    ACCEPTED(it.dim[1] = uint64_t(1) << 32);
    INVALID("globalStrides[0] is 136 bytes, not a multiple of 16", it.stride[0] = 136);
    INVALID("globalStrides[2] is 1152008 bytes", it.stride[2] += 8);
    INVALID("not less than 2^40", it.stride[1] = uint64_t(1) << 40);
    ACCEPTED(it.stride[1] = (uint64_t(1) << 40) - 16);
    ACCEPTED(it.stride[0] = 288000, it.stride[1] = 144);  // (batch, seq, head, dim): not in order of size
    INVALID("boxDim[1] is 0", it.box[1] = 0);
    INVALID("boxDim[1] is 257", it.box[1] = 257);
    ACCEPTED(it.box[1] = 256);
    INVALID("120 bytes, not a multiple of 16", it.box[0] = 60);
    INVALID("256 bytes, and swizzle allows 128", it.box[0] = 128);
    INVALID("128 bytes, and swizzle allows 64", it.swizzle = CU_TENSOR_MAP_SWIZZLE_64B);
    INVALID("64 bytes, and swizzle allows 32", it.box[0] = 32, it.swizzle = CU_TENSOR_MAP_SWIZZLE_32B);
    ACCEPTED(it.box[0] = 256, it.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE);
    ACCEPTED(it.box[0] = 32, it.swizzle = CU_TENSOR_MAP_SWIZZLE_64B);
    ACCEPTED(it.box[0] = 16, it.swizzle = CU_TENSOR_MAP_SWIZZLE_32B);
    ACCEPTED(it.box[0] = 8, it.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE);
    INVALID("elementStrides[1] is 0", it.step[1] = 0);
    INVALID("elementStrides[1] is 9", it.step[1] = 9);
    ACCEPTED(it.step[1] = 8);
    INVALID("interleave 3", it.interleave = 3);
    INVALID("swizzle 7", it.swizzle = 7);
    INVALID("l2Promotion 4", it.l2_promotion = 4);
    INVALID("oobFill 2", it.fill = 2);

    const unsigned nan = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    INVALID("elements are integers", it.fill = nan, it.type = CU_TENSOR_MAP_DATA_TYPE_UINT16);
    NOT_SIMULATED("only zeros", it.fill = nan);
    NOT_SIMULATED("64 bytes: on the CPU it must fill the swizzle's 128", it.box[0] = 32);
    NOT_SIMULATED("TFLOAT32", it.type = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, it.box[0] = 32);

    const unsigned wide = CU_TENSOR_MAP_INTERLEAVE_32B;
    const unsigned narrow = CU_TENSOR_MAP_SWIZZLE_32B;
    INVALID("at least 3", it.interleave = wide, it.swizzle = narrow, it.rank = 2);
    INVALID("swizzle is not 32B", it.interleave = wide);
    INVALID("not a multiple of 32", it.interleave = wide, it.swizzle = narrow, it.address += 16);
    INVALID("144 bytes, not a multiple of 32", it.interleave = wide, it.swizzle = narrow);
    NOT_SIMULATED("interleaved", it.interleave = wide, it.swizzle = narrow, it.stride[0] = 160);
    NOT_SIMULATED("interleaved", it.interleave = CU_TENSOR_MAP_INTERLEAVE_16B);

    // Not in `arguments`: the map's own address, and null pointers.
    alignas(128) char bytes[256];
    std::string why;
    CHECK(encode((CUtensorMap *)(void *)(bytes + 32), good, why) == CUDA_ERROR_INVALID_VALUE);
    CHECK(why.find("multiple of 64") != std::string::npos);
    CHECK(encode((CUtensorMap *)(void *)(bytes + 64), good, why) == CUDA_SUCCESS);
    CHECK(encode(nullptr, good, why) == CUDA_ERROR_INVALID_VALUE);
    CUtensorMap map;
    CHECK(encode_tiled(&map, good.type, 1, good.address, good.dim, nullptr, good.box, good.step,
                       good.interleave, good.swizzle, good.l2_promotion, good.fill, why) == CUDA_SUCCESS);
    CHECK(encode_tiled(&map, good.type, 2, good.address, good.dim, nullptr, good.box, good.step,
                       good.interleave, good.swizzle, good.l2_promotion, good.fill,
                       why) == CUDA_ERROR_INVALID_VALUE);
    CHECK(!tensor_map_of(nullptr));
}

// ---- What is in a box ----

static unsigned char byte_at(int64_t offset) {
    return (unsigned char)(1 + offset * 2654435761u % 255);
}  // not 0

// Encodes, walks and compares all bytes of shared memory up to behind the box.
static void check_box(const box_reference &b, uint32_t base) {
    arguments it = good;
    static_cast<box_reference &>(it) = b;
    CUtensorMap encoded;
    std::string why;
    if (!CHECK(encode(&encoded, it, why) == CUDA_SUCCESS)) {
        fprintf(stderr, "  %s\n", why.c_str());
        return;
    }
    const TensorMap &map = *tensor_map_of(&encoded);
    const int64_t total = box_bytes_of(&b);
    CHECK(box_bytes(map) == total);
    std::vector<int> image(size_t(base + total + 128), -1);  // -1: nobody wrote there
    int64_t walked = 0;
    traverse_box(map, b.at, base, [&](char *global, uint32_t shared, uint32_t bytes) {
        CHECK(bytes >= 1 && bytes <= 16 && shared / 16 == (shared + bytes - 1) / 16);
        walked += bytes;
        for (uint32_t i = 0; i < bytes; i++) {
            if (!CHECK(shared + i < image.size() && image[shared + i] == -1)) continue;
            image[shared + i] = global ? byte_at(global - it.address + i) : 0;
        }
    });
    CHECK(walked == total);
    long wrong = 0;
    for (int64_t at = 0; at < int64_t(image.size()); at++) {
        int64_t source = box_source(&b, base, at, 0);
        int expected = source == NOT_IN_BOX ? -1 : source == NOT_IN_TENSOR ? 0 : byte_at(source);
        wrong += image[size_t(at)] != expected;
    }
    if (!CHECK(wrong == 0)) fprintf(stderr, "  %ld of %lld bytes\n", wrong, (long long)total);
}

static void check_boxes() {
    for (int round = 0; round < 4000; round++) {
        box_reference b = random_box(round, round % 3 == 0);
        // What no instruction has or no test on a GPU: a start amid a chunk, rows that overlap, coordinates
        // close to overflow.
        if (random_int(0, 2) == 0) b.at[0] += random_int(-7, 7);
        if (b.rank > 1 && round % 7 == 0) b.stride[0] = 0;
        if (round % 11 == 0) b.at[b.rank - 1] = round % 2 ? INT32_MAX : INT32_MIN;
        check_box(b, 128 * uint32_t(random_int(0, 15)));
    }
}

// Tiles as the labs load them: fp16, rows of 64, head_dim 72, 1000 tokens.
static void check_tile() {
    const int begin[3][4] = {{0, 128, 3, 1}, {64, 960, 7, 1}, {-3, -1, 0, 0}};
    for (const int(&at)[4] : begin)
        for (uint32_t base : {0u, 1024u, 128u, 896u}) {
            box_reference b = good;
            memcpy(b.at, at, sizeof at);
            check_box(b, base);
        }
    CUtensorMap encoded;
    std::string why;
    CHECK(encode(&encoded, good, why) == CUDA_SUCCESS);
    const TensorMap &map = *tensor_map_of(&encoded);
    CHECK(box_bytes(map) == 64 * 128 * 2);
    CHECK(map.rank == 4 && map.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
    // Row 5, chunk 3 goes to place 3 ^ 5 = 6.
    CHECK(swizzled(map, 5 * 128 + 3 * 16 + 7) == 5 * 128 + 6 * 16 + 7);
    // Of the second box's 64 columns 8 exist, of its 128 rows 40.
    int inside = 0, outside = 0;
    traverse_box(map, begin[1], 0,
                 [&](char *global, uint32_t, uint32_t bytes) { (global ? inside : outside) += int(bytes); });
    CHECK(inside == 40 * 16 && outside == 64 * 128 * 2 - 40 * 16);
}

// ---- How programs find it ----

static void check_entry_point() {
    void *function = nullptr;
    enum cudaDriverEntryPointQueryResult result;
    CHECK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 12000, cudaEnableDefault, &result) ==
          cudaSuccess);
    CHECK(!function && result == cudaDriverEntryPointSymbolNotFound);
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 11080, cudaEnableDefault,
                                           &result) == cudaSuccess);
    CHECK(!function && result == cudaDriverEntryPointVersionNotSufficent);
    CHECK(cudaGetDriverEntryPoint(nullptr, &function, cudaEnableDefault, &result) == cudaErrorInvalidValue);
    CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, nullptr) ==
          cudaSuccess);
    void *by_version = nullptr;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &by_version, 12000, cudaEnableDefault,
                                           &result) == cudaSuccess);
    if (!CHECK(function && function == by_version && result == cudaDriverEntryPointSuccess)) return;
    auto encode_function = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
    CUtensorMap by_name, direct;
    std::string why;
    auto call = [&](unsigned rank) {
        return encode_function(&by_name, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank, good.address, good.dim,
                               good.stride, good.box, good.step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    CHECK(call(4) == CUDA_SUCCESS);
    CHECK(encode(&direct, good, why) == CUDA_SUCCESS);
    CHECK(memcmp(&by_name, &direct, sizeof direct) == 0);
    printf("One refusal is meant to be seen here:\n");
    fflush(stdout);
    CHECK(call(7) == CUDA_ERROR_INVALID_VALUE);
}

int main() {
    check_rules();
    check_tile();
    check_boxes();
    check_entry_point();
    return check_done();
}
