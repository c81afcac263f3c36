// check_json.c - is this file JSON (RFC 8259)?
//
//     check_json FILE [KEY]...      every KEY must occur as a member name, at any depth
//
// Small and strict, so that the tests need no Python: NaN and Infinity, which printf writes readily, are no
// JSON. Exit 0, or 1 with where it goes wrong.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEYS = 32, MAX_DEPTH = 64 };

static const char *text, *at;
static char **keys;
static int key_count, seen[MAX_KEYS];

__attribute__((noreturn)) static void stop(const char *why) {
    fprintf(stderr, "not JSON at byte %ld: %s: %.40s\n", (long)(at - text), why, at);
    exit(1);
}

static void blanks(void) { at += strspn(at, " \t\r\n"); }

// Moves past a string; begin and length give what is between the quotes.
static void string(const char **begin, size_t *length) {
    if (*at++ != '"') at--, stop("a string was expected");
    *begin = at;
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) stop("a control character, or the end, inside a string");
        if (*at != '\\') continue;
        at++;
        if (*at == 'u') {
            for (int i = 0; i < 4; i++)
                if (!isxdigit((unsigned char)*++at)) stop("a bad \\u escape");
        } else if (*at == '\0' || !strchr("\"\\/bfnrt", *at)) {
            stop("a bad escape");
        }
    }
    *length = (size_t)(at++ - *begin);
}

static void digits(void) {
    if (!isdigit((unsigned char)*at)) stop("a digit was expected");
    while (isdigit((unsigned char)*at)) at++;
}

static void number(void) {
    if (*at == '-') at++;
    if (*at == '0')
        at++;
    else
        digits();
    if (*at == '.') at++, digits();
    if (*at == 'e' || *at == 'E') {
        at++;
        if (*at == '+' || *at == '-') at++;
        digits();
    }
}

static void member_name(void) {
    const char *name;
    size_t length;
    string(&name, &length);
    for (int i = 0; i < key_count; i++)
        if (strlen(keys[i]) == length && memcmp(keys[i], name, length) == 0) seen[i] = 1;
    blanks();
    if (*at != ':') stop("a colon was expected");
    at++;
    blanks();
}

static void value(int depth) {
    const char *begin;
    size_t length;
    if (depth == MAX_DEPTH) stop("too deep");
    if (*at == '{' || *at == '[') {
        char open = *at++, close = open == '{' ? '}' : ']';
        blanks();
        if (*at == close) {
            at++;
            return;
        }
        for (;;) {
            blanks();
            if (open == '{') member_name();
            value(depth + 1);
            blanks();
            if (*at != ',') break;
            at++;
        }
        if (*at != close) stop("a comma or the closing bracket was expected");
        at++;
    } else if (*at == '"') {
        string(&begin, &length);
    } else if (strncmp(at, "true", 4) == 0 || strncmp(at, "null", 4) == 0) {
        at += 4;
    } else if (strncmp(at, "false", 5) == 0) {
        at += 5;
    } else {
        number();
    }
}

int main(int argc, char **argv) {
    static char buffer[1 << 20];
    FILE *file = argc >= 2 ? fopen(argv[1], "rb") : NULL;
    if (!file || argc - 2 > MAX_KEYS) {
        fprintf(stderr, "usage: check_json FILE [KEY]..., with a file that can be read\n");
        return 1;
    }
    size_t length = fread(buffer, 1, sizeof buffer - 1, file);
    fclose(file);
    buffer[length] = '\0';
    text = at = buffer;
    keys = argv + 2;
    key_count = argc - 2;
    blanks();
    value(0);
    blanks();
    if (at != text + length) stop("something follows the value");
    for (int i = 0; i < key_count; i++) {
        if (!seen[i]) {
            fprintf(stderr, "%s has no member named %s\n", argv[1], keys[i]);
            return 1;
        }
    }
    return 0;
}
