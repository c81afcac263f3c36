// hooks.cpp - every plain memory access of a kernel comes through here, and with --profile every basic block.
//
// The kernels are compiled with -fsanitize=thread, which puts a call to a __tsan_ function before each load
// and store; these are our own instead of that library's. An access must lie in device memory, in the block's
// shared memory, on the thread's own stack (local memory), or in constants, and a read must find memory that
// somebody has written. -fsanitize-coverage=trace-pc makes it call __sanitizer_cov_trace_pc in each basic
// block: see flops.cpp.
#include <cstring>

#include "internal.h"

extern "C" char __executable_start, end;  // linker symbols: the program's code and data

#define PC reinterpret_cast<uintptr_t>(__builtin_return_address(0))

namespace simt {

[[noreturn]] static void stop_access(Worker &worker, const void *pointer, size_t bytes, bool write,
                                     const char *what, cudaError_t error, uintptr_t pc) {
    uintptr_t where = reinterpret_cast<uintptr_t>(pointer);
    std::string copy;
    if (where - uintptr_t(worker.shared.base) < SharedMemory::window_bytes)
        copy = describe_in_flight(worker, where);
    stop_block(error,
               format("%s: %s of %zu bytes, %s%s", what, write ? "write" : "read", bytes,
                      describe_address(worker, where).c_str(), copy.c_str()),
               pc);
}

// Whether all `size` bytes of state are memory_written: one comparison for the usual sizes.
template <size_t size> static inline bool all_written(const uint8_t *state) {
    if constexpr (size == 16)
        return all_written<8>(state) && all_written<8>(state + 8);
    else {
        uint64_t value = 0;
        memcpy(&value, state, size);
        return value == (0x0202020202020202ull & (~0ull >> (64 - 8 * size)));
    }
}

// The first byte that is outside or, for a read, unwritten stops the block; a write makes the rest written.
//
// A wide read may be the copy of a struct, whose padding nobody writes. So of an access wider than a word, a
// word counts as written if any of its bytes is; and the copy of a range (`words` is false) needs only some
// that are.
static __attribute__((noinline)) void check_bytes(Worker &worker, const char *pointer, uint8_t *state,
                                                  size_t bytes, bool write, uintptr_t pc, bool words = true) {
    size_t unit = !words ? bytes : bytes > 4 ? 4 : 1;
    for (size_t from = 0; from < bytes; from += unit) {
        bool written = false;
        for (size_t i = from; i < std::min(from + unit, bytes); i++) {
            if (state[i] == memory_outside)
                stop_access(worker, pointer + i, bytes, write, "out of bounds", cudaErrorIllegalAddress, pc);
            if (state[i] == memory_in_flight)
                stop_access(worker, pointer + i, bytes, write, "bytes of a copy still in flight",
                            cudaErrorLaunchFailure, pc);
            if (state[i] == memory_mbarrier)
                stop_access(worker, pointer + i, bytes, write, "memory of an mbarrier",
                            cudaErrorLaunchFailure, pc);
            written |= state[i] == memory_written;
        }
        if (!write && !written)
            stop_access(worker, pointer + from, bytes, write, "unwritten memory", cudaErrorLaunchFailure, pc);
    }
    if (write) memset(state, memory_written, bytes);
}

// Everything that is neither device nor shared memory nor the thread's own.
static __attribute__((noinline)) void check_other(Worker &worker, const char *pointer, size_t bytes,
                                                  bool write, uintptr_t pc) {
    if (size_t(pointer - worker.stacks) < size_t(worker.threads) * stack_bytes)
        stop_access(worker, pointer, bytes, write, "local memory of another thread", cudaErrorIllegalAddress,
                    pc);
    if (pointer >= &__executable_start && pointer < &end) {
        if (!write) return;  // __constant__ memory and the program's own tables
        stop_access(worker, pointer, bytes, write, "constant memory", cudaErrorIllegalAddress, pc);
    }
    const Launch &launch = *worker.launch->what;
    if (size_t(pointer - static_cast<char *>(launch.closure)) < launch.closure_bytes && !write) return;
    stop_access(worker, pointer, bytes, write, "invalid address", cudaErrorIllegalAddress, pc);
}

static __attribute__((noinline)) void check_order(Worker &worker, uintptr_t pc, size_t offset, size_t bytes,
                                                  bool write, bool is_shared) {
    if (is_shared)
        worker.races.access(worker, worker.current->thread, pc, offset, bytes, write, false);
    else
        global_race_access(worker, pc, offset, bytes, write);
}

static inline void count_access(Worker &worker, uintptr_t pc, size_t offset, unsigned bytes, bool write,
                                bool is_shared) {
    AccessKind kind = write ? AccessKind::store : AccessKind::load;
    worker.traffic.access(worker, {pc, nullptr, 0, bytes, kind, is_shared}, offset);
}

// Whether the running thread's own stack holds the address: local memory.
static inline bool is_local(const Worker &worker, const char *pointer) {
    return size_t(pointer - worker.current->stack) < stack_bytes;
}

// All that an access may need besides the fast path below.
template <size_t size, bool write, bool aligned>
static __attribute__((noinline)) void access_in_full(Worker &worker, const char *pointer, uintptr_t pc) {
    size_t global = size_t(pointer - arena), shared = size_t(pointer - worker.shared.base);
    bool is_shared = shared < SharedMemory::window_bytes;
    if (!is_shared && global >= arena_bytes) return check_other(worker, pointer, size, write, pc);
    if (aligned && size > 1 && uintptr_t(pointer) % size)
        stop_access(worker, pointer, size, write, "misaligned address", cudaErrorMisalignedAddress, pc);
    worker.counters.bytes[is_shared][write] += size;
    uint8_t *state = is_shared ? worker.shared.state + shared : arena_state + global;
    if (!all_written<size>(state)) check_bytes(worker, pointer, state, size, write, pc);
    if (write && is_shared && worker.async.reads_in_flight) check_async_reads(worker, pc, shared, size);
    if (worker.profiling) count_access(worker, pc, is_shared ? shared : global, size, write, is_shared);
    if (worker.sanitizing) check_order(worker, pc, is_shared ? shared : global, size, write, is_shared);
}

// Nearly all accesses: aligned, to memory that was written before, and nobody wants to know more. What is
// called at the end of it is the only call, so that it needs no stack: half the time.
template <size_t size, bool write, bool aligned>
static inline void access(const void *address, uintptr_t pc) {
    Worker *worker = current_worker;
    if (!worker) return;  // host code
    const char *pointer = static_cast<const char *>(address);
    if (is_local(*worker, pointer)) {
        if (!worker->current->registers.empty()) check_registers(*worker, pointer, size, write, pc);
        return;
    }
    worker->last_access.store(pc, std::memory_order_relaxed);
    size_t global = size_t(pointer - arena), shared = size_t(pointer - worker->shared.base);
    bool is_shared = shared < SharedMemory::window_bytes;
    const uint8_t *state = is_shared ? worker->shared.state + shared : arena_state + global;
    if ((!is_shared && global >= arena_bytes) || (aligned && uintptr_t(pointer) % size) ||
        worker->profiling || worker->sanitizing || (write && worker->async.reads_in_flight) ||
        !all_written<size>(state))
        return access_in_full<size, write, aligned>(*worker, pointer, pc);
    worker->counters.bytes[is_shared][write] += size;
}

static void access_range(const void *address, size_t bytes, bool write, uintptr_t pc) {
    Worker *worker = current_worker;
    if (!worker || bytes == 0) return;
    const char *pointer = static_cast<const char *>(address);
    if (is_local(*worker, pointer)) {
        if (!worker->current->registers.empty()) check_registers(*worker, pointer, bytes, write, pc);
        return;
    }
    size_t global = size_t(pointer - arena), shared = size_t(pointer - worker->shared.base);
    bool is_shared = shared < SharedMemory::window_bytes;
    if (!is_shared && global >= arena_bytes) return check_other(*worker, pointer, bytes, write, pc);
    worker->counters.bytes[is_shared][write] += bytes;
    check_bytes(*worker, pointer, is_shared ? worker->shared.state + shared : arena_state + global, bytes,
                write, pc, false);
    if (write && is_shared && worker->async.reads_in_flight) check_async_reads(*worker, pc, shared, bytes);
    if (worker->sanitizing) check_order(*worker, pc, is_shared ? shared : global, bytes, write, is_shared);
    for (size_t at = 0; worker->profiling && at < bytes;
         at += 16)  // a struct is copied in pieces of 16 bytes
        count_access(*worker, pc, (is_shared ? shared : global) + at,
                     unsigned(std::min<size_t>(16, bytes - at)), write, is_shared);
}

// clang's -fsanitize=thread omits accesses to local arrays whose address it believes to know everything
// about, so that registers of a wgmma would be touched unseen. Its
// -fsanitize-coverage=trace-loads,trace-stores omits none.
static inline void local_access(const void *address, size_t bytes, bool write, uintptr_t pc) {
    if (!wgmma_has_registers) return;
    Worker *worker = current_worker;
    const char *pointer = static_cast<const char *>(address);
    if (worker && !worker->current->registers.empty() && is_local(*worker, pointer))
        check_registers(*worker, pointer, bytes, write, pc);
}

// An atomic reads and writes; it is named by file and line, since it is called from the kernel directly.
void atomic_access(const void *address, size_t bytes, const char *file, int line) {
    Worker *worker = current_worker;
    if (!worker) return;
    const char *pointer = static_cast<const char *>(address);
    size_t global = size_t(pointer - arena), shared = size_t(pointer - worker->shared.base);
    bool is_shared = shared < SharedMemory::window_bytes;
    std::string where = " at " + short_path(file) + ":" + std::to_string(line);
    if (!is_shared && global >= arena_bytes)
        stop_block(cudaErrorIllegalAddress,
                   format("invalid address: atomic of %zu bytes%s, %s", bytes, where.c_str(),
                          describe_address(*worker, uintptr_t(pointer)).c_str()));
    if (uintptr_t(pointer) % bytes)
        stop_block(cudaErrorMisalignedAddress,
                   format("misaligned address: atomic of %zu bytes%s, %s", bytes, where.c_str(),
                          describe_address(*worker, uintptr_t(pointer)).c_str()));
    worker->counters.bytes[is_shared][0] += bytes;
    worker->counters.bytes[is_shared][1] += bytes;
    uint8_t *state = is_shared ? worker->shared.state + shared : arena_state + global;
    for (size_t i = 0; i < bytes; i++)
        if (state[i] != memory_written)
            stop_block(state[i] == memory_outside ? cudaErrorIllegalAddress : cudaErrorLaunchFailure,
                       format("%s: atomic of %zu bytes%s, %s",
                              state[i] == memory_outside ? "out of bounds" : "unwritten memory", bytes,
                              where.c_str(), describe_address(*worker, uintptr_t(pointer + i)).c_str()));
    if (worker->profiling)
        worker->traffic.access(*worker, {0, file, line, unsigned(bytes), AccessKind::atomic, is_shared},
                               is_shared ? shared : global);
    if (worker->sanitizing && is_shared)
        worker->races.access(*worker, worker->current->thread, PC, shared, bytes, true, true);
    else if (worker->sanitizing)
        global_race_atomic(*worker, global);
}

}  // namespace simt

