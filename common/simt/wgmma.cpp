// wgmma.cpp - when the products of a warpgroup happen (PTX ISA, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Instructions"). What they compute is in wgmma_math.
//
// A wgmma is one operation of four warps, each of which gives and gets its own registers. It runs when a warp
// waits for its group and all four have committed that: as late as allowed. Until then its accumulators hold
// NaN, the sums live in a copy that only wgmma sees, the bytes it reads may not be written, and a thread that
// touches its registers is stopped. Each warp gets its sums back at its own wait.
#include <algorithm>
#include <cstring>
#include <limits>

#include "instruction.h"
#include "wgmma_math.h"

namespace simt {

constexpr int warps_in_group = 4;

namespace {

// The true values of one warp's accumulators while wgmma works on them.
struct Accumulator {
    float *d[warp_size];  // the threads' own arrays
    size_t count;         // of floats for each thread
    std::vector<float> value;
    uint32_t last_group = 0;  // the newest group that uses it
    unsigned given_back = 0;  // lanes that have their values again
};

struct Operation {
    WgmmaShape shape;
    uint64_t a, b;  // descriptors
    uintptr_t place;
    std::vector<uint32_t> chunks;  // 16 bytes each, read from shared memory
    struct Part {
        std::shared_ptr<Accumulator> sums;
        uint32_t a[warp_size][4];
    } part[warps_in_group];
};

struct Group {
    std::vector<std::unique_ptr<Operation>> operations;
    unsigned committed = 0;  // warps
    bool computed = false;
    Steps time = 0, end = 0;  // of the last warp to commit; when the products are there
};

struct WgmmaArgument {
    const WgmmaShape *shape;
    float *d;
    const uint32_t *a_registers;
    uint64_t a, b;
    uintptr_t place;
};

}  // namespace

struct WgmmaQueue {
    std::deque<Group> groups;
    uint32_t first = 0;                     // number of the oldest group that is kept
    uint32_t filling[warps_in_group] = {};  // number of the group that the warp's next operation goes to
    size_t issued[warps_in_group] = {};     // operations of the warp in that group
    uint32_t waited[warps_in_group] = {};   // the warp has waited for all groups before this
    std::vector<std::shared_ptr<Accumulator>> live[warps_in_group];
    std::vector<int> waiters;

