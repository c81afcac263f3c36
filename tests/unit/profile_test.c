// profile_test.c - what --profile prints and writes, for a profile made by hand: two launches with known
// counts, of which one is known in part only, as on a GPU. The file that it writes is checked again by
// tests/cli/check_json.
#include "common/profile.h"

#include "unit.h"

static char text[40000];
static const double flops = 4.0 * 8 * 2 * 64 * 64;

// 20 lines, the first with a 32-way bank conflict; and a launch of which only ncu's counters are known.
static void make(struct profile *p) {
    profile_begin(p, "tiled", flops);
    struct profile_launch *launch = profile_add(p);
    if (!launch) exit(1);
    snprintf(launch->function, sizeof launch->function, "scores<\"4\">");
    snprintf(launch->position, sizeof launch->position, "a.cu:7");
    launch->blocks = 3, launch->threads = 128;
    launch->traffic[PROFILE_GLOBAL][PROFILE_LOAD] = (struct traffic){4096, 32, 256, 128};
    launch->traffic[PROFILE_GLOBAL][PROFILE_STORE] = (struct traffic){0, 0, 0, 0};
    launch->traffic[PROFILE_GLOBAL][PROFILE_ATOMIC] = (struct traffic){0, 0, 0, 0};
    launch->traffic[PROFILE_SHARED][PROFILE_LOAD] = (struct traffic){128, 2, 64, 2};
    launch->traffic[PROFILE_SHARED][PROFILE_ATOMIC] = (struct traffic){4, 1, 1, 1};
    launch->work[PROFILE_FP32] = 123456789012.0, launch->work[PROFILE_EXP] = 4096;
    launch->work[PROFILE_BARRIER] = 0;
    launch->copies[PROFILE_CP_ASYNC] = (struct copies){2048, 64};
    launch->copies[PROFILE_TMA_STORE] = (struct copies){512, 0};
    launch->lines = calloc(20, sizeof *launch->lines);
    if (!launch->lines) exit(1);
    launch->line_count = 20;
    for (int i = 0; i < 20; ++i) {
        launch->lines[i] = (struct profile_line){.bytes = 2, .space = PROFILE_GLOBAL, .accesses = 32};
        launch->lines[i].traffic = (struct traffic){64, 1, 2, 2};
        snprintf(launch->lines[i].position, sizeof launch->lines[i].position, "a.cu:%d", 100 + i);
    }
    launch->lines[0].bytes = 4, launch->lines[0].space = PROFILE_SHARED;
    launch->lines[0].traffic = (struct traffic){256, 2, 64, 2};
    launch = profile_add(p);
    if (!launch) exit(1);
    snprintf(launch->function, sizeof launch->function, "output");
    launch->traffic[PROFILE_GLOBAL][PROFILE_LOAD].requests = 10;
    launch->traffic[PROFILE_GLOBAL][PROFILE_LOAD].passes = 128;
    launch->traffic[PROFILE_GLOBAL][PROFILE_STORE].passes = 0;
    launch->traffic[PROFILE_GLOBAL][PROFILE_ATOMIC].passes = 0;
    launch->work[PROFILE_TENSOR] = 65536, launch->work[PROFILE_SPECIAL] = 7;
    launch->dram[0] = 2500, launch->dram[1] = 12345678901.0;
}

static void capture(const char *path, const struct profile *p, int json) {
    FILE *file = fopen(path, "w+");
    if (!file) {
        perror(path);
        exit(1);
    }
    if (json) {
        fputs("{\n", file);
        profile_write_json(file, p, 1);
        fputs("\n}\n", file);
    } else {
        profile_print(file, p);
    }
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
}

static int count(const char *words) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, words)); ++at) ++n;
    return n;
}

static void check_text(const char *path, const struct profile *p) {
    capture(path, p, 0);
    EXPECT_SAYS(text, "tiled, launch 1 of 2: scores<\"4\"> at a.cu:7, 3 blocks x 128 threads\n");
    EXPECT_SAYS(text, "  cp.async     2.0 kB  sectors 64  (part of the global loads)\n");
    EXPECT_SAYS(text, "  TMA store     512 B  sectors 0\n");
    EXPECT(strstr(text, "TMA load") == NULL);
    EXPECT_SAYS(text, "  global ld    4.1 kB  requests 32  sectors 256 (ideal 128)  sectors/request 8\n");
    EXPECT_SAYS(text, "requests 2  wavefronts 64 (ideal 2)  wavefronts/request 32  conflicts 62\n");
    EXPECT_SAYS(text, "  shared at       4 B  requests 1  wavefronts 1 (ideal 1)");
    // What the backend does not count is left out, FLOPs that it could not count are "-".
    EXPECT_SAYS(text, "\n  work       fp32 FLOPs 123456789012  tensor FLOPs -  exp 4096  barriers 0\n");
    EXPECT_SAYS(text, "    a.cu:100  shared ld  4 B  requests 2         wavefronts/request 32 (ideal 1)\n");
    EXPECT_SAYS(text, "    a.cu:111  global ld  2 B  requests 1         sectors/request 2 (ideal 2)\n");
    EXPECT(strstr(text, "a.cu:112") == NULL);  // the twelve worst
    EXPECT_SAYS(text, "and 8 lines more");
    // What a GPU does not count is left out, not shown as nought.
    EXPECT_SAYS(text, "tiled, launch 2 of 2: output, - blocks x - threads\n"
                      "  global ld         -  requests 10  sectors 128  sectors/request 12.8\n"
                      "  work       fp32 FLOPs -  tensor FLOPs 65536  special 7\n"
                      "  DRAM       read 2.5 kB, written 12.3 GB\n");
    EXPECT(strstr(text, "global st") == NULL && strstr(text, "nan") == NULL);
}

