#include "members.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *member(const char *line, const char *key) {
    char name[64];
    snprintf(name, sizeof name, "\"%s\": ", key);
    const char *at = line ? strstr(line, name) : NULL;
    return at ? at + strlen(name) : NULL;
}

char *member_text(const char *line, const char *key, char *text, size_t bytes) {
    const char *at = member(line, key);
    size_t n = 0;
    if (at && *at == '"')
        for (++at; *at && *at != '"' && n + 1 < bytes; ++at) {
            if (*at == '\\' && at[1] == 'u') {
                at += strlen(at) < 6 ? strlen(at) - 1 : 5;  // a control character: not shown
                continue;
            }
            if (*at == '\\' && at[1]) ++at;
            text[n++] = *at;
        }
    text[n] = '\0';
    return text;
}

double member_number(const char *line, const char *key) {
    const char *at = member(line, key);
    char *end;
    double value = at ? strtod(at, &end) : NAN;
    return at && end != at ? value : NAN;
}

int begins_with(const char *line, const char *key) {
    char name[64];
    int length = snprintf(name, sizeof name, "{\"%s\": ", key);
    return strncmp(line, name, (size_t)length) == 0;
}
