#include "html.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

void html_text(FILE *out, const char *text) {
    for (; *text; ++text) switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
}

// ---------------------------------------------------------------- tables

void html_count(FILE *out, double value) {
    char digits[32];
    if (isnan(value)) {
        fputs("<td class=\"n\"></td>", out);
        return;
    }
    int length = snprintf(digits, sizeof digits, "%.0f", value);
    fprintf(out, "<td class=\"n\" data-v=\"%s\">", digits);
    for (int i = 0; i < length; ++i) {
        if (i && (length - i) % 3 == 0 && digits[i - 1] != '-') fputs("&#8239;", out);  // a narrow space
        fputc(digits[i], out);
    }
    fputs("</td>", out);
}

void html_number(FILE *out, const char *format, double value) {
    char text[32];
    if (isnan(value)) {
        fputs("<td class=\"n\"></td>", out);
        return;
    }
    snprintf(text, sizeof text, format, value);
    fprintf(out, "<td class=\"n\" data-v=\"%.9g\">%s</td>", value, text);
}

void html_table(FILE *out, const char *id, const char *const titles[]) {
    fprintf(out, "<div class=\"scroll\"><table class=\"sortable\" id=\"%s\">\n<thead><tr>", id);
    for (; *titles; ++titles) {
        int number = **titles == '#';
        fprintf(out, "<th aria-sort=\"none\"%s><button type=\"button\">", number ? " class=\"n\"" : "");
        html_text(out, *titles + number);
        fputs("</button></th>", out);
    }
    fputs("</tr></thead>\n<tbody>\n", out);
}

// ---------------------------------------------------------------- files

static void base64(FILE *out, const unsigned char *data, size_t bytes) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes; i += 3) {
        unsigned a = data[i], b = i + 1 < bytes ? data[i + 1] : 0, c = i + 2 < bytes ? data[i + 2] : 0;
        unsigned all = a << 16 | b << 8 | c;
        fputc(digit[all >> 18], out);
        fputc(digit[all >> 12 & 63], out);
        fputc(i + 1 < bytes ? digit[all >> 6 & 63] : '=', out);
        fputc(i + 2 < bytes ? digit[all & 63] : '=', out);
    }
}

// Between <title> and </title>, for those who cannot see it; else the file's name.
static void image_title(FILE *out, const char *svg, const char *path) {
    const char *begin = strstr(svg, "<dc:title>"), *end = begin ? strstr(begin, "</dc:title>") : NULL;
    const char *slash = strrchr(path, '/');
    if (!end) {
        html_text(out, slash ? slash + 1 : path);
        return;
    }
    fprintf(out, "%.*s", (int)(end - begin - 10), begin + 10);  // it is escaped already
}

int html_image(FILE *out, const char *path, struct message *why) {
    size_t bytes;
    char *svg = file_read_bytes(path, &bytes);
    if (!svg) return fail(why, "%s cannot be read: %s.", path, strerror(errno));
    fputs("<figure><img alt=\"", out);
    image_title(out, svg, path);
    fputs("\" src=\"data:image/svg+xml;base64,", out);
    base64(out, (const unsigned char *)svg, bytes);
    fputs("\"></figure>\n", out);
    free(svg);
    return 0;
}

int html_include(FILE *out, const char *path, struct message *why) {
    char *text = file_read(path);
    if (!text) return fail(why, "%s cannot be read: %s.", path, strerror(errno));
    fputs(text, out);
    free(text);
    return 0;
}
