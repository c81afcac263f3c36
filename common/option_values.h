// option_values.h - the values on the command line, each from the text that stands for it. `option` is the
// name without dashes. All return 0, or -1 with a sentence that says what is wrong, and the nearest right
// word.
#ifndef OPTION_VALUES_H
#define OPTION_VALUES_H

#include "options.h"

int parse_int(const char *option, const char *value, int least, int *to, struct message *why);
int parse_u64(const char *option, const char *value, uint64_t *to, struct message *why);
int parse_scale(const char *value, float *to, struct message *why);
int parse_dtype(const char *value, enum dtype *to, struct message *why);
int parse_layout(const char *value, enum layout to[4], struct message *why);  // one word for all, or four
int parse_inputs(const char *value, enum input_kind *to, struct message *why);
int parse_path(const char *option, const char *value, const char **to, struct message *why);

// Adds a kernel of this lab's table to those that are to run.
int parse_kernel(const char *value, const struct lab *lab, struct options *o, struct message *why);

// Reads o->window_text. The right side, where it is left out, is the left one; but no one looks ahead under
// --causal.
int parse_window(struct options *o, struct message *why);

// Sums up the lengths of --seqlens and its like: cu_seqlens[n], the tokens before sequence n.
int parse_seqlens(const char *option, const char *value, int *cu_seqlens, int *sequences,
                  struct message *why);

#endif
