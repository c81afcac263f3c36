// shared.cpp - the shared memory of the block that a worker runs: one window of addresses, as on the GPU.
//
// Dynamic shared memory starts at offset 0, static variables follow in the order in which threads first reach
// their declarations. A red zone after each variable makes an index that leaves one array an error instead of
// a hit in its neighbour; it is a whole row of the 32 banks, so that offsets keep their banks.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "internal.h"

namespace simt {

static size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

static void *reserve(size_t bytes) {
    void *memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) stop_without_memory("for shared memory");
    return memory;
}

SharedMemory::SharedMemory()
    : base(static_cast<char *>(reserve(window_bytes))), state(static_cast<uint8_t *>(reserve(window_bytes))) {
}

SharedMemory::~SharedMemory() {
    munmap(base, window_bytes);
    munmap(state, window_bytes);
}

void SharedMemory::begin_block(size_t dynamic, size_t limit) {
    memset(state, memory_outside, used_bytes);
    memset(state, memory_unwritten, dynamic);
    memset(base, 0xff, dynamic);  // NaN in every type, for whoever looks with a debugger
    dynamic_bytes = dynamic;
    static_bytes = 0;
    limit_bytes = limit;
    used_bytes = dynamic;
    variables.clear();
    if (dynamic) variables.push_back({nullptr, "the dynamic shared memory", 0, dynamic});
}

void *SharedMemory::variable(const void *site, const char *name, size_t bytes, size_t alignment) {
    for (const SharedVariable &it : variables)
        if (it.site == site) return base + it.offset;
    size_t offset = round_up(used_bytes + red_zone_bytes, std::max(alignment, red_zone_bytes));
    static_bytes = round_up(static_bytes, alignment) + bytes;
    if (static_bytes > shared_default_bytes)
        stop_block(cudaErrorInvalidValue,
                   format("the kernel's __shared__ variables take %zu bytes up to '%s', and nvcc accepts at "
                          "most %zu: use "
                          "dynamic shared memory with cudaFuncAttributeMaxDynamicSharedMemorySize",
                          static_bytes, name, shared_default_bytes));
    if (static_bytes + dynamic_bytes > limit_bytes)
        stop_block(cudaErrorInvalidValue, format("%zu bytes of __shared__ variables and %zu of dynamic "
                                                 "shared memory pass the %zu that the kernel "
                                                 "may use",
                                                 static_bytes, dynamic_bytes, limit_bytes));
    used_bytes = offset + bytes;
    memset(state + offset, memory_unwritten, bytes);
    memset(base + offset, 0xff, bytes);
    variables.push_back({site, name, offset, bytes});
    return base + offset;
}

void *SharedMemory::dynamic(const char *name) {
    // The name is the kernel's for that memory; better in messages than ours.
    if (dynamic_bytes) variables[0].name = name;
    return base;
}

const SharedVariable *SharedMemory::find_nearest(size_t offset) const {
    const SharedVariable *nearest = nullptr;
    for (const SharedVariable &it : variables)
        if (it.offset <= offset && (!nearest || it.offset > nearest->offset)) nearest = &it;
    return nearest;
}

void *shared_variable(const void *site, const char *name, size_t bytes, size_t alignment, const char *, int) {
    return current_worker->shared.variable(site, name, bytes, alignment);
}

void *dynamic_shared(const char *name, const char *, int) { return current_worker->shared.dynamic(name); }

uint32_t shared_address(const void *pointer) {
    const char *base = current_worker->shared.base;
    const char *it = static_cast<const char *>(pointer);
    if (it < base || it >= base + SharedMemory::window_bytes)
        stop_block(cudaErrorIllegalAddress,
                   "the address handed to an instruction on shared memory is not in shared memory");
    return uint32_t(it - base);
}

void *shared_pointer(uint32_t address) { return current_worker->shared.base + address; }

bool is_shared(const void *pointer) {
    return size_t(static_cast<const char *>(pointer) - current_worker->shared.base) <
           SharedMemory::window_bytes;
}

}  // namespace simt