    Group &group(uint32_t number) {
        while (number - first >= groups.size()) groups.emplace_back();
        return groups[number - first];
    }
};

Async::Async() = default;
Async::~Async() = default;

__thread bool wgmma_has_registers = false;

void Async::begin_wgmma(int threads) {
    wgmma_has_registers = false;
    wgmma.clear();
    wgmma.resize(size_t(threads / warp_size / warps_in_group));
}

static WgmmaQueue &queue_of(Worker &worker, const char *what, uintptr_t place) {
    size_t number = size_t(worker.current->warp / warps_in_group);
    if (number >= worker.async.wgmma.size())
        stop_block(
            cudaErrorLaunchFailure,
            format(
                "%s: warp %d is in no whole warpgroup: the block has %d threads, and a warpgroup is 128 in "
                "a row",
                what, worker.current->warp, worker.threads),
            place);
    auto &queue = worker.async.wgmma[number];
    if (!queue) queue.reset(new WgmmaQueue);
    worker.async.used = true;
    return *queue;
}

static int engine_of(const Worker &worker) {
    return copy_engines + worker.current->warp / warps_in_group % wgmma_engines;
}

void next_product(const Worker &worker, int &engine, uint32_t &clock) {
    size_t group = size_t(worker.current->warp / warps_in_group);
    bool has_one = group < worker.async.wgmma.size();
    const WgmmaQueue *queue = has_one ? worker.async.wgmma[group].get() : nullptr;
    engine = has_one ? engine_of(worker) : -1;
    clock = (queue ? queue->filling[worker.current->warp % warps_in_group] : 0) + 1;
}

// ---- Issue ----

// Collects the chunks that the whole instruction reads, and checks them.
static void check_operands(Worker &worker, Operation &it) {
    for (WgmmaMatrix matrix : {WgmmaMatrix::a, WgmmaMatrix::b}) {
        bool is_a = matrix == WgmmaMatrix::a;
        if (is_a && it.shape.a_in_registers) continue;
        WgmmaOperand operand;
        std::string why = wgmma_decode(it.shape, matrix, is_a ? it.a : it.b, operand);
        if (!why.empty())
            stop_block(cudaErrorLaunchFailure,
                       format("wgmma: descriptor of %s: %s", is_a ? "A" : "B", why.c_str()), it.place);
        wgmma_for_each_chunk(it.shape, operand, 0, is_a ? 64 : it.shape.n, [&](uint32_t address, int, int) {
            check_shared(worker, is_a ? "wgmma, A" : "wgmma, B", it.place, address, 16, 16, false);
            it.chunks.push_back(address);
        });
    }
    for (uint32_t chunk : it.chunks) add_async_read(worker, chunk, 16);
}

// One warp reads B and its own 16 rows of A.
static void check_order(Worker &worker, const Operation &it, int warp, uint32_t clock) {
    for (WgmmaMatrix matrix : {WgmmaMatrix::a, WgmmaMatrix::b}) {
        bool is_a = matrix == WgmmaMatrix::a;
        if (is_a && it.shape.a_in_registers) continue;
        WgmmaOperand operand;
        wgmma_decode(it.shape, matrix, is_a ? it.a : it.b, operand);
        wgmma_for_each_chunk(it.shape, operand, is_a ? 16 * (warp % warps_in_group) : 0,
                             is_a ? 16 : it.shape.n, [&](uint32_t address, int, int) {
                                 worker.races.async_access(worker, warp * warp_size, engine_of(worker), clock,
                                                           it.place, address, 16, false);
                             });
    }
}

static std::shared_ptr<Accumulator> accumulator(WgmmaQueue &queue, int w, void *const lane[32],
                                                size_t count) {
    float *first = static_cast<const WgmmaArgument *>(lane[0])->d;
    for (const auto &it : queue.live[w])
        if (it->d[0] == first && it->count == count) return it;
    auto it = std::make_shared<Accumulator>();
    it->count = count;
    it->value.resize(count * warp_size);
    for (int l = 0; l < warp_size; l++) {
        it->d[l] = static_cast<const WgmmaArgument *>(lane[l])->d;
        memcpy(&it->value[size_t(l) * count], it->d[l], count * sizeof(float));
    }
    queue.live[w].push_back(it);
    return it;
}

static void mark_registers(Fiber &fiber, const void *from, size_t bytes, uintptr_t place, uint32_t group) {
    const char *start = static_cast<const char *>(from);
    for (BusyRegisters &it : fiber.registers)
        if (it.from == start && it.bytes == bytes) {
            it.place = place;
            it.group = group;
            it.in_flight = true;
            return;
        }
    fiber.registers.push_back({start, bytes, place, group, true});
    wgmma_has_registers = true;
}

static bool same(const WgmmaShape &x, const WgmmaShape &y) {
    return x.type == y.type && x.n == y.n && x.k == y.k && x.a_in_registers == y.a_in_registers &&
           x.a_mn_major == y.a_mn_major && x.b_mn_major == y.b_mn_major && x.scale_d == y.scale_d;
}

// All lanes of a warp are there.
static void issue(void *const lane[32], unsigned mask) {
    Worker &worker = *current_worker;
    const WgmmaArgument &mine = *static_cast<const WgmmaArgument *>(lane[__builtin_ctz(mask)]);
    if (mask != 0xffffffffu)
        stop_block(cudaErrorLaunchFailure, format("wgmma: only lanes 0x%08x of the warp are there", mask),
                   mine.place);
    WgmmaQueue &queue = queue_of(worker, "wgmma", mine.place);
    int warp = worker.current->warp, w = warp % warps_in_group;
    uint32_t number = queue.filling[w];
    Group &group = queue.group(number);
    size_t bytes_read = 0;  // by the warpgroup, if this is its first warp
    if (queue.issued[w] == group.operations.size()) {
        if (group.committed)
            stop_block(cudaErrorLaunchFailure,
                       format("wgmma: warp %d issues wgmma number %zu of a group that warp %d has committed "
                              "with %zu: all "
                              "four warps of a warpgroup execute the same",
                              warp, queue.issued[w] + 1, warp - w + __builtin_ctz(group.committed),
                              queue.issued[w]),
                       mine.place);
        auto added = std::make_unique<Operation>();
        added->shape = *mine.shape;
        added->a = mine.a;
        added->b = mine.b;
        added->place = mine.place;
        check_operands(worker, *added);
        bytes_read = 16 * added->chunks.size();
        group.operations.push_back(std::move(added));
    }
    if (worker.profiling)
        worker.traffic.product_request({mine.place, nullptr, 0, 16, AccessKind::product, true}, bytes_read);
    Operation &it = *group.operations[queue.issued[w]++];
    Fiber *fibers = &worker.fibers[size_t(warp * warp_size)];
    for (int l = 0; l < warp_size; l++) {
        const WgmmaArgument &other = *static_cast<const WgmmaArgument *>(lane[l]);
        if (!same(*other.shape, it.shape) || (!it.shape.a_in_registers && other.a != it.a) || other.b != it.b)
            stop_block(
                cudaErrorLaunchFailure,
                format(
                    "wgmma: lane %d of warp %d has another shape or other descriptors than the rest of the "
                    "warpgroup had at %s",
                    l, warp, source_position(it.place).c_str()),
                mine.place);
        if (!fibers[l].wgmma_fenced)
            stop_block(cudaErrorLaunchFailure,
                       format("wgmma: thread %d has written registers of the instruction since its last "
                              "wgmma_fence, or never executed one: wgmma_fence comes first",
                              fibers[l].thread),
                       mine.place);
    }
    if (worker.sanitizing) check_order(worker, it, warp, number + 1);
    size_t count = size_t(it.shape.n / 2);
    Operation::Part &part = it.part[w];
    part.sums = accumulator(queue, w, lane, count);
    part.sums->last_group = number;
    for (int l = 0; l < warp_size; l++) {
        const WgmmaArgument &other = *static_cast<const WgmmaArgument *>(lane[l]);
        std::fill(other.d, other.d + count, std::numeric_limits<float>::quiet_NaN());
        mark_registers(fibers[l], other.d, count * sizeof(float), mine.place, number);
        if (!other.a_registers) continue;
        memcpy(part.a[l], other.a_registers, sizeof part.a[l]);
        mark_registers(fibers[l], other.a_registers, sizeof part.a[l], mine.place, number);
    }
    worker.counters.tensor_flops += 2ull * 16 * unsigned(it.shape.n) * unsigned(it.shape.k);
}

void wgmma_check_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes,
                            int swizzle_bytes, const char *file, int line) {
    if (!current_worker) return;  // a descriptor made on the host, by a test
    std::string why;
    if (swizzle_bytes != 0 && swizzle_bytes != 32 && swizzle_bytes != 64 && swizzle_bytes != 128)
        why = format("swizzle of %d bytes: it is 0, 32, 64 or 128", swizzle_bytes);
    else if (address % 16)
        why = format(
            "address 0x%x, %s: it must be a multiple of 16 bytes", address,
            describe_address(*current_worker, uintptr_t(current_worker->shared.base) + address).c_str());
    else if (leading_bytes % 16 || stride_bytes % 16)
        why = format("leading offset %u and stride %u bytes: they must be multiples of 16", leading_bytes,
                     stride_bytes);
    if (!why.empty()) stop_block(cudaErrorLaunchFailure, "wgmma_descriptor: " + why, place_of(file, line));
}

