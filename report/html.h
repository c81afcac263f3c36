// html.h - the few words of HTML that a report is written with.
#ifndef HTML_H
#define HTML_H

#include <stdio.h>

#include "common/message.h"

void html_text(FILE *out, const char *text);  // escaped, for text and for attributes in double quotes

// A cell of a table with a number that scripts sort by: as a whole number in groups of three digits, or with
// the format of printf. NaN: an empty cell, which is less than any number.
void html_count(FILE *out, double value);
void html_number(FILE *out, const char *format, double value);

// The head of a table whose columns can be sorted; titles end with NULL, a first '#' means numbers.
void html_table(FILE *out, const char *id, const char *const titles[]);

// An image out of an SVG file, in the page itself. Returns 0, or -1 with a sentence.
int html_image(FILE *out, const char *path, struct message *why);

// The whole file as it is. Returns 0, or -1 with a sentence.
int html_include(FILE *out, const char *path, struct message *why);

#endif
