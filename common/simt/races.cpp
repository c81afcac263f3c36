// races.cpp - two accesses to one place, at least one of them a write, that nothing puts in an order.
//
// In shared memory what orders is a barrier or __syncwarp; shuffles and votes do not. A barrier of the whole
// block starts a new generation, in which everything older is ordered, so that most cells are never compared
// at all. Between blocks nothing orders but an atomic that one block did after, and another before, the
// accesses at hand.
#include "races.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "internal.h"

namespace simt {

// ---- Shared memory ----

// An epoch: thread + 1 (11 bits), clock (18), which of the cell's two bytes (2), atomic (1).
constexpr unsigned clock_bits = 18;
constexpr uint32_t clock_mask = (1u << clock_bits) - 1;
constexpr uint32_t many_readers = 0xffffffffu;
constexpr size_t cell_count = SharedMemory::window_bytes / 2;

static int thread_in(uint32_t epoch) { return int(epoch >> 21) - 1; }
static uint32_t clock_in(uint32_t epoch) { return epoch >> 3 & clock_mask; }
static unsigned bytes_in(uint32_t epoch) { return epoch >> 1 & 3; }
static bool atomic_in(uint32_t epoch) { return epoch & 1; }

// Code addresses in 32 bits: relative to the program's load address, or a place's number with the top bit.
static uint32_t code_of(uintptr_t pc) {
    return is_place(pc) ? 0x80000000u | uint32_t(pc) : uint32_t(pc - load_address());
}
static uintptr_t pc_of(uint32_t code) {
    return code & 0x80000000u ? code & 0x7fffffffu : code ? code + load_address() : 0;
}

template <class T> static T *map_zeros(size_t count) {
    void *memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) stop_without_memory("for what is known of races");
    return static_cast<T *>(memory);
}

SharedRaces::~SharedRaces() {
    if (cells) munmap(cells, cell_count * sizeof *cells);
    if (reads) munmap(reads, reads_bytes);
}

void SharedRaces::begin_block(int count) {
    generation++;  // what the block before did is over
    block_start = ++fences;
    last_fence.assign(size_t(count), 0);
    if (!cells) cells = map_zeros<Cell>(cell_count);
    if (threads == count) return;
    threads = count;
    columns = count + columns_besides;
    clocks.assign(size_t(count) * size_t(columns), 0);
    row_generation.assign(size_t(count), 0);
    if (reads) munmap(reads, reads_bytes);
    reads_bytes = size_t(columns) * cell_count * sizeof *reads;
    reads = map_zeros<uint32_t>(size_t(columns) * cell_count);
}

uint32_t *SharedRaces::row(int thread) {
    uint32_t *mine = &clocks[size_t(thread) * size_t(columns)];
    if (row_generation[size_t(thread)] != generation) {
        row_generation[size_t(thread)] = generation;
        memset(mine, 0, size_t(columns) * sizeof *mine);
        mine[thread] = 1;
    }
    return mine;
}

uint32_t SharedRaces::epoch_at(int column, uint32_t clock, unsigned bytes_mask, bool atomic) const {
    return uint32_t(column + 1) << 21 | std::min(clock, clock_mask) << 3 | bytes_mask << 1 | atomic;
}

uint32_t SharedRaces::epoch_of(int thread, unsigned bytes_mask, bool atomic) {
    return epoch_at(thread, row(thread)[thread], bytes_mask, atomic);
}

// Whether the access of this epoch cannot be in a race with mine.
bool SharedRaces::ordered(const uint32_t *mine, int me, uint32_t epoch, unsigned mask, bool atomic) const {
    int other = thread_in(epoch);
    return epoch == 0 || other == me || !(bytes_in(epoch) & mask) || (atomic && atomic_in(epoch)) ||
           mine[other] >= clock_in(epoch);
}

void SharedRaces::report(Worker &worker, const char *kind, size_t offset, int me, uintptr_t pc, bool write,
                         uint32_t other_epoch, uint32_t other_pc, bool other_write) {
    RaceAccess mine, other;
    mine.pc = pc;
    mine.thread = me;
    mine.block = other.block = worker.block;
    mine.write = write;
    other.pc = pc_of(other_pc);
    other.thread = thread_in(other_epoch);
    if (other.thread >= threads) other.thread = RaceAccess::an_engine;
    other.write = other_write;
    report_race(
        format("%s in %s", kind, describe_address(worker, uintptr_t(worker.shared.base) + offset).c_str()),
        mine, other);
}

