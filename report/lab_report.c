// lab_report.c - one page about a lab, from what it wrote with --json.
//
//     lab_report --source LAB.cu --counted FILE [--sanitized FILE] [--gpu FILE] [--timed FILE] [--note
//     TEXT]...
//                --style FILE.css --script FILE.js --output FILE.html [FIGURE.svg]...
//
// counted and gpu are of --profile on the cpu backend and under Nsight Compute, sanitized of --sanitize,
// timed of
// --bench. The page needs nothing but itself: ./lab report makes it. Exit 0, or 2 with one sentence.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "page.h"

struct arguments {
    const char *counted, *sanitized, *gpu, *timed, *output;
};

static int take_argument(struct page *page, struct arguments *a, const char *name, const char *value,
                         struct message *why) {
    const struct {
        const char *name, **to;
    } option[] = {{"--source", &page->source_path}, {"--counted", &a->counted},
                  {"--sanitized", &a->sanitized},   {"--gpu", &a->gpu},
                  {"--timed", &a->timed},           {"--style", &page->style},
                  {"--script", &page->script},      {"--output", &a->output}};
    for (size_t i = 0; i < sizeof option / sizeof *option; ++i)
        if (strcmp(name, option[i].name) == 0) return *option[i].to = value, 0;
    if (strcmp(name, "--note") != 0)
        return fail(why, "There is no option %s; the first lines of lab_report.c list them.", name);
    if (page->notes == MAX_NOTES) return fail(why, "There are more than %d times --note.", MAX_NOTES);
    page->note[page->notes++] = value;
    return 0;
}

static int take_arguments(int argc, char **argv, struct page *page, struct arguments *a,
                          struct message *why) {
    for (int i = 1; i < argc; ++i) {
        if (strncmp(argv[i], "--", 2) == 0) {
            if (i + 1 == argc) return fail(why, "%s needs a value.", argv[i]);
            if (take_argument(page, a, argv[i], argv[i + 1], why) != 0) return -1;
            ++i;
        } else if (page->figures < MAX_FIGURES) {
            page->figure[page->figures++] = argv[i];
        } else {
            return fail(why, "There are more than %d figures.", MAX_FIGURES);
        }
    }
    if (!page->source_path || !a->counted || !page->style || !page->script || !a->output)
        return fail(why, "A report needs --source, --counted, --style, --script and --output.");
    return 0;
}

static int read_source(struct page *page, struct message *why) {
    page->source = file_read(page->source_path);
    if (!page->source) return fail(why, "%s cannot be read: %s.", page->source_path, strerror(errno));
    char *end = page->source;
    for (char *at = page->source; *at; ++at) {
        end = at + 1;
        if (*at == '\n') *at = '\0', page->lines++;
    }
    if (end != page->source && end[-1] != '\0') page->lines++;  // the last line has no end
    return 0;
}

static int read_runs(struct page *page, const struct arguments *a, struct message *why) {
    if (run_read(&page->counted, a->counted, why) != 0) return -1;
    if (a->sanitized && run_read(&page->sanitized, a->sanitized, why) != 0) return -1;
    if (a->gpu && run_read(&page->on_gpu, a->gpu, why) != 0) return -1;
    if (a->timed && run_read(&page->timed, a->timed, why) != 0) return -1;
    page->counts =
        calloc((size_t)page->counted.kernels * ((size_t)page->lines + 1) * COLUMNS, sizeof *page->counts);
    if (!page->counts) return fail(why, "There is no memory left.");
    run_add_counts(&page->counted, &page->counted, page_file(page), page->lines, page->counts);
    run_add_counts(&page->sanitized, &page->counted, page_file(page), page->lines, page->counts);
    return 0;
}

static int write_page(struct page *page, const char *path, struct message *why) {
    FILE *out = fopen(path, "w");
    if (!out) return fail(why, "%s cannot be written: %s.", path, strerror(errno));
    int status = page_write(out, page, why);
    int good = !ferror(out);
    if ((fclose(out) != 0 || !good) && status == 0)
        status = fail(why, "%s could not be written to its end: %s.", path, strerror(errno));
    if (status != 0) remove(path);
    return status;
}

int main(int argc, char **argv) {
    static struct page page;
    struct arguments arguments = {0};
    struct message why = {""};
    int status = take_arguments(argc, argv, &page, &arguments, &why);
    if (status == 0) status = read_source(&page, &why);
    if (status == 0) status = read_runs(&page, &arguments, &why);
    if (status == 0) status = write_page(&page, arguments.output, &why);
    if (status != 0) fprintf(stderr, "%s\n", why.text);
    run_free(&page.counted);
    run_free(&page.sanitized);
    run_free(&page.on_gpu);
    run_free(&page.timed);
    free(page.source);
    free(page.counts);
    return status == 0 ? 0 : 2;
}
