// kernel.h - what one kernel of a lab is made of, each piece with what it does not use left out.
#ifndef KERNEL_H
#define KERNEL_H

#include "source.h"

// A line of a piece that is left: its tokens with one space between, to compare; as it is shown, with its
// comment if nothing was left out of it; and the comment lines above it, numbered as in the source.
struct left_line {
    char *key, *shown;
    int first_comment, comments;
};

// A definition, for the values that its template parameters have.
struct piece {
    int definition;
    struct name parameter[MAX_PARAMETERS];
    struct name local[8];  // variables of a function whose value is known
    int locals;
    char *dead;  // [tokens of the definition] 1: left out
    struct left_line *line;
    int lines;
};

struct kernel_text {
    const struct source *source;
    struct piece *piece;  // in the order of the source
    int pieces;
};

// The kernel of that name in the lab's table. Returns 0, or -1 with a sentence in `why`.
int kernel_read(struct kernel_text *k, const struct source *s, const char *name, char *why, size_t bytes);
void kernel_free(struct kernel_text *k);

// The name of kernel number n of the lab's table, of 64 bytes; returns 0 behind the last.
int kernel_name(const struct source *s, int n, char name[64]);

#endif
