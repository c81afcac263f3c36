#include "file.h"

#include <stdio.h>
#include <stdlib.h>

char *file_read_bytes(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long size = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    *bytes = 0;
    if (size >= 0) text = malloc((size_t)size + 1);
    if (text) {
        rewind(file);
        *bytes = fread(text, 1, (size_t)size, file);
        text[*bytes] = '\0';
    }
    if (file) fclose(file);
    return text;
}

char *file_read(const char *path) {
    size_t bytes;
    return file_read_bytes(path, &bytes);
}
