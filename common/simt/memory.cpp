// memory.cpp - device memory: one reserved range of addresses (the arena), handed out from its start and
// reused only when it runs out, so that a use after cudaFree is found. A byte of state for each byte tells
// allocated from not, and written from not yet written.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "internal.h"

namespace simt {

char *arena = nullptr;
uint8_t *arena_state = nullptr;
size_t arena_bytes = 0;

namespace {

constexpr size_t alignment = 256;
constexpr size_t red_zone = 4096;
constexpr size_t arena_start = 4096;
constexpr size_t far_away = size_t(1)
                            << 20;  // farther than this from a buffer, an address has nothing to do with it

struct Named {
    size_t bytes;
    const char *name;
};

std::mutex mutex;
std::map<size_t, size_t> allocations;  // offset -> bytes
std::map<size_t, Named> names;         // offset -> what simt_name_memory said
std::map<size_t, size_t> released;     // offset -> bytes with red zone, for reuse
size_t arena_top = arena_start;
size_t allocated_bytes = 0;

void *map_lazily(size_t bytes) {
    void *memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

// What the device can hold. Each byte costs the host another byte of state, and the host needs room for
// itself.
size_t device_bytes() {
    static const size_t total = [] {
        unsigned long long available = 0;
        if (FILE *file = fopen("/proc/meminfo", "r")) {
            char text[128];
            while (fgets(text, sizeof text, file))
                if (sscanf(text, "MemAvailable: %llu kB", &available) == 1) break;
            fclose(file);
            available *= 1024;
        }
        if (!available)
            available =
                (unsigned long long)sysconf(_SC_PHYS_PAGES) * (unsigned long long)sysconf(_SC_PAGESIZE) / 2;
        if (FILE *file = fopen("/sys/fs/cgroup/memory.max", "r")) {
            unsigned long long limit = 0;
            if (fscanf(file, "%llu", &limit) == 1 && limit < available) available = limit;
            fclose(file);
        }
        return size_t(available / 20 * 9) / alignment * alignment;
    }();
    return total;
}

size_t take_range(size_t bytes) {
    if (arena_top + bytes <= arena_bytes) {
        size_t offset = arena_top;
        arena_top += bytes;
        return offset;
    }
    for (auto it = released.begin(); it != released.end(); ++it) {
        if (it->second < bytes) continue;
        size_t offset = it->first, rest = it->second - bytes;
        released.erase(it);
        if (rest) released[offset + bytes] = rest;
        return offset;
    }
    return 0;
}

void release_range(size_t offset, size_t bytes) {
    auto next = released.lower_bound(offset);
    if (next != released.end() && offset + bytes == next->first) {
        bytes += next->second;
        next = released.erase(next);
    }
    if (next != released.begin()) {
        auto before = std::prev(next);
        if (before->first + before->second == offset) {
            before->second += bytes;
            return;
        }
    }
    released[offset] = bytes;
}

// Drops whole pages, so that freed memory is the host's again; the rest is cleared by hand.
void drop(char *from, size_t bytes) {
    uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE)), begin = reinterpret_cast<uintptr_t>(from),
              end = begin + bytes;
    uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
    if (first < last) {
        madvise(reinterpret_cast<void *>(first), last - first, MADV_DONTNEED);
        memset(from, 0, first - begin);
        memset(reinterpret_cast<void *>(last), 0, end - last);
    } else {
        memset(from, 0, bytes);
    }
}

// The allocation that holds [pointer, pointer + bytes), as an offset; 0 if there is none.
bool inside_allocation(const void *pointer, size_t bytes) {
    size_t offset = size_t(static_cast<const char *>(pointer) - arena);
    auto it = allocations.upper_bound(offset);
    if (it == allocations.begin()) return false;
    --it;
    return offset <= it->first + it->second && bytes <= it->first + it->second - offset;
}

bool in_arena(const void *pointer) {
    return arena && size_t(static_cast<const char *>(pointer) - arena) < arena_bytes;
}

// Whether one side of a copy may be read or written by the runtime: host memory always, device memory inside
// one allocation only.
bool valid_side(const void *pointer, size_t bytes, bool must_be_device) {
    if (in_arena(pointer)) return inside_allocation(pointer, bytes);
    return !must_be_device && pointer;
}

}  // namespace