void SharedRaces::refresh(Cell &cell) const {
    if (cell.generation == generation) return;
    cell.generation = generation;
    cell.write = cell.read = 0;
}

// Reports that the last write to the cell is not ordered before the access at hand.
void SharedRaces::check_write(Worker &worker, const uint32_t *mine, int me, Cell &cell, size_t i,
                              unsigned mask, bool atomic, uintptr_t pc, bool write) {
    if (ordered(mine, me, cell.write, mask, atomic)) return;
    report(worker, write ? "write after write" : "read after write", 2 * i, me, pc, write, cell.write,
           cell.write_pc, true);
    cell.write = 0;  // once is enough
}

// Reports a read of the cell that is not ordered before the write at hand.
void SharedRaces::check_reads(Worker &worker, const uint32_t *mine, int me, const Cell &cell, size_t i,
                              unsigned mask, bool atomic, uintptr_t pc) {
    if (cell.read != many_readers) {
        if (!ordered(mine, me, cell.read, mask, atomic))
            report(worker, "write after read", 2 * i, me, pc, true, cell.read, cell.read_pc, false);
        return;
    }
    for (int t = 0; t < columns; t++) {
        uint32_t read = reads[i * size_t(columns) + size_t(t)];
        if (ordered(mine, me, read, mask, atomic)) continue;
        report(worker, "write after read", 2 * i, me, pc, true, read, cell.read_pc, false);
        return;
    }
}

// Reports that nothing made an ordinary store visible to the copy or wgmma at hand.
void SharedRaces::check_fence(Worker &worker, int me, Cell &cell, size_t i, uintptr_t pc, bool write) {
    if (!cell.generic_writer || cell.generic_time < block_start) return;
    size_t writer = cell.generic_writer - 1;
    if (std::max(last_fence[writer], last_fence[size_t(me)]) > cell.generic_time) return;
    report(worker,
           write ? "missing fence_proxy_async: ordinary write, then a copy over it,"
                 : "missing fence_proxy_async: ordinary write, then a read by TMA or wgmma,",
           2 * i, me, pc, write, epoch_at(int(writer), 0, 3, false), cell.write_pc, true);
    cell.generic_writer = 0;
}

void SharedRaces::record_read(const uint32_t *mine, int me, Cell &cell, size_t i, uint32_t epoch,
                              uint32_t code) {
    int column = thread_in(epoch);
    if (cell.read == 0 || thread_in(cell.read) == column ||
        (cell.read != many_readers && ordered(mine, me, cell.read, 3, false))) {
        cell.read = epoch;
    } else {
        if (cell.read != many_readers) {
            memset(&reads[i * size_t(columns)], 0, size_t(columns) * sizeof *reads);
            reads[i * size_t(columns) + size_t(thread_in(cell.read))] = cell.read;
            cell.read = many_readers;
        }
        reads[i * size_t(columns) + size_t(column)] = epoch;
    }
    cell.read_pc = code;
}

// Which of cell i's two bytes the access touches: bit 0 and bit 1.
static unsigned touched(size_t i, size_t offset, size_t bytes) {
    return (2 * i >= offset ? 1u : 0u) | (2 * i + 1 < offset + bytes ? 2u : 0u);
}

void SharedRaces::access(Worker &worker, int me, uintptr_t pc, size_t offset, size_t bytes, bool write,
                         bool atomic) {
    const uint32_t *mine = row(me);
    uint32_t code = code_of(pc), epoch_without_mask = epoch_of(me, 0, atomic);
    for (size_t i = offset / 2, last = (offset + bytes - 1) / 2; i <= last; i++) {
        unsigned mask = touched(i, offset, bytes);
        uint32_t epoch = epoch_without_mask | mask << 1;
        Cell &cell = cells[i];
        refresh(cell);
        if (write) {
            cell.generic_writer = uint32_t(me + 1);
            cell.generic_time = fences;
        }
        if (write ? cell.write == epoch && cell.read == 0 : cell.read == epoch) continue;  // nothing new
        if (cell.write) check_write(worker, mine, me, cell, i, mask, atomic, pc, write);
        if (!write) {
            record_read(mine, me, cell, i, epoch, code);
            continue;
        }
        if (cell.read) check_reads(worker, mine, me, cell, i, mask, atomic, pc);
        cell.read = 0;
        cell.write = epoch;
        cell.write_pc = code;
    }
}

