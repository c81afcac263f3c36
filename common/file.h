// file.h - a file as a string.
#ifndef FILE_H
#define FILE_H

#include <stddef.h>

// The whole file, which is the caller's to free, with a '\0' behind it; null, and errno, if it cannot be
// read. file_read_bytes says besides how many bytes it has.
char *file_read(const char *path);
char *file_read_bytes(const char *path, size_t *bytes);

#endif
