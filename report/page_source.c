// page_source.c - the source, each line with what was counted there.
//
// The table has the sums of all kernels. The numbers of each kernel stand behind it as JSON, an array of
// [kernel, numbers] for each line that has any: page.js shows those of the kernel that is chosen.
#include <string.h>

#include "html.h"
#include "page.h"

static const char *const titles[] = {
    "#line",  "#bytes, global", "#sectors", "#above the ideal", "#wavefronts, shared", "#bank conflicts",
    "#races", "source",         NULL};

static void sum_of_kernels(const struct page *page, int line, double sum[COLUMNS]) {
    memset(sum, 0, COLUMNS * sizeof *sum);
    for (int k = 0; k < page->counted.kernels; ++k)
        for (int c = 0; c < COLUMNS; ++c) sum[c] += page_counts(page, k, line)[c];
}

static int any(const double *counts) {
    for (int c = 0; c < COLUMNS; ++c)
        if (counts[c] != 0) return 1;
    return 0;
}

static void write_row(FILE *out, const char *text, int line, const double *sum, const double *most) {
    fprintf(out, "<tr id=\"L%d\"><td class=\"n line\" data-v=\"%d\"><a href=\"#L%d\">%d</a></td>", line, line,
            line, line);
    for (int c = 0; c < COLUMNS; ++c) {
        if (sum[c] == 0) {
            fputs("<td class=\"n heat\"></td>", out);
            continue;
        }
        fprintf(out, "<td class=\"n heat\" data-v=\"%.0f\" style=\"--h:%.3f\">%.0f</td>", sum[c],
                sum[c] / most[c], sum[c]);
    }
    fputs("<td class=\"code\"><code>", out);
    html_text(out, text);
    fputs("</code></td></tr>\n", out);
}

static void write_numbers(FILE *out, const struct page *page) {
    int lines = 0;
    fputs("<script type=\"application/json\" id=\"numbers\">\n{", out);
    for (int line = 1; line <= page->lines; ++line) {
        int kernels = 0;
        for (int k = 0; k < page->counted.kernels; ++k) {
            const double *counts = page_counts(page, k, line);
            if (!any(counts)) continue;
            if (kernels++ == 0) fprintf(out, "%s\"%d\": [", lines++ ? ",\n" : "\n", line);
            fprintf(out, "%s[%d", kernels > 1 ? ", " : "", k);
            for (int c = 0; c < COLUMNS; ++c) fprintf(out, ", %.0f", counts[c]);
            fputc(']', out);
        }
        if (kernels) fputc(']', out);
    }
    fputs("\n}\n</script>\n", out);
}

static void write_choice(FILE *out, const struct page *page) {
    fputs("<p><label>kernel <select id=\"kernel\"><option value=\"\">all together</option>", out);
    for (int k = 0; k < page->counted.kernels; ++k) {
        fprintf(out, "<option value=\"%d\">", k);
        html_text(out, page->counted.kernel[k].name);
        fputs("</option>", out);
    }
    fputs("</select></label></p>\n", out);
}

void page_write_source(FILE *out, const struct page *page) {
    double most[COLUMNS] = {0};
    for (int line = 1; line <= page->lines; ++line) {
        double sum[COLUMNS];
        sum_of_kernels(page, line, sum);
        for (int c = 0; c < COLUMNS; ++c)
            if (sum[c] > most[c]) most[c] = sum[c];
    }
    fputs("<h2 id=\"source\">Source: ", out);
    html_text(out, page_file(page));
    fputs("</h2>\n<p>What each line does to memory, in all launches of one run: bytes that threads ask of "
          "global memory, the 32-byte "
          "sectors that this takes and how many of them are above the ideal; passes over the banks of shared "
          "memory and "
          "how many of these are bank conflicts; pairs of lines that race. A heading sorts, a line's number "
          "is a link to it.</p>\n",
          out);
    write_choice(out, page);
    html_table(out, "table-source", titles);
    const char *text = page->source;
    for (int line = 1; line <= page->lines; ++line, text += strlen(text) + 1) {
        double sum[COLUMNS];
        sum_of_kernels(page, line, sum);
        write_row(out, text, line, sum, most);
    }
    fputs("</tbody></table></div>\n", out);
    write_numbers(out, page);
}
