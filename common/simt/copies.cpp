// copies.cpp - copies between device and shared memory that go on beside the threads: cp.async, TMA, bulk
// (PTX ISA, "Asynchronous copy operations"). When each may land is in async.h.
//
// At issue a copy is checked as if it happened then (bounds, alignment, races with what was before), and its
// destination in shared memory is poisoned; what it reads is read when it lands.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "include/cuda_bf16.h"
#include "include/cuda_fp16.h"
#include "include/simt_copy.h"
#include "instruction.h"
#include "tensor_map.h"

namespace simt {

constexpr size_t box_alignment = 128, bulk_alignment = 16;  // of addresses in shared memory
constexpr size_t reader_unit = 16;                          // bytes of shared memory to one count of readers

void Async::begin_block(int threads) {
    size_t count = size_t(threads);
    if (!used && cp_async.size() == count) return;  // as it was left
    used = false;
    mbarriers.clear();
    cp_async.assign(count, CopyGroups());
    bulk.assign(count, CopyGroups());
    mbarrier_fence.assign(count, 0);
    fence_time = 0;
    registers.assign((count + warp_size - 1) / warp_size, 0);
    readers.assign(SharedMemory::window_bytes / reader_unit, 0);
    reads_in_flight = 0;
    begin_wgmma(threads);
}

// ---- Shared memory that something in flight reads ----

static void change_readers(Worker &worker, size_t offset, size_t bytes, int change) {
    for (size_t i = offset / reader_unit; i <= (offset + bytes - 1) / reader_unit; i++)
        worker.async.readers[i] = uint16_t(worker.async.readers[i] + change);
    worker.async.reads_in_flight += size_t(change);
}

void add_async_read(Worker &worker, size_t offset, size_t bytes) { change_readers(worker, offset, bytes, 1); }
void remove_async_read(Worker &worker, size_t offset, size_t bytes) {
    change_readers(worker, offset, bytes, -1);
}

static bool overlap(const CopyRun &run, size_t offset, size_t bytes) {
    return run.shared < offset + bytes && offset < run.shared + run.bytes;
}

static bool overlaps(const AsyncCopy &copy, size_t offset, size_t bytes) {
    return !copy.landed && std::any_of(copy.runs.begin(), copy.runs.end(),
                                       [&](const CopyRun &run) { return overlap(run, offset, bytes); });
}

// Calls `visit` for each copy that has not landed.
template <class Visit> static void for_each_in_flight(Worker &worker, Visit visit) {
    auto group = [&](const CopyGroup &it) {
        for (const auto &copy : it)
            if (!copy->landed) visit(*copy);
    };
    for (auto *all : {&worker.async.cp_async, &worker.async.bulk})
        for (const CopyGroups &groups : *all) {
            for (const CopyGroup &it : groups.committed) group(it);
            group(groups.open);
        }
    for (const auto &entry : worker.async.mbarriers)
        for (const Mbarrier::Event &event : entry.second.events) group(event.copies);
}

static std::string issued(const AsyncCopy &copy) {
    return format("%s issued at %s by thread %d", copy.what, source_position(copy.place).c_str(),
                  copy.thread);
}

static bool contains(const CopyGroup &group, const AsyncCopy &copy) {
    return std::any_of(group.begin(), group.end(), [&](const auto &it) { return it.get() == &copy; });
}

// How one waits for a copy in flight.
static std::string remedy(const Worker &worker, const AsyncCopy &copy) {
    for (const auto &entry : worker.async.mbarriers)
        for (const Mbarrier::Event &event : entry.second.events)
            if (contains(event.copies, copy))
                return format("; it completes on %s (%s): wait for that phase first",
                              describe_address(worker, uintptr_t(worker.shared.base) + entry.first).c_str(),
                              describe_mbarrier(worker, entry.first).c_str());
    const auto &all = copy.generic ? worker.async.cp_async : worker.async.bulk;
    const char *wait = copy.generic ? "cp_async_wait" : "bulk_wait_read";
    if (!contains(all[size_t(copy.thread)].open, copy))
        return format("; that thread must wait for its group first (%s), then comes a barrier", wait);
    if (copy.generic)
        return "; that thread has neither committed it (cp_async_commit), so that no wait waits for it, nor "
               "let it "
               "arrive on an mbarrier";
    return "; that thread has not committed it (bulk_commit), so that no wait waits for it";
}

std::string describe_in_flight(Worker &worker, uintptr_t address) {
    size_t offset = address - uintptr_t(worker.shared.base);
    std::string text;
    for (const auto &it : worker.async.mbarriers)
        if (offset - it.first < sizeof(uint64_t))
            text = format(
                ", which thread %d made an mbarrier at %s; it is no ordinary memory before mbarrier_inval",
                it.second.thread, source_position(it.second.place).c_str());
    for_each_in_flight(worker, [&](const AsyncCopy &copy) {
        if (text.empty() && copy.kind == CopyKind::load && overlaps(copy, offset, 1))
            text = ", which " + issued(copy) + " will write" + remedy(worker, copy);
    });
    return text;
}

void check_async_reads(Worker &worker, uintptr_t place, size_t offset, size_t bytes) {
    if (!worker.async.reads_in_flight) return;
    for (size_t i = offset / reader_unit; i <= (offset + bytes - 1) / reader_unit; i++) {
        if (!worker.async.readers[i]) continue;
        std::string who = describe_wgmma_reader(worker, i * reader_unit),
                    what_first = "; wgmma_wait (and a barrier) comes first";
        for_each_in_flight(worker, [&](const AsyncCopy &copy) {
            if (who.empty() && copy.kind != CopyKind::load && overlaps(copy, i * reader_unit, reader_unit))
                who = issued(copy), what_first = remedy(worker, copy);
        });
        stop_block(
            cudaErrorLaunchFailure,
            format("memory that an operation in flight still reads: write of %zu bytes, %s, which %s reads%s",
                   bytes, describe_address(worker, uintptr_t(worker.shared.base) + offset).c_str(),
                   who.empty() ? "an operation" : who.c_str(), what_first.c_str()),
            place);
    }
}

// ---- Issue ----

// Checks a copy, poisons what it will write, and remembers what it will read.
static void begin(Worker &worker, AsyncCopy &copy) {
    worker.async.used = true;
    size_t bytes = 0;
    for (const CopyRun &run : copy.runs) bytes += run.bytes;
    copy.end = copy_end(worker, bytes);
    bool load = copy.kind == CopyKind::load;
    for (const CopyRun &run : copy.runs) {
        check_shared(worker, copy.what, copy.place, run.shared, run.bytes, 1, load);
        if (worker.sanitizing && copy.generic)
            worker.races.access(worker, copy.thread, copy.place, run.shared, run.bytes, true, false);
        else if (worker.sanitizing)
            worker.races.async_access(worker, copy.thread, copy.engine, copy.clock, copy.place, run.shared,
                                      run.bytes, load);
        if (!load) {
            add_async_read(worker, run.shared, run.bytes);
            continue;
        }
        if (run.valid)
            touch_global(worker, copy.thread, copy.place, copy.what, run.global, run.valid, 1, false);
        memset(worker.shared.state + run.shared, memory_in_flight, run.bytes);
        memset(worker.shared.base + run.shared, 0xff, run.bytes);
    }
}

static void use_engine(Worker &worker, AsyncCopy &copy, uint32_t which) {
    copy.engine = int(which % copy_engines);
    copy.clock = ++worker.async.engine_clocks[copy.engine];
}

// ---- Landing ----

static std::mutex additions;  // atomic, as on a GPU: copies of several blocks may add to one address

template <class T> static void add_elements(char *to, const char *from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += sizeof(T)) {
        T a, b;
        memcpy(static_cast<void *>(&a), to + i, sizeof a);
        memcpy(static_cast<void *>(&b), from + i, sizeof b);
        T sum = T(float(a) + float(b));
        memcpy(to + i, static_cast<void *>(&sum), sizeof sum);
    }
}

