// simt_device.h - the device language on the CPU: qualifiers, built-in variables, launches, barriers and warp
// functions.
//
// simt-rewrite (../rewrite.c) turns the three things that C++ cannot say into the forms defined here, and
// nothing else:
//     kernel<<<grid, block>>>(a, b)      ->  kernel<<simt::Config(grid, block)(a, b)
//     __global__ void k(...) {           ->  __global__ void k(...) { SIMT_KERNEL("k", launch bounds);
//     __shared__ float tile[32][33];     ->  a reference into the block's shared memory (SIMT_SHARED)
// Each CUDA thread is a fiber of its own, so device code runs as it is written. Semantics follow the CUDA C++
// Programming Guide, sections "C++ Language Extensions" (synchronisation, shuffles, votes, launch bounds).
#ifndef SIMT_DEVICE_H
#define SIMT_DEVICE_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_runtime_api.h"
#include "vector_types.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)  // simt-rewrite hands its arguments to SIMT_KERNEL
#define __grid_constant__
#define __constant__ static
#define __restrict__ __restrict
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __managed__

// Functions of the backend itself must not be instrumented: their memory is not the kernel's.
#define SIMT_HIDDEN __attribute__((no_sanitize("thread")))
// Where a kernel called something; default arguments are evaluated at the call.
#define SIMT_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()
// The same and where on the line; 0: the compiler cannot tell.
#if defined(__clang__)
#define SIMT_HERE_EXACTLY SIMT_HERE, int column = __builtin_COLUMN()
#else
#define SIMT_HERE_EXACTLY SIMT_HERE, int column = 0
#endif

constexpr int warpSize = 32;

namespace simt {

struct ThreadIndex {
    uint3 threadIdx, blockIdx;
    dim3 blockDim, gridDim;
};

// The running thread's indices. Outside of a kernel: zeros. By value, because what they live in is not the
// kernel's memory; const, because they never change while a thread lives, and noexcept, so that unused ones
// cost nothing.
#define SIMT_CONSTANT __attribute__((const))
SIMT_CONSTANT uint3 thread_in_block() noexcept;
SIMT_CONSTANT uint3 block_in_grid() noexcept;
SIMT_CONSTANT dim3 block_size() noexcept;
SIMT_CONSTANT dim3 grid_size() noexcept;

// First statement of every kernel. `max_threads` is the kernel's __launch_bounds__, 0 if it has none.
void kernel_entry(const char *name, const char *file, int line, int max_threads = 0, int min_blocks = 0,
                  int max_cluster = 0);

// The block's copy of one __shared__ variable; the same for all threads of a block. `site` tells variables
// apart.
void *shared_variable(const void *site, const char *name, size_t bytes, size_t alignment, const char *file,
                      int line);
void *dynamic_shared(const char *name, const char *file, int line);

template <class T> char shared_site = 0;
template <class T> SIMT_HIDDEN inline T &shared(const char *name, SIMT_HERE) {
    return *static_cast<T *>(shared_variable(&shared_site<T>, name, sizeof(T), alignof(T), file, line));
}

// 32-bit addresses in the block's shared memory window, as PTX instructions take them.
uint32_t shared_address(const void *pointer);
void *shared_pointer(uint32_t address);

// ---- Launch ----

struct Launch {
    dim3 grid, block;
    size_t dynamic_shared_bytes;
    const char *file;
    int line;
    const void *kernel;
    void (*body)(void *closure);
    void *closure;  // the arguments, in host memory that the kernel may read
    size_t closure_bytes;
    cudaStream_t stream;
    bool dependent;  // may begin before the launch before it has ended: see ptx/grid.h
    // For a graph, which keeps arguments: a copy of a closure, and its end.
    void *(*copy)(const void *closure);
    void (*drop)(void *closure);
};
void launch(const Launch &what);

template <class... Arguments> struct BoundLaunch;

struct Config {
    dim3 grid, block;
    size_t dynamic_shared_bytes;
    const char *file;
    int line;
    cudaStream_t stream;
    bool dependent = false;
    Config(dim3 grid, dim3 block, size_t dynamic_shared_bytes = 0, cudaStream_t stream = nullptr, SIMT_HERE)
        : grid(grid), block(block), dynamic_shared_bytes(dynamic_shared_bytes), file(file), line(line),
          stream(stream) {}
    template <class... Arguments> BoundLaunch<Arguments...> operator()(Arguments... arguments) const;
};

template <class... Arguments> struct BoundLaunch {
    const Config &config;
    std::tuple<Arguments...> arguments;
};

template <class... Arguments> BoundLaunch<Arguments...> Config::operator()(Arguments... arguments) const {
    return {*this, std::tuple<Arguments...>(arguments...)};
}

// kernel<<Config(...)(arguments): converts the arguments once, as a launch does, then runs the kernel in
// every thread.
template <class... Parameters, class... Arguments>
void operator<<(void (*kernel)(Parameters...), const BoundLaunch<Arguments...> &bound) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments), "kernel launch: wrong number of arguments");
    struct Closure {
        void (*kernel)(Parameters...);
        std::tuple<std::remove_cv_t<Parameters>...> arguments;
    } closure{kernel, std::tuple<std::remove_cv_t<Parameters>...>(bound.arguments)};
    Launch what{};
    what.grid = bound.config.grid;
    what.block = bound.config.block;
    what.dynamic_shared_bytes = bound.config.dynamic_shared_bytes;
    what.file = bound.config.file;
    what.line = bound.config.line;
    what.kernel = reinterpret_cast<const void *>(kernel);
    what.body = [](void *pointer) {
        auto *it = static_cast<Closure *>(pointer);
        std::apply(it->kernel, it->arguments);
    };
    what.closure = &closure;
    what.closure_bytes = sizeof closure;
    what.stream = bound.config.stream;
    what.dependent = bound.config.dependent;
    what.copy = [](const void *from) -> void * { return new Closure(*static_cast<const Closure *>(from)); };
    what.drop = [](void *pointer) { delete static_cast<Closure *>(pointer); };
    launch(what);
}

