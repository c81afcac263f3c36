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

template <class T> static T *map_zeros(size_t count) {
    void *memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "simt: no memory to look for races in\n");
        exit(1);
    }
    return static_cast<T *>(memory);
}

SharedRaces::~SharedRaces() {
    if (cells) munmap(cells, cell_count * sizeof *cells);
    if (reads) munmap(reads, reads_bytes);
}

void SharedRaces::begin_block(int count) {
    generation++;  // what the block before did is over
    if (!cells) cells = map_zeros<Cell>(cell_count);
    if (threads == count) return;
    threads = count;
    clocks.assign(size_t(count) * size_t(count), 0);
    row_generation.assign(size_t(count), 0);
    if (reads) munmap(reads, reads_bytes);
    reads_bytes = size_t(count) * cell_count * sizeof *reads;
    reads = map_zeros<uint32_t>(size_t(count) * cell_count);
}

uint32_t *SharedRaces::row(int thread) {
    uint32_t *mine = &clocks[size_t(thread) * size_t(threads)];
    if (row_generation[size_t(thread)] != generation) {
        row_generation[size_t(thread)] = generation;
        memset(mine, 0, size_t(threads) * sizeof *mine);
        mine[thread] = 1;
    }
    return mine;
}

uint32_t SharedRaces::epoch_of(int thread, unsigned bytes_mask, bool atomic) {
    return uint32_t(thread + 1) << 21 | std::min(row(thread)[thread], clock_mask) << 3 | bytes_mask << 1 |
           atomic;
}

// Whether the access of this epoch cannot be in a race with mine.
bool SharedRaces::ordered(const uint32_t *mine, int me, uint32_t epoch, unsigned mask, bool atomic) const {
    int other = thread_in(epoch);
    return epoch == 0 || other == me || !(bytes_in(epoch) & mask) || (atomic && atomic_in(epoch)) ||
           mine[other] >= clock_in(epoch);
}

void SharedRaces::report(Worker &worker, const char *kind, size_t offset, uintptr_t pc, bool write,
                         uint32_t other_epoch, uint32_t other_pc, bool other_write) {
    RaceAccess mine, other;
    mine.pc = pc;
    mine.thread = worker.current->thread;
    mine.block = other.block = worker.block;
    mine.write = write;
    other.pc = other_pc ? other_pc + load_address() : 0;
    other.thread = thread_in(other_epoch);
    other.write = other_write;
    report_race(
        format("%s in %s", kind, describe_address(worker, uintptr_t(worker.shared.base) + offset).c_str()),
        mine, other);
}

void SharedRaces::access(Worker &worker, uintptr_t pc, size_t offset, size_t bytes, bool write, bool atomic) {
    int me = worker.current->thread;
    const uint32_t *mine = row(me);
    uint32_t code = uint32_t(pc - load_address());
    for (size_t i = offset / 2, last = (offset + bytes - 1) / 2; i <= last; i++) {
        unsigned mask = (2 * i >= offset ? 1u : 0u) | (2 * i + 1 < offset + bytes ? 2u : 0u);
        uint32_t epoch = epoch_of(me, mask, atomic);
        Cell &cell = cells[i];
        if (cell.generation != generation) cell = Cell{generation, 0, 0, 0, 0};
        if (write ? cell.write == epoch && cell.read == 0 : cell.read == epoch) continue;  // nothing new
        if (!ordered(mine, me, cell.write, mask, atomic)) {
            report(worker, write ? "write after write" : "read after write", 2 * i, pc, write, cell.write,
                   cell.write_pc, true);
            cell.write = 0;  // once is enough
        }
        if (!write) {
            if (cell.read == 0 || thread_in(cell.read) == me ||
                (cell.read != many_readers && ordered(mine, me, cell.read, 3, false))) {
                cell.read = epoch;
            } else {
                if (cell.read != many_readers) {
                    for (int t = 0; t < threads; t++) reads[size_t(t) * cell_count + i] = 0;
                    reads[size_t(thread_in(cell.read)) * cell_count + i] = cell.read;
                    cell.read = many_readers;
                }
                reads[size_t(me) * cell_count + i] = epoch;
            }
            cell.read_pc = code;
            continue;
        }
        if (cell.read == many_readers) {
            for (int t = 0; t < threads; t++) {
                uint32_t read = reads[size_t(t) * cell_count + i];
                if (ordered(mine, me, read, mask, atomic)) continue;
                report(worker, "write after read", 2 * i, pc, true, read, cell.read_pc, false);
                break;
            }
        } else if (!ordered(mine, me, cell.read, mask, atomic)) {
            report(worker, "write after read", 2 * i, pc, true, cell.read, cell.read_pc, false);
        }
        cell.read = 0;
        cell.write = epoch;
        cell.write_pc = code;
    }
}

