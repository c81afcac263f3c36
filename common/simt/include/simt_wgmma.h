// simt_wgmma.h - the calls behind ptx/wgmma.h: the asynchronous matrix product of a warpgroup.
#ifndef SIMT_WGMMA_H
#define SIMT_WGMMA_H

#include <cstdint>

namespace simt {

enum class WgmmaType { fp16, bf16, e4m3 };

// What is fixed in the instruction: D (64 x n, fp32) = A (64 x k) B (k x n), plus D if scale_d is 1.
// K-major: consecutive k lie together in shared memory; MN-major: consecutive m of A, or n of B.
struct WgmmaShape {
    WgmmaType type;
    int n, k;
    bool a_in_registers, a_mn_major, b_mn_major;
    int scale_d;
};

// Stops a kernel that makes a descriptor of numbers whose low bits have no place in it.
void wgmma_check_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes,
                            int swizzle_bytes, const char *file, int line);
// One thread's part of an instruction. `d` are its n/2 accumulators, `a_registers` its four registers of A
// (null if A is in shared memory, then a_descriptor counts). The shape is copied.
void wgmma_issue(const WgmmaShape &shape, float *d, const uint32_t *a_registers, uint64_t a_descriptor,
                 uint64_t b_descriptor, const char *file, int line);
void wgmma_fence(const char *file, int line);
void wgmma_commit(const char *file, int line);
// Waits until at most `pending` of this warp's committed groups are unfinished.
void wgmma_wait(int pending, const char *file, int line);

}  // namespace simt

#endif