bool arena_ready() {
    if (arena) return true;
    // As much as the machine lets us reserve; SIMT_ARENA_MB sets it, to test what happens when it runs out.
    const char *wanted = getenv("SIMT_ARENA_MB");
    size_t most = wanted && atoi(wanted) > 0 ? size_t(atoi(wanted)) << 20 : size_t(1) << 38;
    for (size_t bytes = most; bytes >= size_t(1) << 20; bytes >>= 1) {
        void *memory = map_lazily(bytes), *state = memory ? map_lazily(bytes) : nullptr;
        if (state) {
            arena_state = static_cast<uint8_t *>(state);
            arena_bytes = bytes;
            arena = static_cast<char *>(memory);
            return true;
        }
        if (memory) munmap(memory, bytes);
    }
    return false;
}

size_t arena_used() { return arena_top; }

bool is_global(const void *pointer) { return in_arena(pointer); }

static std::string describe_device_address(size_t offset) {
    std::lock_guard<std::mutex> lock(mutex);
    const std::pair<const size_t, Named> *nearest = nullptr;
    size_t distance = far_away;
    for (const auto &it : names) {
        size_t from = it.first, to = from + it.second.bytes;
        size_t away = offset < from ? from - offset : offset >= to ? offset - to + 1 : 0;
        if (away < distance) nearest = &it, distance = away;
    }
    if (nearest) {
        size_t from = nearest->first, bytes = nearest->second.bytes;
        const char *name = nearest->second.name;
        if (offset < from)
            return format("%zu bytes before the start of %s (%zu bytes)", from - offset, name, bytes);
        if (offset >= from + bytes)
            return format("%zu bytes past the end of %s (%zu bytes)", offset - from - bytes, name, bytes);
        return format("byte %zu of %s (%zu bytes)", offset - from, name, bytes);
    }
    auto it = allocations.upper_bound(offset);
    if (it != allocations.begin()) {
        --it;
        if (offset < it->first + it->second)
            return format("byte %zu of an allocation of %zu bytes", offset - it->first, it->second);
        if (offset - it->first - it->second < far_away)
            return format("%zu bytes past the end of an allocation of %zu bytes",
                          offset - it->first - it->second, it->second);
    }
    return "device memory that is not allocated (freed, or never there)";
}

std::string describe_address(const Worker &worker, uintptr_t address) {
    if (in_arena(reinterpret_cast<void *>(address)))
        return describe_device_address(address - uintptr_t(arena));
    size_t shared = address - uintptr_t(worker.shared.base);
    if (shared < SharedMemory::window_bytes) {
        const SharedVariable *nearest = worker.shared.find_nearest(shared);
        if (!nearest) return format("byte %zu of shared memory, where the block has no variable", shared);
        size_t inside = shared - nearest->offset;
        if (inside < nearest->bytes)
            return format("byte %zu of shared '%s' (%zu bytes)", inside, nearest->name, nearest->bytes);
        return format("%zu bytes past the end of shared '%s' (%zu bytes)", inside - nearest->bytes,
                      nearest->name, nearest->bytes);
    }
    if (address < 65536)
        return format("a null pointer%s", address ? format(" plus %zu bytes", size_t(address)).c_str() : "");
    return "host memory, which a kernel cannot reach";
}

}  // namespace simt

using namespace simt;

