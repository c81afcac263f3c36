// settings.h - the command line of the grader.
#ifndef SETTINGS_H
#define SETTINGS_H

#include "common/message.h"

enum { MAX_LABS = 32 };

struct settings {
    const char *root, *tools, *gpu;  // from ./lab grade: the tree, and what it has built
    const char *submission, *all;    // one of them
    const char *hidden, *out;
    const char *json, *junit, *gradescope;
    const char *labs[MAX_LABS];  // as they were named: 2, 02, lab02 ...
    int lab_count;
    int jobs;
    int seconds;  // of CPU time for each run of a submission
};

// Returns 0, or -1 with a sentence: what is wrong, and what to do.
int settings_read(int argc, char **argv, struct settings *settings, struct message *why);

// 1 if the settings name this lab, or none.
int settings_choose(const struct settings *settings, const char *lab);

#endif
