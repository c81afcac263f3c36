#include "ncu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char ncu_metrics[] = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum,"
                           "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum,"
                           "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum,"
                           "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum,"
                           "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum,"
                           "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum,"
                           "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum,"
                           "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum,"
                           "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum,"
                           "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum,"
                           "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum,"
                           "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum,"
                           "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum,"
                           "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum,"
                           "dram__bytes_read.sum,"
                           "dram__bytes_write.sum,"
                           "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum,"
                           "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum,"
                           "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum,"
                           "sm__ops_path_tensor_src_fp16.sum,"
                           "sm__ops_path_tensor_src_bf16_dst_fp32.sum,"
                           "sm__ops_path_tensor_src_fp8.sum,"
                           "smsp__inst_executed_pipe_xu.sum";

enum { MAX_FIELDS = 1024, FIELD_BYTES = 256, METRICS = 23 };
enum column { KERNEL, BLOCK, GRID, FIRST_METRIC, COLUMNS = FIRST_METRIC + METRICS };

struct line {
    char field[MAX_FIELDS][FIELD_BYTES];  // longer ones are cut
    int count;
};

// Reads the line at `csv` into fields, and returns where the next one begins. Quotes as in RFC 4180.
static const char *read_line(const char *csv, struct line *line) {
    int quoted = 0;
    size_t length = 0;
    line->count = 0;
    for (; *csv && (quoted || *csv != '\n'); ++csv) {
        char c = *csv;
        if (c == '\r' && !quoted) continue;
        if (c == '"' && quoted && csv[1] == '"') {
            ++csv;  // a doubled quote stands for one
        } else if (c == '"') {
            quoted = !quoted;
            continue;
        } else if (c == ',' && !quoted) {
            if (line->count < MAX_FIELDS) line->field[line->count++][length] = '\0';
            length = 0;
            continue;
        }
        if (line->count < MAX_FIELDS && length + 1 < FIELD_BYTES) line->field[line->count][length++] = c;
    }
    if (line->count < MAX_FIELDS) line->field[line->count++][length] = '\0';
    return *csv ? csv + 1 : csv;
}

// "1,234.5" is 1234.5; anything else than a number is NaN.
static double number_of(const char *text) {
    char digits[FIELD_BYTES], *end;
    size_t n = 0;
    for (; *text && n + 1 < sizeof digits; ++text)
        if (*text != ',') digits[n++] = *text;
    digits[n] = '\0';
    double value = strtod(digits, &end);
    return end == digits || *end ? NAN : value;
}

// ncu writes "Kbyte" for 1000 bytes and so on, unless it is told to keep to base units.
static double scale_of(const char *unit) {
    switch (*unit) {
    case 'K':
        return 1e3;
    case 'M':
        return 1e6;
    case 'G':
        return 1e9;
    default:
        return 1;
    }
}

// "(256, 2, 1)" is 512.
static double product_of(const char *text) {
    double product = 1;
    int factors = 0;
    for (const char *at = text; *at;) {
        char *end;
        double value = strtod(at, &end);
        if (end == at)
            ++at;
        else
            product *= value, at = end, ++factors;
    }
    return factors ? product : NAN;
}

static void find_columns(const struct line *head, int column[COLUMNS]) {
    static const char *const fixed[] = {"Kernel Name", "Block Size", "Grid Size"};
    char names[sizeof ncu_metrics];
    memcpy(names, ncu_metrics, sizeof names);
    const char *name = strtok(names, ",");
    for (int c = 0; c < COLUMNS; ++c) {
        const char *wanted = c < FIRST_METRIC ? fixed[c] : name;
        column[c] = -1;
        for (int i = 0; i < head->count; ++i)
            if (wanted && strcmp(head->field[i], wanted) == 0) column[c] = i;
        if (c >= FIRST_METRIC) name = strtok(NULL, ",");
    }
}

