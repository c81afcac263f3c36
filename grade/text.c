#define _DEFAULT_SOURCE
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *text_read(const char *path, size_t most, struct message *why) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        fail(why, "%s cannot be read: %s.", path, fd < 0 ? strerror(errno) : "it is no regular file");
        if (fd >= 0) close(fd);
        return NULL;
    }
    if ((size_t)info.st_size > most) {
        close(fd);
        fail(why, "%s has %lld bytes, more than the %zu that such a file may have.", path,
             (long long)info.st_size, most);
        return NULL;
    }
    char *text = malloc((size_t)info.st_size + 1);
    size_t length = 0;
    ssize_t got = 1;
    while (text && length < (size_t)info.st_size && got > 0) {
        got = read(fd, text + length, (size_t)info.st_size - length);
        if (got > 0) length += (size_t)got;
    }
    close(fd);
    if (text) text[length] = '\0';
    if (!text) fail(why, "There is no memory left to read %s.", path);
    return text;
}

char *text_line(char **at) {
    char *line = *at;
    if (!*line) return NULL;
    char *end = line + strcspn(line, "\n");
    *at = *end ? end + 1 : end;
    *end = '\0';
    line[strcspn(line, "\r")] = '\0';
    return line;
}

int text_path(char path[MAX_PATH], struct message *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(path, MAX_PATH, format, arguments);
    va_end(arguments);
    return length < MAX_PATH ? 0 : fail(why, "The path %.100s... is too long.", path);
}

uint64_t text_checksum(uint64_t before, const void *data, size_t bytes) {
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; ++i) before = (before ^ byte[i]) * 0x100000001b3u;
    return before;
}

uint64_t text_checksum_file(uint64_t before, const char *path) {
    char block[65536];
    FILE *file = fopen(path, "rb");
    size_t got;
    if (!file) return text_checksum(before, "none", 4);
    while ((got = fread(block, 1, sizeof block, file)) > 0) before = text_checksum(before, block, got);
    fclose(file);
    return text_checksum(before, "end", 3);
}

int text_copy(const char *from, const char *to, struct message *why) {
    char block[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t got = 0, written = 0;
    while (in && out && got == written && (got = fread(block, 1, sizeof block, in)) > 0)
        written = fwrite(block, 1, got, out);
    int good = in && out && got == 0 && !ferror(in);
    if (in) fclose(in);
    if (out) good = fclose(out) == 0 && good;
    if (good && chmod(to, 0755) == 0) return 0;
    return fail(why, "%s could not be copied to %s: %s.", from, to, strerror(errno));
}

int text_make_folder(const char *path, unsigned mode, struct message *why) {
    char folder[MAX_PATH];
    if (text_path(folder, why, "%s", path) != 0) return -1;
    for (char *at = folder + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        mkdir(folder, 0755);
    }
    if (mkdir(folder, mode) != 0 && errno != EEXIST)
        return fail(why, "The folder %s cannot be made: %s.", path, strerror(errno));
    return 0;
}

int temporary_folder(char path[MAX_PATH], struct message *why) {
    const char *above = getenv("TMPDIR");
    if (text_path(path, why, "%s/lab_grade_XXXXXX", above && *above ? above : "/tmp") != 0) return -1;
    if (!mkdtemp(path)) return fail(why, "%s cannot be made: %s.", path, strerror(errno));
    return chmod(path, 0711) == 0 ? 0 : fail(why, "%s: %s.", path, strerror(errno));
}

// The folder `name` in the open folder `above`; nothing that a submission put there can lead out of it.
static void remove_in(int above, const char *name) {
    int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder) {
        fchmod(fd, 0700);
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
            if (unlinkat(fd, entry->d_name, 0) != 0) remove_in(fd, entry->d_name);
        }
        closedir(folder);
    } else if (fd >= 0) {
        close(fd);
    }
    unlinkat(above, name, AT_REMOVEDIR);
}

void text_remove_folder(const char *path) { remove_in(AT_FDCWD, path); }
