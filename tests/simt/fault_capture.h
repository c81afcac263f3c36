// fault_capture.h - what the backend prints on standard error, caught for a test to look at.
#ifndef FAULT_CAPTURE_H
#define FAULT_CAPTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char message[65536];
static int saved_stderr;
static FILE *capture;

static void begin_capture(void) {
    fflush(stderr);
    capture = tmpfile();
    if (!capture) exit(1);
    saved_stderr = dup(2);
    dup2(fileno(capture), 2);
}

// Leaves what was printed since begin_capture in `message`.
static void end_capture(void) {
    fflush(stderr);
    dup2(saved_stderr, 2);
    close(saved_stderr);
    rewind(capture);
    size_t n = fread(message, 1, sizeof message - 1, capture);
    message[n] = 0;
    fclose(capture);
}

#endif