void wgmma_issue(const WgmmaShape &shape, float *d, const uint32_t *a_registers, uint64_t a_descriptor,
                 uint64_t b_descriptor, const char *file, int line) {
    WgmmaArgument argument{&shape, d, a_registers, a_descriptor, b_descriptor, place_of(file, line)};
    warp_collective("wgmma", 0xffffffffu, issue, &argument, file, line);
}

// ---- Fence, commit, wait ----

static void nothing(void *const *, unsigned) {}

void wgmma_fence(const char *file, int line) {
    warp_collective("wgmma.fence", 0xffffffffu, nothing, nullptr, file, line);
    current_worker->current->wgmma_fenced = true;
}

void wgmma_commit(const char *file, int line) {
    uintptr_t place = place_of(file, line);
    warp_collective(
        "wgmma.commit_group", 0xffffffffu,
        [](void *const lane[32], unsigned mask) {
            Worker &worker = *current_worker;
            uintptr_t where = *static_cast<const uintptr_t *>(lane[__builtin_ctz(mask)]);
            WgmmaQueue &queue = queue_of(worker, "wgmma.commit_group", where);
            int w = worker.current->warp % warps_in_group;
            Group &group = queue.group(queue.filling[w]);
            if (queue.issued[w] != group.operations.size())
                stop_block(
                    cudaErrorLaunchFailure,
                    format(
                        "wgmma.commit_group: warp %d has issued %zu wgmma in this group, and another warp of "
                        "its warpgroup %zu: all four execute the same",
                        worker.current->warp, queue.issued[w], group.operations.size()),
                    where);
            group.committed |= 1u << w;
            group.time = std::max(group.time, time_now(worker));
            queue.filling[w]++;
            queue.issued[w] = 0;
            if (group.committed != 15) return;
            Steps steps = 0;
            for (const auto &it : group.operations) steps += Steps(it->shape.n / 2);
            group.end = product_end(worker, group.time, steps);
            for (int thread : queue.waiters) make_ready(worker, thread);
            queue.waiters.clear();
        },
        &place, file, line);
}

