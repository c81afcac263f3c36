// scan.h - looks through a submission's source for what a kernel lab has no need of.
#ifndef SCAN_H
#define SCAN_H

#include "common/message.h"

enum { SCAN_REMARKS = 40 };

struct scan {
    // Why this source is not compiled: it includes a file that a lab may not. Empty: it is.
    struct message refused;
    // For a person to look at. They change no points.
    int count;
    char remark[SCAN_REMARKS][160];
};

// `original` is the lab's own source: what it has, a submission may have as often. (Comments and literals are
// passed over.)
void scan_source(const char *source, const char *original, struct scan *scan);

#endif
