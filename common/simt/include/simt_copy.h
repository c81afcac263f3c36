// simt_copy.h - what the copy instructions of common/ptx/copy.h do on the CPU (../copies.cpp). The comments
// there say what each instruction is; here, shared memory is an address in the block's window.
#ifndef SIMT_COPY_H
#define SIMT_COPY_H

#include "cuda.h"
#include "simt_device.h"

namespace simt {

// Copies valid_bytes of `bytes` (4, 8 or 16) and fills the rest with zeros.
void cp_async(uint32_t to, const void *from, int bytes, int valid_bytes, const char *file, int line);
void cp_async_commit(const char *file, int line);
// Waits until at most `pending` of this thread's groups are still on their way.
void cp_async_wait(int pending, const char *file, int line);
void cp_async_wait_all(const char *file, int line);

// coordinates: `rank` of them, the innermost first.
void tma_load(uint32_t to, const CUtensorMap *map, uint32_t bar, int rank, const int *coordinates,
              const char *file, int line);
// add: adds to what is in global memory instead of replacing it.
void tma_store(const CUtensorMap *map, uint32_t from, int rank, const int *coordinates, bool add,
               const char *file, int line);

void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t bar, const char *file, int line);
void bulk_store(void *to, uint32_t from, uint32_t bytes, const char *file, int line);
void bulk_reduce_add_f32(float *to, uint32_t from, uint32_t bytes, const char *file, int line);
void bulk_prefetch_l2(const void *from, uint32_t bytes, const char *file, int line);
void bulk_commit(const char *file, int line);
// Waits until at most `pending` groups are still on their way; read_only: until they have read shared memory.
void bulk_wait(int pending, bool read_only, const char *file, int line);

}  // namespace simt

#endif