// What cudaLaunchKernelEx says of its launch.
cudaError_t add_attributes(const cudaLaunchAttribute *attributes, unsigned count, Config &config);
void griddepcontrol_wait();

// ---- Barriers and warp collectives ----

enum class BarrierVote { none, count, all, any };
// __syncthreads and its voting forms; returns the vote.
int block_barrier(BarrierVote vote, int predicate, const char *what, const char *file, int line, int column);
// bar.sync and bar.arrive: barrier `id` (0-15) for `threads` threads, a multiple of 32.
void named_barrier_sync(int id, int threads, const char *file, int line);
void named_barrier_arrive(int id, int threads, const char *file, int line);

// One warp-wide instruction. Every lane in `mask` calls it; the last to arrive runs `run` on all lanes'
// arguments (a null pointer for lanes that are not in the mask), then all go on.
using CollectiveBody = void (*)(void *const lane[32], unsigned mask);
void warp_collective(const char *what, unsigned mask, CollectiveBody run, void *argument, const char *file,
                     int line);

struct ShuffleArgument {
    uint64_t value, result;
    int selector, width;
};
void shuffle_index(void *const lane[32], unsigned mask);
void shuffle_up(void *const lane[32], unsigned mask);
void shuffle_down(void *const lane[32], unsigned mask);
void shuffle_xor(void *const lane[32], unsigned mask);
void vote_ballot(void *const lane[32], unsigned mask);
void match_any(void *const lane[32], unsigned mask);
void reduce_add(void *const lane[32], unsigned mask);
void reduce_min(void *const lane[32], unsigned mask);
void reduce_max(void *const lane[32], unsigned mask);
void reduce_min_signed(void *const lane[32], unsigned mask);
void reduce_max_signed(void *const lane[32], unsigned mask);
void reduce_and(void *const lane[32], unsigned mask);
void reduce_or(void *const lane[32], unsigned mask);
void reduce_xor(void *const lane[32], unsigned mask);

template <class T>
SIMT_HIDDEN inline T collective(const char *what, unsigned mask, CollectiveBody run, T value, int selector,
                                int width, const char *file, int line) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_destructible<T>::value,
                  "at most 8 bytes go through a warp");
    ShuffleArgument argument{0, 0, selector, width};
    __builtin_memcpy(&argument.value, &value, sizeof value);
    warp_collective(what, mask, run, &argument, file, line);
    T result = value;
    __builtin_memcpy(static_cast<void *>(&result), &argument.result, sizeof result);
    return result;
}

