// trace_file.h - the file of --trace: JSON in the Chrome trace-event format (object form), which
// chrome://tracing, ui.perfetto.dev and bench/timeline.py read.
//
// A process is a block of a kernel, a thread of it a role; a phase is a complete event ("ph": "X") with ts
// and dur in microseconds, counted for each kernel from where the first of its blocks began. On the cpu
// backend a unit is no microsecond but a step of the simulated threads (simt/thread_time.h), each block of
// the grid begins at 0, and no length is a measure of speed. otherData says which it is, and what was traced
// on what.
#ifndef TRACE_FILE_H
#define TRACE_FILE_H

#include <stdio.h>

#include "lab.h"
#include "message.h"
#include "trace.h"

struct report;

struct trace_file {
    FILE *out;
    const char *path;
    struct trace_summary {
        const char *kernel;
        int phases;      // in the file
        double dropped;  // phases that found no place in their track
        double clock_mhz;
    } * summary;
    int kernels, events;
};

// Whether this kernel can be traced at this head_dim; why not, if it cannot: "it marks no phases".
int trace_possible(const struct kernel *kernel, int head_dim, struct message *why);

// Opens the file for at most `max_kernels` kernels. Returns 0, or -1 with a sentence.
int trace_file_open(struct trace_file *file, const char *path, int max_kernels, struct message *why);

// Adds what a traced launch left. `clock_mhz` is the multiprocessors' frequency if the stamps cannot tell it
// (all of the launch fits between two ticks of the global timer); 0 on the cpu backend: a unit is a unit.
// Returns 0, or -1 with a sentence, and the file is as it was, if the trace is none: nothing was marked, a
// track did not end, or its times make no sense.
int trace_file_add(struct trace_file *file, const char *kernel, const struct trace *trace,
                   const struct trace_names *names, double clock_mhz, struct message *why);

// Writes what the report says of the run, and closes the file. Returns 0, or -1 with a sentence if it could
// not be written to its end.
int trace_file_close(struct trace_file *file, const struct report *report, struct message *why);

#endif
