// flops.h - what kernels compute: floating-point operations and exponentials (flops.cpp).
#ifndef SIMT_FLOPS_H
#define SIMT_FLOPS_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace simt {

// How often a launch came by one basic block of a kernel's code: by the return address of the call that the
// compiler put there.
struct BlockCount {
    uintptr_t pc;
    unsigned long long count;
};

// One worker's counters, one for each address of the program; room that nobody touches costs nothing.
class BlockCounters {
  public:
    BlockCounters();
    void count(uintptr_t pc) {
        steps++;
        size_t at = pc - first;
        if (at < size && counts[at]++ == 0) seen.push_back(at);
    }
    std::vector<BlockCount> take();  // the figures since the last call
    unsigned long long steps = 0;    // calls of count so far: what the time of a trace goes by

  private:
    struct Free {
        void operator()(void *memory) const;
    };
    uintptr_t first;
    size_t size;
    std::unique_ptr<unsigned long long[], Free> counts;
    std::vector<size_t> seen;  // whose count is not 0
};

// Where this OS thread counts; null if it does not: neither profile nor trace is wanted, or host code runs.
extern __thread BlockCounters *block_counters;

// What all threads together computed.
struct Work {
    unsigned long long fp32_flops =
        0;  // add, subtract, multiply, divide, square root: 1; fused multiply-add: 2
    unsigned long long exponentials = 0;
    bool known = true;
};
Work work_of(const std::vector<BlockCount> &blocks);

}  // namespace simt

#endif