// Checks what a store will write, and takes it out of shared memory.
static void take_run(Worker &worker, AsyncCopy &copy, const CopyRun &run) {
    const char *from = worker.shared.base + run.shared;
    if (copy.kind == CopyKind::store)
        touch_global(worker, copy.thread, copy.place, copy.what, run.global, run.valid, 1, true);
    else
        touch_for_addition(worker, copy.place, copy.what, run.global, run.valid);
    copy.taken.insert(copy.taken.end(), from, from + run.valid);
}

static void store_run(const AsyncCopy &copy, const CopyRun &run, const char *from) {
    if (copy.kind == CopyKind::store) {
        memcpy(run.global, from, run.valid);
        return;
    }
    std::lock_guard<std::mutex> lock(additions);
    if (copy.kind == CopyKind::add_f32) add_elements<float>(run.global, from, run.valid);
    if (copy.kind == CopyKind::add_f16) add_elements<__half>(run.global, from, run.valid);
    if (copy.kind == CopyKind::add_bf16) add_elements<__nv_bfloat16>(run.global, from, run.valid);
}

// What has been taken arrives in device memory, as late as it may: at a wait that is not for reads alone.
static void write_store(AsyncCopy &copy) {
    const char *from = copy.taken.data();
    for (const CopyRun &run : copy.runs) {
        if (copy.taken.empty() || !run.valid) continue;
        store_run(copy, run, from);
        from += run.valid;
    }
    copy.taken.clear();
}

