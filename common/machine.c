#define _DEFAULT_SOURCE
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

double machine_memory_bytes(void) {
    double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    // The limit of control groups, version 2 and 1: "max", or a number that may be larger than the memory.
    static const char *const files[] = {"/sys/fs/cgroup/memory.max",
                                        "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (int i = 0; i < 2; ++i) {
        FILE *file = fopen(files[i], "r");
        if (!file) continue;
        char text[32] = "";
        if (fgets(text, sizeof text, file)) {
            double limit = strtod(text, NULL);
            if (limit > 0 && limit < bytes) bytes = limit;
        }
        fclose(file);
    }
    return bytes;
}
