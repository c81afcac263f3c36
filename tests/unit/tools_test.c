// tools_test.c - how --profile and --sanitize start NVIDIA's tools on a GPU, with stand-ins for ncu and
// compute-sanitizer that note their command lines: what reaches the lab, and what is made of the answer.
#define _DEFAULT_SOURCE
#include "common/tools.h"

#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static char folder[900], text[10000];

static const char *path_of(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

// A program of this name on the PATH: notes its arguments, one a line, in `called`, then runs the script.
// $log is what follows --log-file.
static void stand_in(const char *name, const char *script) {
    FILE *file = fopen(path_of(name), "w");
    if (!file) {
        perror(path_of(name));
        exit(1);
    }
    fprintf(file,
            "#!/bin/sh\n"
            "printf '%%s\\n' \"$@\" >'%s/called'\n"
            "while [ $# -gt 1 ]; do [ \"$1\" != --log-file ] || log=$2; shift; done\n%s\n",
            folder, script);
    fclose(file);
    chmod(path_of(name), 0755);
}

// Reads what the stand-in was called with, each word between newlines.
static const char *called(void) {
    FILE *file = fopen(path_of("called"), "r");
    text[0] = '\n';
    text[1 + (file ? fread(text + 1, 1, sizeof text - 2, file) : 0)] = '\0';
    if (file) fclose(file);
    remove(path_of("called"));
    return text;
}

static void no_operation(struct attention a) { (void)a; }
static const struct kernel kernels[] = {
    {"tiled", "", no_operation, NULL, {1u << DTYPE_FP16, 8, 128, 0, 0, 0}},
    {"naive", "", no_operation, NULL, {1u << DTYPE_FP16, 8, 128, 0, 0, 0}}};
static const struct lab lab = {.name = "lab00", .kernels = kernels, .kernel_count = 2};
static const struct shape shape = {.batch = 1, .heads = 2, .kv_heads = 2, .seqlen = 64, .head_dim = 32};

static char *words[] = {(char[]){"./lab00"},  (char[]){"--profile"},      (char[]){"--json=a b.json"},
                        (char[]){"--kernel"}, (char[]){"naive"},          (char[]){"--seqlen"},
                        (char[]){"128"},      (char[]){"--kernel=tiled"}, (char[]){"--causal"},
                        (char[]){"--json"},   (char[]){"--load"}};

// Runs the profile of "tiled" with the first `argc` words; returns the exit code.
static int profile_with(int argc, struct profile *profile) {
    struct options options;
    struct message why = {""};
    if (options_parse(argc, words, &lab, &shape, &options, &why) != 0) puts(why.text), exit(1);
    profile_begin(profile, "tiled", 4.0 * 32 * 2 * 128 * 128);
    return tools_profile(argc, words, &options, profile);
}

static void check_profile(void) {
    struct profile p;
    stand_in("ncu", "{ echo '==PROF== Connected'\n"
                    "echo '\"ID\",\"Kernel Name\",\"dram__bytes_read.sum\"'\n"
                    "echo '\"0\",\"f\",\"1,234\"'; } >\"$log\"");
    EXPECT(profile_with(9, &p) == LAB_OK);
    EXPECT(p.launch_count == 1);
    if (p.launch_count == 1) EXPECT_NEAR(p.launches[0].dram[0], 1234, 0);
    profile_free(&p);
    const char *said = called();
    // ncu counts where the lab says so, and the lab gets its command line without what the outer run does.
    EXPECT_SAYS(said, "\n--profile-from-start\noff\n");
    EXPECT_SAYS(said, "\n./lab00\n--seqlen\n128\n--causal\n--batch=1\n--heads=2\n--kv-heads=2\n--dim=32\n"
                      "--kernel=tiled\n");
    EXPECT(strstr(said, "--json") == NULL && strstr(said, "--profile\n") == NULL &&
           strstr(said, "naive") == NULL);

    stand_in("ncu", "echo '==ERROR== ERR_NVGPUCTRPERM - no permission' >\"$log\"; exit 1");
    EXPECT(profile_with(2, &p) == LAB_SKIPPED);
    stand_in("ncu", "echo '==WARNING== No kernels were profiled.' >\"$log\"");
    EXPECT(profile_with(2, &p) == LAB_WRONG);
    stand_in("ncu", "exit 1");
    EXPECT(profile_with(2, &p) == LAB_WRONG);
    stand_in("ncu", "exit 2");  // the lab itself refused
    EXPECT(profile_with(2, &p) == LAB_USAGE);
    stand_in("ncu", "exit 77");
    EXPECT(profile_with(2, &p) == LAB_SKIPPED);
}

static void check_sanitize(void) {
    char *argv[] = {(char[]){"./lab00"}, (char[]){"--sanitize"}, (char[]){"--kernel=naive"},
                    (char[]){"--seqlen-k=9"}};
    struct options options;
    struct message why = {""};
    EXPECT(options_parse(4, argv, &lab, &shape, &options, &why) == 0);
    stand_in("compute-sanitizer", "");
    EXPECT(tools_sanitize(4, argv, &options) == LAB_OK);
    EXPECT_SAYS(called(),
                "\n--tool\ninitcheck\n--error-exitcode\n1\n./lab00\n--kernel=naive\n--seqlen-k=9\n--batch=1\n"
                "--heads=2\n--kv-heads=2\n--seqlen-q=64\n--dim=32\n");
    stand_in("compute-sanitizer", "exit 1");
    EXPECT(tools_sanitize(4, argv, &options) == LAB_WRONG);
}

int main(int argc, char **argv) {
    snprintf(folder, sizeof folder, "%s/stand_ins", argc > 1 ? argv[1] : ".");
    mkdir(folder, 0755);
    char path[2000];
    snprintf(path, sizeof path, "%s:/usr/bin:/bin", folder);
    setenv("PATH", path, 1);
    setenv("TMPDIR", folder, 1);
    check_profile();
    check_sanitize();
    return unit_end();
}
