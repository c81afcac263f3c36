// report_test.c - the table lines up, and the JSON is JSON, whatever names and numbers are in it. The file
// that it writes is checked again by tests/cli/check_json.
#include "common/report.h"

#include "unit.h"

static const struct lab lab = {.name = "lab \"00\"", .idea = "an idea", .lecture = "a section"};
static const struct device device = {.name = "a\\b\tc \xc3\x97", .major = 9};
static struct options options;
static struct result results[3];
static struct report report = {
    .lab = &lab, .options = &options, .device = &device, .results = results, .count = 3};
static char text[20000];

static void make(void) {
    options.layout[1] = LAYOUT_BSHD, options.bench = 1;
    report.shape = (struct attention){.batch = 1,
                                      .heads = 2,
                                      .kv_heads = 1,
                                      .seqlen_q = 3,
                                      .seqlen_k = 4,
                                      .head_dim = 8,
                                      .scale = INFINITY};
    results[0] =
        (struct result){.kernel = "first",
                        .adds = "3 \xc3\x97 fewer",
                        .tflops = 50,
                        .o = {.err = 1e-3, .bound = 2e-3, .compared = 48, .rows = 6, .rows_total = 600},
                        .timing = {.median_ms = 4, .low_ms = 3, .high_ms = 5, .repetitions = 20}};
    results[1] = (struct result){.kernel = "second",
                                 .adds = "plain",
                                 .verdict = VERDICT_NAN,
                                 .detail = "O is \"NaN\"\n",
                                 .o = {.err = NAN, .bound = INFINITY}};
    results[2] = (struct result){.kernel = "third", .adds = "more", .refused = "too large"};
    report.peak_tflops = 100;
}

static void capture(void (*print)(FILE *out, const struct report *report), const char *path) {
    FILE *file = fopen(path, "w+");
    if (!file) {
        perror(path);
        exit(1);
    }
    print(file, &report);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
}

static void write_json(FILE *out, const struct report *r) { EXPECT(report_write_json(out, r) == 0); }

// Columns of the line that starts so (newline first), up to where `cell` begins in it.
static int column_of(const char *line_start, const char *cell) {
    const char *line = strstr(text, line_start), *end = line ? strchr(line + 1, '\n') : NULL;
    const char *at = line ? strstr(line, cell) : NULL;
    int column = 0;
    if (!at || !end || at > end) return -1;
    for (++line; line < at; ++line) column += ((unsigned char)*line & 0xc0) != 0x80;
    return column;
}

// A backward kernel beside one that is none: the worst of its gradients takes the place of LSE, which JSON
// has.
static void gradients(const char *path) {
    options.bench = 0, options.sequences = 0;
    results[0].backward = 1;
    results[0].gradient[GRADIENT_Q] =
        (struct finding){.err = 1e-3, .bound = 4e-3, .compared = 10, .rows = 5, .rows_total = 5};
    results[0].gradient[GRADIENT_K] =
        (struct finding){.err = 9e-4, .bound = 1e-3, .compared = 100, .rows = 64, .rows_total = 4096};
    results[0].gradient[GRADIENT_V] =
        (struct finding){.err = 2e-2, .bound = 4e-2, .compared = 100, .rows = 64, .rows_total = 4096};
    result_clear(&results[1]);
    EXPECT(isnan(results[1].o.err) && isnan(results[1].gradient[GRADIENT_V].bound));
    capture(report_print_table, path);
    EXPECT_SAYS(text, "worst err     bound     O err     bound  compared  verdict\n");
    EXPECT_SAYS(text, "dK 9.00e-04  1.00e-03  1.00e-03  2.00e-03       258  right\n");
    EXPECT_SAYS(text, "covers a fixed sample of 6 of 600 rows");
    EXPECT_SAYS(text, "reference of dK covers a fixed sample of 64 of 4096 rows");
    EXPECT_SAYS(text, "reference of dV covers");
    EXPECT(strstr(text, "of dQ covers") == NULL && strstr(text, "LSE") == NULL);
    EXPECT(column_of("\nfirst", "right") == column_of("\nsecond", "NaN or infinity"));
    capture(write_json, path);
    EXPECT_SAYS(text, "\"dk\": {\"compared\": 100, \"rows\": 64, \"rows_total\": 4096, \"err\": 0.0009");
    EXPECT_SAYS(text, "\"lse\": ");
    const char *second = strstr(text, "\"second\"");
    EXPECT(second && strstr(second, "\"dq\"") == NULL);
}

