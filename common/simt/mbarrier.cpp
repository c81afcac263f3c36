// mbarrier.cpp - mbarriers and fences (PTX ISA, "mbarrier", "fence"); elect and setmaxnreg.
//
// The state of an mbarrier lives here and not in its 8 bytes, which are marked so that an ordinary access to
// them is an error. It is a phase counter, the arrivals that the phase still takes, and the bytes announced
// less the bytes landed.
#include <algorithm>
#include <cstring>

#include "include/simt_barrier.h"
#include "instruction.h"

namespace simt {

constexpr uint32_t most_arrivals = (1u << 20) - 1;
constexpr int64_t most_bytes = (1 << 20) - 1;
constexpr unsigned patience_of_polls = 1000000;

std::string describe_mbarrier(const Worker &worker, uint32_t offset) {
    auto found = worker.async.mbarriers.find(offset);
    if (found == worker.async.mbarriers.end()) return "";
    const Mbarrier &it = found->second;
    std::string text = format("phase %u, %u of %u arrivals to come", it.phase, it.pending, it.count);
    if (it.transfer > 0) text += format(", %lld announced bytes to land", (long long)it.transfer);
    if (it.transfer < 0)
        text += format(", %lld bytes landed that nobody announced (expect_tx)", -(long long)it.transfer);
    return text;
}

[[noreturn]] static void misuse(Worker &worker, const char *what, uint32_t bar, uintptr_t place,
                                const std::string &why) {
    std::string state = describe_mbarrier(worker, bar);
    stop_block(cudaErrorLaunchFailure,
               format("mbarrier misuse: %s on %s: %s%s%s%s", what,
                      describe_address(worker, uintptr_t(worker.shared.base) + bar).c_str(), why.c_str(),
                      state.empty() ? "" : " (", state.c_str(), state.empty() ? "" : ")"),
               place);
}

// The live mbarrier at this address. To the race detector its use is an atomic.
Mbarrier &use_mbarrier(Worker &worker, const char *what, uint32_t bar, uintptr_t place) {
    auto it = worker.async.mbarriers.find(bar);
    if (it == worker.async.mbarriers.end())
        misuse(worker, what, bar, place,
               "no mbarrier is alive there: one thread initialises it, then comes a barrier, and nobody uses "
               "it after mbarrier_inval");
    if (worker.sanitizing) {
        int me = worker.current->thread;
        if (worker.races.has_seen(me, it->second.made)) {
            worker.races.access(worker, me, place, bar, sizeof(uint64_t), true, true);
        } else {
            RaceAccess init{it->second.place, it->second.thread, worker.block, true, "init"},
                use{place, me, worker.block, true, "use"};
            report_race("no barrier between an mbarrier's init and its use, " +
                            describe_address(worker, uintptr_t(worker.shared.base) + bar),
                        use, init);
        }
    }
    return it->second;
}

// A phase that ends before a thread has come back from its wait for the one before has the parity for which
// that thread waits again: it would miss both. Here nobody ever is that late; on a GPU a warp may be.
static void check_returns(Worker &worker, uint32_t bar, Mbarrier &it, uintptr_t place) {
    for (const Mbarrier::Return &each : it.returns) {
        if (worker.races.tells_of(it.seen, each.when) ||
            worker.races.tells_of(it.seen, each.engine, each.product) ||
            worker.races.tells_of(it.seen, async_engines + each.warp, each.meeting))
            continue;
        RaceAccess end{place, RaceAccess::not_known, worker.block, true, "end of the next phase"},
            wait{each.place, each.when.thread, worker.block, false, "wait"};
        report_race("an mbarrier's next phase may end before a thread is back from its wait, and the thread "
                    "miss both, " +
                        describe_address(worker, uintptr_t(worker.shared.base) + bar),
                    end, wait);
    }
    it.returns.clear();
}

// Ends the phase if nothing is missing, and lets those go that wait for it.
static void try_phase(Worker &worker, uint32_t bar, Mbarrier &it, uintptr_t place) {
    if (it.pending || it.transfer) return;
    if (!it.returning.empty()) {
        const Fiber &late = worker.fibers[size_t(it.returning[0])];
        misuse(
            worker, "the end of a phase", bar, place,
            format(
                "thread %d has not come back yet from its wait for the phase before, at %s:%d, and on a GPU "
                "could now miss it and wait for ever: more arrivals come than the count says, or somebody "
                "arrives who should first have waited for that thread",
                late.thread, short_path(late.wait.file).c_str(), late.wait.line));
    }
    if (worker.sanitizing) check_returns(worker, bar, it, place);
    it.phase++;
    it.done_time = std::max(it.done_time, it.time);
    it.time = 0;
    it.pending = it.count;
    if (worker.sanitizing)
        worker.races.add_seen(it.seen, it.done);  // a later phase tells of the earlier ones
    it.done.swap(it.seen);
    it.seen.clear();
    for (int thread : it.waiters) make_ready(worker, thread);
    it.returning.swap(it.waiters);
    it.waiters.clear();
}

void mbarrier_init(uint32_t bar, uint32_t count, const char *file, int line) {
    Worker &worker = *current_worker;
    uintptr_t place = place_of(file, line);
    if (count < 1 || count > most_arrivals)
        misuse(worker, "init", bar, place,
               format("count %u: a phase takes 1 to %u arrivals", count, most_arrivals));
    auto before = worker.async.mbarriers.find(bar);
    if (before != worker.async.mbarriers.end())
        misuse(worker, "init", bar, place,
               format("thread %d has initialised it already, at %s: one thread does it, once (or "
                      "mbarrier_inval comes "
                      "first)",
                      before->second.thread, source_position(before->second.place).c_str()));
    touch_shared(worker, worker.current->thread, place, "mbarrier.init", bar, sizeof(uint64_t),
                 sizeof(uint64_t), true);
    memset(worker.shared.state + bar, memory_mbarrier, sizeof(uint64_t));
    Mbarrier &it = worker.async.mbarriers[bar];
    it.count = it.pending = count;
    it.place = place;
    it.thread = worker.current->thread;
    if (worker.sanitizing) it.made = worker.races.now(it.thread);
    it.fence_time = worker.async.fence_time;
    worker.async.used = true;
}

void mbarrier_inval(uint32_t bar, const char *file, int line) {
    Worker &worker = *current_worker;
    uintptr_t place = place_of(file, line);
    Mbarrier &it = use_mbarrier(worker, "inval", bar, place);
    if (!it.waiters.empty() || !it.events.empty() || it.transfer)
        misuse(worker, "inval", bar, place, "threads still wait for it, or copies will complete on it");
    worker.async.mbarriers.erase(bar);
    memset(worker.shared.state + bar, memory_unwritten, sizeof(uint64_t));
}

// `seen`: by the thread when it arrived, if that was earlier.
static void arrive(Worker &worker, uint32_t bar, Mbarrier &it, int thread, uintptr_t place, Steps time,
                   const std::vector<uint32_t> *seen = nullptr) {
    if (it.pending == 0)
        misuse(worker, "arrive", bar, place,
               "all arrivals of this phase have come, and only bytes are missing: one arrival too many, or "
               "one for the next phase that did not wait for the end of this one");
    it.pending--;
    it.time = std::max(it.time, time);
    if (worker.sanitizing && seen)
        worker.races.add_seen(it.seen, *seen);
    else if (worker.sanitizing)
        worker.races.add_to(it.seen, thread);
    try_phase(worker, bar, it, place);
}

void mbarrier_arrive(uint32_t bar, const char *file, int line) {
    Worker &worker = *current_worker;
    uintptr_t place = place_of(file, line);
    Mbarrier &it = use_mbarrier(worker, "arrive", bar, place);
    arrive(worker, bar, it, worker.current->thread, place, time_now(worker));
}

void mbarrier_expect_tx(uint32_t bar, uint32_t bytes, const char *file, int line) {
    Worker &worker = *current_worker;
    uintptr_t place = place_of(file, line);
    Mbarrier &it = use_mbarrier(worker, "expect_tx", bar, place);
    it.transfer += bytes;
    if (it.transfer > most_bytes)
        misuse(worker, "expect_tx", bar, place,
               format("a phase can wait for at most %lld bytes", (long long)most_bytes));
}

// A thread waits for a phase that has ended if the present one has the other parity.
static bool has_ended(const Mbarrier &it, uint32_t parity) { return (it.phase & 1) != (parity & 1); }

static void check_parity(Worker &worker, const char *what, uint32_t bar, uint32_t parity, uintptr_t place) {
    if (parity > 1)
        misuse(worker, what, bar, place,
               format("parity %u: it is 0 or 1 (the phase's number modulo 2)", parity));
}

static void come_back(Worker &worker, Mbarrier &it, uintptr_t place) {
    int me = worker.current->thread;
    wait_until(worker, *worker.current, it.done_time);
    if (!worker.sanitizing) return;
    worker.races.learn_from(it.done, me);
    int warp = worker.current->warp;
    Mbarrier::Return back{worker.races.now(me), -1, 0, warp, worker.warps[size_t(warp)].met + 1, place};
    next_product(worker, back.engine, back.product);
    it.returns.push_back(back);
}

void mbarrier_wait(uint32_t bar, uint32_t parity, const char *file, int line) {
    Worker &worker = *current_worker;
    Fiber &me = *worker.current;
    uintptr_t place = place_of(file, line);
    check_parity(worker, "wait", bar, parity, place);
    Mbarrier &it = use_mbarrier(worker, "wait", bar, place);
    if (!has_ended(it, parity)) {
        me.wait = WaitPoint{
            parity ? "mbarrier wait (parity 1)" : "mbarrier wait (parity 0)", file, line, -1, nullptr, bar};
        it.waiters.push_back(me.thread);
        wait_for_others(worker);
        me.wait = WaitPoint();
        it.returning.erase(std::find(it.returning.begin(), it.returning.end(), me.thread));
    }
    come_back(worker, it, place);
}

bool mbarrier_test(uint32_t bar, uint32_t parity, const char *file, int line) {
    Worker &worker = *current_worker;
    Fiber &me = *worker.current;
    uintptr_t place = place_of(file, line);
    check_parity(worker, "test", bar, parity, place);
    Mbarrier &it = use_mbarrier(worker, "test", bar, place);
    if (!has_ended(it, parity)) {
        // Others first; then what would happen by itself. A thread that polls while nothing can change any
        // more must not hang.
        let_others_run(worker);
        me.polls++;
        // A copy for this mbarrier, or else one for which a thread waits that this one waits for.
        if (!has_ended(it, parity) &&
            (me.polls > 2 * unsigned(worker.threads) || !others_are_ready(worker)) &&
            !land_a_copy(worker, bar))
            land_a_copy(worker);
        if (me.polls > patience_of_polls)
            misuse(worker, "test", bar, place,
                   format("polled %u times in vain, for parity %u", patience_of_polls, parity));
    }
    if (!has_ended(it, parity)) return false;
    me.polls = 0;
    come_back(worker, it, place);
    return true;
}

// All cp.async of the thread that have not landed, committed or not.
void cp_async_mbarrier_arrive(uint32_t bar, const char *file, int line) {
    Worker &worker = *current_worker;
    int thread = worker.current->thread;
    uintptr_t place = place_of(file, line);
    Mbarrier &it = use_mbarrier(worker, "cp.async arrive", bar, place);
    const CopyGroups &groups = worker.async.cp_async[size_t(thread)];
    Mbarrier::Event event{{}, thread, true, place, nullptr, time_now(worker)};
    for (const CopyGroup &group : groups.committed)
        event.copies.insert(event.copies.end(), group.begin(), group.end());
    event.copies.insert(event.copies.end(), groups.open.begin(), groups.open.end());
    if (worker.sanitizing) {
        event.seen = std::make_shared<std::vector<uint32_t>>();
        worker.races.add_to(*event.seen, thread);
        for (const auto &copy : event.copies)
            if (!copy->arrived) copy->arrived = event.seen;
    }
    it.events.push_back(event);
}

// One event of the mbarrier happens.
static void happen(Worker &worker, uint32_t bar, Mbarrier &it, size_t number) {
    Mbarrier::Event event = it.events[number];
    it.events.erase(it.events.begin() + long(number));
    for (const auto &copy : event.copies) {
        size_t bytes = land(worker, *copy);
        event.time = std::max(event.time, copy->end);
        if (event.arrives) continue;
        it.transfer -= int64_t(bytes);
        if (it.transfer < -most_bytes)
            misuse(worker, "a copy that lands", bar, copy->place,
                   format("a phase can take at most %lld bytes", (long long)most_bytes));
        if (worker.sanitizing) worker.races.add_engine_to(it.seen, copy->engine, copy->clock);
    }
    if (event.arrives)
        arrive(worker, bar, it, event.thread, event.place, event.time, event.seen.get());
    else
        it.time = std::max(it.time, event.time), try_phase(worker, bar, it, event.place);
}

bool land_a_copy(Worker &worker, int64_t only) {
    std::vector<std::pair<uint32_t, Mbarrier *>> wanted;
    for (auto &entry : worker.async.mbarriers) {
        bool waited_for = only < 0 ? !entry.second.waiters.empty() : int64_t(entry.first) == only;
        if (waited_for && !entry.second.events.empty()) wanted.emplace_back(entry.first, &entry.second);
    }
    if (wanted.empty()) return false;
    auto &chosen = wanted[random_below(worker, wanted.size())];
    happen(worker, chosen.first, *chosen.second, random_below(worker, chosen.second->events.size()));
    return true;
}

// ---- Fences ----

void fence_mbarrier_init() {
    Worker &worker = *current_worker;
    worker.async.mbarrier_fence[size_t(worker.current->thread)] = ++worker.async.fence_time;
}

void fence_proxy_async() {
    Worker &worker = *current_worker;
    fence_mbarrier_init();  // an mbarrier's init is an ordinary write as well
    if (worker.sanitizing) worker.races.fence(worker.current->thread);
}

void check_mbarrier_fence(Worker &worker, const Mbarrier &it, uint32_t bar, uintptr_t place) {
    if (!worker.sanitizing) return;
    int me = worker.current->thread;
    const std::vector<uint32_t> &fenced = worker.async.mbarrier_fence;
    if (std::max(fenced[size_t(it.thread)], fenced[size_t(me)]) > it.fence_time) return;
    RaceAccess init{it.place, it.thread, worker.block, true, "init"},
        use{place, me, worker.block, false, "copy issued"};
    report_race("missing fence_mbarrier_init between an mbarrier's init and a copy that completes on it, " +
                    describe_address(worker, uintptr_t(worker.shared.base) + bar),
                use, init);
}

// ---- Warp-specialised kernels ----

bool elect_one(const char *file, int line) {
    warp_collective(
        "elect.sync", 0xffffffffu, [](void *const *, unsigned) {}, nullptr, file, line);
    return current_worker->current->lane == 0;
}

// Checked only: a warp that takes more registers than its multiprocessor has would wait for ever.
void setmaxnreg(int registers, bool, const char *file, int line) {
    Worker &worker = *current_worker;
    warp_collective(
        "setmaxnreg", 0xffffffffu, [](void *const *, unsigned) {}, nullptr, file, line);
    constexpr int registers_of_a_multiprocessor = 65536;
    worker.async.used = true;  // the next block starts anew
    std::vector<int> &set = worker.async.registers;
    set[size_t(worker.current->warp)] = registers;
    long sum = 0;
    for (int it : set) {
        if (it == 0) return;  // not all warps have told yet
        sum += it * warp_size;
    }
    if (sum > registers_of_a_multiprocessor)
        stop_block(
            cudaErrorLaunchFailure,
            format("setmaxnreg %d: the block's warps then own %ld registers, and a multiprocessor has %d",
                   registers, sum, registers_of_a_multiprocessor),
            place_of(file, line));
}

}  // namespace simt