static int add_row(const struct line *row, const int column[COLUMNS], const double scale[COLUMNS],
                   struct profile *profile) {
    struct profile_launch *launch = profile_add(profile);
    if (!launch) return -1;
    // Where each metric goes; those that go to the same place are neighbours, and added up.
    const struct {
        double *sum;
        double factor;
        int may_lack;  // older GPUs have nothing of this kind: then it is nought
    } to[METRICS] = {{&launch->traffic[PROFILE_GLOBAL][PROFILE_LOAD].requests, 1, 0},
                     {&launch->traffic[PROFILE_GLOBAL][PROFILE_STORE].requests, 1, 0},
                     {&launch->traffic[PROFILE_GLOBAL][PROFILE_LOAD].passes, 1, 0},
                     {&launch->traffic[PROFILE_GLOBAL][PROFILE_STORE].passes, 1, 0},
                     {&launch->traffic[PROFILE_SHARED][PROFILE_LOAD].passes, 1, 0},
                     {&launch->traffic[PROFILE_SHARED][PROFILE_STORE].passes, 1, 0},
                     // Atomics whose result nobody uses are RED, the others ATOM.
                     {&launch->traffic[PROFILE_GLOBAL][PROFILE_ATOMIC].requests, 1, 0},
                     {&launch->traffic[PROFILE_GLOBAL][PROFILE_ATOMIC].requests, 1, 0},
                     {&launch->traffic[PROFILE_GLOBAL][PROFILE_ATOMIC].passes, 1, 0},
                     {&launch->traffic[PROFILE_GLOBAL][PROFILE_ATOMIC].passes, 1, 0},
                     {&launch->traffic[PROFILE_SHARED][PROFILE_ATOMIC].passes, 1, 0},
                     {&launch->copies[PROFILE_TMA_LOAD].sectors, 1, 1},
                     {&launch->copies[PROFILE_TMA_STORE].sectors, 1, 1},
                     {&launch->copies[PROFILE_TMA_STORE].sectors, 1, 1},
                     {&launch->dram[0], 1, 0},
                     {&launch->dram[1], 1, 0},
                     // A fused multiply-add is two operations.
                     {&launch->work[PROFILE_FP32], 1, 0},
                     {&launch->work[PROFILE_FP32], 1, 0},
                     {&launch->work[PROFILE_FP32], 2, 0},
                     {&launch->work[PROFILE_TENSOR], 1, 0},
                     {&launch->work[PROFILE_TENSOR], 1, 1},
                     {&launch->work[PROFILE_TENSOR], 1, 1},
                     {&launch->work[PROFILE_SPECIAL], 1, 0}};
    snprintf(launch->function, sizeof launch->function, "%.60s", row->field[column[KERNEL]]);
    if (column[BLOCK] >= 0) launch->threads = product_of(row->field[column[BLOCK]]);
    if (column[GRID] >= 0) launch->blocks = product_of(row->field[column[GRID]]);
    for (int m = 0; m < METRICS; ++m) {
        int at = column[FIRST_METRIC + m], first = m == 0 || to[m].sum != to[m - 1].sum;
        double value = at < 0 ? NAN : number_of(row->field[at]) * scale[FIRST_METRIC + m] * to[m].factor;
        if (isnan(value) && to[m].may_lack) value = 0;
        *to[m].sum = first ? value : *to[m].sum + value;  // of two, one unknown: the sum is, too
    }
    return 0;
}

int ncu_parse(const char *csv, struct profile *profile, struct message *why) {
    struct line *line = calloc(1, sizeof *line);
    if (!line) return fail(why, "There is no memory left to read ncu's table.");
    int column[COLUMNS], fields = 0, rows = 0, status = 0;
    double scale[COLUMNS];
    for (int c = 0; c < COLUMNS; ++c) scale[c] = 1, column[c] = -1;
    while (*csv && status == 0) {
        csv = read_line(csv, line);
        if (!fields) {
            if (strcmp(line->field[0], "ID") != 0) continue;
            find_columns(line, column);
            fields = line->count;
            if (column[KERNEL] < 0) status = fail(why, "ncu's table has no column \"Kernel Name\".");
        } else if (line->count == 1 || strncmp(line->field[0], "==", 2) == 0) {
            continue;  // an empty line or a remark
        } else if (line->count != fields) {
            status = fail(why, "Row %d of ncu's table has %d fields, not %d: it is cut short.", rows + 1,
                          line->count, fields);
        } else if (line->field[0][0] == '\0') {  // the units
            for (int c = FIRST_METRIC; c < COLUMNS; ++c)
                if (column[c] >= 0) scale[c] = scale_of(line->field[column[c]]);
        } else {
            ++rows;
            if (add_row(line, column, scale, profile) != 0)
                status = fail(why, "There is no memory left to read ncu's table.");
        }
    }
    free(line);
    if (status == 0 && rows == 0) return fail(why, "ncu has counted no launch: its table is empty.");
    return status;
}
