// page.h - the parts of the page.
#ifndef PAGE_H
#define PAGE_H

#include <stdio.h>

#include "run.h"

enum { MAX_FIGURES = 16, MAX_NOTES = 8 };

struct page {
    const char *source_path;
    struct run counted, sanitized, on_gpu, timed;  // without kernels: that run was not made
    const char *style, *script;                    // files
    const char *figure[MAX_FIGURES], *note[MAX_NOTES];
    int figures, notes;
    char *source;  // the .cu, its lines ended by '\0'
    int lines;
    double *counts;  // [kernel][line][COLUMNS], lines from 1
};

// The whole page. Returns 0, or -1 with a sentence.
int page_write(FILE *out, struct page *page, struct message *why);

// page_source.c: the annotated source, and the numbers of each kernel for its script.
void page_write_source(FILE *out, const struct page *page);

// What one kernel counted at one line.
const double *page_counts(const struct page *page, int kernel, int line);
// The file's name without folders, as positions have it.
const char *page_file(const struct page *page);

#endif