// All four warps have committed the group, and one waits for it.
static void compute(Worker &worker, Group &group, uint32_t number) {
    group.computed = true;
    std::vector<float> b(wgmma_b_floats);
    for (const auto &it : group.operations) {
        wgmma_decode_b(it->shape, worker.shared.base, it->b, b.data());
        for (int w = 0; w < warps_in_group; w++) {
            Operation::Part &part = it->part[w];
            float *d[warp_size];
            for (size_t l = 0; l < warp_size; l++) d[l] = &part.sums->value[l * part.sums->count];
            wgmma_warp(it->shape, w, worker.shared.base, it->a, it->shape.a_in_registers ? part.a : nullptr,
                       b.data(), d);
        }
        for (uint32_t chunk : it->chunks) {
            remove_async_read(worker, chunk, 16);
            if (worker.sanitizing)
                worker.races.async_done(engine_of(worker), number + 1, it->place, chunk, 16, false);
        }
        worker.counters.bytes[1][0] += it->chunks.size() * 16;
    }
}

// Gives one lane what the groups before `target` have made of its registers.
static void give_back(WgmmaQueue &queue, Fiber &me, int w, uint32_t target) {
    auto &live = queue.live[w];
    for (size_t i = 0; i < live.size(); i++) {
        Accumulator &it = *live[i];
        if (it.last_group >= target || it.given_back >> me.lane & 1) continue;
        memcpy(it.d[me.lane], &it.value[size_t(me.lane) * it.count], it.count * sizeof(float));
        it.given_back |= 1u << me.lane;
        if (it.given_back == 0xffffffffu) live.erase(live.begin() + long(i--));
    }
    for (BusyRegisters &it : me.registers)
        if (it.group < target) it.in_flight = false;
}

