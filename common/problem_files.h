// problem_files.h - the folder of .npy files that problem.h describes: reading. (Writing is declared there.)
#ifndef PROBLEM_FILES_H
#define PROBLEM_FILES_H

#include "compare.h"
#include "npy.h"
#include "problem.h"

// Reads the inputs q, k, v and, if the problem has a backward pass, do; that one may be missing and then has
// no data. Sets the shape of problem->host to theirs. Returns 0, or -1 with a sentence; either way the files
// are the caller's to free (files_free).
enum { INPUT_FILES = TENSOR_DO + 1 };
int files_read(const struct options *options, struct npy file[INPUT_FILES], struct problem *problem,
               struct message *why);
void files_free(struct npy file[INPUT_FILES]);

// Copies what was read into the tensors of problem->host, rounded to its type, and notes whether that changed
// it. Returns 0, or -1 with a sentence: a number would become infinite.
int files_copy(const struct options *options, const struct npy file[INPUT_FILES], struct problem *problem,
               struct message *why);

// 1 if the folder has NAME.npy.
int files_have(const char *folder, const char *name);

// Puts the examined rows of an array that the folder may hold, NAME.npy, in the place of the computed values,
// after a look at whether it can be the answer to these inputs at all: `as` says what shape it has (`like`
// that file's) and what it is held against. *roundoff gets half an ulp at 1 of its type. Returns 1 if it was
// taken, 0 if there is no such file, -1 with a sentence.
int files_take(const char *folder, const char *name, const char *like, const struct comparison *as,
               double *computed, double *roundoff, struct message *why);

#endif
