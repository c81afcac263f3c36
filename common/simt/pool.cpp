// pool.cpp - launches: checks the configuration as the CUDA runtime does, then spreads the blocks over the
// machine's cores.
//
// The OS threads are made once and live as long as the program; the thread that launches takes blocks as
// well.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <tuple>

#include "internal.h"

namespace simt {

namespace {

uint64_t schedule = 0;
bool profiling = false, sanitizing = false, tracing = false;
int races_found = 0;
std::map<const void *, size_t> optin_shared;  // kernel -> what cudaFuncSetAttribute allowed
std::mutex launch_mutex;                      // one grid at a time, as in one stream

struct FinishedLaunch {
    struct simt_launch_stats stats;
    std::vector<AccessSite> sites;        // by address in the code
    std::vector<struct simt_line> lines;  // by source line, once somebody asks
    bool profiled;
    std::vector<BlockCount> blocks_run;
};
std::deque<FinishedLaunch> finished_launches, taken_launches;
std::map<uintptr_t, std::string> positions;  // source lines looked up so far
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
    catch_signals();
    worker.counters = Counters();
    worker.entered = false;  // also if no block is left for this worker
    worker.profiling = launch.profiling;
    worker.sanitizing = launch.sanitizing;
    block_counters = launch.profiling || launch.tracing ? &worker.blocks_run : nullptr;
    for (unsigned long long i; !launch.stopped && (i = launch.next_block++) < launch.blocks;)
        run_block(worker, launch, nth_block(launch, i));
    block_counters = nullptr;  // what runs next is the host's
}

class Pool {
  public:
    Pool() : watcher([this] { watch(); }) {
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
        watch_wake.notify_all();
        for (std::thread &thread : threads) thread.join();
        watcher.join();
    }

    void run(LaunchState &launch) {
        bool alone = launch.blocks == 1 || threads.empty();
        set_watched(&launch);
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
        set_watched(nullptr);
        for (size_t i = 0; i < (alone ? 1 : workers.size()); i++) {
            const Worker &worker = *workers[i];
            launch.stats.global_read_bytes += worker.counters.bytes[0][0];
            launch.stats.global_write_bytes += worker.counters.bytes[0][1];
            launch.stats.shared_read_bytes += worker.counters.bytes[1][0];
            launch.stats.shared_write_bytes += worker.counters.bytes[1][1];
            launch.stats.context_switches += worker.counters.switches;
            launch.stats.fp32_flops += worker.counters.fp32_flops;
            launch.stats.tensor_flops += worker.counters.tensor_flops;
            launch.stats.exp_count += worker.counters.exp_count;
            launch.stats.barriers += worker.counters.barriers;
            launch.stats.cp_async_bytes += worker.counters.cp_async_bytes;
            launch.stats.tma_read_bytes += worker.counters.tma_read_bytes;
            launch.stats.tma_write_bytes += worker.counters.tma_write_bytes;
            if (worker.entered) launch.stats.kernel = worker.kernel_name;
        }
    }

    // What all workers counted in the launch, one entry for each place in the code.
    std::vector<AccessSite> take_sites() {
        std::map<AccessPlace, AccessSite> sum;
        for (const auto &worker : workers)
            for (const AccessSite &it : worker->traffic.take())
                sum.emplace(it.place, AccessSite(it.place)).first->second.add(it);
        std::vector<AccessSite> result;
        for (const auto &it : sum) result.push_back(it.second);
        return result;
    }

    // How often all workers together ran each basic block in the launch.
    std::vector<BlockCount> take_blocks_run() {
        std::map<uintptr_t, unsigned long long> sum;
        for (const auto &worker : workers)
            for (const BlockCount &it : worker->blocks_run.take()) sum[it.pc] += it.count;
        std::vector<BlockCount> result;
        for (const auto &it : sum) result.push_back({it.first, it.second});
        return result;
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

    void set_watched(const LaunchState *launch) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            watched = launch;
            watched_number++;
        }
        watch_wake.notify_all();
    }

