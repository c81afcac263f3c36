// markers.h - the tasks of a lab: which lines of its solution a student writes.
//
// In the lab's .cu a task stands between two comment lines:
//
//     // BEGIN SOLUTION name: a hint, in one sentence
//     float sum = 0.0f;
//     for (int c = 0; c < head_dim; c++) sum += q[c] * k[c];
//     // STUB float sum = 0.0f;
//     // END SOLUTION
//
// STUB lines are what the starter has instead, so that it compiles without a warning and is wrong:
//
//     // TODO name: a hint, in one sentence
//     float sum = 0.0f;
//     // END TODO
#ifndef MARKERS_H
#define MARKERS_H

#include <stddef.h>
#include <stdio.h>

#include "common/message.h"

enum { MOST_TASKS = 16, TASK_NAME_BYTES = 40, TASK_HINT_BYTES = 120 };

struct task {
    char name[TASK_NAME_BYTES];  // a lower-case letter, then letters, digits and _
    char hint[TASK_HINT_BYTES];
    int is_solved;    // between BEGIN SOLUTION and END SOLUTION; else between TODO and END TODO
    int first, last;  // the lines of the two markers, counted from 0
};

struct line {
    const char *text;  // not terminated
    size_t bytes;      // with the end of the line, where it has one
};

struct marked_file {
    const char *path;
    char *text;
    struct line *lines;
    int line_count;
    struct task tasks[MOST_TASKS];  // in the order of the file
    int task_count;
};

// Reads a file and finds its tasks. Returns 0, or -1 and says why: no such file, or markers that are nested,
// left open, written in another way, twice of one name, or with nothing between them.
int read_marked(const char *path, struct marked_file *file, struct message *why);
void free_marked(struct marked_file *file);

const struct task *find_task(const struct marked_file *file, const char *name);  // NULL: there is none

// The file with the tasks that wanted[] marks, or all where it is NULL, replaced by TODO and their stubs.
int write_starter(const struct marked_file *lab, const int *wanted, FILE *out);

// The solved tasks with their markers, one behind the other: a file that read_marked reads.
int write_solutions(const struct marked_file *lab, FILE *out);

// The starter with each task that `solutions` has put in its place. Whatever stood there is gone.
int write_solved(const struct marked_file *starter, const struct marked_file *solutions, FILE *out);

#endif
