// fold.h - branches that a kernel does not take.
#ifndef FOLD_H
#define FOLD_H

#include "kernel.h"

// Whether the expression of tokens first ... end - 1 is known, and its value: of the piece's parameters,
// constants, comparisons, !, && and ||.
int fold_value(const struct source *s, const struct piece *p, int first, int end, long *value);

// Marks as dead what the piece's parameters decide: conditions that are known, and the branches that are not
// taken.
void fold_piece(const struct source *s, struct piece *p);

#endif
