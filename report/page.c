#include "page.h"

#include <math.h>
#include <string.h>

#include "html.h"
#include "members.h"

const char *page_file(const struct page *page) {
    const char *slash = strrchr(page->source_path, '/');
    return slash ? slash + 1 : page->source_path;
}

const double *page_counts(const struct page *page, int kernel, int line) {
    return page->counts + ((size_t)kernel * ((size_t)page->lines + 1) + (size_t)line) * COLUMNS;
}

static void end_table(FILE *out) { fputs("</tbody></table></div>\n", out); }

static void text_cell(FILE *out, const char *text) {
    fputs("<td>", out);
    html_text(out, text);
    fputs("</td>", out);
}

// ---------------------------------------------------------------- results

// "right", or what became of it, from the run that looked for races too.
static const struct run_kernel *judged(const struct page *page, const struct run_kernel *kernel) {
    int at = run_find(&page->sanitized, kernel->name);
    return at >= 0 && strcmp(kernel->verdict, "right") == 0 ? &page->sanitized.kernel[at] : kernel;
}

static void write_results(FILE *out, const struct page *page) {
    static const char *const titles[] = {
        "kernel",         "what it adds", "verdict", "#error, % of its bound", "#workspace, bytes",
        "#memory, bytes", "#FLOP/byte",   NULL};
    fprintf(out, "<h2 id=\"results\">Results</h2>\n<p>%s; ", page->counted.shape);
    html_text(out, page->counted.device);
    fputs(". FLOP/byte are those of the result over the bytes in 32-byte sectors, caches not counted.</p>\n",
          out);
    html_table(out, "table-results", titles);
    for (int i = 0; i < page->counted.kernels; ++i) {
        const struct run_kernel *kernel = &page->counted.kernel[i], *verdict = judged(page, kernel);
        fputs("<tr>", out);
        text_cell(out, kernel->name);
        text_cell(out, kernel->adds);
        fprintf(out, "<td class=\"%s\">", strcmp(verdict->verdict, "right") == 0 ? "good" : "bad");
        html_text(out, verdict->verdict);
        if (verdict->detail[0]) fputs(": ", out), html_text(out, verdict->detail);
        fputs("</td>", out);
        html_number(out, "%.1f", 100 * kernel->of_bound);
        html_count(out, kernel->workspace);
        html_count(out, kernel->memory);
        html_number(out, "%.3g", kernel->intensity);
        fputs("</tr>\n", out);
    }
    end_table(out);
}

static void write_times(FILE *out, const struct run *timed) {
    static const char *const titles[] = {"kernel", "verdict", "#ms", "#TFLOP/s", "#% of peak", NULL};
    if (timed->kernels == 0) return;
    fprintf(out, "<h2 id=\"times\">Times</h2>\n<p>%s; ", timed->shape);
    html_text(out, timed->device);
    fputs(".</p>\n", out);
    html_table(out, "table-times", titles);
    for (int i = 0; i < timed->kernels; ++i) {
        const struct run_kernel *kernel = &timed->kernel[i];
        fputs("<tr>", out);
        text_cell(out, kernel->name);
        text_cell(out, kernel->verdict);
        html_number(out, "%.4g", kernel->ms);
        html_number(out, "%.1f", kernel->tflops);
        html_number(out, "%.1f", kernel->percent_of_peak);
        fputs("</tr>\n", out);
    }
    end_table(out);
}

// ---------------------------------------------------------------- launches

// Sum of members; NaN if one of them was not counted.
static double sum(const char *line, const char *const members[]) {
    double all = 0;
    for (; *members; ++members) all += member_number(line, *members);
    return all;
}

// What has no counter on one backend (null) is nought in a sum there.
static double known(double value) { return isnan(value) ? 0 : value; }

static void launch_cells(FILE *out, const struct run_launch *launch) {
    static const char *const sectors[] = {"global_read_sectors", "global_write_sectors", NULL};
    static const char *const wavefronts[] = {"shared_read_wavefronts", "shared_write_wavefronts", NULL};
    static const char *const ideal[] = {"shared_read_ideal", "shared_write_ideal", NULL};
    const char *line = launch->line;
    html_count(out, member_number(line, "global_read_bytes"));
    html_count(out, member_number(line, "global_write_bytes"));
    html_count(out, sum(line, sectors));
    html_count(out, known(member_number(line, "tma_load_sectors")) +
                        known(member_number(line, "tma_store_sectors")));
    html_count(out, sum(line, wavefronts));
    html_count(out, sum(line, wavefronts) - sum(line, ideal));
    html_count(out, member_number(line, "fp32_flops"));
    html_count(out, member_number(line, "tensor_flops"));
    html_count(out, member_number(line, "exps"));
    html_count(out, member_number(line, "barriers"));
    html_count(out, member_number(line, "dram_read_bytes"));
}