// 4 * 8 FLOPs for each of 2 * 64 * 64 pairs over 256 + 128 sectors of 32 bytes.
static void check_roofline(const char *path, struct profile *p) {
    EXPECT_NEAR(p->flops, 262144, 0);
    EXPECT_NEAR(profile_intensity(p), 262144.0 / (384 * 32), 1e-12);  // 21.3
    capture(path, p, 0);
    EXPECT_SAYS(text, "tiled, all launches: 0.2621 MFLOP over 12.3 kB in sectors = 21.3 FLOP/B");
    EXPECT_SAYS(text, "tensor cores: A100 memory-bound (ridge 153.0), H100 memory-bound (ridge 295.2), H200 "
                      "memory-bound (ridge 206.0)\n");
    EXPECT_SAYS(text, "CUDA cores:   A100 compute-bound (ridge 9.6), H100 compute-bound (ridge 20.0), H200 "
                      "compute-bound (ridge 14.0)\n");
    // 640 sectors: 12.8 FLOP/B, memory-bound on H100 and H200, where compute is faster for each byte.
    p->launches[1].traffic[PROFILE_GLOBAL][PROFILE_STORE].passes = 256;
    capture(path, p, 0);
    EXPECT_SAYS(text, "CUDA cores:   A100 compute-bound (ridge 9.6), H100 memory-bound (ridge 20.0), H200 "
                      "memory-bound (ridge 14.0)\n");
    // Sectors of one launch unknown: nothing is claimed.
    p->launches[1].traffic[PROFILE_GLOBAL][PROFILE_STORE].passes = NAN;
    EXPECT(isnan(profile_intensity(p)));
    capture(path, p, 0);
    EXPECT(strstr(text, "FLOP/B") == NULL && strstr(text, "-bound") == NULL);
}

static void check_json(const char *path, const struct profile *p) {
    capture(path, p, 1);
    EXPECT(count("\n{\"launch\": ") == 2);
    EXPECT(count("\n{\"line_of_launch\": ") == 20);  // all of them
    EXPECT(count("\n{\"roofline\": ") == 3);
    EXPECT_SAYS(text, "{\"launch\": 1, \"kernel\": \"tiled\", \"function\": \"scores<\\\"4\\\">\"");
    EXPECT_SAYS(text,
                "\"global_read_bytes\": 4096, \"global_read_requests\": 32, \"global_read_sectors\": 256");
    EXPECT_SAYS(text, "\"global_read_bytes\": null, \"global_read_requests\": 10");
    EXPECT_SAYS(text, "\"cp_async_bytes\": 2048, \"cp_async_sectors\": 64, \"tma_load_bytes\": null, "
                      "\"tma_load_sectors\": 0, \"tma_store_bytes\": 512, \"tma_store_sectors\": 0, ");
    EXPECT_SAYS(text, "\"fp32_flops\": 123456789012, \"tensor_flops\": null, \"exps\": 4096, "
                      "\"special_instructions\": null, \"barriers\": 0, ");
    EXPECT_SAYS(text, "\"fp32_flops\": null, \"tensor_flops\": 65536, \"exps\": null, "
                      "\"special_instructions\": 7, \"barriers\": null, ");
    EXPECT_SAYS(text, "\"dram_write_bytes\": 12345678901}");  // every digit
    EXPECT_SAYS(text, "\"space\": \"shared\", \"operation\": \"read\", \"path\": \"\", "
                      "\"access_bytes\": 4");
    EXPECT(strstr(text, "nan") == NULL);
}

int main(int argc, char **argv) {
    char path[1024];
    snprintf(path, sizeof path, "%s/profile_test.json", argc > 1 ? argv[1] : ".");
    struct profile profile, nothing;
    make(&profile);
    check_text(path, &profile);
    check_roofline(path, &profile);
    profile_begin(&nothing, "nothing", flops);
    capture(path, &nothing, 0);
    EXPECT(text[0] == '\0');
    capture(path, &nothing, 1);
    EXPECT_SAYS(text, "\"launches\": [\n],\n\"lines\": [\n],\n\"rooflines\": [\n{");
    check_json(path, &profile);
    profile_free(&profile);
    EXPECT(profile.launch_count == 0 && profile.launches == NULL);
    return unit_end();
}