unsigned active_mask();
long long clock_ticks();
unsigned long long global_timer();
unsigned long long thread_time();  // of a traced launch: ../thread_time.h
unsigned multiprocessor();
[[noreturn]] void trap(const char *file, int line);
bool is_shared(const void *pointer);
bool is_global(const void *pointer);

}  // namespace simt

using simt::operator<<;

namespace simt {

// A built-in variable for code that simt-rewrite does not see as a kernel or device function: headers,
// operator(), functions for both host and device. Reads as the unsigned numbers that it has as members.
template <class Vector, Vector (*current)()> struct BuiltinIndex {
    struct X {
        operator unsigned() const { return current().x; }
    } x;
    struct Y {
        operator unsigned() const { return current().y; }
    } y;
    struct Z {
        operator unsigned() const { return current().z; }
    } z;
    operator Vector() const { return current(); }
};

}  // namespace simt

constexpr simt::BuiltinIndex<uint3, simt::thread_in_block> threadIdx{};
constexpr simt::BuiltinIndex<uint3, simt::block_in_grid> blockIdx{};
constexpr simt::BuiltinIndex<dim3, simt::block_size> blockDim{};
constexpr simt::BuiltinIndex<dim3, simt::grid_size> gridDim{};

// In kernels and device functions they are locals, so that a debugger sees them.
#define SIMT_BUILTINS                                                                                        \
    __attribute__((unused)) const uint3 threadIdx = simt::thread_in_block();                                 \
    __attribute__((unused)) const uint3 blockIdx = simt::block_in_grid();                                    \
    __attribute__((unused)) const dim3 blockDim = simt::block_size();                                        \
    __attribute__((unused)) const dim3 gridDim = simt::grid_size()
#define SIMT_KERNEL(name, ...)                                                                               \
    SIMT_BUILTINS;                                                                                           \
    simt::kernel_entry(name, __FILE__, __LINE__, ##__VA_ARGS__)

__forceinline__ void __syncthreads(SIMT_HERE_EXACTLY) {
    simt::block_barrier(simt::BarrierVote::none, 0, "__syncthreads", file, line, column);
}
__forceinline__ int __syncthreads_count(int predicate, SIMT_HERE_EXACTLY) {
    return simt::block_barrier(simt::BarrierVote::count, predicate, "__syncthreads_count", file, line,
                               column);
}
__forceinline__ int __syncthreads_and(int predicate, SIMT_HERE_EXACTLY) {
    return simt::block_barrier(simt::BarrierVote::all, predicate, "__syncthreads_and", file, line, column);
}
__forceinline__ int __syncthreads_or(int predicate, SIMT_HERE_EXACTLY) {
    return simt::block_barrier(simt::BarrierVote::any, predicate, "__syncthreads_or", file, line, column);
}
SIMT_HIDDEN inline void __syncwarp(unsigned mask = 0xffffffffu, SIMT_HERE) {
    simt::warp_collective("__syncwarp", mask, nullptr, nullptr, file, line);
}

#define SIMT_SHUFFLE(function, body)                                                                         \
    template <class T>                                                                                       \
    SIMT_HIDDEN inline T function(unsigned mask, T value, int selector, int width = 32, SIMT_HERE) {         \
        return simt::collective(#function, mask, simt::body, value, selector, width, file, line);            \
    }
SIMT_SHUFFLE(__shfl_sync, shuffle_index)
SIMT_SHUFFLE(__shfl_up_sync, shuffle_up)
SIMT_SHUFFLE(__shfl_down_sync, shuffle_down)
SIMT_SHUFFLE(__shfl_xor_sync, shuffle_xor)
#undef SIMT_SHUFFLE

SIMT_HIDDEN inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_HERE) {
    return simt::collective<unsigned>("__ballot_sync", mask, simt::vote_ballot, predicate != 0, 0, 32, file,
                                      line);
}
SIMT_HIDDEN inline int __any_sync(unsigned mask, int predicate, SIMT_HERE) {
    return simt::collective<unsigned>("__any_sync", mask, simt::vote_ballot, predicate != 0, 0, 32, file,
                                      line) != 0;
}
SIMT_HIDDEN inline int __all_sync(unsigned mask, int predicate, SIMT_HERE) {
    return simt::collective<unsigned>("__all_sync", mask, simt::vote_ballot, predicate == 0, 0, 32, file,
                                      line) == 0;
}
template <class T> SIMT_HIDDEN inline unsigned __match_any_sync(unsigned mask, T value, SIMT_HERE) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return static_cast<unsigned>(
        simt::collective<uint64_t>("__match_any_sync", mask, simt::match_any, bits, 0, 32, file, line));
}