    // Says where a launch is that takes long: an endless loop looks like a hang, and so does a shape that is
    // too much for a simulation. After 20 s, then 60 s, 180 s and so on.
    void watch() {
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            watch_wake.wait(lock, [this] { return quit || watched; });
            if (quit) return;
            unsigned long long number = watched_number;
            auto start = std::chrono::steady_clock::now();
            for (int seconds = 20;; seconds *= 3) {
                bool over = watch_wake.wait_until(lock, start + std::chrono::seconds(seconds),
                                                  [&] { return quit || watched_number != number; });
                if (over) break;
                const Launch &what = *watched->what;
                unsigned long long begun = std::min<unsigned long long>(watched->next_block, watched->blocks);
                uintptr_t pc = 0;
                for (const auto &worker : workers)
                    if (!pc) pc = worker->last_access.load(std::memory_order_relaxed);
                std::string where = pc ? ", last seen at " + source_position(pc) : "";
                fprintf(stderr,
                        "simt: the launch at %s:%d has been running for %d s: %llu of %llu blocks begun%s\n",
                        short_path(what.file).c_str(), what.line, seconds, begun, watched->blocks,
                        where.c_str());
            }
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
    const LaunchState *watched = nullptr;  // the launch that runs
    unsigned long long watched_number = 0;
    std::condition_variable watch_wake;
    std::thread watcher;  // the last member: it uses the others
};

// Sites by source line, the worst first: most wavefronts and sectors above the ideal.
std::vector<struct simt_line> lines_of(const std::vector<AccessSite> &sites) {
    std::vector<uintptr_t> unknown;
    for (const AccessSite &it : sites)
        if (it.place.pc && !positions.count(it.place.pc)) unknown.push_back(it.place.pc);
    if (!unknown.empty()) {
        std::vector<std::string> found = source_positions(unknown);
        for (size_t i = 0; i < unknown.size(); i++) positions[unknown[i]] = found[i];
    }
    static std::set<std::string> names;  // what the lines point to
    std::map<std::tuple<std::string, unsigned, AccessKind, bool>, AccessSite> by_line;
    for (const AccessSite &it : sites) {
        const AccessPlace &at = it.place;
        std::string position = at.pc ? positions[at.pc] : short_path(at.file) + ":" + std::to_string(at.line);
        auto key = std::make_tuple(position, at.size, at.kind, at.shared);
        by_line.emplace(key, AccessSite(at)).first->second.add(it);
    }
    std::vector<struct simt_line> lines;
    for (const auto &entry : by_line) {
        const AccessSite &it = entry.second;
        const char *position = names.insert(std::get<0>(entry.first)).first->c_str();
        lines.push_back({position, int(it.place.size), it.place.is_write(), it.place.shared, it.accesses,
                         it.requests, it.sectors, it.wavefronts, it.ideal, it.place.is_atomic(),
                         it.place.path(), it.fetched});
    }
    std::stable_sort(lines.begin(), lines.end(), [](const struct simt_line &a, const struct simt_line &b) {
        return a.sectors + a.wavefronts - a.ideal > b.sectors + b.wavefronts - b.ideal;
    });
    return lines;
}

// What the blocks computed, besides what the instructions of ptx.h have counted themselves.
void add_work(struct simt_launch_stats &stats, const std::vector<BlockCount> &blocks_run) {
    Work work = work_of(blocks_run);
    stats.fp32_flops = work.known ? stats.fp32_flops + work.fp32_flops : SIMT_NOT_COUNTED;
    stats.exp_count = work.known ? stats.exp_count + work.exponentials : SIMT_NOT_COUNTED;
}

Pool &pool() {
    static Pool it;
    return it;
}

// What the runtime refuses before anything runs, with the reason; empty if it accepts. CUDA 13 calls all of
// it cudaErrorInvalidValue.
std::string refusal(const Launch &what, size_t shared_limit) {
    const dim3 &grid = what.grid, &block = what.block;
    unsigned long long threads = 1ull * block.x * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || threads == 0)
        return format("grid (%u,%u,%u) of blocks (%u,%u,%u) is empty", grid.x, grid.y, grid.z, block.x,
                      block.y, block.z);
    if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        return format("grid (%u,%u,%u) is too large: x goes to 2147483647, y and z to 65535", grid.x, grid.y,
                      grid.z);
    if (threads > max_threads_per_block || block.z > 64)
        return format("block (%u,%u,%u) has %llu threads: at most %d, and z at most 64", block.x, block.y,
                      block.z, threads, max_threads_per_block);
    if (what.dynamic_shared_bytes > shared_limit)
        return format(
            "%zu bytes of dynamic shared memory, and the kernel may use %zu: cudaFuncSetAttribute with "
            "cudaFuncAttributeMaxDynamicSharedMemorySize raises that to %zu",
            what.dynamic_shared_bytes, shared_limit, shared_optin_bytes);
    return "";
}

}  // namespace

void stop_without_memory(const char *purpose) {
    static std::mutex first;  // whoever comes first says it for all, and nobody comes after
    first.lock();
    fprintf(stderr,
            "simt: no memory %s of %d workers: raise the limit on a process's addresses (ulimit -v), or set "
            "SIMT_WORKERS to less\n",
            purpose, core_count());
    fflush(stdout);
    _exit(1);  // not exit: that would wait for workers, of which this is one
}

// A graph's launch does not know the stream: it runs at once.
static void keep_launch(const Launch &what) {
    Launch kept = what;
    kept.stream = nullptr;
    auto drop = what.drop;
    std::shared_ptr<void> closure(what.copy(what.closure), [drop](void *it) { drop(it); });
    kept.closure = closure.get();
    do_or_keep(what.stream, [kept, closure] {
        launch(kept);
        return cudaPeekAtLastError();
    });
}

