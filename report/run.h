// run.h - what a lab wrote with --json: its kernels, and where it counted (--profile) or looked for races
// (--sanitize) the launches, the lines of the source and the pairs that raced.
#ifndef RUN_H
#define RUN_H

#include "common/message.h"

enum { MAX_KERNELS = 32, NAME = 64 };

// The columns of the annotated source.
enum column { BYTES, SECTORS, LOST, WAVEFRONTS, CONFLICTS, RACES, COLUMNS };

struct run_kernel {
    char name[NAME], adds[160], verdict[NAME], detail[600];
    double of_bound;  // the largest error, as a part of its bound, of all outputs; NaN: nothing was compared
    double workspace, memory, ms, tflops, percent_of_peak, intensity;  // NaN: not known
};

struct run_launch {
    int kernel, number;
    char function[NAME];
    const char *line;  // of the JSON: what was counted
};

struct run_race {
    char kernel[NAME], what[160], first[NAME], second[NAME];
};

struct run {
    char *text;
    char lab[NAME], backend[16], device[160], shape[400];
    struct run_kernel kernel[MAX_KERNELS];
    int kernels;
    struct run_launch *launch;
    int launches;
    struct run_race *race;
    int races;
    const char **line;  // objects of "lines", each one's kernel in line_kernel
    int *line_kernel;
    int lines;
};

// Reads the file. Returns 0, or -1 with a sentence.
int run_read(struct run *run, const char *path, struct message *why);
void run_free(struct run *run);

// The number of a kernel by its name; -1: the run has none of it.
int run_find(const struct run *run, const char *kernel);

// Adds what was counted at the lines of `file` (lab04_fa2.cu) to counts[kernel][line][COLUMNS], lines from 1
// to `lines`; kernels are those of `of`, in its order. Returns how many accesses lay in other files.
int run_add_counts(const struct run *run, const struct run *of, const char *file, int lines, double *counts);

#endif