void wgmma_wait(int pending, const char *file, int line) {
    warp_collective("wgmma.wait_group", 0xffffffffu, nothing, nullptr, file, line);
    Worker &worker = *current_worker;
    Fiber &me = *worker.current;
    WgmmaQueue &queue = queue_of(worker, "wgmma.wait_group", place_of(file, line));
    int w = me.warp % warps_in_group;
    uint32_t filled = queue.filling[w], target = filled > uint32_t(pending) ? filled - uint32_t(pending) : 0;
    for (uint32_t number = std::max(queue.waited[w], queue.first); number < target; number++) {
        while (queue.group(number).committed != 15) {
            me.collective_mask = 0;
            me.wait = WaitPoint{
                "wgmma.wait_group, for the other warps of the warpgroup,", file, line, -1, nullptr, -1};
            queue.waiters.push_back(me.thread);
            wait_for_others(worker);
            me.wait = WaitPoint();
        }
        if (!queue.group(number).computed) compute(worker, queue.group(number), number);
        wait_until(worker, me, queue.group(number).end);
    }
    give_back(queue, me, w, target);
    if (worker.sanitizing) worker.races.learn_engine(me.thread, engine_of(worker), target);
    // The warp's last lane has it all: what all four warps have waited for is forgotten.
    warp_collective("wgmma.wait_group", 0xffffffffu, nothing, nullptr, file, line);
    queue.waited[w] = std::max(queue.waited[w], target);
    uint32_t done = *std::min_element(queue.waited, queue.waited + warps_in_group);
    while (queue.first < done) {
        queue.groups.pop_front();
        queue.first++;
    }
}

// ---- Checks ----

void check_registers(Worker &worker, const char *pointer, size_t bytes, bool write, uintptr_t pc) {
    Fiber &me = *worker.current;
    for (const BusyRegisters &it : me.registers) {
        if (pointer + bytes <= it.from || it.from + it.bytes <= pointer) continue;
        if (it.in_flight) {
            const WgmmaQueue &queue = *worker.async.wgmma[size_t(me.warp / warps_in_group)];
            bool committed = it.group < queue.filling[me.warp % warps_in_group];
            stop_block(
                cudaErrorLaunchFailure,
                format("registers of a wgmma in flight: %s of %zu bytes that the wgmma issued at %s still "
                       "uses; %s",
                       write ? "write" : "read", bytes, source_position(it.place).c_str(),
                       committed ? "a wgmma_wait for its group comes first"
                                 : "no wgmma_commit came after it, so that no wgmma_wait waits for it"),
                pc);
        }
        if (write) me.wgmma_fenced = false;
    }
}

std::string describe_wgmma_reader(Worker &worker, size_t offset) {
    for (const auto &queue : worker.async.wgmma) {
        if (!queue) continue;
        for (const Group &group : queue->groups)
            for (const auto &it : group.operations)
                if (!group.computed &&
                    std::find(it->chunks.begin(), it->chunks.end(), offset) != it->chunks.end())
                    return "the wgmma issued at " + source_position(it->place);
    }
    return "";
}

std::string describe_unfinished_wgmma(Worker &worker, int &thread) {
    for (size_t i = 0; i < worker.async.wgmma.size(); i++) {
        const auto &queue = worker.async.wgmma[i];
        if (!queue) continue;
        for (const Group &group : queue->groups)
            for (const auto &it : group.operations)
                if (!group.computed) {
                    thread = int(i) * warps_in_group * warp_size;
                    return format(
                        "the block ends while the wgmma issued at %s by warpgroup %zu is in flight; "
                        "wgmma_commit and wgmma_wait<0> come first",
                        source_position(it->place).c_str(), i);
                }
    }
    return "";
}

}  // namespace simt
