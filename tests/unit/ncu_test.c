// ncu_test.c - the table that ncu writes with --csv --page raw, and what is no such table.
#include "common/ncu.h"

#include "unit.h"

static const double flops = 4 * 8;

// The columns come in ncu's own order, which is alphabetical.
static const char header[] =
    "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block "
    "Size\","
    "\"Grid Size\",\"Device\",\"CC\",\"dram__bytes_read.sum\",\"dram__bytes_write.sum\","
    "\"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum\","
    "\"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum\","
    "\"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum\","
    "\"l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum\",\"l1tex__t_requests_pipe_lsu_mem_global_op_ld."
    "sum\","
    "\"l1tex__t_requests_pipe_lsu_mem_global_op_red.sum\",\"l1tex__t_requests_pipe_lsu_mem_global_op_st."
    "sum\","
    "\"l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum\",\"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum\","
    "\"l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum\",\"l1tex__t_sectors_pipe_lsu_mem_global_op_st."
    "sum\","
    "\"sm__ops_path_tensor_src_bf16_dst_fp32.sum\",\"sm__ops_path_tensor_src_fp16.sum\","
    "\"sm__ops_path_tensor_src_fp8.sum\",\"smsp__inst_executed_pipe_xu.sum\","
    "\"smsp__sass_thread_inst_executed_op_fadd_pred_on.sum\","
    "\"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum\","
    "\"smsp__sass_thread_inst_executed_op_fmul_pred_on.sum\","
    "\"l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum\","
    "\"l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum\","
    "\"l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum\"\n";
static const char units[] =
    "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"Kbyte\",\"byte\",\"\","
    "\"\",\"\",\"\",\"\",\"\",\"\","
    "\"sector\",\"sector\",\"sector\",\"sector\",\"\",\"\",\"\",\"inst\",\"inst\",\"inst\","
    "\"inst\",\"sector\",\"sector\",\"sector\"\n";
static const char first[] = "\"0\",\"4711\",\"lab01_naive\",\"127.0.0.1\",\"scores_tiled\",\"1\",\"7\",\"("
                            "256, 1, 1)\",\"(1,024, 2, 1)\","
                            "\"0\",\"9.0\",\"32.77\",\"1,184\",\"9\",\"8,192\",\"512\",\"3\",\"512\",\"4\","
                            "\"256\",\"5\",\"1,024\",\"6\","
                            "\"512\",\"16\",\"4,096\",\"256\",\"77\",\"100\",\"1,000\",\"10\","
                            "\"2,048\",\"64\",\"32\"\n";
static const char second[] =
    "\"1\",\"4711\",\"lab01_naive\",\"127.0.0.1\",\"void f<1, \"\"x\"\">(attention)\",\"1\",\"7\",\"(16, 16, "
    "1)\","
    "\"(3, 1, "
    "1)\",\"0\",\"9.0\",\"0\",\"n/a\",\"0\",\"0\",\"0\",\"0\",\"1\",\"0\",\"2\",\"0\",\"3\",\"n/a\",\"4\","
    "\"n/a\",\"64\",\"n/a\",\"0\",\"n/a\",\"5\",\"6\","
    "\"n/a\",\"n/a\",\"n/a\"\n";

// These pieces in a row.
static const char *join(const char *a, const char *b, const char *c, const char *d, const char *e) {
    static char text[8000];
    snprintf(text, sizeof text, "%s%s%s%s%s", a, b, c, d, e);
    return text;
}

static void refuse(const char *csv, const char *says) {
    struct profile p;
    struct message why = {""};
    profile_begin(&p, "x", flops);
    EXPECT(ncu_parse(csv, &p, &why) == -1);
    EXPECT_SAYS(why.text, says);
    profile_free(&p);
}