#define SIMT_REDUCE(function, type, body)                                                                    \
    SIMT_HIDDEN inline type function(unsigned mask, type value, SIMT_HERE) {                                 \
        return simt::collective<type>(#function, mask, simt::body, value, 0, 32, file, line);                \
    }
SIMT_REDUCE(__reduce_add_sync, unsigned, reduce_add)
SIMT_REDUCE(__reduce_add_sync, int, reduce_add)
SIMT_REDUCE(__reduce_min_sync, unsigned, reduce_min)
SIMT_REDUCE(__reduce_min_sync, int, reduce_min_signed)
SIMT_REDUCE(__reduce_max_sync, unsigned, reduce_max)
SIMT_REDUCE(__reduce_max_sync, int, reduce_max_signed)
SIMT_REDUCE(__reduce_and_sync, unsigned, reduce_and)
SIMT_REDUCE(__reduce_or_sync, unsigned, reduce_or)
SIMT_REDUCE(__reduce_xor_sync, unsigned, reduce_xor)
#undef SIMT_REDUCE

inline unsigned __activemask() { return simt::active_mask(); }
inline long long clock64() { return simt::clock_ticks(); }
inline void __nanosleep(unsigned) {}
inline void __trap(SIMT_HERE) { simt::trap(file, line); }
SIMT_HIDDEN inline size_t __cvta_generic_to_shared(const void *pointer) {
    return simt::shared_address(pointer);
}
inline unsigned __isShared(const void *pointer) { return simt::is_shared(pointer); }
inline unsigned __isGlobal(const void *pointer) { return simt::is_global(pointer); }
template <class T> inline T __ldg(const T *pointer) { return *pointer; }
template <class T> inline T __ldca(const T *pointer) { return *pointer; }
template <class T> inline T __ldcg(const T *pointer) { return *pointer; }
template <class T> inline T __ldcs(const T *pointer) { return *pointer; }
template <class T> inline void __stcs(T *pointer, T value) { *pointer = value; }
template <class T> inline void __stcg(T *pointer, T value) { *pointer = value; }

// ---- Runtime functions that C++ code calls with templates and default arguments ----

extern "C" {
cudaError_t simt_malloc(void **pointer, size_t bytes);
cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel);
}
template <class T> inline cudaError_t cudaMalloc(T **pointer, size_t bytes) {
    return simt_malloc(reinterpret_cast<void **>(pointer), bytes);
}
// __constant__ variables are ordinary ones here, which kernels may only read.
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T &symbol, const void *source, size_t bytes, size_t offset = 0,
                                      enum cudaMemcpyKind = cudaMemcpyHostToDevice) {
    if (offset > sizeof symbol || bytes > sizeof symbol - offset) return cudaErrorInvalidValue;
    memcpy(reinterpret_cast<char *>(const_cast<std::remove_const_t<T> *>(&symbol)) + offset, source, bytes);
    return cudaSuccess;
}
template <class... Parameters>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), enum cudaFuncAttribute attribute,
                                        int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}
template <class... Parameters>
inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes,
                                         void (*kernel)(Parameters...)) {
    return cudaFuncGetAttributes(attributes, reinterpret_cast<const void *>(kernel));
}

typedef struct cudaLaunchConfig_st {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
} cudaLaunchConfig_t;
namespace simt {
// The configuration, and the line that launches.
struct ConfigHere {
    const cudaLaunchConfig_t *config;
    const char *file;
    int line;
    ConfigHere(const cudaLaunchConfig_t *config, SIMT_HERE) : config(config), file(file), line(line) {}
};
}  // namespace simt
template <class... Parameters, class... Arguments>
inline cudaError_t cudaLaunchKernelEx(simt::ConfigHere how, void (*kernel)(Parameters...),
                                      Arguments... arguments) {
    const cudaLaunchConfig_t &it = *how.config;
    simt::Config config(it.gridDim, it.blockDim, it.dynamicSmemBytes, it.stream, how.file, how.line);
    cudaError_t error = simt::add_attributes(it.attrs, it.numAttrs, config);
    if (error != cudaSuccess) return error;
    kernel << config(arguments...);
    return cudaPeekAtLastError();
}

#include "simt_atomics.h"
#include "simt_math.h"

#endif