void launch(const Launch &what) {
    if (current_worker)
        stop_block(cudaErrorNotSupported, "a kernel launches a kernel, which the CPU backend does not have");
    std::lock_guard<std::mutex> lock(launch_mutex);
    if (sticky_error() != cudaSuccess) return;
    size_t shared_limit = shared_default_bytes;
    auto optin = optin_shared.find(what.kernel);
    if (optin != optin_shared.end()) shared_limit = std::max(shared_limit, optin->second);
    std::string reason = refusal(what, shared_limit);
    if (!reason.empty()) {
        fflush(stdout);
        fprintf(stderr, "simt: the launch at %s:%d is refused: %s\n", short_path(what.file).c_str(),
                what.line, reason.c_str());
        return set_error(cudaErrorInvalidValue, false);
    }
    arena_ready();  // so that hooks know the range even if nothing was allocated
    if (is_captured(what.stream)) return keep_launch(what);

    LaunchState state;
    state.what = &what;
    state.blocks = 1ull * what.grid.x * what.grid.y * what.grid.z;
    state.threads = int(what.block.x * what.block.y * what.block.z);
    // The attribute bounds the dynamic part; with it, both parts together may take all there is.
    state.shared_limit = optin != optin_shared.end() ? shared_optin_bytes : shared_default_bytes;
    state.schedule = schedule;
    state.profiling = profiling;
    state.sanitizing = sanitizing;
    state.tracing = tracing;
    if (sanitizing) global_races_begin_launch(what.dependent);
    state.stats.kernel = "?";
    state.stats.kernel_file = what.file;
    state.stats.line = what.line;
    state.stats.blocks = state.blocks;
    state.stats.threads = state.blocks * (unsigned long long)state.threads;
    auto start = std::chrono::steady_clock::now();
    pool().clear_errors();
    pool().run(state);
    state.stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (sanitizing) races_found += print_races();
    if (state.stopped) {
        // What the runtime refuses at launch does not break the context; what a running kernel does, does.
        cudaError_t error = pool().error();
        set_error(error, error != cudaErrorInvalidValue && error != cudaErrorLaunchOutOfResources);
    }
    finished_launches.push_back(
        {state.stats, pool().take_sites(), {}, state.profiling, pool().take_blocks_run()});
    if (finished_launches.size() > kept_launches) finished_launches.pop_front();
}

}  // namespace simt

using namespace simt;

cudaError_t simt::add_attributes(const cudaLaunchAttribute *attributes, unsigned count, Config &config) {
    for (unsigned i = 0; i < count; i++) {
        if (attributes[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) {
            config.dependent = attributes[i].val.programmaticStreamSerializationAllowed != 0;
        } else if (attributes[i].id != cudaLaunchAttributeIgnore) {
            set_error(cudaErrorInvalidValue, false);
            return cudaErrorInvalidValue;
        }
    }
    return cudaSuccess;
}

void simt::griddepcontrol_wait() {
    current_worker->grid_waited = current_worker->current->grid_waited = true;
    if (current_worker->sanitizing) global_race_waited();
}

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

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
    std::lock_guard<std::mutex> lock(launch_mutex);
    if (!attributes || !kernel) {
        set_error(cudaErrorInvalidValue, false);
        return cudaErrorInvalidValue;
    }
    auto allowed = optin_shared.find(kernel);
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    attributes->maxDynamicSharedSizeBytes = allowed == optin_shared.end() ? 48 * 1024 : allowed->second;
    attributes->ptxVersion = attributes->binaryVersion = 10 * major + minor;
    return cudaSuccess;
}

void simt_set_schedule(uint64_t seed) { schedule = seed; }
void simt_set_profiling(int on) { profiling = on != 0; }
void simt_set_tracing(int on) { tracing = on != 0; }

void simt_set_sanitizing(int on) { sanitizing = on != 0; }

int simt_take_races(void) {
    int count = races_found;
    races_found = 0;
    return count;
}

int simt_take_race_lines(struct simt_race *races, int max) { return take_race_lines(races, max); }

int simt_take_launch_stats(struct simt_launch_stats *out, int max) {
    std::lock_guard<std::mutex> lock(launch_mutex);
    taken_launches.swap(finished_launches);
    finished_launches.clear();
    int count = int(taken_launches.size());
    for (int i = 0; i < count && i < max; i++) {
        FinishedLaunch &it = taken_launches[size_t(i)];
        it.lines = lines_of(it.sites);
        if (it.profiled) add_work(it.stats, it.blocks_run);
        it.stats.lines = it.lines.data();
        it.stats.line_count = int(it.lines.size());
        out[i] = it.stats;
    }
    return count;
}

}  // extern "C"
