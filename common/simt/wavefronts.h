// wavefronts.h - what Nsight Compute counts of one request of a warp (wavefronts.cpp): pure functions.
#ifndef SIMT_WAVEFRONTS_H
#define SIMT_WAVEFRONTS_H

#include <cstdint>
#include <utility>
#include <vector>

namespace simt {

constexpr int lanes_of_warp = 32;
constexpr uint64_t sector_bytes = 32;

struct Wavefronts {
    unsigned all = 0, ideal = 0;  // ideal: if no bank were wanted twice
};

// Of the lanes in `lanes`, each with `size` bytes at its address. Global memory: sectors.
unsigned count_sectors(const uint64_t *address, uint32_t lanes, unsigned size);
unsigned count_atomic_sectors(const uint64_t *address, uint32_t lanes);

// Shared memory.
enum class SharedAccess { load, store, atomic };
Wavefronts count_wavefronts(const uint64_t *address, uint32_t lanes, unsigned size, SharedAccess kind);

// ldmatrix, stmatrix: lanes 8 m ... 8 m + 7 have the addresses of the rows of 16 bytes of matrix m.
Wavefronts count_matrices(const uint64_t *address, int matrices);

// cp.async of one warp.
struct CopyLanes {
    uint32_t lanes = 0, reading = 0, padding = 0;  // all; which read global memory; which write zeros
    uint64_t to[lanes_of_warp], from[lanes_of_warp];
};
struct CopyCount {
    unsigned sectors = 0, fetched = 0;
    Wavefronts shared;
};
CopyCount count_copy(const CopyLanes &copy, unsigned size);

// The global side of one TMA or bulk copy, made of any parts.
class BulkParts {
  public:
    void add(uint64_t shared, uint64_t global, uint64_t size);
    void add_zeros(uint64_t shared, uint64_t size);  // a load's, from outside of the tensor
    unsigned count_sectors() const;
    uint64_t bytes = 0, zeros = 0;

  private:
    std::vector<std::pair<uint64_t, uint64_t>> sectors;  // line of shared memory, sector of global memory
    std::vector<uint64_t> read_blocks, zero_blocks;      // of shared memory, as large as a sector
};

}  // namespace simt

#endif
