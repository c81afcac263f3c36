// internal.h - what the parts of the CPU backend know of each other.
//
// A launch is spread over a pool of OS threads (pool.cpp). Each takes whole blocks and runs a block's CUDA
// threads as fibers on its own stack memory (scheduler.cpp, fiber.cpp), one at a time: a fiber runs until it
// waits for others. Every plain memory access of a kernel comes through hooks.cpp, which knows device memory
// from memory.cpp and the block's shared memory from shared.cpp. Whoever finds a fault calls stop_block
// (report.cpp), which ends the launch.
#ifndef SIMT_INTERNAL_H
#define SIMT_INTERNAL_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "async.h"
#include "flops.h"
#include "include/cuda_runtime.h"
#include "races.h"
#include "thread_time.h"
#include "traffic.h"

namespace simt {

// ---- Limits of the simulated device: an H200 (compute capability 9.0) ----
constexpr int max_threads_per_block = 1024;
constexpr int warp_size = 32;
constexpr int named_barriers = 16;
constexpr size_t shared_default_bytes = 48 * 1024;
constexpr size_t shared_optin_bytes = 227 * 1024;
constexpr int threads_without_bounds =
    256;  // above this, 255 registers a thread no longer fit into 64 K registers
constexpr int multiprocessors = 132;

// ---- Fibers (fiber.cpp) ----
constexpr size_t stack_bytes = 128 * 1024;
extern "C" void simt_switch(void **save_stack_pointer, void *load_stack_pointer);
// Prepares a stack so that the first switch to it calls `entry`, which must never return.
void *fiber_prepare(char *stack_top, void (*entry)());

// What a fiber waits for; for deadlock reports and for checking that the others wait for the same.
struct WaitPoint {
    const char *what = nullptr;
    const char *file = nullptr;
    int line = 0;
    int barrier = -1;
    const void *site =
        nullptr;            // __syncthreads: the call in the kernel's code, which tells two on one line apart
    int64_t mbarrier = -1;  // its offset in shared memory
};

struct Fiber {
    void *stack_pointer = nullptr;
    char *stack = nullptr;  // its lowest byte
    ThreadIndex index;
    int thread = 0, warp = 0, lane = 0;
    bool done = false, blocked = false;
    WaitPoint wait;
    unsigned collective_mask = 0;
    void *collective_argument = nullptr;
    int predicate = 0;                     // what it votes in a barrier
    int vote = 0, voters = 0;              // the outcome: threads that voted nonzero, of how many
    std::vector<BusyRegisters> registers;  // operands of wgmma
    unsigned polls = 0;                    // of an mbarrier, in vain
    bool grid_waited = false;              // has seen the end of the launch before: see griddepcontrol_wait
    bool wgmma_fenced = false;             // wgmma.fence after the last change of such registers
    Steps time = 0;                        // without what it has done since settle_time
};

struct Warp {
    unsigned lanes = 0;    // lanes that exist
    unsigned exited = 0;   // of these, the ones that returned
    unsigned arrived = 0;  // lanes waiting at a collective
    uint32_t met = 0;      // collectives of all lanes so far, while there are mbarriers (--sanitize)
};

struct Barrier {
    int arrived = 0;  // threads that have come
    int expected =
        0;  // threads it takes; 0: none came yet, -1: all threads of the block that have not exited
    std::vector<int> waiters;
    Steps time = 0;              // of the last that came so far
    std::vector<uint32_t> seen;  // what those that came had seen of each other's accesses (races.h)
};

// ---- Shared memory of the block that a worker runs (shared.cpp) ----
struct SharedVariable {
    const void *site;
    const char *name;
    size_t offset, bytes;
};

class SharedMemory {
  public:
    SharedMemory();
    ~SharedMemory();
    SharedMemory(const SharedMemory &) = delete;
    SharedMemory &operator=(const SharedMemory &) = delete;
    void begin_block(size_t dynamic_bytes, size_t limit_bytes);
    void *variable(const void *site, const char *name, size_t bytes, size_t alignment);
    void *dynamic(const char *name);
    const SharedVariable *find_nearest(size_t offset) const;

