#include "json.h"

#include <math.h>

void json_string(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; ++text) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static void json_double(FILE *out, const char *key, const char *format, double value) {
    fprintf(out, ", \"%s\": ", key);
    if (isfinite(value))
        fprintf(out, format, value);
    else
        fputs("null", out);
}

void json_number(FILE *out, const char *key, double value) { json_double(out, key, "%.9g", value); }
void json_count(FILE *out, const char *key, double value) { json_double(out, key, "%.0f", value); }

void json_text(FILE *out, const char *key, const char *text) {
    fprintf(out, ", \"%s\": ", key);
    json_string(out, text);
}