void SharedRaces::async_access(Worker &worker, int me, int engine, uint32_t clock, uintptr_t pc,
                               size_t offset, size_t bytes, bool write) {
    const uint32_t *mine = row(me);
    uint32_t code = code_of(pc);
    for (size_t i = offset / 2, last = (offset + bytes - 1) / 2; i <= last; i++) {
        unsigned mask = touched(i, offset, bytes);
        Cell &cell = cells[i];
        check_fence(worker, me, cell, i, pc, write);
        refresh(cell);
        check_write(worker, mine, me, cell, i, mask, false, pc, write);
        uint32_t epoch = epoch_at(threads + engine, clock, mask, false);
        if (!write) {
            record_read(mine, me, cell, i, epoch, code);
            continue;
        }
        check_reads(worker, mine, me, cell, i, mask, false, pc);
        cell.read = 0;
        cell.write = epoch;
        cell.write_pc = code;
        cell.generic_writer = 0;
    }
}

void SharedRaces::async_done(int engine, uint32_t clock, uintptr_t pc, size_t offset, size_t bytes,
                             bool write) {
    static const uint32_t nobody[max_threads_per_block + columns_besides] = {};
    uint32_t code = code_of(pc);
    for (size_t i = offset / 2, last = (offset + bytes - 1) / 2; i <= last; i++) {
        Cell &cell = cells[i];
        uint32_t epoch = epoch_at(threads + engine, clock, touched(i, offset, bytes), false);
        refresh(cell);
        if (write) {
            cell.read = 0;
            cell.write = epoch;
            cell.write_pc = code;
        } else {
            record_read(nobody, threads + engine, cell, i, epoch, code);
        }
    }
}

void SharedRaces::copy_done(int thread, const std::vector<uint32_t> &arrived, uintptr_t pc, size_t offset,
                            size_t bytes) {
    // If all have met since, whoever waits for the mbarrier learns of no clock: 0 is known to everybody.
    bool met_since = arrived[size_t(columns)] != generation;
    uint32_t clock = met_since ? 0 : arrived[size_t(thread)];
    for (size_t i = offset / 2, last = (offset + bytes - 1) / 2; i <= last; i++) {
        Cell &cell = cells[i];
        refresh(cell);
        cell.read = 0;
        cell.write = epoch_at(thread, clock, touched(i, offset, bytes), false);
        cell.write_pc = code_of(pc);
        cell.generic_writer = uint32_t(thread + 1);
        cell.generic_time = fences;
    }
}

void SharedRaces::add_engine_to(std::vector<uint32_t> &seen, int engine, uint32_t clock) {
    prepare(seen);
    uint32_t &column = seen[size_t(threads + engine)];
    column = std::max(column, clock);
}

void SharedRaces::learn_engine(int thread, int engine, uint32_t clock) {
    uint32_t &column = row(thread)[threads + engine];
    column = std::max(column, clock);
}

void SharedRaces::fence(int thread) { last_fence[size_t(thread)] = ++fences; }

void SharedRaces::met(const int *who, int count) {
    std::vector<uint32_t> seen;
    for (int i = 0; i < count; i++) add_to(seen, who[i]);
    for (int i = 0; i < count; i++) learn_from(seen, who[i]);
}

// Makes room for the clocks of the present generation.
void SharedRaces::prepare(std::vector<uint32_t> &seen) const {
    size_t stamp = size_t(columns);  // behind the clocks stands the generation in which they mean something
    seen.resize(stamp + 1, 0);
    if (seen[stamp] == generation) return;
    std::fill(seen.begin(), seen.end(), 0);
    seen[stamp] = generation;
}

