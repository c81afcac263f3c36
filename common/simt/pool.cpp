// pool.cpp - launches: checks the configuration as the CUDA runtime does, then spreads the blocks over the
// machine's cores.
//
// The OS threads are made once and live as long as the program; the thread that launches takes blocks as
// well.
#include <sched.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

#include "internal.h"

namespace simt {

namespace {

uint64_t schedule = 0;
std::map<const void *, size_t> optin_shared;  // kernel -> what cudaFuncSetAttribute allowed
std::mutex launch_mutex;                      // one grid at a time, as in one stream
std::deque<struct simt_launch_stats> finished_launches;
constexpr size_t kept_launches = 1024;

int core_count() {
    if (const char *text = getenv("SIMT_WORKERS")) {
        int wanted = atoi(text);
        if (wanted > 0) return std::min(wanted, 64);
    }
#if defined(__linux__)
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return std::min(std::max(CPU_COUNT(&set), 1), 64);
#endif
    return std::max(1, int(std::thread::hardware_concurrency()));
}

// The block that is run as number i: ascending, descending, or a random order (a step that shares no factor
// with the number of blocks visits each once).
unsigned long long nth_block(const LaunchState &launch, unsigned long long i) {
    if (launch.schedule == 0) return i;
    if (launch.schedule == 1) return launch.blocks - 1 - i;
    unsigned long long step = launch.schedule * 0x9e3779b97f4a7c15ull % launch.blocks | 1;
    while (std::gcd(step, launch.blocks) != 1) step += 2;
    return (unsigned long long)(((unsigned __int128)i * step + launch.schedule) % launch.blocks);
}

void take_blocks(Worker &worker, LaunchState &launch) {
    worker.counters = Counters();
    worker.reversed = launch.schedule == 1;
    for (unsigned long long i; !launch.stopped && (i = launch.next_block++) < launch.blocks;)
        run_block(worker, launch, nth_block(launch, i));
}

class Pool {
  public:
    Pool() {
        int count = core_count();
        workers.emplace_back(new Worker);
        for (int i = 1; i < count; i++) {
            workers.emplace_back(new Worker);
            threads.emplace_back([this, i] { serve(*workers[size_t(i)]); });
        }
    }

    ~Pool() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            quit = true;
        }
        wake.notify_all();
        for (std::thread &thread : threads) thread.join();
    }

    void run(LaunchState &launch) {
        bool alone = launch.blocks == 1 || threads.empty();
        if (!alone) {
            {
                std::lock_guard<std::mutex> lock(mutex);
                job = &launch;
                generation++;
                busy = int(threads.size());
            }
            wake.notify_all();
        }
        take_blocks(*workers[0], launch);
        if (!alone) {
            std::unique_lock<std::mutex> lock(mutex);
            done.wait(lock, [this] { return busy == 0; });
            job = nullptr;
        }
        for (size_t i = 0; i < (alone ? 1 : workers.size()); i++) {
            const Worker &worker = *workers[i];
            launch.stats.global_read_bytes += worker.counters.bytes[0][0];
            launch.stats.global_write_bytes += worker.counters.bytes[0][1];
            launch.stats.shared_read_bytes += worker.counters.bytes[1][0];
            launch.stats.shared_write_bytes += worker.counters.bytes[1][1];
            launch.stats.context_switches += worker.counters.switches;
        }
    }

    // The error of the first worker that was stopped.
    cudaError_t error() const {
        for (const auto &worker : workers)
            if (worker->fault.error != cudaSuccess) return worker->fault.error;
        return cudaErrorUnknown;
    }

    void clear_errors() {
        for (const auto &worker : workers) worker->fault = Fault();
    }

  private:
    void serve(Worker &worker) {
        unsigned long long seen = 0;
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            wake.wait(lock, [&] { return quit || generation != seen; });
            if (quit) return;
            seen = generation;
            LaunchState *launch = job;
            lock.unlock();
            take_blocks(worker, *launch);
            lock.lock();
            if (--busy == 0) done.notify_one();
        }
    }

    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable wake, done;
    LaunchState *job = nullptr;
    unsigned long long generation = 0;
    int busy = 0;
    bool quit = false;
};

Pool &pool() {
    static Pool it;
    return it;
}

// What the runtime refuses before anything runs; the error codes are those of CUDA 13.
cudaError_t check_configuration(const Launch &what, size_t shared_limit) {
    unsigned long long threads = 1ull * what.block.x * what.block.y * what.block.z;
    if (!what.grid.x || !what.grid.y || !what.grid.z || what.grid.x > 0x7fffffffu || what.grid.y > 65535 ||
        what.grid.z > 65535)
        return cudaErrorInvalidValue;
    if (threads == 0 || threads > max_threads_per_block || what.block.z > 64) return cudaErrorInvalidValue;
    if (what.dynamic_shared_bytes > shared_limit) return cudaErrorInvalidValue;
    return cudaSuccess;
}

}  // namespace

void launch(const Launch &what) {
    if (current_worker)
        stop_block(cudaErrorNotSupported, "a kernel launches a kernel, which the CPU backend does not have");
    std::lock_guard<std::mutex> lock(launch_mutex);
    if (sticky_error() != cudaSuccess) return;
    size_t shared_limit = shared_default_bytes;
    auto optin = optin_shared.find(what.kernel);
    if (optin != optin_shared.end()) shared_limit = std::max(shared_limit, optin->second);
    cudaError_t error = check_configuration(what, shared_limit);
    if (error != cudaSuccess) return set_error(error, false);
    arena_ready();  // so that hooks know the range even if nothing was allocated

    LaunchState state;
    state.what = &what;
    state.blocks = 1ull * what.grid.x * what.grid.y * what.grid.z;
    state.threads = int(what.block.x * what.block.y * what.block.z);
    state.shared_limit = shared_limit;
    state.schedule = schedule;
    state.stats.kernel_file = what.file;
    state.stats.line = what.line;
    state.stats.blocks = state.blocks;
    state.stats.threads = state.blocks * (unsigned long long)state.threads;
    auto start = std::chrono::steady_clock::now();
    pool().clear_errors();
    pool().run(state);
    state.stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (state.stopped) {
        // What the runtime refuses at launch does not break the context; what a running kernel does, does.
        error = pool().error();
        set_error(error, error != cudaErrorInvalidValue && error != cudaErrorLaunchOutOfResources);
    }
    finished_launches.push_back(state.stats);
    if (finished_launches.size() > kept_launches) finished_launches.pop_front();
}

}  // namespace simt

using namespace simt;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    std::lock_guard<std::mutex> lock(launch_mutex);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        size_t(value) > shared_optin_bytes) {
        set_error(cudaErrorInvalidValue, false);
        return cudaErrorInvalidValue;
    }
    optin_shared[kernel] = size_t(value);
    return cudaSuccess;
}

void simt_set_schedule(uint64_t seed) { schedule = seed; }

int simt_take_launch_stats(struct simt_launch_stats *out, int max) {
    std::lock_guard<std::mutex> lock(launch_mutex);
    int count = int(finished_launches.size());
    for (int i = 0; i < count && i < max; i++) out[i] = finished_launches[size_t(i)];
    finished_launches.clear();
    return count;
}

}  // extern "C"