static void check_table(const char *csv, double dram_scale) {
    struct profile p;
    struct message why = {""};
    profile_begin(&p, "tiled", flops);
    EXPECT(ncu_parse(csv, &p, &why) == 0);
    EXPECT(p.launch_count == 2);
    if (p.launch_count != 2) return;
    const struct profile_launch *a = &p.launches[0], *b = &p.launches[1];
    EXPECT(strcmp(a->function, "scores_tiled") == 0 && a->position[0] == '\0' && a->line_count == 0);
    EXPECT_NEAR(a->threads, 256, 0);
    EXPECT_NEAR(a->traffic[PROFILE_GLOBAL][PROFILE_LOAD].requests, 512, 0);
    EXPECT_NEAR(a->traffic[PROFILE_GLOBAL][PROFILE_STORE].requests, 256, 0);
    EXPECT_NEAR(a->traffic[PROFILE_GLOBAL][PROFILE_LOAD].passes, 1024, 0);
    EXPECT_NEAR(a->traffic[PROFILE_GLOBAL][PROFILE_STORE].passes, 512, 0);
    EXPECT_NEAR(a->traffic[PROFILE_SHARED][PROFILE_LOAD].passes, 8192, 0);
    EXPECT_NEAR(a->traffic[PROFILE_SHARED][PROFILE_STORE].passes, 512, 0);
    // RED and ATOM together.
    EXPECT_NEAR(a->traffic[PROFILE_GLOBAL][PROFILE_ATOMIC].requests, 7, 0);
    EXPECT_NEAR(a->traffic[PROFILE_GLOBAL][PROFILE_ATOMIC].passes, 11, 0);
    EXPECT_NEAR(a->traffic[PROFILE_SHARED][PROFILE_ATOMIC].passes, 9, 0);
    EXPECT_NEAR(a->work[PROFILE_FP32], 100 + 10 + 2 * 1000, 0);
    EXPECT_NEAR(a->work[PROFILE_TENSOR], 16 + 4096 + 256, 0);
    EXPECT_NEAR(a->work[PROFILE_SPECIAL], 77, 0);
    EXPECT(isnan(a->work[PROFILE_EXP]) && isnan(a->work[PROFILE_BARRIER]));  // ncu does not count them
    EXPECT_NEAR(a->copies[PROFILE_TMA_LOAD].sectors, 2048, 0);
    EXPECT_NEAR(a->copies[PROFILE_TMA_STORE].sectors, 64 + 32, 0);  // stores and additions
    EXPECT_NEAR(b->copies[PROFILE_TMA_LOAD].sectors, 0, 0);         // a GPU without TMA
    EXPECT_NEAR(a->dram[0], 32.77 * dram_scale, 1e-9);
    EXPECT_NEAR(a->dram[1], 1184, 0);
    EXPECT(isnan(a->traffic[PROFILE_GLOBAL][PROFILE_LOAD].bytes));
    EXPECT(isnan(a->traffic[PROFILE_GLOBAL][PROFILE_LOAD].ideal));
    EXPECT(strcmp(b->function, "void f<1, \"x\">(attention)") == 0);
    EXPECT_NEAR(b->threads, 256, 0);
    EXPECT_NEAR(b->blocks, 3, 0);
    EXPECT(isnan(b->dram[1]) && isnan(b->traffic[PROFILE_GLOBAL][PROFILE_ATOMIC].passes));  // n/a
    EXPECT_NEAR(b->traffic[PROFILE_GLOBAL][PROFILE_STORE].passes, 4, 0);
    EXPECT(isnan(b->work[PROFILE_FP32]));         // of its three terms one is not known
    EXPECT_NEAR(b->work[PROFILE_TENSOR], 64, 0);  // a GPU without tensor cores for bf16 and fp8
    profile_free(&p);
}

// Newer versions of ncu put hundreds of columns about the device before the metrics.
static void check_wide_table(void) {
    static char csv[65536];
    size_t n = 0;
    for (int row = 0; row < 2; ++row) {
        n += (size_t)snprintf(csv + n, sizeof csv - n, row ? "\"0\",\"f\"" : "\"ID\",\"Kernel Name\"");
        for (int i = 0; i < 400; ++i)
            n += (size_t)snprintf(csv + n, sizeof csv - n, row ? ",\"%d,000\"" : ",\"device__attribute_%d\"",
                                  i);
        n += (size_t)snprintf(csv + n, sizeof csv - n, row ? ",\"12\"\n" : ",\"dram__bytes_read.sum\"\n");
    }
    struct profile p;
    struct message why = {""};
    profile_begin(&p, "x", flops);
    EXPECT(ncu_parse(csv, &p, &why) == 0 && p.launch_count == 1);
    if (p.launch_count == 1) EXPECT_NEAR(p.launches[0].dram[0], 12, 0);
    profile_free(&p);
}

int main(void) {
    check_wide_table();
    char rows[4000];
    snprintf(rows, sizeof rows, "%s%s", first, second);
    check_table(join("==PROF== Connected to process 4711 (lab01_naive)\n"
                     "==PROF== Profiling \"scores_tiled\" - 0: 0%....50%....100% - 1 pass\n",
                     header, units, rows, "==PROF== Disconnected from process 4711\n"),
                1000);
    check_table(join(header, rows, "", "", ""), 1);  // no line of units: base units

    // A metric that this GPU has not is a column less; what is not counted is not 0.
    struct profile p;
    struct message why = {""};
    profile_begin(&p, "x", flops);
    EXPECT(ncu_parse("\"ID\",\"Kernel Name\",\"dram__bytes_read.sum\"\r\n\"0\",\"f\",\"12\"\r\n", &p, &why) ==
           0);
    EXPECT(p.launch_count == 1);
    if (p.launch_count == 1) {
        EXPECT_NEAR(p.launches[0].dram[0], 12, 0);
        EXPECT(isnan(p.launches[0].dram[1]) && isnan(p.launches[0].blocks));
        EXPECT(isnan(p.launches[0].work[PROFILE_TENSOR]));
    }
    profile_free(&p);

    refuse("", "empty");
    refuse("==ERROR== The application returned an error code (1).\n", "empty");
    refuse("==WARNING== No kernels were profiled.\n", "empty");
    refuse(join(header, units, "", "", ""), "empty");
    refuse(join(header, units, "\"0\",\"4711\",\"lab01\"\n", "", ""),
           "Row 1 of ncu's table has 3 fields, not 34");
    refuse(join(header, units, first, "\"1\",\"4711\n", ""), "Row 2");
    refuse("\"ID\",\"dram__bytes_read.sum\"\n\"0\",\"12\"\n", "Kernel Name");
    // Every metric that is asked for is one of the sample's columns.
    char metrics[2000];
    snprintf(metrics, sizeof metrics, "%s", ncu_metrics);
    for (const char *name = strtok(metrics, ","); name; name = strtok(NULL, ",")) EXPECT_SAYS(header, name);
    return unit_end();
}
