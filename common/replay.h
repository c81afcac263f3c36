// replay.h - how long a launch takes when the host has no part in it.
//
// A launch of a few microseconds takes less time than the host needs to ask for it, so that events round one
// time the host. Here a CUDA graph holds many launches, one behind the other, and its time is divided by
// their number. So that none finds K and V in the L2 cache, the launches take them from several copies in
// turn, together four times as large as that cache (but 256 copies at most). A plan (lab.h) is made once for
// all of them, as for the layers of a model.
#ifndef REPLAY_H
#define REPLAY_H

#include "case.h"
#include "timer.h"

// Times a kernel that enqueues on a.stream (FEATURE_GROWING). Its results are those of the last launch, for
// the caller to check. Returns 0; or -1 with a sentence, if the device has no memory for the copies.
int replay_measure(const struct device_case *c, const struct kernel *kernel, struct timing *timing,
                   struct message *why);

// Enqueues the kernel on a.stream, as one of several with the same lengths: the plan before the first.
void replay_enqueue(const struct kernel *kernel, struct attention a, int is_first);

// Ends the capture of a stream. Returns the graph, ready to be launched, and in *nodes (may be null) of how
// many nodes it is.
cudaGraphExec_t replay_end_capture(cudaStream_t stream, size_t *nodes);

// Bytes of K and V that a forward pass cannot but read: of all sequences that have queries. Reads cu_seqlens.
double kv_bytes(const struct attention *a);

#endif