void SharedRaces::add_to(std::vector<uint32_t> &seen, int thread) {
    uint32_t *mine = row(thread);
    prepare(seen);
    for (int t = 0; t < columns; t++) seen[size_t(t)] = std::max(seen[size_t(t)], mine[t]);
    mine[thread]++;  // what it does from here on was not seen
}

Moment SharedRaces::now(int thread) { return {thread, row(thread)[thread], generation}; }

bool SharedRaces::has_seen(int thread, const Moment &what) {
    return thread == what.thread || what.generation != generation || row(thread)[what.thread] >= what.clock;
}

bool SharedRaces::tells_of(const std::vector<uint32_t> &seen, const Moment &what) const {
    if (what.generation != generation) return true;
    return seen.size() > size_t(columns) && seen[size_t(columns)] == generation &&
           seen[size_t(what.thread)] >= what.clock;
}

bool SharedRaces::tells_of(const std::vector<uint32_t> &seen, int engine, uint32_t clock) const {
    return engine >= 0 && seen.size() > size_t(columns) && seen[size_t(columns)] == generation &&
           seen[size_t(threads + engine)] >= clock;
}

void SharedRaces::add_seen(std::vector<uint32_t> &seen, const std::vector<uint32_t> &from) const {
    prepare(seen);
    if (from.size() <= size_t(columns) || from[size_t(columns)] != generation) return;
    for (size_t t = 0; t < size_t(columns); t++) seen[t] = std::max(seen[t], from[t]);
}

void SharedRaces::learn_from(const std::vector<uint32_t> &seen, int thread) {
    if (seen.size() <= size_t(columns) || seen[size_t(columns)] != generation) return;
    uint32_t *mine = row(thread);
    for (int t = 0; t < columns; t++)
        if (t != thread) mine[t] = std::max(mine[t], seen[size_t(t)]);
}

// ---- Device memory, between blocks ----

namespace {

// For each two bytes: who wrote last and who read last, and where. Who is block + 1 (all_blocks: several),
// and in the two highest bits which of the bytes.
struct GlobalCell {
    std::atomic<uint32_t> writer, reader, writer_pc, reader_pc;
};
constexpr uint32_t all_blocks = 0x3fffffffu;
constexpr unsigned mask_shift = 30;
static uint32_t block_in(uint32_t who) { return who & all_blocks; }
constexpr unsigned long long several_blocks = ~0ull;
struct GlobalCells {
    GlobalCell *cells = nullptr;
    size_t bytes = 0;
    const GlobalCell *find(size_t i) const {
        return (i + 1) * sizeof(GlobalCell) <= bytes ? cells + i : nullptr;
    }
};
GlobalCells global_cells;
std::vector<GlobalCells> cells_before;  // of launches that may still run beside this one
std::atomic<bool> somebody_waited;      // for these

using BlockSet = std::set<unsigned long long>;
std::mutex published_mutex;
std::map<size_t, BlockSet> published;  // by atomics at this offset: blocks whose accesses are done
std::map<unsigned long long, std::set<size_t>> atomics_of_block;

// Whether an atomic put what the other block did before what this one does now. What was published is looked
// at now and not when this block's atomic ran: between that look and the atomic itself another block's could
// have come.
bool block_has_seen(unsigned long long block, unsigned long long other) {
    std::lock_guard<std::mutex> lock(published_mutex);
    auto it = atomics_of_block.find(block);
    if (it == atomics_of_block.end()) return false;
    for (size_t offset : it->second)
        if (published[offset].count(other)) return true;
    return false;
}

}  // namespace

void global_races_begin_launch(bool dependent) {
    size_t bytes = arena_used() / 2 * sizeof(GlobalCell);
    if (global_cells.cells) cells_before.push_back(global_cells);
    // A launch that waited has ended after those before it, but who waits for it knows of no others.
    size_t kept = !dependent ? 0 : somebody_waited ? 1 : cells_before.size();
    while (cells_before.size() > kept) {
        munmap(static_cast<void *>(cells_before.front().cells), cells_before.front().bytes);
        cells_before.erase(cells_before.begin());
    }
    somebody_waited = !dependent;
    global_cells.bytes = std::max<size_t>(bytes, sizeof(GlobalCell));
    global_cells.cells = reinterpret_cast<GlobalCell *>(map_zeros<char>(global_cells.bytes));
    published.clear();
    atomics_of_block.clear();
}

