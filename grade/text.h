// text.h - files and lines as the grader reads and writes them.
#ifndef TEXT_H
#define TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "common/message.h"

enum { MAX_PATH = 4096 };

// The whole regular file as a string, which is the caller's to free, or null with a sentence: it is not
// there, is no regular file (a link is none), or has more than `most` bytes.
char *text_read(const char *path, size_t most, struct message *why);

// The line at *at without its end, and *at moves on; null at the end of the text, which is changed.
char *text_line(char **at);

// Makes a path of its parts ("%s/%s" and the like). Returns 0, or -1 with a sentence if it is too long.
int text_path(char path[MAX_PATH], struct message *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// A checksum that goes on from `before` (FNV-1a, 64 bits); TEXT_CHECKSUM begins one.
#define TEXT_CHECKSUM 0xcbf29ce484222325u
uint64_t text_checksum(uint64_t before, const void *data, size_t bytes);
uint64_t text_checksum_file(uint64_t before, const char *path);

// Copies a program, for all users to run.
int text_copy(const char *from, const char *to, struct message *why);

// Makes a folder, and those above it.
int text_make_folder(const char *path, unsigned mode, struct message *why);
// Makes a new folder in TMPDIR, or /tmp. Other users may pass through it, and not look around.
int temporary_folder(char path[MAX_PATH], struct message *why);
// Removes a folder with all that is in it, links as such.
void text_remove_folder(const char *path);

#endif