    // One byte of state for each byte of the window: see MemoryState.
    char *base = nullptr;
    uint8_t *state = nullptr;
    size_t dynamic_bytes = 0, static_bytes = 0, used_bytes = 0, limit_bytes = 0;
    std::vector<SharedVariable> variables;
    static constexpr size_t window_bytes =
        512 * 1024;                                // room for the limit and a red zone after each variable
    static constexpr size_t red_zone_bytes = 128;  // one row of banks: offsets keep their banks
};

// State of a byte of device or shared memory.
enum MemoryState : uint8_t {
    memory_outside = 0,
    memory_unwritten = 1,
    memory_written = 2,
    memory_in_flight = 3,  // an asynchronous copy will write it
    memory_mbarrier = 4    // a live mbarrier
};

// ---- Launches and workers (pool.cpp, scheduler.cpp) ----
struct LaunchState {
    const Launch *what = nullptr;
    unsigned long long blocks = 0;
    int threads = 0;
    size_t shared_limit = 0;
    std::atomic<unsigned long long> next_block{0};
    std::atomic<bool> stopped{false};
    uint64_t schedule = 0;
    bool profiling = false, sanitizing = false, tracing = false;
    struct simt_launch_stats stats = {};
};

struct Fault {
    cudaError_t error = cudaSuccess;
    std::string text;
    uintptr_t pc = 0;  // where the kernel was, if the text needs it; 0 if the text has file and line
};

struct Counters {
    unsigned long long bytes[2][2] = {};  // [global, shared][read, written]
    unsigned long long switches = 0;
    unsigned long long fp32_flops = 0, tensor_flops = 0, exp_count = 0, barriers = 0;
    unsigned long long cp_async_bytes = 0, tma_read_bytes = 0, tma_write_bytes = 0;
};

// One OS thread that runs blocks.
struct Worker {
    Worker();
    ~Worker();
    Worker(const Worker &) = delete;
    Worker &operator=(const Worker &) = delete;

    Fiber *current = nullptr;
    void *scheduler_stack = nullptr;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Barrier barriers[named_barriers];
    std::vector<int> ready;  // ring, a power of two long; head and tail only grow
    size_t ready_head = 0, ready_tail = 0;
    int threads = 0, live = 0;
    uint64_t random = 0;  // state of the schedule's generator; 0: first come, first served
    char *stacks = nullptr;
    size_t stacks_count = 0;
    SharedMemory shared;
    LaunchState *launch = nullptr;
    unsigned long long block = 0;
    const char *kernel_name = "?";
    bool entered = false;      // kernel_entry has checked this block
    bool grid_waited = false;  // a thread has called griddepcontrol_wait, and a barrier tells the others
    Fault fault;
    Counters counters;
    bool profiling = false;  // accesses go to traffic as well
    Traffic traffic;
    BlockCounters blocks_run;              // of the kernel's code
    unsigned long long steps_settled = 0;  // of blocks_run.steps, these are in somebody's time
    Engines engines;
    std::atomic<uintptr_t> last_access{0};  // where in the code; for the note that a launch takes long
    bool sanitizing = false;                // accesses go to races as well
    SharedRaces races;
    Async async;
};

// The worker of this OS thread while it runs a block, else null (host code runs).
extern __thread Worker *current_worker;  // not thread_local, which may be a call at each use

void run_block(Worker &worker, LaunchState &launch, unsigned long long block);
void make_ready(Worker &worker, int thread);
bool others_are_ready(const Worker &worker);
uint64_t random_below(Worker &worker, uint64_t limit);  // 0 in the schedules that are not random
void let_others_run(Worker &worker);                    // steps back behind all that are ready
void wait_for_others(Worker &worker);  // blocks the running fiber until somebody makes it ready

// ---- Faults (report.cpp) ----
// Ends the running block and with it the launch; the launch returns `error`, which then is sticky.
[[noreturn]] void stop_block(cudaError_t error, const std::string &text, uintptr_t pc = 0);
// Ends the program: there is no memory for `purpose`, something that every worker needs.
[[noreturn]] void stop_without_memory(const char *purpose);
// Prints a stopped block's fault. Called on the scheduler's stack.
void report_fault(Worker &worker);
std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
// A place in the kernel's code by file and line, as a number that can stand wherever a return address stands.
uintptr_t place_of(const char *file, int line);
bool is_place(uintptr_t pc);
// file:line of the .cu that a return address or place belongs to.
std::string source_position(uintptr_t pc);
// The same for many addresses with one look-up program.
std::vector<std::string> source_positions(const std::vector<uintptr_t> &pcs);
std::string quoted_program();  // its path, for a shell; empty if nobody knows
uintptr_t load_address();      // of the program, relative to the addresses that it was linked for
std::string short_path(const char *file);
std::string describe_waits(Worker &worker);
std::string stack_overflow_text();
// Makes this OS thread report what would otherwise kill the program: a stack that overflows, a division by
// zero.
void catch_signals();
void set_error(cudaError_t error, bool sticky);
cudaError_t sticky_error();

// graph.cpp. Work that is enqueued on a stream: done at once; or kept in the graph, if the stream is being
// captured; or refused, with CUDA's error: the legacy default stream waits for all others, and so may do
// nothing while one of them is.
cudaError_t do_or_keep(cudaStream_t stream, std::function<cudaError_t()> step);
// Whether it would not be done at once.
bool is_captured(cudaStream_t stream);
// An error, and the end of every capture, if there is one: for calls that wait for the whole device.
cudaError_t not_while_capturing();

// ---- Device memory (memory.cpp) ----
extern char *arena;  // start of the address range that holds all device memory, null before the first use
extern uint8_t *arena_state;  // MemoryState of each of its bytes
extern size_t arena_bytes;    // its length
bool arena_ready();
size_t arena_used();  // offset past everything that was ever allocated
// "64 bytes past the end of K (4096 bytes)", or what else the address is.
std::string describe_address(const Worker &worker, uintptr_t address);

}  // namespace simt

#endif
