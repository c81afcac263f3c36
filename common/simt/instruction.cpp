// instruction.cpp - memory that instructions of ptx.h touch for a thread.
#include "instruction.h"

#include <cstring>

#include "async.h"

namespace simt {

static std::string operation(const char *what, size_t bytes, bool write) {
    return format("%s, %s of %zu bytes, ", what, write ? "write" : "read", bytes);
}

// Goes through the state of the bytes: none may be outside, in flight or an mbarrier; to read, all must have
// been written.
static void check_state(Worker &worker, const char *what, uintptr_t place, const char *pointer,
                        const uint8_t *state, size_t bytes, bool write) {
    for (size_t i = 0; i < bytes; i++) {
        if (state[i] == memory_written || (write && state[i] == memory_unwritten)) continue;
        uintptr_t address = uintptr_t(pointer + i);
        const char *kind = state[i] == memory_outside     ? "out of bounds"
                           : state[i] == memory_unwritten ? "unwritten memory"
                           : state[i] == memory_in_flight ? "bytes of a copy still in flight"
                                                          : "memory of an mbarrier";
        std::string text =
            std::string(kind) + ": " + operation(what, bytes, write) + describe_address(worker, address);
        if (state[i] == memory_in_flight || state[i] == memory_mbarrier)
            text += describe_in_flight(worker, address);
        stop_block(state[i] == memory_outside ? cudaErrorIllegalAddress : cudaErrorLaunchFailure, text,
                   place);
    }
}

void check_alignment(Worker &worker, const char *what, uintptr_t place, uint32_t address, size_t alignment) {
    if (address % alignment)
        stop_block(cudaErrorMisalignedAddress,
                   format("misaligned address: %s, %s, must be aligned to %zu bytes", what,
                          describe_address(worker, uintptr_t(worker.shared.base) + address).c_str(),
                          alignment),
                   place);
}

char *check_shared(Worker &worker, const char *what, uintptr_t place, uint32_t address, size_t bytes,
                   size_t alignment, bool write) {
    char *pointer = worker.shared.base + address;
    if (address >= SharedMemory::window_bytes || bytes > SharedMemory::window_bytes - address)
        stop_block(cudaErrorIllegalAddress,
                   format("invalid address: %s0x%x is not in shared memory",
                          operation(what, bytes, write).c_str(), address),
                   place);
    check_alignment(worker, what, place, address, alignment);
    check_state(worker, what, place, pointer, worker.shared.state + address, bytes, write);
    if (write) check_async_reads(worker, place, address, bytes);
    return pointer;
}

char *touch_shared(Worker &worker, int thread, uintptr_t place, const char *what, uint32_t address,
                   size_t bytes, size_t alignment, bool write) {
    char *pointer = check_shared(worker, what, place, address, bytes, alignment, write);
    if (write) memset(worker.shared.state + address, memory_written, bytes);
    worker.counters.bytes[1][write] += bytes;
    if (worker.sanitizing) worker.races.access(worker, thread, place, address, bytes, write, false);
    return pointer;
}

// The offset of an address in the arena, which must have this and `bytes - 1` more.
static size_t offset_in_arena(Worker &worker, uintptr_t place, const char *pointer, size_t bytes,
                              const std::string &what) {
    size_t offset = size_t(pointer - arena);
    if (offset >= arena_bytes || bytes > arena_bytes - offset)
        stop_block(cudaErrorIllegalAddress,
                   format("invalid address: %s%s, must be device memory", what.c_str(),
                          describe_address(worker, uintptr_t(pointer)).c_str()),
                   place);
    return offset;
}

void check_prefetch(Worker &worker, uintptr_t place, const char *what, const void *address, size_t bytes) {
    const char *pointer = static_cast<const char *>(address);
    std::string text = format("%s of %zu bytes, ", what, bytes);
    size_t offset = offset_in_arena(worker, place, pointer, bytes, text);
    const void *outside = memchr(arena_state + offset, memory_outside, bytes);
    if (!outside) return;
    size_t at = size_t(static_cast<const uint8_t *>(outside) - (arena_state + offset));
    stop_block(cudaErrorIllegalAddress,
               "out of bounds: " + text + describe_address(worker, uintptr_t(pointer + at)), place);
}

// The device memory at this address, of which `bytes` bytes will be touched; its offset in the arena.
static size_t check_global(Worker &worker, uintptr_t place, const char *what, const char *pointer,
                           size_t bytes, bool write) {
    size_t offset = offset_in_arena(worker, place, pointer, bytes, operation(what, bytes, write));
    check_state(worker, what, place, pointer, arena_state + offset, bytes, write);
    return offset;
}

char *touch_global(Worker &worker, int, uintptr_t place, const char *what, const void *address, size_t bytes,
                   size_t alignment, bool write) {
    char *pointer = const_cast<char *>(static_cast<const char *>(address));
    if (uintptr_t(pointer) % alignment)
        stop_block(cudaErrorMisalignedAddress,
                   format("misaligned address: %s%s, must be aligned to %zu bytes",
                          operation(what, bytes, write).c_str(),
                          describe_address(worker, uintptr_t(pointer)).c_str(), alignment),
                   place);
    size_t offset = check_global(worker, place, what, pointer, bytes, write);
    if (write) memset(arena_state + offset, memory_written, bytes);
    worker.counters.bytes[0][write] += bytes;
    if (worker.sanitizing) global_race_access(worker, place, offset, bytes, write);
    return pointer;
}

void touch_for_addition(Worker &worker, uintptr_t place, const char *what, void *address, size_t bytes) {
    size_t offset = check_global(worker, place, what, static_cast<char *>(address), bytes, false);
    worker.counters.bytes[0][0] += bytes;
    worker.counters.bytes[0][1] += bytes;
    if (worker.sanitizing) global_race_atomic(worker, offset);
}

}  // namespace simt
