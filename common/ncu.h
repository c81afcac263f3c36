// ncu.h - what Nsight Compute's command line, ncu, writes with --csv --page raw.
#ifndef NCU_H
#define NCU_H

#include "message.h"
#include "profile.h"

// The metrics that a profile has a place for, separated by commas, for ncu --metrics.
extern const char ncu_metrics[];

// Adds a launch to the profile for each row of this text, in its order: kernel name, grid, block and
// ncu_metrics. Lines before the header (ncu's own remarks, begun with ==) are passed over; the line of units
// below it scales bytes. A metric that the GPU does not have ("n/a", or no column) stays NaN. Returns 0, or
// -1 with a sentence: there is no header, no row, or a row that is cut short.
int ncu_parse(const char *csv, struct profile *profile, struct message *why);

#endif
