// symptoms.h - what wrong results usually mean. Each meaning is recognised by computing what that mistake
// would give, or where the wrong elements lie, and never by the size of an error alone.
#ifndef SYMPTOMS_H
#define SYMPTOMS_H

#include <stdio.h>

#include "common/problem.h"

// Prints a line "means: ..." for what is recognised in results first ... last of the problem, which are not
// all right; two lines at most: of the first wrong result, and that others are right.
void symptoms_print(FILE *out, const struct problem *problem, enum output first, enum output last,
                    enum quantised as);

#endif