void write_stores(Worker &worker) {
    if (!worker.async.used) return;
    for (const CopyGroups &groups : worker.async.bulk)
        for (const CopyGroup &group : groups.committed)
            for (const auto &copy : group) write_store(*copy);
}

static void load_run(Worker &worker, const AsyncCopy &copy, const CopyRun &run) {
    char *to = worker.shared.base + run.shared;
    if (run.valid) memcpy(to, run.global, run.valid);
    memset(to + run.valid, 0, run.bytes - run.valid);
    memset(worker.shared.state + run.shared, memory_written, run.bytes);
    if (worker.sanitizing && copy.arrived)
        worker.races.copy_done(copy.thread, *copy.arrived, copy.place, run.shared, run.bytes);
    else if (worker.sanitizing && copy.generic)
        worker.races.access(worker, copy.thread, copy.place, run.shared, run.bytes, true, false);
    else if (worker.sanitizing)
        worker.races.async_done(copy.engine, copy.clock, copy.place, run.shared, run.bytes, true);
}

size_t land(Worker &worker, AsyncCopy &copy) {
    size_t bytes = 0;
    for (const CopyRun &run : copy.runs) bytes += run.bytes;
    if (copy.landed) return bytes;
    copy.landed = true;
    worker.counters.bytes[1][copy.kind == CopyKind::load] += bytes;
    for (const CopyRun &run : copy.runs) {
        if (copy.kind == CopyKind::load) {
            load_run(worker, copy, run);
            continue;
        }
        if (run.valid) take_run(worker, copy, run);
        remove_async_read(worker, run.shared, run.bytes);
        if (worker.sanitizing)
            worker.races.async_done(copy.engine, copy.clock, copy.place, run.shared, run.bytes, false);
    }
    if (copy.kind != CopyKind::load && worker.sanitizing)
        worker.races.learn_engine(copy.thread, copy.engine, copy.clock);
    return bytes;
}

// ---- cp.async ----

void cp_async(uint32_t to, const void *from, int bytes, int valid_bytes, const char *file, int line) {
    Worker &worker = *current_worker;
    auto copy = std::make_shared<AsyncCopy>();
    copy->what = "cp.async";
    copy->place = place_of(file, line);
    copy->thread = worker.current->thread;
    copy->generic = true;
    if (valid_bytes < 0 || valid_bytes > bytes)
        stop_block(
            cudaErrorLaunchFailure,
            format("cp.async: it writes %d bytes, and of these %d are said to be valid", bytes, valid_bytes),
            copy->place);
    check_alignment(worker, copy->what, copy->place, to, size_t(bytes));
    if (valid_bytes && uintptr_t(from) % unsigned(bytes))
        touch_global(worker, copy->thread, copy->place, copy->what, from, size_t(bytes), size_t(bytes),
                     false);
    copy->runs.push_back(
        {static_cast<char *>(const_cast<void *>(from)), to, uint32_t(bytes), uint32_t(valid_bytes)});
    begin(worker, *copy);
    worker.counters.cp_async_bytes += unsigned(valid_bytes);
    if (worker.profiling)
        worker.traffic.copy_access(worker, copy->place, unsigned(bytes), unsigned(valid_bytes), to,
                                   uint64_t(copy->runs[0].global - arena));
    worker.async.cp_async[size_t(copy->thread)].open.push_back(copy);
}

static void commit(CopyGroups &groups) {
    groups.committed.emplace_back();
    groups.committed.back().swap(groups.open);
}

// Lands all groups but the newest `pending`.
static void land_groups(Worker &worker, CopyGroups &groups, int pending, bool forget) {
    size_t count = groups.committed.size(), keep = std::min(size_t(pending), count);
    for (size_t i = 0; i < count - keep; i++)
        for (const auto &copy : groups.committed[i]) {
            land(worker, *copy);
            if (forget) write_store(*copy);
            wait_until(worker, *worker.current, copy->end);
        }
    if (forget)
        groups.committed.erase(groups.committed.begin(), groups.committed.begin() + long(count - keep));
}

static CopyGroups &mine(std::vector<CopyGroups> &all) { return all[size_t(current_worker->current->thread)]; }