// `block` is the other's number + 1, all_blocks for several.
static void report_global(Worker &worker, const char *kind, size_t offset, uintptr_t pc, bool write,
                          uint32_t block, uint32_t other_pc, bool other_write) {
    RaceAccess mine, other;
    mine.pc = pc;
    mine.thread = worker.current->thread;
    mine.block = worker.block;
    mine.write = write;
    other.pc = pc_of(other_pc);
    other.thread = RaceAccess::not_known;
    other.block = block == all_blocks ? several_blocks : block - 1;
    other.write = other_write;
    report_race(
        format("%s between blocks in %s", kind, describe_address(worker, uintptr_t(arena) + offset).c_str()),
        mine, other);
}

// What a thread may not touch that has not waited for a launch before: what that has written, and if it
// writes, what that has read.
static void check_launch_before(Worker &worker, const GlobalCells &before, uintptr_t pc, size_t offset,
                                size_t bytes, bool write) {
    constexpr auto relaxed = std::memory_order_relaxed;
    for (size_t i = offset / 2, last = (offset + bytes - 1) / 2; i <= last; i++) {
        if (!before.find(i)) return;
        const GlobalCell &cell = *before.find(i);
        uint32_t mask = touched(i, offset, bytes) << mask_shift;
        uint32_t writer = cell.writer.load(relaxed), reader = cell.reader.load(relaxed);
        bool was_write = writer & mask;
        if (!was_write && !(write && reader & mask)) continue;
        RaceAccess mine, other;
        mine.pc = pc;
        mine.thread = worker.current->thread;
        mine.block = worker.block;
        mine.write = write;
        other.pc = pc_of((was_write ? cell.writer_pc : cell.reader_pc).load(relaxed));
        other.thread = RaceAccess::not_known;
        uint32_t block = block_in(was_write ? writer : reader);
        other.block = block == all_blocks ? several_blocks : block - 1;
        other.write = was_write;
        report_race(format("%s, in %s, of a kernel before, which griddepcontrol_wait has not waited for",
                           !was_write ? "write after read"
                           : write    ? "write after write"
                                      : "read after write",
                           describe_address(worker, uintptr_t(arena) + 2 * i).c_str()),
                    mine, other);
    }
}

void global_race_access(Worker &worker, uintptr_t pc, size_t offset, size_t bytes, bool write) {
    // griddepcontrol_wait waits for the last of them.
    for (size_t n = 0; n + (worker.current->grid_waited ? 1 : 0) < cells_before.size(); n++)
        check_launch_before(worker, cells_before[n], pc, offset, bytes, write);
    constexpr auto relaxed = std::memory_order_relaxed;
    uint32_t me = uint32_t(worker.block + 1) & all_blocks, code = code_of(pc);
    for (size_t i = offset / 2, last = (offset + bytes - 1) / 2; i <= last; i++) {
        if (!global_cells.find(i)) return;
        GlobalCell &cell = global_cells.cells[i];
        uint32_t mask = touched(i, offset, bytes) << mask_shift;
        uint32_t writer = cell.writer.load(relaxed), reader = cell.reader.load(relaxed);
        uint32_t writing = block_in(writer), reading = block_in(reader);
        if (writer & mask && writing != me && !block_has_seen(worker.block, writing - 1))
            report_global(worker, write ? "write after write" : "read after write", 2 * i, pc, write, writing,
                          cell.writer_pc.load(relaxed), true);
        if (!write) {
            uint32_t now = (reader | mask) & ~all_blocks;  // bytes that anybody has read
            // A read that an atomic puts before this one is before all that this one is before.
            bool only_me = reading == 0 || reading == me ||
                           (reading != all_blocks && block_has_seen(worker.block, reading - 1));
            now |= only_me ? me : all_blocks;
            if (now == reader) continue;
            cell.reader_pc.store(code, relaxed);
            cell.reader.store(now, relaxed);
            continue;
        }
        if (reader & mask && reading != me &&
            (reading == all_blocks || !block_has_seen(worker.block, reading - 1)))
            report_global(worker, "write after read", 2 * i, pc, true, reading, cell.reader_pc.load(relaxed),
                          false);
        uint32_t still_read =
            reader & ~all_blocks & ~mask;  // the other byte; what was read of this one is over
        cell.reader.store(still_read ? still_read | reading : 0, relaxed);
        cell.writer_pc.store(code, relaxed);
        cell.writer.store(me | mask | (writing == me ? writer & ~all_blocks : 0), relaxed);
    }
}

