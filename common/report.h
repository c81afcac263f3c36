// report.h - what a run prints, and writes for other programs to read.
#ifndef REPORT_H
#define REPORT_H

#include <stdio.h>

#include "backward.h"
#include "compare.h"
#include "device.h"
#include "options.h"
#include "profile.h"
#include "timer.h"

struct trace_file;  // trace_file.h

// Two accesses that raced (--sanitize on the cpu backend), as "file:line", and how.
struct race_lines {
    char what[128], first[64], second[64];
};
enum { MAX_RACE_LINES = 40 };

// What became of one kernel (in a sweep: at one length).
struct result {
    const char *kernel, *adds;
    int seqlen;        // keys
    double workspace;  // bytes
    double memory;     // bytes of inputs, outputs and workspace
    double growth;     // bytes that a second launch took of the device's memory and kept; 0: none, or no such
                       // launch
    char refused[600];     // why it did not run; empty: it ran
    enum verdict verdict;  // of everything; `detail` has a sentence unless it is VERDICT_RIGHT
    char detail[600];
    struct race_lines races[MAX_RACE_LINES];  // those that there is room for
    int race_count;
    int backward;  // it is a backward kernel; o and lse are those of its forward pass
    struct finding o, lse, gradient[GRADIENTS];
    enum quantised
        quantised;  // how the kernel quantises: then the plain implementation of o and lse does, too
    double o_unquantised_rmse;  // of O by the plain implementation that does not, if the kernel does
    struct timing timing;
    double tflops;         // visible pairs only; 0 if not timed
    struct timing replay;  // by a CUDA graph (replay.h), of kernels that can be captured
    double kv_bytes;       // of K and V, which such a launch reads
    int64_t blocks;        // of its launch, if its table says so; else 0
};

struct report {
    const struct lab *lab;
    const struct options *options;
    const struct device *device;
    struct attention shape;   // of the run; its pointers are not looked at
    double peak_tflops;       // of the storage type; 0: not known
    double peak_e4m3_tflops;  // what kernels that quantise are held against
    struct result *results;
    int count;
    struct profile *profiles;  // of the kernels that were profiled (--profile)
    int profile_count;
    struct trace_file *trace;  // where traced launches go (--trace); null: nowhere
};

// The device's peak for that kernel; 0: not known.
static inline double report_peak(const struct report *report, enum quantised quantised) {
    return quantised == QUANTISED_NOT ? report->peak_tflops : report->peak_e4m3_tflops;
}

// Takes every error and bound out of a result, as long as nothing was compared.
void result_clear(struct result *result);

// 1 if the run is a refusal as a whole: no kernel ran, or one that the user named did not. (In a sweep, "does
// not fit" is a result.)
int report_is_refusal(const struct report *report);

// The line that says what was understood: shape, type, inputs, device. Printed before anything runs.
void report_print_configuration(FILE *out, const struct report *report);

// The table of kernels, with root mean square errors of O if one of them quantises, with times after --bench,
// and a line for each that did not run or is not right.
void report_print_table(FILE *out, const struct report *report);

// The table of --sweep: N, kernel, memory, time, "does not fit".
void report_print_sweep(FILE *out, const struct report *report);

// The shape alone, as a JSON object.
void report_write_shape(FILE *out, const struct report *report);

// The same as JSON: an object with the configuration and "kernels", one kernel's object on each line;
// with --sanitize "races" besides (cpu backend), with --profile what profile.h writes. Numbers that JSON has
// no word for (NaN, infinity) are null. Returns 0, or -1 if the file could not be written.
int report_write_json(FILE *out, const struct report *report);

#endif
