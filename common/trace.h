// trace.h - a timeline measured inside a kernel (--trace FILE): when which role of a block did what.
//
// A role is a part of the block with code of its own, such as the producer warp or a consumer warpgroup. One
// thread of it marks where a phase begins; the phase ends where the next one begins:
//
//     template <bool TRACE> __global__ void kernel(const struct attention a) {
//         tracer<TRACE> trace = trace_begin<TRACE>(a.trace, CONSUMER_0, threadIdx.x % 128 == 0);
//         for (...) {
//             trace_mark(&trace, WAIT_K);
//             mbarrier_wait(full, parity);
//             trace_mark(&trace, PRODUCTS);
//             ...
//         }
//         trace_end(&trace);
//
// with launch<false> and launch<true> in the lab's table of kernels (launch and launch_traced, lab.h) and the
// names of roles and phases beside it:
//
//     enum { PRODUCER, CONSUMER_0 };
//     enum { WAIT_K, PRODUCTS };
//     static const struct trace_names names = {{"producer", "consumer 0"}, {"wait K", "products"}};
//
// Without TRACE all of it compiles to nothing. With it a mark costs one reading of the clock and one
// predicated store of 8 bytes, without a branch and with one register between marks; still it is not free,
// so that a traced launch is a little slower than a timed one, and needs registers that a kernel at its limit
// may not have. A mark before `wgmma` is issued or behind its wait disturbs nothing; between the two it
// orders what it stands between, too.
//
// Each role of each of the first blocks owns a track, an array in global memory: no atomics, and no role
// waits for another. A track keeps its first TRACE_EVENTS phases; how many more there were is counted, up to
// 65535.
#ifndef TRACE_H
#define TRACE_H

#include <stdint.h>

enum {
    TRACE_BLOCKS = 2,     // the first blocks of the grid (x fastest): more would be the same picture again
    TRACE_TRACKS = 8,     // roles of a block
    TRACE_PHASES = 16,    // names
    TRACE_EVENTS = 1024,  // phases of a track
};

// What the numbers stand for; unused names are null pointers.
struct trace_names {
    const char *track[TRACE_TRACKS];
    const char *phase[TRACE_PHASES];
    int head_dim_max;  // launch_traced is for head_dim up to this; 0: for all that launch is for
};

// A phase begins: `time` is what sm_clock says (ptx/time.h), its low 32 bits, `phase` numbers its name.
struct trace_event {
    uint32_t time, phase;
};

// What one role of one block leaves. All zero: it never began. Stamps by sm_clock and global_timer.
struct trace_track {
    uint64_t first_time, first_ns;  // of trace_begin
    uint64_t last_time, last_ns;    // of trace_end; 0: it never came
    uint64_t marks;                 // known at trace_end: also those that found no place, up to 65535
    uint64_t multiprocessor;
    struct trace_event event[TRACE_EVENTS];
};

// What struct attention points to: [block][track].
struct trace {
    struct trace_track track[TRACE_BLOCKS][TRACE_TRACKS];
};

#if defined(__CUDACC__) || (defined(SIMT_CPU) && defined(__cplusplus))
#include "ptx.h"

// A role's place in the trace, kept in registers; nothing if the kernel is not traced.
template <bool TRACE> struct tracer {};
template <> struct tracer<true> {
    struct trace *trace;
    // One register for kernels that have none left: in the high half the number of the track, in the low half
    // how many marks there were. TRACE_NOBODY: this thread marks nothing.
    uint32_t track_marks;
};
static constexpr uint32_t TRACE_MARKS_MAX = 0xffff, TRACE_NOBODY = 0xffffffff;

__device__ __forceinline__ uint32_t trace_marks(const tracer<true> *it) {
    return it->track_marks & TRACE_MARKS_MAX;
}
__device__ __forceinline__ struct trace_track *trace_track_of(const tracer<true> *it) {
    return &it->trace->track[0][0] + (it->track_marks >> 16);
}

// The role begins. All its threads may call this and what follows; `leader` is true in the one that marks.
template <bool TRACE>
__device__ __forceinline__ tracer<TRACE> trace_begin(struct trace *trace, int track, bool leader) {
    if constexpr (!TRACE) {
        return {};
    } else {
        uint64_t block = blockIdx.x + (uint64_t)gridDim.x * (blockIdx.y + (uint64_t)gridDim.y * blockIdx.z);
        tracer<TRACE> it = {trace, TRACE_NOBODY};
        if (leader && trace && block < TRACE_BLOCKS) {
            it.track_marks = ((uint32_t)block * TRACE_TRACKS + track) << 16;
            struct trace_track *mine = trace_track_of(&it);
            mine->multiprocessor = sm_id();
            mine->first_ns = global_timer();
            mine->first_time = sm_clock();
        }
        return it;
    }
}

// The phase that number `phase` names begins, and the one before it ends.
template <bool TRACE> __device__ __forceinline__ void trace_mark(tracer<TRACE> *it, uint32_t phase) {
    if constexpr (TRACE) {
        uint32_t marks = trace_marks(it);
        // Where it is not kept, the address is none, and not used.
        struct trace_event *to = trace_track_of(it)->event + marks;
        store_if(marks < TRACE_EVENTS, (uint2 *)to, sm_clock_low(), phase);
        it->track_marks += marks < TRACE_MARKS_MAX;
    }
}

// The last phase ends.
template <bool TRACE> __device__ __forceinline__ void trace_end(tracer<TRACE> *it) {
    if constexpr (TRACE) {
        if (it->track_marks == TRACE_NOBODY) return;
        struct trace_track *mine = trace_track_of(it);
        mine->last_time = sm_clock();
        mine->last_ns = global_timer();
        mine->marks = trace_marks(it);
    }
}
#endif

#endif
