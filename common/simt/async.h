// async.h - what goes on beside the threads of a block: copies in flight, mbarriers, wgmma.
//
// Everything asynchronous happens as late as the PTX ISA allows, and what it writes is poisoned until then,
// so that a missing wait shows at once instead of once in a thousand runs. A copy that completes on an
// mbarrier lands when somebody waits for that mbarrier and no thread of the block can go on otherwise; one
// that completes in groups lands when its thread waits for the group.
#ifndef SIMT_ASYNC_H
#define SIMT_ASYNC_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "races.h"
#include "thread_time.h"

namespace simt {

struct Worker;

// A run of at most 16 bytes that an asynchronous copy moves between device and shared memory.
struct CopyRun {
    char *global;     // null: outside of the tensor, where zeros are read and nothing is written
    uint32_t shared;  // offset in the window
    uint32_t bytes;
    uint32_t valid;  // of these come from `global`; the rest is zero
};

enum class CopyKind : uint8_t { load, store, add_f32, add_f16, add_bf16 };

struct AsyncCopy {
    const char *what = "";
    uintptr_t place = 0;
    int thread = 0;
    CopyKind kind = CopyKind::load;
    bool landed = false;
    bool generic = false;  // cp.async: to the memory model, an ordinary store
    std::shared_ptr<std::vector<uint32_t>>
        arrived;  // it arrives on an mbarrier: what its thread had seen then
    std::vector<CopyRun> runs;
    std::vector<char> taken;  // a store that has left shared memory and is not in device memory yet
    int engine = 0;           // in races.h
    uint32_t clock = 0;
    Steps end = 0;
};

using CopyGroup = std::vector<std::shared_ptr<AsyncCopy>>;

// The copies of one thread that complete in groups: cp.async, or TMA stores (bulk).
struct CopyGroups {
    CopyGroup open;  // not committed
    std::deque<CopyGroup> committed;
};

struct Mbarrier {
    uint32_t count = 0, pending = 0;  // arrivals that a phase takes, and that are still to come
    int64_t transfer = 0;             // bytes announced less bytes landed
    uint32_t phase = 0;
    Steps time = 0, done_time = 0;  // of the last to come so far in this phase; of the phase before
    uintptr_t place = 0;            // of its init
    int thread = 0;                 // that did it
    Moment made;
    uint32_t fence_time = 0;
    std::vector<int> waiters;          // threads that wait for the phase
    std::vector<int> returning;        // threads that have been let go and have not come back from their wait
    std::vector<uint32_t> seen, done;  // clocks of this phase's arrivals, and of the phase before (races.h)
    // Who has come back from a wait for the phase before. This phase must not end without knowing of it.
    struct Return {
        Moment when;
        int engine;        // the wgmma of the thread's warpgroup, ...
        uint32_t product;  // ... and its clock when the next product is over, which the thread takes part in
        int warp;
        uint32_t meeting;  // of the warp: the next one
        uintptr_t place;
    };
    std::vector<Return> returns;
    // What will happen here by itself: a copy that lands (TMA), or an arrival once copies have landed
    // (cp_async_mbarrier_arrive).
    struct Event {
        CopyGroup copies;
        int thread;
        bool arrives;
        uintptr_t place;
        std::shared_ptr<std::vector<uint32_t>> seen;  // by the thread that arrives (races.h)
        Steps time;
    };
    std::deque<Event> events;
};

struct WgmmaQueue;  // of one warpgroup (wgmma.cpp)

// Registers (a local array of a thread) that a wgmma in flight will write or reads.
struct BusyRegisters {
    const char *from;
    size_t bytes;
    uintptr_t place;
    uint32_t group;  // the newest of the warp's wgmma groups that uses them
    bool in_flight;  // else: known as operand of an earlier wgmma
};

class Async {
  public:
    Async();
    ~Async();
    void begin_block(int threads);
    void begin_wgmma(int threads);
    std::map<uint32_t, Mbarrier> mbarriers;          // by offset
    std::vector<CopyGroups> cp_async, bulk;          // [thread]
    std::vector<std::unique_ptr<WgmmaQueue>> wgmma;  // [warpgroup]
    std::vector<uint32_t> mbarrier_fence;            // [thread]: when it last executed fence.mbarrier_init
    uint32_t fence_time = 0;
    std::vector<int> registers;  // [warp]: what setmaxnreg set, 0 nothing
    // How many operations in flight read each 16 bytes of shared memory.
    std::vector<uint16_t> readers;
    size_t reads_in_flight = 0;
    uint32_t engine_clocks[copy_engines] = {};  // copies issued so far
    bool used = false;                          // anything of this in the block so far
};

// Stops the block if an operation in flight still reads these bytes of shared memory, which are about to be
// written.
void check_async_reads(Worker &worker, uintptr_t place, size_t offset, size_t bytes);
void add_async_read(Worker &worker, size_t offset, size_t bytes);
void remove_async_read(Worker &worker, size_t offset, size_t bytes);
// ", which TMA load issued at a.cu:12 ... will write" for an address that a copy in flight will write; whose
// it is for one of an mbarrier.
std::string describe_in_flight(Worker &worker, uintptr_t address);
// A copy for which somebody waits (or that completes on the mbarrier at offset `only`) lands; false: there is
// none.
bool land_a_copy(Worker &worker, int64_t only = -1);
// Moves a copy's bytes, if that has not happened yet, and returns how many shared memory took or gave.
size_t land(Worker &worker, AsyncCopy &copy);
// Stores that nobody has waited for further than until they had left shared memory: the block's end.
void write_stores(Worker &worker);
// The live mbarrier that an instruction uses; there is none: stops the block.
Mbarrier &use_mbarrier(Worker &worker, const char *what, uint32_t bar, uintptr_t place);
// Reports an mbarrier on which a copy will complete without a fence after its init.
void check_mbarrier_fence(Worker &worker, const Mbarrier &it, uint32_t bar, uintptr_t place);
// "phase 3, 1 of 2 arrivals to come, 4096 bytes still to land"
std::string describe_mbarrier(const Worker &worker, uint32_t offset);
// "the wgmma issued at a.cu:12" that will read this byte of shared memory.
std::string describe_wgmma_reader(Worker &worker, size_t offset);
// The engine of the thread's warpgroup and what its clock will say when the product is over that the thread
// has a part in next; engine -1 for a warp of no warpgroup.
void next_product(const Worker &worker, int &engine, uint32_t &clock);
std::string describe_unfinished_wgmma(Worker &worker, int &thread);
// What is still in flight when a block ends, which is an error, and which thread issued it; empty: nothing.
std::string describe_unfinished(Worker &worker, int &thread);
// Whether any thread of the block that this OS thread runs has BusyRegisters.
extern __thread bool wgmma_has_registers;
// A thread reads or writes its own local memory while it has registers in BusyRegisters.
void check_registers(Worker &worker, const char *pointer, size_t bytes, bool write, uintptr_t pc);

}  // namespace simt

#endif
