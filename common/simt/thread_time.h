// thread_time.h - the time of a traced launch (ptx/time.h, sm_clock), which no scheduler tells: a block's
// threads take turns here, and run side by side on a GPU. So each thread has a time of its own. It goes by
// the basic blocks of the kernel's code that the thread executes, one step each, and where the thread waits
// for others it becomes that of the last one to come. But for the order in which warpgroups get at the tensor
// cores, the outcome is the same under every order of threads, and tells who waits for whom, and how much
// code lies between.
//
// What goes on beside the threads takes as many steps as it would take cycles on an H200 with nothing else to
// do: tensor cores 4096 fp16 FLOPs a cycle, so N / 2 for a wgmma 64 x N x 16; copies a latency and 64 bytes a
// cycle. One after the other on each, in the order in which they were committed or issued. It is a model: a
// basic block is no cycle, warps do not compete for anything else, numbers in global memory by which blocks
// wait for each other pass no time on, and no length is a measure of speed.
#ifndef SIMT_THREAD_TIME_H
#define SIMT_THREAD_TIME_H

#include <cstddef>
#include <cstdint>

namespace simt {

struct Worker;
struct Fiber;

using Steps = unsigned long long;

constexpr Steps copy_latency = 600, copy_bytes_a_step = 64;

// Until when the block's tensor cores and its way to global memory have work.
struct Engines {
    Steps tensor_cores = 0, copies = 0;
};

// The running thread's time.
Steps time_now(const Worker &worker);
// What the running thread has done so far is added to its time: before somebody else runs, or looks at it.
void settle_time(Worker &worker);
// The thread goes on at this time, or later if its own is later.
void wait_until(Worker &worker, Fiber &fiber, Steps time);
// When work that begins now, or that was ready at `ready`, is done.
Steps copy_end(Worker &worker, size_t bytes);
Steps product_end(Worker &worker, Steps ready, Steps steps);

}  // namespace simt

#endif