void SharedRaces::met(const int *who, int count) {
    std::vector<uint32_t> seen;
    for (int i = 0; i < count; i++) add_to(seen, who[i]);
    for (int i = 0; i < count; i++) learn_from(seen, who[i]);
}

void SharedRaces::add_to(std::vector<uint32_t> &seen, int thread) {
    uint32_t *mine = row(thread);
    size_t stamp = size_t(threads);  // behind the clocks stands the generation in which they mean something
    seen.resize(stamp + 1, 0);
    if (seen[stamp] != generation) {
        std::fill(seen.begin(), seen.end(), 0);
        seen[stamp] = generation;
    }
    for (int t = 0; t < threads; t++) seen[size_t(t)] = std::max(seen[size_t(t)], mine[t]);
    mine[thread]++;  // what it does from here on was not seen
}

void SharedRaces::learn_from(const std::vector<uint32_t> &seen, int thread) {
    if (seen.size() <= size_t(threads) || seen[size_t(threads)] != generation) return;
    uint32_t *mine = row(thread);
    for (int t = 0; t < threads; t++)
        if (t != thread) mine[t] = std::max(mine[t], seen[size_t(t)]);
}

// ---- Device memory, between blocks ----

namespace {

// For each two bytes: block + 1 of the last writer and of the last reader (all_blocks: several), and where it
// was.
struct GlobalCell {
    std::atomic<uint32_t> writer, reader, writer_pc, reader_pc;
};
constexpr uint32_t all_blocks = 0xffffffffu;
constexpr unsigned long long several_blocks = ~0ull;
GlobalCell *global_cells = nullptr;
size_t global_cells_bytes = 0;

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

void global_races_begin_launch() {
    size_t bytes = arena_used() / 2 * sizeof(GlobalCell);
    if (global_cells) munmap(static_cast<void *>(global_cells), global_cells_bytes);
    global_cells_bytes = std::max<size_t>(bytes, sizeof(GlobalCell));
    global_cells = reinterpret_cast<GlobalCell *>(map_zeros<char>(global_cells_bytes));
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
    other.pc = other_pc + load_address();
    other.thread = -1;
    other.block = block == all_blocks ? several_blocks : block - 1;
    other.write = other_write;
    report_race(
        format("%s between blocks in %s", kind, describe_address(worker, uintptr_t(arena) + offset).c_str()),
        mine, other);
}

void global_race_access(Worker &worker, uintptr_t pc, size_t offset, size_t bytes, bool write) {
    constexpr auto relaxed = std::memory_order_relaxed;
    uint32_t me = uint32_t(worker.block + 1), code = uint32_t(pc - load_address());
    for (size_t i = offset / 2, last = (offset + bytes - 1) / 2; i <= last; i++) {
        if ((i + 1) * sizeof(GlobalCell) > global_cells_bytes) return;
        GlobalCell &cell = global_cells[i];
        uint32_t writer = cell.writer.load(relaxed), reader = cell.reader.load(relaxed);
        if (writer && writer != me && !block_has_seen(worker.block, writer - 1))
            report_global(worker, write ? "write after write" : "read after write", 2 * i, pc, write, writer,
                          cell.writer_pc.load(relaxed), true);
        if (!write) {
            if (reader == me || reader == all_blocks) continue;
            cell.reader_pc.store(code, relaxed);
            cell.reader.store(reader ? all_blocks : me, relaxed);
            continue;
        }
        if (reader && reader != me && (reader == all_blocks || !block_has_seen(worker.block, reader - 1)))
            report_global(worker, "write after read", 2 * i, pc, true, reader, cell.reader_pc.load(relaxed),
                          false);
        cell.writer_pc.store(code, relaxed);
        cell.writer.store(me, relaxed);
    }
}

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
constexpr size_t most_printed = 20;

std::string describe_access(const RaceAccess &it, const std::string &position) {
    std::string text = it.write ? "write at " : "read at ";
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
        if (!printed.insert(first + " " + second).second || printed.size() > most_printed) continue;
        fprintf(stderr, "simt: race in kernel %s: %s\n", race.kernel.c_str(), race.what.c_str());
        fprintf(stderr, "simt:     %s\n", describe_access(race.first, first).c_str());
        fprintf(stderr, "simt:     %s\n", describe_access(race.second, second).c_str());
    }
    if (printed.size() > most_printed)
        fprintf(stderr, "simt: %zu more pairs of lines race\n", printed.size() - most_printed);
    races.clear();
    return int(printed.size());
}

}  // namespace simt