void global_race_waited() { somebody_waited = true; }

void global_race_atomic(Worker &worker, size_t offset) {
    std::lock_guard<std::mutex> lock(published_mutex);
    std::set<size_t> &offsets = atomics_of_block[worker.block];
    offsets.insert(offset);
    BlockSet done = {worker.block};
    for (size_t other : offsets) done.insert(published[other].begin(), published[other].end());
    published[offset].insert(done.begin(), done.end());
}

// ---- Reports ----

namespace {

struct Race {
    std::string what;
    RaceAccess first, second;
    std::string kernel;
};
std::mutex races_mutex;
std::map<std::pair<uintptr_t, uintptr_t>, Race> races;  // by the two places in the code
constexpr size_t most_printed = 20, most_kept = 100;
std::vector<simt_race> kept;  // of launches that have ended

std::string describe_access(const RaceAccess &it, const std::string &position) {
    std::string text = std::string(it.verb ? it.verb : it.write ? "write" : "read") + " at ";
    if (it.thread == RaceAccess::an_engine)
        text = it.write ? "write by the copy issued at " : "read by the copy or wgmma issued at ";
    text += position;
    if (it.thread >= 0) text += format(" by thread %d", it.thread);
    return text + (it.block == several_blocks ? " of several blocks" : format(" of block %llu", it.block));
}

}  // namespace

void report_race(const std::string &what, const RaceAccess &first, const RaceAccess &second) {
    std::lock_guard<std::mutex> lock(races_mutex);
    races.emplace(std::make_pair(first.pc, second.pc),
                  Race{what, first, second, current_worker->kernel_name});
}

static void keep(const Race &race, const std::string &first, const std::string &second) {
    if (kept.size() == most_kept) return;
    simt_race pair = {};
    snprintf(pair.what, sizeof pair.what, "%s", race.what.c_str());
    snprintf(pair.first, sizeof pair.first, "%s", first.c_str());
    snprintf(pair.second, sizeof pair.second, "%s", second.c_str());
    kept.push_back(pair);
}

int take_race_lines(simt_race *taken, int max) {
    std::lock_guard<std::mutex> lock(races_mutex);
    int count = std::min(max, int(kept.size()));
    std::copy_n(kept.begin(), count, taken);
    kept.clear();
    return count;
}

int print_races() {
    std::lock_guard<std::mutex> lock(races_mutex);
    if (races.empty()) return 0;
    std::vector<uintptr_t> pcs;
    for (const auto &it : races) pcs.push_back(it.second.first.pc), pcs.push_back(it.second.second.pc);
    std::vector<std::string> positions = source_positions(pcs);
    std::set<std::string> printed;
    size_t i = 0;
    fflush(stdout);
    for (const auto &it : races) {
        const Race &race = it.second;
        std::string first = positions[2 * i], second = positions[2 * i + 1];
        i++;
        if (!printed.insert(first + " " + second).second) continue;
        keep(race, first, second);
        if (printed.size() > most_printed) continue;
        fprintf(stderr, "simt: race in kernel %s: %s\n", race.kernel.c_str(), race.what.c_str());
        fprintf(stderr, "simt:     %s\n", describe_access(race.first, first).c_str());
        fprintf(stderr, "simt:     %s\n", describe_access(race.second, second).c_str());
    }
    if (printed.size() > most_printed)
        fprintf(stderr, "simt: more pairs of lines that race: %zu\n", printed.size() - most_printed);
    races.clear();
    return int(printed.size());
}

}  // namespace simt