void cp_async_commit(const char *, int) { commit(mine(current_worker->async.cp_async)); }

void cp_async_wait(int pending, const char *, int) {
    land_groups(*current_worker, mine(current_worker->async.cp_async), pending, true);
}

// Also those that were never committed.
void cp_async_wait_all(const char *, int) {
    CopyGroups &groups = mine(current_worker->async.cp_async);
    commit(groups);
    land_groups(*current_worker, groups, 0, true);
}

// ---- TMA and bulk copies ----

static std::shared_ptr<AsyncCopy> new_copy(Worker &worker, const char *what, CopyKind kind, const char *file,
                                           int line) {
    auto copy = std::make_shared<AsyncCopy>();
    copy->what = what;
    copy->kind = kind;
    copy->place = place_of(file, line);
    copy->thread = worker.current->thread;
    return copy;
}

// Counts what a TMA or bulk copy touches in global memory.
static void count_bulk(Worker &worker, const AsyncCopy &copy) {
    if (!worker.profiling) return;
    AccessKind kind = copy.kind == CopyKind::load    ? AccessKind::bulk_load
                      : copy.kind == CopyKind::store ? AccessKind::bulk_store
                                                     : AccessKind::bulk_add;
    BulkParts parts;
    for (const CopyRun &run : copy.runs) {
        if (run.valid)
            parts.add(run.shared, uint64_t(run.global - arena), run.valid);
        else if (copy.kind == CopyKind::load)
            parts.add_zeros(run.shared, run.bytes);
    }
    worker.traffic.bulk_request({copy.place, nullptr, 0, unsigned(bulk_alignment), kind, false}, parts);
}

// A load that will complete on the mbarrier.
static void begin_load(Worker &worker, const std::shared_ptr<AsyncCopy> &copy, uint32_t bar) {
    Mbarrier &it = use_mbarrier(worker, copy->what, bar, copy->place);
    check_mbarrier_fence(worker, it, bar, copy->place);
    use_engine(worker, *copy, bar / unsigned(sizeof(uint64_t)));
    begin(worker, *copy);
    count_bulk(worker, *copy);
    for (const CopyRun &run : copy->runs) worker.counters.tma_read_bytes += run.valid;
    it.events.push_back({{copy}, copy->thread, false, copy->place, nullptr, copy->end});
}

static void begin_store(Worker &worker, const std::shared_ptr<AsyncCopy> &copy) {
    use_engine(worker, *copy, uint32_t(copy->thread));
    begin(worker, *copy);
    count_bulk(worker, *copy);
    for (const CopyRun &run : copy->runs) worker.counters.tma_write_bytes += run.valid;
    mine(worker.async.bulk).open.push_back(copy);
}

static const TensorMap &add_box(AsyncCopy &copy, const CUtensorMap *map, int rank, uint32_t shared,
                                const int *coordinates) {
    const TensorMap *it = tensor_map_of(map);
    if (!it || int(it->rank) != rank)
        stop_block(cudaErrorLaunchFailure,
                   it ? format("%s: a tensor map of rank %d is used with %d coordinates", copy.what,
                               int(it->rank), rank)
                      : format("%s: the tensor map was not made by cuTensorMapEncodeTiled", copy.what),
                   copy.place);
    check_alignment(*current_worker, copy.what, copy.place, shared, box_alignment);
    // Not in the PTX ISA; on an H200 both are illegal instructions.
    if (int64_t(coordinates[0]) * it->element_bytes % int64_t(tensor_chunk_bytes))
        stop_block(
            cudaErrorIllegalInstruction,
            format("%s: coordinate %d of the innermost dimension is %lld bytes from its start, which must "
                   "be a multiple of 16",
                   copy.what, coordinates[0], (long long)coordinates[0] * it->element_bytes),
            copy.place);
    for (int i = 0; i < rank && copy.kind != CopyKind::load; i++)
        if (coordinates[i] < 0)
            stop_block(cudaErrorIllegalInstruction,
                       format("%s: coordinate %d of dimension %d is negative, which only loads may be",
                              copy.what, coordinates[i], i),
                       copy.place);
    traverse_box(*it, coordinates, shared, [&](char *global, uint32_t to, uint32_t bytes) {
        // A store moves whole chunks: if a row of the tensor ends within one, it writes what lies behind the
        // row as well (measured on an H200).
        if (!global && to % tensor_chunk_bytes && copy.kind != CopyKind::load && copy.runs.back().valid) {
            copy.runs.back().bytes += bytes;
            copy.runs.back().valid += bytes;
        } else {
            copy.runs.push_back({global, to, bytes, global ? bytes : 0});
        }
    });
    return *it;
}

