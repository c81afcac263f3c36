// tensor_map.h - tensor maps: what TMA is told about Q, K, V or O, made on the host before the launch.
//
//     CUtensorMap k_map;
//     if (tensor_map_make(&k_map, "K", &a.k, a.dtype, a.batch, a.kv_heads, a.seqlen_k, a.head_dim, 128, 64))
//         exit(LAB_WRONG);
//     kernel<<<grid, block>>>(k_map, a);
//
// The kernel takes it as `const __grid_constant__ CUtensorMap k_map` and loads (common/ptx/copy.h) with
//
//     tma_load_4d(address, &k_map, barrier, column, token, head, batch);
#ifndef TENSOR_MAP_H
#define TENSOR_MAP_H

#include <cudaTypedefs.h>

#include "attention.h"

struct message;  // message.h

#ifdef __cplusplus
extern "C" {
#endif

// Describes `t`, [batch][heads][seqlen][head_dim] in any order of the first three, as a tensor of four
// dimensions (dim, token, head, batch), of which an instruction moves a box of box_rows tokens x box_dim
// elements of one head. What a box has beyond seqlen or head_dim reads as zeros and is not written.
//
// In shared memory a box has rows of box_dim elements and the swizzle that fits: 128-byte for rows of 128
// bytes (64 elements of fp16 or bf16), 64 for 64, 32 for 32, none for any other multiple of 16 bytes; at most
// 256 rows and 256 elements. A head_dim of 128 in fp16 is two boxes of 64 for wgmma, one behind the other.
//
// Returns 0. Or returns -1 after one sentence on stderr, when TMA cannot take this layout: it needs the data,
// and the distances between tokens, heads and batches, at multiples of 16 bytes. A tensor that is empty gives
// a map that is valid but must not be used: no token exists.
int tensor_map_make(CUtensorMap *map, const char *name, const struct tensor *t, enum dtype dtype, int batch,
                    int heads, int seqlen, int head_dim, int box_rows, int box_dim);

// The same with the sentence in `why`.
int tensor_map_try(CUtensorMap *map, const char *name, const struct tensor *t, enum dtype dtype, int batch,
                   int heads, int seqlen, int head_dim, int box_rows, int box_dim, struct message *why);

// The driver's cuTensorMapEncodeTiled, for maps of other shapes; null if the driver is older than CUDA 12.0.
// Through the runtime, so that nothing links libcuda.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder(void);

#ifdef __cplusplus
}
#endif

#endif