extern "C" {

cudaError_t simt_malloc(void **pointer, size_t bytes) {
    if (!pointer) return set_error(cudaErrorInvalidValue, false), cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    std::lock_guard<std::mutex> lock(mutex);
    size_t rounded = (bytes + alignment - 1) / alignment * alignment + red_zone, offset = 0;
    if (bytes < (size_t(1) << 60) && arena_ready() && bytes + allocated_bytes <= device_bytes())
        offset = take_range(rounded);
    if (!offset) return set_error(cudaErrorMemoryAllocation, false), cudaErrorMemoryAllocation;
    allocations[offset] = bytes;
    allocated_bytes += bytes;
    *pointer = arena + offset;
    memset(arena_state + offset, memory_unwritten, bytes);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes) { return simt_malloc(pointer, bytes); }  // for C callers

cudaError_t cudaFree(void *pointer) {
    if (!pointer) return cudaSuccess;
    std::lock_guard<std::mutex> lock(mutex);
    size_t offset = size_t(static_cast<char *>(pointer) - arena);
    auto it = in_arena(pointer) ? allocations.find(offset) : allocations.end();
    if (it == allocations.end()) return set_error(cudaErrorInvalidValue, false), cudaErrorInvalidValue;
    size_t bytes = it->second, rounded = (bytes + alignment - 1) / alignment * alignment + red_zone;
    allocations.erase(it);
    names.erase(names.lower_bound(offset), names.lower_bound(offset + rounded));
    allocated_bytes -= bytes;
    drop(arena + offset, bytes);
    drop(reinterpret_cast<char *>(arena_state) + offset, bytes);
    release_range(offset, rounded);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    if (free_bytes) *free_bytes = device_bytes() - allocated_bytes;
    if (total_bytes) *total_bytes = device_bytes();
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
    *pointer = malloc(bytes ? bytes : 1);
    return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *pointer) {
    free(pointer);
    return cudaSuccess;
}

static cudaError_t copy(void *destination, const void *source, size_t bytes, enum cudaMemcpyKind kind) {
    if (sticky_error() != cudaSuccess) return sticky_error();
    if (bytes == 0) return cudaSuccess;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    std::lock_guard<std::mutex> lock(mutex);
    if (!valid_side(destination, bytes, to_device) || !valid_side(source, bytes, from_device))
        return set_error(cudaErrorInvalidValue, false), cudaErrorInvalidValue;
    memmove(destination, source, bytes);
    if (in_arena(destination))
        memset(arena_state + (static_cast<char *>(destination) - arena), memory_written, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return do_or_keep(stream, [=] { return copy(destination, source, bytes, kind); });
}

cudaError_t cudaMemcpy(void *destination, const void *source, size_t bytes, enum cudaMemcpyKind kind) {
    return cudaMemcpyAsync(destination, source, bytes, kind, nullptr);
}

static cudaError_t set(void *pointer, int value, size_t bytes) {
    if (sticky_error() != cudaSuccess) return sticky_error();
    if (bytes == 0) return cudaSuccess;
    std::lock_guard<std::mutex> lock(mutex);
    if (!valid_side(pointer, bytes, true))
        return set_error(cudaErrorInvalidValue, false), cudaErrorInvalidValue;
    memset(pointer, value, bytes);
    memset(arena_state + (static_cast<char *>(pointer) - arena), memory_written, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream) {
    return do_or_keep(stream, [=] { return set(pointer, value, bytes); });
}

cudaError_t cudaMemset(void *pointer, int value, size_t bytes) {
    return cudaMemsetAsync(pointer, value, bytes, nullptr);
}

void simt_mark_unwritten(void *pointer, size_t bytes) {
    if (in_arena(pointer))
        memset(arena_state + (static_cast<char *>(pointer) - arena), memory_unwritten, bytes);
}

void simt_mark_guard(void *pointer, size_t bytes) {
    if (in_arena(pointer))
        memset(arena_state + (static_cast<char *>(pointer) - arena), memory_outside, bytes);
}

void simt_name_memory(const void *pointer, size_t bytes, const char *name) {
    if (!in_arena(pointer)) return;
    std::lock_guard<std::mutex> lock(mutex);
    names[size_t(static_cast<const char *>(pointer) - arena)] = {bytes, name};
}

}  // extern "C"
