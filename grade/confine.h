// confine.h - runs a program of someone else's, with limits and, where the system allows it, apart from the
// rest of the machine.
#ifndef CONFINE_H
#define CONFINE_H

#include <stddef.h>

#include "common/message.h"

// What keeps a run apart, as bits: which of them hold depends on the system and the user (README.md here).
enum apart {
    APART_NETWORK = 1 << 0,    // it has no network
    APART_PROCESSES = 1 << 1,  // it sees no processes but its own, and none of these outlives it
    APART_FILES = 1 << 2,      // it can write to its own folder only, and hidden folders are empty to it
    APART_USER = 1 << 3        // it runs as a user of its own (only if the grader is root)
};

struct limits {
    int cpu_seconds;       // of each process; 0: no limit, likewise below
    int wall_seconds;      // of the whole run; must be given
    int memory_mb;         // of addresses
    int file_mb;           // of each file
    int processes;         // only where the run is apart from other processes of the same user
    int confined;          // 1: kept apart; 0: a program of ours, of which the limits alone are wanted
    unsigned shared;       // bits of enum apart, not APART_USER: what it is not kept apart by all the same
    int slot;              // of confine_reserve
    const char *hide[4];   // folders that are empty to it; null: no more
    const char *writable;  // the one folder that it can write to
};

enum { OUTPUT_BYTES = 16384 };

struct outcome {
    int exit_code;              // -1 if it ended otherwise
    int signal;                 // that ended it, else 0
    int timed_out;              // the wall clock did
    unsigned apart;             // bits of enum apart
    double seconds;             // wall
    char output[OUTPUT_BYTES];  // the beginning of standard output and error together; a string
};

// Runs argv in `folder` with nothing but PATH, HOME and TMPDIR (both are the folder), LC_ALL and what a GPU
// program needs in its environment. Returns 0 and the outcome, whatever that is, or -1 with a sentence if it
// could not be started.
int confine_run(const char *const *argv, const char *folder, const struct limits *limits,
                struct outcome *outcome, struct message *why);

// "a crash (segmentation fault)", "more than 10 s of CPU time": what ended the run, for a sentence; an empty
// text if it ended by itself.
void confine_describe(const struct outcome *outcome, const struct limits *limits, char *text, size_t bytes);

// 1 if one of the limits on time ended it.
int confine_out_of_time(const struct outcome *outcome, const struct limits *limits);

// A number that no other process of the machine has until this one ends: the slot of all its runs. -1 if
// there is none left.
enum { CONFINE_SLOTS = 1000 };
int confine_reserve(void);

// The user that a confined run of that slot has if the grader is root.
unsigned confine_user(int slot);

#endif
