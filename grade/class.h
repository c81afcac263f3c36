// class.h - grading several labs of several submissions at the same time, in processes of their own, and
// going on where an earlier run was interrupted.
#ifndef CLASS_H
#define CLASS_H

#include "grader.h"
#include "report.h"

struct submission {
    char *name;  // its folder's
    char *path;
    char *blame;  // as struct grade's
    struct lab_result *labs;
};

struct class {
    const struct grader *grader;
    struct submission *submissions;
    int count;
    const char **labs;  // of the plan, each once
    int lab_count;
    int jobs;
    int failures;  // labs of submissions that could not be graded
};

// Grades what is not graded yet, and then has all results in submissions[].labs. Says how far it is on
// standard error. Returns 0, or -1 with a sentence if it cannot go on; a submission that cannot be graded is
// no such reason, but is blamed.
int class_run(struct class *class, struct message *why);

#endif
