// members.h - what a line of a lab's JSON says: common/report.c and common/profile.c write one object a line.
#ifndef MEMBERS_H
#define MEMBERS_H

#include <stddef.h>

// The text of the first member of that name, cut to `bytes`; empty if there is none. Returns text.
char *member_text(const char *line, const char *key, char *text, size_t bytes);

// Its number; NaN for null, true, false, and where there is none.
double member_number(const char *line, const char *key);

// Whether the line begins an object whose first member is of that name.
int begins_with(const char *line, const char *key);

#endif