void tma_load(uint32_t to, const CUtensorMap *map, uint32_t bar, int rank, const int *coordinates,
              const char *file, int line) {
    Worker &worker = *current_worker;
    auto copy = new_copy(worker, "TMA load", CopyKind::load, file, line);
    add_box(*copy, map, rank, to, coordinates);
    begin_load(worker, copy, bar);
}

void tma_store(const CUtensorMap *map, uint32_t from, int rank, const int *coordinates, bool add,
               const char *file, int line) {
    Worker &worker = *current_worker;
    auto copy = new_copy(worker, add ? "TMA reduction" : "TMA store", CopyKind::store, file, line);
    int type = add_box(*copy, map, rank, from, coordinates).type;
    if (add) {
        copy->kind = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16    ? CopyKind::add_f16
                     : type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? CopyKind::add_bf16
                                                                : CopyKind::add_f32;
        if (copy->kind == CopyKind::add_f32 && type != CU_TENSOR_MAP_DATA_TYPE_FLOAT32)
            stop_block(cudaErrorNotSupported, "TMA reduction: the CPU backend adds fp32, fp16 and bf16",
                       copy->place);
    }
    begin_store(worker, copy);
}

static void check_bulk(Worker &worker, const char *what, uintptr_t place, const void *global,
                       uint32_t bytes) {
    if (bytes == 0)
        stop_block(cudaErrorLaunchFailure, format("%s of 0 bytes: nothing would complete", what), place);
    if (bytes % bulk_alignment || uintptr_t(global) % bulk_alignment)
        stop_block(cudaErrorMisalignedAddress,
                   format("%s of %u bytes, %s: size and addresses must be multiples of %zu bytes", what,
                          bytes, describe_address(worker, uintptr_t(global)).c_str(), bulk_alignment),
                   place);
}

// Runs of 16 bytes of a copy from one address to another.
static void add_bytes(Worker &worker, AsyncCopy &copy, const void *global, uint32_t shared, uint32_t bytes) {
    check_bulk(worker, copy.what, copy.place, global, bytes);
    check_alignment(worker, copy.what, copy.place, shared, bulk_alignment);
    char *pointer = static_cast<char *>(const_cast<void *>(global));
    for (uint32_t at = 0; at < bytes; at += bulk_alignment)
        copy.runs.push_back({pointer + at, shared + at, bulk_alignment, bulk_alignment});
}

void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t bar, const char *file, int line) {
    Worker &worker = *current_worker;
    auto copy = new_copy(worker, "bulk load", CopyKind::load, file, line);
    add_bytes(worker, *copy, from, to, bytes);
    begin_load(worker, copy, bar);
}

void bulk_store(void *to, uint32_t from, uint32_t bytes, const char *file, int line) {
    Worker &worker = *current_worker;
    auto copy = new_copy(worker, "bulk store", CopyKind::store, file, line);
    add_bytes(worker, *copy, to, from, bytes);
    begin_store(worker, copy);
}

void bulk_reduce_add_f32(float *to, uint32_t from, uint32_t bytes, const char *file, int line) {
    Worker &worker = *current_worker;
    auto copy = new_copy(worker, "bulk reduction", CopyKind::add_f32, file, line);
    add_bytes(worker, *copy, to, from, bytes);
    begin_store(worker, copy);
}

void bulk_prefetch_l2(const void *from, uint32_t bytes, const char *file, int line) {
    check_bulk(*current_worker, "bulk prefetch", place_of(file, line), from, bytes);
    check_prefetch(*current_worker, place_of(file, line), "bulk prefetch", from, bytes);
}

void bulk_commit(const char *, int) { commit(mine(current_worker->async.bulk)); }

void bulk_wait(int pending, bool read_only, const char *, int) {
    land_groups(*current_worker, mine(current_worker->async.bulk), pending, !read_only);
}

// ---- The end of a block ----

std::string describe_unfinished(Worker &worker, int &thread) {
    if (!worker.async.used) return "";
    std::string text;
    for_each_in_flight(worker, [&](const AsyncCopy &copy) {
        // A thread that ends waits for its own cp.async; nobody waits for the others.
        if (!text.empty() || copy.generic) return;
        text = "the block ends while the " + issued(copy) + " is in flight" + remedy(worker, copy);
        thread = copy.thread;
    });
    if (text.empty()) text = describe_unfinished_wgmma(worker, thread);
    return text;
}

}  // namespace simt
