// races.h - which accesses are ordered and which are not (races.cpp).
#ifndef SIMT_RACES_H
#define SIMT_RACES_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace simt {

struct Worker;

// One side of a race, or the access at hand.
struct RaceAccess {
    uintptr_t pc = 0;  // names the line; 0: not known
    int thread = 0;
    unsigned long long block = 0;
    bool write = false, atomic = false;
};

// Races in the shared memory of the block that a worker runs. An epoch is a thread and its clock; a thread's
// clock ticks when it synchronises, and its vector clock holds, for each other thread, the clock up to which
// it has seen that thread's accesses. Flanagan and Freund, "FastTrack: efficient and precise dynamic race
// detection", PLDI 2009.
class SharedRaces {
  public:
    ~SharedRaces();
    void begin_block(int threads);
    void access(Worker &worker, uintptr_t pc, size_t offset, size_t bytes, bool write, bool atomic);
    // All threads of the block have met: whatever was before is seen by all.
    void all_met() { generation++; }
    // These threads of one warp have met at __syncwarp.
    void met(const int *threads, int count);
    // Named barriers: what each that comes has seen is added to `seen`; who waits has seen it all afterwards.
    void add_to(std::vector<uint32_t> &seen, int thread);
    void learn_from(const std::vector<uint32_t> &seen, int thread);

  private:
    // The last accesses to two neighbouring bytes. Epochs of an older generation are ordered before
    // everything.
    struct Cell {
        uint32_t generation, write,
            read;                    // see epoch_of; read: many_readers if several threads are not ordered
        uint32_t write_pc, read_pc;  // relative to the program's load address
    };
    uint32_t *row(int thread);  // the thread's vector clock
    uint32_t epoch_of(int thread, unsigned bytes_mask, bool atomic);
    bool ordered(const uint32_t *mine, int me, uint32_t epoch, unsigned mask, bool atomic) const;
    void report(Worker &worker, const char *kind, size_t offset, uintptr_t pc, bool write,
                uint32_t other_epoch, uint32_t other_pc, bool other_write);

    uint32_t generation = 1;
    int threads = 0;
    std::vector<uint32_t> clocks;          // [thread][thread]
    std::vector<uint32_t> row_generation;  // a row of an older generation starts anew
    Cell *cells = nullptr;                 // of the window, two bytes each
    uint32_t *reads = nullptr;             // [thread][cell]: epochs of reads, where a cell has many readers
    size_t reads_bytes = 0;
};

// Races between blocks in device memory: blocks are never ordered within a launch, except through atomics.
void global_races_begin_launch();
void global_race_access(Worker &worker, uintptr_t pc, size_t offset, size_t bytes, bool write);
// An atomic with a __threadfence before it publishes what the block has done, and takes over what others
// published there.
void global_race_atomic(Worker &worker, size_t offset);

// Reports one race, once for each pair of source lines. Printed when the launch ends.
void report_race(const std::string &what, const RaceAccess &first, const RaceAccess &second);
// Prints what was found and returns how many pairs there were.
int print_races();

}  // namespace simt

#endif
