// simt_barrier.h - what common/ptx/barrier.h calls on the CPU. The comments stand there.
#ifndef SIMT_BARRIER_H
#define SIMT_BARRIER_H

#include "simt_device.h"

namespace simt {

void mbarrier_init(uint32_t bar, uint32_t count, const char *file, int line);
void mbarrier_inval(uint32_t bar, const char *file, int line);
void mbarrier_arrive(uint32_t bar, const char *file, int line);
void mbarrier_expect_tx(uint32_t bar, uint32_t bytes, const char *file, int line);
bool mbarrier_test(uint32_t bar, uint32_t parity, const char *file, int line);
void mbarrier_wait(uint32_t bar, uint32_t parity, const char *file, int line);
void cp_async_mbarrier_arrive(uint32_t bar, const char *file, int line);
void fence_mbarrier_init();
void fence_proxy_async();
bool elect_one(const char *file, int line);
void setmaxnreg(int registers, bool more, const char *file, int line);

}  // namespace simt

#endif
