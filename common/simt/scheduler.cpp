// scheduler.cpp - runs one block: its threads as fibers, and everything at which they wait for each other.
//
// Nothing here is locked: a block belongs to one OS thread, and only one of its fibers runs at a time. A
// fiber goes on until it waits (barrier, warp collective) or ends; then the next ready one is switched to
// directly. When none is ready and some have not ended, the block is deadlocked.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "internal.h"

namespace simt {

__thread Worker *current_worker = nullptr;

Worker::Worker() { ready.resize(2 * max_threads_per_block); }

Worker::~Worker() {
    if (stacks) munmap(stacks, stacks_count * stack_bytes);
}

// ---- Ready queue ----

static uint64_t next_random(uint64_t &state) {  // xorshift64
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

void make_ready(Worker &worker, int thread) {
    worker.fibers[thread].blocked = false;
    worker.ready[worker.ready_tail++ & (worker.ready.size() - 1)] = thread;
}

bool others_are_ready(const Worker &worker) { return worker.ready_tail != worker.ready_head; }

uint64_t random_below(Worker &worker, uint64_t limit) {
    return worker.random && limit > 1 ? next_random(worker.random) % limit : 0;
}

static int take_ready(Worker &worker) {
    size_t waiting = worker.ready_tail - worker.ready_head, last = worker.ready.size() - 1;
    if (waiting == 0) return -1;
    if (worker.random && waiting > 1)
        std::swap(worker.ready[(worker.ready_head + next_random(worker.random) % waiting) & last],
                  worker.ready[worker.ready_head & last]);
    return worker.ready[worker.ready_head++ & last];
}

// The next thread that can go on, if need be because a copy lands. None: the block is at its end or
// deadlocked.
static int take_next(Worker &worker) {
    int next;
    while ((next = take_ready(worker)) < 0 && worker.async.used)
        if (!land_a_copy(worker)) break;
    return next;
}

static void switch_to(Worker &worker, int thread) {
    Fiber *from = worker.current;
    settle_time(worker);
    worker.current = &worker.fibers[thread];
    worker.counters.switches++;
    simt_switch(&from->stack_pointer, worker.current->stack_pointer);
}

// Leaves the fibers for good: the block has ended, deadlocked or been stopped.
[[noreturn]] static void leave_block(Worker &worker) {
    void *abandoned;
    simt_switch(&abandoned, worker.scheduler_stack);
    abort();  // nobody switches back
}

void let_others_run(Worker &worker) {
    if (worker.ready_tail == worker.ready_head) return;
    make_ready(worker, worker.current->thread);
    int next = take_ready(worker);
    if (&worker.fibers[size_t(next)] != worker.current) switch_to(worker, next);
}

void wait_for_others(Worker &worker) {
    Fiber *me = worker.current;
    me->blocked = true;
    int next = take_next(worker);
    if (next < 0) leave_block(worker);
    if (&worker.fibers[next] == me) return;  // make_ready was called for this fiber itself
    switch_to(worker, next);
}

// ---- Barriers ----

// Readies everybody who waits if all have come.
static void try_barrier(Worker &worker, int id) {
    Barrier &barrier = worker.barriers[id];
    if (barrier.arrived == 0) return;
    int needed = barrier.expected < 0 ? worker.live : barrier.expected;
    if (barrier.arrived < needed) return;
    if (barrier.arrived > needed)
        stop_block(cudaErrorLaunchFailure, format("named barrier %d: %d threads came, but it was set for %d",
                                                  id, barrier.arrived, needed));
    if (barrier.expected < 0) {
        const Fiber &first = worker.fibers[barrier.waiters[0]];
        int count = 0;
        for (int thread : barrier.waiters) {
            const Fiber &fiber = worker.fibers[thread];
            count += fiber.predicate != 0;
            if (fiber.wait.site != first.wait.site || fiber.wait.line != first.wait.line) {
                stop_block(
                    cudaErrorLaunchFailure,
                    format("divergent barrier: thread %d waits at %s in %s:%d while thread %d waits at %s in "
                           "%s:%d; every thread of the block must come to the same barrier",
                           first.thread, first.wait.what, short_path(first.wait.file).c_str(),
                           first.wait.line, fiber.thread, fiber.wait.what,
                           short_path(fiber.wait.file).c_str(), fiber.wait.line));
            }
        }
        for (int thread : barrier.waiters) {
            worker.fibers[thread].vote = count;
            worker.fibers[thread].voters = barrier.arrived;
        }
    }
    if (worker.sanitizing) {
        if (barrier.expected < 0) {
            worker.races.all_met();
            if (worker.grid_waited)
                for (Fiber &fiber : worker.fibers) fiber.grid_waited = true;
        }
        for (int thread : barrier.waiters)
            if (barrier.expected > 0) worker.races.learn_from(barrier.seen, thread);
        barrier.seen.clear();
    }
    unsigned warps = 0;
    for (int thread : barrier.waiters) {
        // The first of a warp in the list stands for it: whole warps wait at a barrier.
        if (worker.profiling && worker.fibers[size_t(thread)].lane == 0)
            worker.traffic.warp_met(worker.fibers[size_t(thread)].warp);
        warps |= 1u << worker.fibers[size_t(thread)].warp;
        wait_until(worker, worker.fibers[size_t(thread)], barrier.time);
        make_ready(worker, thread);
    }
    worker.counters.barriers += unsigned(__builtin_popcount(warps));
    barrier.waiters.clear();
    barrier.arrived = barrier.expected = 0;
    barrier.time = 0;
}

static void check_named_barrier(Worker &worker, int id, int threads, const char *file, int line) {
    if (id < 0 || id >= named_barriers)
        stop_block(cudaErrorLaunchFailure, format("named barrier %d at %s:%d: there are barriers 0 to 15", id,
                                                  short_path(file).c_str(), line));
    if (threads <= 0 || threads % warp_size || threads > max_threads_per_block)
        stop_block(cudaErrorLaunchFailure, format("named barrier %d at %s:%d: set for %d threads, but it "
                                                  "must be a multiple of 32 (whole warps)",
                                                  id, short_path(file).c_str(), line, threads));
    Barrier &barrier = worker.barriers[id];
    if (barrier.arrived && barrier.expected != threads)
        stop_block(
            cudaErrorLaunchFailure,
            format("named barrier %d at %s:%d: set for %d threads, but those already there set it for %d", id,
                   short_path(file).c_str(), line, threads, barrier.expected));
    barrier.expected = threads;
}

static void wait_at_barrier(Worker &worker, int id, const WaitPoint &where) {
    Barrier &barrier = worker.barriers[id];
    Fiber &me = *worker.current;
    me.wait = where;
    if (worker.sanitizing && barrier.expected > 0) worker.races.add_to(barrier.seen, me.thread);
    barrier.waiters.push_back(me.thread);
    barrier.arrived++;
    barrier.time = std::max(barrier.time, time_now(worker));
    me.blocked = true;
    try_barrier(worker, id);
    wait_for_others(worker);
    me.wait = WaitPoint();
}

int block_barrier(BarrierVote vote, int predicate, const char *what, const char *file, int line, int column) {
    Worker &worker = *current_worker;
    Fiber &me = *worker.current;
    Barrier &barrier = worker.barriers[0];
    if (barrier.expected > 0)
        stop_block(
            cudaErrorLaunchFailure,
            format("%s at %s:%d uses barrier 0, where threads already wait as named barrier 0 for %d threads",
                   what, short_path(file).c_str(), line, barrier.expected));
    barrier.expected = -1;
    me.predicate = predicate;
    // clang may make two calls of one in the source (one for each way that leads to it), so that it is asked
    // for the column; g++ knows none.
    const void *site =
        column ? reinterpret_cast<const void *>(uintptr_t(column)) : __builtin_return_address(0);
    wait_at_barrier(worker, 0, WaitPoint{what, file, line, 0, site, -1});
    switch (vote) {
    case BarrierVote::count:
        return me.vote;
    case BarrierVote::all:
        return me.vote == me.voters;
    case BarrierVote::any:
        return me.vote != 0;
    case BarrierVote::none:
        break;
    }
    return 0;
}

void named_barrier_sync(int id, int threads, const char *file, int line) {
    Worker &worker = *current_worker;
    check_named_barrier(worker, id, threads, file, line);
    wait_at_barrier(worker, id, WaitPoint{"bar.sync", file, line, id, nullptr, -1});
}

void named_barrier_arrive(int id, int threads, const char *file, int line) {
    Worker &worker = *current_worker;
    check_named_barrier(worker, id, threads, file, line);
    if (worker.sanitizing) worker.races.add_to(worker.barriers[id].seen, worker.current->thread);
    worker.barriers[id].arrived++;
    worker.barriers[id].time = std::max(worker.barriers[id].time, time_now(worker));
    try_barrier(worker, id);
}

// ---- Warp collectives ----

// __syncwarp, unlike the other collectives, orders memory: among the lanes that met, and those of the mask
// that returned.
static void order_warp(Worker &worker, const Warp &warp, int number, unsigned mask) {
    int threads[warp_size], count = 0;
    for (unsigned rest = mask & warp.lanes; rest; rest &= rest - 1)
        threads[count++] = number * warp_size + __builtin_ctz(rest);
    worker.races.met(threads, count);
}

// The lanes of `mask` that a collective waits for: those that exist and have not returned.
static unsigned needed_lanes(const Warp &warp, unsigned mask) { return mask & warp.lanes & ~warp.exited; }

// These lanes meet: all go on at the time of the last.
static void meet(Worker &worker, Fiber *lanes, unsigned mask) {
    Steps last = time_now(worker);
    for (unsigned rest = mask; rest; rest &= rest - 1) last = std::max(last, lanes[__builtin_ctz(rest)].time);
    for (unsigned rest = mask; rest; rest &= rest - 1) wait_until(worker, lanes[__builtin_ctz(rest)], last);
}

// Whoever learns of this knows that the lanes have come here (check_returns in mbarrier.cpp).
static void warp_met(Worker &worker, Warp &warp, int number, unsigned lanes) {
    if (!worker.sanitizing || worker.async.mbarriers.empty()) return;
    warp.met++;
    for (unsigned rest = lanes; rest; rest &= rest - 1)
        worker.races.learn_engine(number * warp_size + __builtin_ctz(rest), async_engines + number, warp.met);
}

void warp_collective(const char *what, unsigned mask, CollectiveBody run, void *argument, const char *file,
                     int line) {
    Worker &worker = *current_worker;
    Fiber &me = *worker.current;
    Warp &warp = worker.warps[me.warp];
    Fiber *lanes = &worker.fibers[me.warp * warp_size];
    if (!(mask >> me.lane & 1))
        stop_block(cudaErrorLaunchFailure,
                   format("%s at %s:%d: lane %d calls it with mask 0x%08x, which leaves it out", what,
                          short_path(file).c_str(), line, me.lane, mask));
    me.wait = WaitPoint{what, file, line, -1, nullptr, -1};
    me.collective_mask = mask;
    me.collective_argument = argument;
    warp.arrived |= 1u << me.lane;
    unsigned needed = needed_lanes(warp, mask);
    if ((warp.arrived & needed) == needed) {
        void *arguments[warp_size] = {};
        for (unsigned rest = needed; rest; rest &= rest - 1) {
            Fiber &other = lanes[__builtin_ctz(rest)];
            if (other.collective_mask != mask || (other.wait.what != what && strcmp(other.wait.what, what)))
                stop_block(
                    cudaErrorLaunchFailure,
                    format(
                        "divergent warp: lane %d of warp %d is at %s (mask 0x%08x) in %s:%d while lane %d is "
                        "at %s (mask 0x%08x) in %s:%d",
                        me.lane, me.warp, what, mask, short_path(file).c_str(), line, other.lane,
                        other.wait.what, other.collective_mask, short_path(other.wait.file).c_str(),
                        other.wait.line));
            arguments[other.lane] = other.collective_argument;
        }
        meet(worker, lanes, needed);
        if (run) run(arguments, needed);
        if (!run && worker.sanitizing) order_warp(worker, warp, me.warp, mask);
        if (needed == (warp.lanes & ~warp.exited)) warp_met(worker, warp, me.warp, needed);
        if (worker.profiling && needed == (warp.lanes & ~warp.exited)) worker.traffic.warp_met(me.warp);
        warp.arrived &= ~needed;
        for (unsigned rest = needed & ~(1u << me.lane); rest; rest &= rest - 1)
            make_ready(worker, lanes[__builtin_ctz(rest)].thread);
    } else {
        wait_for_others(worker);
    }
    me.wait = WaitPoint();
}

// A lane returned: those that wait only for it can go on if their collective is __syncwarp. Any other
// collective would read a value from a lane that is gone; the hardware leaves that undefined, so it shows as
// a deadlock here.
static void lane_exited(Worker &worker, Fiber &fiber) {
    Warp &warp = worker.warps[fiber.warp];
    warp.exited |= 1u << fiber.lane;
    Fiber *lanes = &worker.fibers[size_t(fiber.warp * warp_size)];
    for (unsigned waiting = warp.arrived; waiting; waiting &= waiting - 1) {
        Fiber &first = lanes[__builtin_ctz(waiting)];
        unsigned needed = needed_lanes(warp, first.collective_mask);
        if ((warp.arrived & needed) != needed || strcmp(first.wait.what, "__syncwarp")) continue;
        if (worker.sanitizing) order_warp(worker, warp, fiber.warp, first.collective_mask);
        meet(worker, lanes, needed);
        warp.arrived &= ~needed;
        waiting &= ~needed | (1u << first.lane);
        for (unsigned rest = needed; rest; rest &= rest - 1)
            make_ready(worker, lanes[__builtin_ctz(rest)].thread);
    }
}

unsigned active_mask() {
    Worker &worker = *current_worker;
    const Warp &warp = worker.warps[worker.current->warp];
    return warp.lanes & ~warp.exited;
}

// ---- A thread's life, a block's life ----

static void fiber_main() {
    Worker &worker = *current_worker;
    Fiber &me = *worker.current;
    worker.launch->what->body(worker.launch->what->closure);
    me.done = true;
    worker.live--;
    worker.barriers[0].time = std::max(worker.barriers[0].time, time_now(worker));
    lane_exited(worker, me);
    for (int id = 0; id < named_barriers; id++) try_barrier(worker, id);
    int next = take_next(worker);
    if (next < 0) leave_block(worker);
    switch_to(worker, next);
    abort();  // nobody switches back to a fiber that is done
}

static const ThreadIndex &thread_index() {
    static const ThreadIndex host = {};
    return current_worker ? current_worker->current->index : host;
}
uint3 thread_in_block() noexcept { return thread_index().threadIdx; }
uint3 block_in_grid() noexcept { return thread_index().blockIdx; }
dim3 block_size() noexcept { return thread_index().blockDim; }
dim3 grid_size() noexcept { return thread_index().gridDim; }

unsigned multiprocessor() { return current_worker ? unsigned(current_worker->block % multiprocessors) : 0; }

void kernel_entry(const char *name, const char *file, int line, int max_threads, int, int) {
    Worker &worker = *current_worker;
    if (worker.entered) return;
    worker.entered = true;
    worker.kernel_name = name;
    if (max_threads && worker.threads > max_threads)
        stop_block(
            cudaErrorInvalidValue,
            format(
                "kernel %s (%s:%d) is launched with %d threads per block, but its __launch_bounds__ allow %d",
                name, short_path(file).c_str(), line, worker.threads, max_threads));
    if (!max_threads && worker.threads > threads_without_bounds)
        stop_block(
            cudaErrorLaunchOutOfResources,
            format(
                "kernel %s (%s:%d) is launched with %d threads per block and has no __launch_bounds__: the "
                "compiler may then use 255 registers a thread, and above %d threads a GPU refuses the "
                "launch; "
                "write __launch_bounds__(%d)",
                name, short_path(file).c_str(), line, worker.threads, threads_without_bounds,
                worker.threads));
}

// The lowest page of each stack is closed, so that a stack that overflows is a fault (faults.cpp) and no
// other thread's data. Where the system runs out of mappings, the canary above it still tells afterwards.
static size_t guard_bytes() {
    static const size_t page = size_t(sysconf(_SC_PAGESIZE));
    return page;
}

static char *reserve_stacks(Worker &worker) {
    if (worker.stacks_count < size_t(worker.threads)) {
        if (worker.stacks) munmap(worker.stacks, worker.stacks_count * stack_bytes);
        worker.stacks_count = size_t(worker.threads);
        void *memory = mmap(nullptr, worker.stacks_count * stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) stop_without_memory("for stacks");
        worker.stacks = static_cast<char *>(memory);
        for (size_t i = 0; i < worker.stacks_count; i++)
            if (mprotect(worker.stacks + i * stack_bytes, guard_bytes(), PROT_NONE)) break;
    }
    return worker.stacks;
}

// Just above the lowest page; the word there changes when the stack overflows.
static uint64_t &stack_canary(Worker &worker, int thread) {
    return *reinterpret_cast<uint64_t *>(worker.stacks + size_t(thread) * stack_bytes + guard_bytes());
}
constexpr uint64_t canary = 0x5109'ca7e'0f57'ac4bull;

static void create_fibers(Worker &worker, const Launch &what, unsigned long long block) {
    dim3 grid = what.grid, size = what.block;
    uint3 block_index = {unsigned(block % grid.x), unsigned(block / grid.x % grid.y),
                         unsigned(block / grid.x / grid.y)};
    worker.fibers.assign(size_t(worker.threads), Fiber());
    worker.warps.assign(size_t(worker.threads + warp_size - 1) / warp_size, Warp());
    char *stacks = reserve_stacks(worker);
    for (int t = 0; t < worker.threads; t++) {
        Fiber &fiber = worker.fibers[size_t(t)];
        fiber.thread = t;
        fiber.warp = t / warp_size;
        fiber.lane = t % warp_size;
        worker.warps[size_t(fiber.warp)].lanes |= 1u << fiber.lane;
        unsigned u = unsigned(t);
        fiber.index.threadIdx = {u % size.x, u / size.x % size.y, u / size.x / size.y};
        fiber.index.blockIdx = block_index;
        fiber.index.blockDim = size;
        fiber.index.gridDim = grid;
        // Stacks that all start at the same offset of a page would share a few cache sets: shift them.
        fiber.stack = stacks + size_t(t) * stack_bytes;
        size_t shift = size_t(t % warp_size) * 192;
        fiber.stack_pointer = fiber_prepare(fiber.stack + stack_bytes - shift, fiber_main);
        stack_canary(worker, t) = canary;
    }
}

void run_block(Worker &worker, LaunchState &launch, unsigned long long block) {
    worker.launch = &launch;
    worker.block = block;
    worker.threads = worker.live = launch.threads;
    worker.entered = worker.grid_waited = false;
    worker.engines = Engines();
    worker.steps_settled = worker.blocks_run.steps;
    worker.fault = Fault();
    worker.ready_head = worker.ready_tail = 0;
    worker.random = launch.schedule > 1 ? launch.schedule * 0x9e3779b97f4a7c15ull + block * 2 + 1 : 0;
    for (Barrier &barrier : worker.barriers) {
        barrier.arrived = barrier.expected = 0;
        barrier.time = 0;
        barrier.waiters.clear();
        barrier.seen.clear();
    }
    if (worker.sanitizing) worker.races.begin_block(worker.threads);
    worker.async.begin_block(worker.threads);
    create_fibers(worker, *launch.what, block);
    worker.shared.begin_block(launch.what->dynamic_shared_bytes, launch.shared_limit);
    for (int t = 0; t < worker.threads; t++)
        make_ready(worker, launch.schedule == 1 ? worker.threads - 1 - t : t);

    current_worker = &worker;
    worker.current = &worker.fibers[size_t(take_ready(worker))];
    simt_switch(&worker.scheduler_stack, worker.current->stack_pointer);

    if (worker.fault.error == cudaSuccess && worker.live > 0) {
        worker.fault.error = cudaErrorLaunchTimeout;
        worker.fault.text = describe_waits(worker);
    }
    if (worker.fault.error == cudaSuccess) {
        int thread = 0;
        std::string unfinished = describe_unfinished(worker, thread);
        if (!unfinished.empty()) {
            worker.current = &worker.fibers[size_t(thread)];
            worker.fault.error = cudaErrorLaunchFailure;
            worker.fault.text = unfinished;
        } else {
            write_stores(worker);
        }
    }
    for (int t = 0; t < worker.threads && worker.fault.error == cudaSuccess; t++)
        if (stack_canary(worker, t) != canary) {
            worker.current = &worker.fibers[size_t(t)];
            worker.fault.error = cudaErrorIllegalAddress;
            worker.fault.text = stack_overflow_text();
        }
    if (worker.profiling) worker.traffic.block_ended(worker);
    if (worker.fault.error != cudaSuccess) {
        launch.stopped = true;
        report_fault(worker);
    }
    current_worker = nullptr;
    worker.current = nullptr;
}

[[noreturn]] void stop_block(cudaError_t error, const std::string &text, uintptr_t pc) {
    Worker &worker = *current_worker;
    worker.fault.error = error;
    worker.fault.text = text;
    worker.fault.pc = pc;
    leave_block(worker);
}

}  // namespace simt