#define HOOKS(size)                                                                                          \
    void __sanitizer_cov_load##size(void *p) { simt::local_access(p, size, false, PC); }                     \
    void __sanitizer_cov_store##size(void *p) { simt::local_access(p, size, true, PC); }                     \
    void __tsan_read##size(void *p) { simt::access<size, false, true>(p, PC); }                              \
    void __tsan_write##size(void *p) { simt::access<size, true, true>(p, PC); }                              \
    void __tsan_volatile_read##size(void *p) { simt::access<size, false, true>(p, PC); }                     \
    void __tsan_volatile_write##size(void *p) { simt::access<size, true, true>(p, PC); }                     \
    void __tsan_unaligned_read##size(void *p) { simt::access<size, false, false>(p, PC); }                   \
    void __tsan_unaligned_write##size(void *p) { simt::access<size, true, false>(p, PC); }                   \
    void __tsan_unaligned_volatile_read##size(void *p) { simt::access<size, false, false>(p, PC); }          \
    void __tsan_unaligned_volatile_write##size(void *p) { simt::access<size, true, false>(p, PC); }          \
    void __tsan_read_write##size(void *p) {                                                                  \
        simt::access<size, false, true>(p, PC);                                                              \
        simt::access<size, true, true>(p, PC);                                                               \
    }                                                                                                        \
    void __tsan_unaligned_read_write##size(void *p) {                                                        \
        simt::access<size, false, false>(p, PC);                                                             \
        simt::access<size, true, false>(p, PC);                                                              \
    }

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *p, unsigned long bytes) { simt::access_range(p, bytes, false, PC); }
void __tsan_write_range(void *p, unsigned long bytes) { simt::access_range(p, bytes, true, PC); }
void __sanitizer_cov_trace_pc() {
    if (simt::BlockCounters *counters = simt::block_counters) counters->count(PC);
}
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void *__tsan_memcpy(void *to, const void *from, unsigned long bytes) {
    simt::access_range(from, bytes, false, PC);
    simt::access_range(to, bytes, true, PC);
    return memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, unsigned long bytes) {
    simt::access_range(from, bytes, false, PC);
    simt::access_range(to, bytes, true, PC);
    return memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int value, unsigned long bytes) {
    simt::access_range(to, bytes, true, PC);
    return memset(to, value, bytes);
}
}