static void launch_row(FILE *out, const struct run *run, const struct run_launch *launch, const char *by) {
    char name[2 * NAME + 16];
    snprintf(name, sizeof name, "%s %d", run->kernel[launch->kernel].name, launch->number);
    fputs("<tr>", out);
    text_cell(out, name);
    text_cell(out, launch->function);
    text_cell(out, by);
    launch_cells(out, launch);
    fputs("</tr>\n", out);
}

// The same launch of the same kernel, as the other run has it; null: it has none.
static const struct run_launch *same_launch(const struct run *run, const char *kernel, int number) {
    for (int i = 0; i < run->launches; ++i)
        if (run->launch[i].number == number && strcmp(run->kernel[run->launch[i].kernel].name, kernel) == 0)
            return &run->launch[i];
    return NULL;
}

static void write_launches(FILE *out, const struct page *page) {
    static const char *const titles[] = {
        "launch",           "function",        "counted by",  "#bytes read",      "#bytes written",
        "#sectors",         "#sectors by TMA", "#wavefronts", "#bank conflicts",  "#FLOPs of CUDA cores",
        "#of tensor cores", "#exponentials",   "#barriers",   "#DRAM bytes read", NULL};
    fputs("<h2 id=\"launches\">Launches</h2>\n", out);
    if (page->on_gpu.launches == 0)
        fputs("<p>Counted by the CPU backend. With nvcc, a GPU and ncu (Nsight Compute), its counters stand "
              "here too.</p>\n",
              out);
    html_table(out, "table-launches", titles);
    for (int i = 0; i < page->counted.launches; ++i) {
        const struct run_launch *launch = &page->counted.launch[i];
        const char *kernel = page->counted.kernel[launch->kernel].name;
        const struct run_launch *other = same_launch(&page->on_gpu, kernel, launch->number);
        launch_row(out, &page->counted, launch, "CPU backend");
        if (other) launch_row(out, &page->on_gpu, other, "Nsight Compute");
    }
    end_table(out);
}

// ---------------------------------------------------------------- races

// "lab04_fa2.cu:12" as a link to that line, if it is of this file.
static void position_cell(FILE *out, const struct page *page, const char *position) {
    size_t length = strlen(page_file(page));
    int here = strncmp(position, page_file(page), length) == 0 && position[length] == ':';
    fputs("<td>", out);
    if (here) fprintf(out, "<a href=\"#L%.12s\">", position + length + 1);
    html_text(out, position);
    fputs(here ? "</a></td>" : "</td>", out);
}

static void write_races(FILE *out, const struct page *page) {
    static const char *const titles[] = {"kernel", "what", "one access", "the other", NULL};
    const struct run *run = &page->sanitized;
    fputs("<h2 id=\"races\">Races</h2>\n", out);
    if (run->kernels == 0) fputs("<p>Not looked for.</p>\n", out);
    if (run->kernels > 0 && run->races == 0)
        fputs("<p>None, under any of the orders of threads that were tried.</p>\n", out);
    if (run->races == 0) return;
    html_table(out, "table-races", titles);
    for (int i = 0; i < run->races; ++i) {
        fputs("<tr>", out);
        text_cell(out, run->race[i].kernel);
        text_cell(out, run->race[i].what);
        position_cell(out, page, run->race[i].first);
        position_cell(out, page, run->race[i].second);
        fputs("</tr>\n", out);
    }
    end_table(out);
}

// ---------------------------------------------------------------- all

static int write_head(FILE *out, const struct page *page, struct message *why) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>",
          out);
    html_text(out, page->counted.lab);
    fputs(": report</title>\n<style>\n", out);
    if (html_include(out, page->style, why) != 0) return -1;
    fputs("</style>\n</head>\n<body>\n<header>\n<h1>", out);
    html_text(out, page->counted.lab);
    fputs("</h1>\n", out);
    for (int i = 0; i < page->notes; ++i)
        fputs("<p class=\"note\">", out), html_text(out, page->note[i]), fputs("</p>\n", out);
    fprintf(out,
            "<nav><a href=\"#results\">results</a> %s<a href=\"#launches\">launches</a> <a "
            "href=\"#races\">races</a> %s"
            "<a href=\"#source\">source</a></nav>\n</header>\n<main>\n",
            page->timed.kernels ? "<a href=\"#times\">times</a> " : "",
            page->figures ? "<a href=\"#figures\">figures</a> " : "");
    return 0;
}

static int write_figures(FILE *out, const struct page *page, struct message *why) {
    if (page->figures > 0) fputs("<h2 id=\"figures\">Figures</h2>\n", out);
    for (int i = 0; i < page->figures; ++i)
        if (html_image(out, page->figure[i], why) != 0) return -1;
    return 0;
}

int page_write(FILE *out, struct page *page, struct message *why) {
    if (write_head(out, page, why) != 0) return -1;
    write_results(out, page);
    write_times(out, &page->timed);
    write_launches(out, page);
    write_races(out, page);
    if (write_figures(out, page, why) != 0) return -1;
    page_write_source(out, page);
    fputs("</main>\n<script>\n", out);
    if (html_include(out, page->script, why) != 0) return -1;
    fputs("</script>\n</body>\n</html>\n", out);
    return 0;
}