// A kernel that quantises brings three columns, and is held against e4m3's peak.
static void quantised(const char *path) {
    options.bench = 1;
    results[0] = (struct result){.kernel = "first",
                                 .adds = "",
                                 .quantised = QUANTISED_E4M3_ROTATED,
                                 .o_unquantised_rmse = 1.5e-4,
                                 .o = {.err = 1e-2, .bound = 2e-2, .rmse = 9e-3, .plain_rmse = 8.5e-3},
                                 .tflops = 50,
                                 .timing = {.median_ms = 4, .low_ms = 3, .high_ms = 5, .repetitions = 20}};
    results[1] = (struct result){.kernel = "second", .adds = "", .o = {.rmse = 1e-4, .plain_rmse = 1.5e-4}};
    report.peak_e4m3_tflops = 200;
    capture(report_print_table, path);
    EXPECT_SAYS(text, "compared    O RMSE  emulated  plain fp16  ms");
    EXPECT_SAYS(text, "9.00e-03  8.50e-03    1.50e-04   4         3..5");
    EXPECT_SAYS(text, "1.00e-04         -    1.50e-04   -");
    EXPECT_SAYS(text, "25.0%");
    capture(write_json, path);
    EXPECT_SAYS(text, "\"rmse\": 0.009, \"plain_rmse\": 0.0085}");
    EXPECT_SAYS(text, "\"quantised\": \"e4m3, rotated\", \"o_unquantised_rmse\": 0.00015");
    EXPECT_SAYS(text, "\"percent_of_peak\": 25");
}

int main(int argc, char **argv) {
    char path[1024];
    snprintf(path, sizeof path, "%s/report_test.json", argc > 1 ? argv[1] : ".");
    make();
    capture(report_print_table, path);
    EXPECT(strstr(text, "RMSE") == NULL);
    EXPECT_SAYS(text, "second is not right: O is \"NaN\"");
    EXPECT_SAYS(text, "third did not run: too large");
    EXPECT_SAYS(text, "sample of 6 of 600 rows");
    EXPECT_SAYS(text, "50.0%");
    EXPECT(strstr(text, "\033") == NULL && strstr(text, " nan") == NULL && strstr(text, " inf ") == NULL);
    // The verdicts stand under each other, though one line holds a character of two bytes.
    EXPECT(column_of("\nfirst", "right") > 0 &&
           column_of("\nfirst", "right") == column_of("\nsecond", "NaN or infinity"));
    EXPECT(column_of("\nfirst", "right") == column_of("\nthird", "did not run"));

    capture(report_print_configuration, path);
    EXPECT_SAYS(text, "layout bhsd,bshd,bhsd,bhsd");
    EXPECT_SAYS(text, "seqlen-q 3, seqlen-k 4");

    static const int cu[] = {0, 5, 5, 15};
    memcpy(options.cu_seqlens_q, cu, sizeof cu), memcpy(options.cu_seqlens_k, cu, sizeof cu);
    options.sequences = 3, options.cu_seqlens_k[3] = 6;
    report.shape.window = 1, report.shape.window_left = 7, report.shape.window_right = NO_LIMIT;
    capture(report_print_configuration, path);
    EXPECT_SAYS(text, "15 queries in 3 sequences of 0 to 10, 6 keys in 3 sequences of 0 to 5, dim 8");
    EXPECT_SAYS(text, "full, window 7,-1, scale");

    options.sweep = 1;
    results[0].seqlen = 64, results[0].workspace = 34400000000u;
    capture(report_print_sweep, path);
    EXPECT_SAYS(text, "34.4 GB");
    EXPECT_SAYS(text, "does not fit");
    options.sweep = 0;

    capture(write_json, path);
    EXPECT_SAYS(text, "\"lab\": \"lab \\\"00\\\"\"");
    EXPECT_SAYS(text, "\"device\": \"a\\\\b\\u0009c \xc3\x97\"");
    EXPECT_SAYS(text, "\"err\": null, \"bound\": null");
    EXPECT_SAYS(text, "\"scale\": null");
    EXPECT_SAYS(text, "\"window\": [7, -1], \"sequences\": 3, \"shortest_q\": 0, \"longest_q\": 10");
    EXPECT_SAYS(text, "\\\"NaN\\\"\\u000a");
    EXPECT(strstr(text, "nan") == NULL && strstr(text, "inf,") == NULL);
    // One line a kernel.
    int lines = 0;
    for (const char *at = text; (at = strstr(at, "\n{\"kernel\"")); ++at) ++lines;
    EXPECT(lines == 3);
    gradients(path);
    quantised(path);
    return unit_end();
}
