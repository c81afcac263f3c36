// races.h - which accesses are ordered and which are not (races.cpp).
#ifndef SIMT_RACES_H
#define SIMT_RACES_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct simt_race;  // cuda_runtime_api.h

namespace simt {

struct Worker;

// Engines that touch memory by themselves: copies, by the mbarrier on which they complete, and the wgmma of
// each warpgroup.
constexpr int copy_engines = 16, wgmma_engines = 8, async_engines = copy_engines + wgmma_engines;

// Behind them comes a column for each warp: how often all of it has met at a shuffle or the like, which is no
// order for memory but tells that its lanes have come so far.
constexpr int most_warps = 32, columns_besides = async_engines + most_warps;

// One side of a race, or the access at hand.
struct RaceAccess {
    uintptr_t pc = 0;                                     // names the line; 0: not known
    static constexpr int not_known = -1, an_engine = -2;  // an_engine: a copy or wgmma, issued at pc
    int thread = 0;
    unsigned long long block = 0;
    bool write = false;
    const char *verb = nullptr;  // else "write" or "read"
};

// When a thread did something, in terms of what others have seen of it.
struct Moment {
    int thread = 0;
    uint32_t clock = 0, generation = 0;
};

// Races in the shared memory of the block that a worker runs. An epoch is a thread and its clock; a thread's
// clock ticks when it synchronises, and its vector clock holds, for each other thread, the clock up to which
// it has seen that thread's accesses. Flanagan and Freund, "FastTrack: efficient and precise dynamic race
// detection", PLDI 2009.
class SharedRaces {
  public:
    ~SharedRaces();
    void begin_block(int threads);
    void access(Worker &worker, int thread, uintptr_t pc, size_t offset, size_t bytes, bool write,
                bool atomic);
    // All threads of the block have met: whatever was before is seen by all.
    void all_met() { generation++; }
    // These threads of one warp have met at __syncwarp.
    void met(const int *threads, int count);
    // Named barriers: what each that comes has seen is added to `seen`; who waits has seen it all afterwards.
    void add_to(std::vector<uint32_t> &seen, int thread);
    void learn_from(const std::vector<uint32_t> &seen, int thread);
    Moment now(int thread);
    bool has_seen(int thread, const Moment &what);
    // Whether `seen` tells of what a thread did, or an engine of its clock.
    bool tells_of(const std::vector<uint32_t> &seen, const Moment &what) const;
    bool tells_of(const std::vector<uint32_t> &seen, int engine, uint32_t clock) const;
    // What others had seen when `from` was filled is added to `seen`.
    void add_seen(std::vector<uint32_t> &seen, const std::vector<uint32_t> &from) const;

    // Asynchronous copies and wgmma touch memory on their own: each engine is one more column in the vector
    // clocks. `thread` issues an access that will happen at the engine's `clock`; whoever learns of that
    // clock may touch the memory afterwards. async_done repeats it when it happens.
    void async_access(Worker &worker, int thread, int engine, uint32_t clock, uintptr_t pc, size_t offset,
                      size_t bytes, bool write);
    void async_done(int engine, uint32_t clock, uintptr_t pc, size_t offset, size_t bytes, bool write);
    // A cp.async of `thread` lands that arrives on an mbarrier: what it writes is as old as that arrival,
    // when the thread had seen `arrived`.
    void copy_done(int thread, const std::vector<uint32_t> &arrived, uintptr_t pc, size_t offset,
                   size_t bytes);
    void add_engine_to(std::vector<uint32_t> &seen, int engine, uint32_t clock);
    void learn_engine(int thread, int engine, uint32_t clock);
    // fence.proxy.async: TMA and wgmma see what the thread has written so far.
    void fence(int thread);

  private:
    // The last accesses to two neighbouring bytes. Epochs of an older generation are ordered before
    // everything.
    struct Cell {
        uint32_t generation, write,
            read;                    // see epoch_of; read: many_readers if several threads are not ordered
        uint32_t write_pc, read_pc;  // see code_of
        // The last write by an ordinary store (thread + 1, 0: none since the last copy) and when it was, in
        // fences; these outlive a generation, because a barrier is no fence.
        uint32_t generic_writer, generic_time;
    };
    void refresh(Cell &cell) const;
    void check_write(Worker &worker, const uint32_t *mine, int me, Cell &cell, size_t i, unsigned mask,
                     bool atomic, uintptr_t pc, bool write);
    void check_reads(Worker &worker, const uint32_t *mine, int me, const Cell &cell, size_t i, unsigned mask,
                     bool atomic, uintptr_t pc);
    void check_fence(Worker &worker, int me, Cell &cell, size_t i, uintptr_t pc, bool write);
    void record_read(const uint32_t *mine, int me, Cell &cell, size_t i, uint32_t epoch, uint32_t code);
    uint32_t epoch_at(int column, uint32_t clock, unsigned bytes_mask, bool atomic) const;
    uint32_t *row(int thread);  // the thread's vector clock
    void prepare(std::vector<uint32_t> &seen) const;
    uint32_t epoch_of(int thread, unsigned bytes_mask, bool atomic);
    bool ordered(const uint32_t *mine, int me, uint32_t epoch, unsigned mask, bool atomic) const;
    void report(Worker &worker, const char *kind, size_t offset, int me, uintptr_t pc, bool write,
                uint32_t other_epoch, uint32_t other_pc, bool other_write);

    uint32_t generation = 1;
    uint32_t fences = 1;                   // executed so far
    uint32_t block_start = 1;              // how many there were when the block began
    std::vector<uint32_t> last_fence;      // [thread]
    int threads = 0, columns = 0;          // columns: threads, then engines
    std::vector<uint32_t> clocks;          // [thread][column]
    std::vector<uint32_t> row_generation;  // a row of an older generation starts anew
    Cell *cells = nullptr;                 // of the window, two bytes each
    uint32_t *reads = nullptr;             // [cell][column]: epochs of reads, where a cell has many readers
    size_t reads_bytes = 0;
};

// Races between blocks in device memory: blocks are never ordered within a launch, except through atomics.
// In a dependent launch (ptx/grid.h) also with the launch before, until a thread calls griddepcontrol_wait.
void global_races_begin_launch(bool dependent);
void global_race_access(Worker &worker, uintptr_t pc, size_t offset, size_t bytes, bool write);
// An atomic with a __threadfence before it publishes what the block has done, and takes over what others
// published there.
void global_race_atomic(Worker &worker, size_t offset);

// Reports one race, once for each pair of source lines. Printed when the launch ends.
void report_race(const std::string &what, const RaceAccess &first, const RaceAccess &second);
// Prints what was found, keeps the first hundred pairs for take_race_lines and returns how many there were.
int print_races();
int take_race_lines(simt_race *taken, int max);

}  // namespace simt

#endif
