// options_test.c - command lines, right and wrong.
#include "common/options.h"

#include "unit.h"

static void no_launch(struct attention a) { (void)a; }
static const struct kernel kernels[] = {
    {"naive", "the first", no_launch, NULL, {1u << DTYPE_FP16, 8, 128, 0}},
    {"fused", "the second", no_launch, NULL, {1u << DTYPE_FP16, 8, 128, 0}},
};
static const struct lab lab = {
    .name = "lab00_test", .idea = "an idea", .lecture = "a section", .kernels = kernels, .kernel_count = 2};
static const struct shape shape = {.batch = 2, .heads = 6, .kv_heads = 6, .seqlen = 40, .head_dim = 16};

static struct options options;
static struct message why;

// Parses a command line written as one text, words separated by single spaces.
static int parse(const char *line) {
    static char copy[512], program[] = "lab00_test";
    char *argv[32] = {program};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    why.text[0] = '\0';
    return options_parse(argc, argv, &lab, &shape, &options, &why);
}

static void refuse(const char *line, const char *words) {
    EXPECT(parse(line) == -1);
    EXPECT_SAYS(why.text, words);
    EXPECT(strchr(why.text, '\n') == NULL);
}

static void right(void) {
    EXPECT(parse("") == 0);
    EXPECT(options.batch == 2 && options.heads == 6 && options.kv_heads == 6 && options.head_dim == 16);
    EXPECT(options.seqlen_q == 40 && options.seqlen_k == 40 && options.dtype == DTYPE_FP16 &&
           !options.causal);
    EXPECT(options.seed == 1 && options.inputs == INPUTS_NORMAL && options.kernel_count == 0 &&
           !options.load);
    EXPECT_NEAR(options.scale, 0.25, 0);

    EXPECT(
        parse("--heads 8 --kv-heads=2 --seqlen-q 5 --seqlen-k=0 --dim=64 --dtype bf16 --causal --seed=7") ==
        0);
    EXPECT(options.heads == 8 && options.kv_heads == 2 && options.seqlen_q == 5 && options.seqlen_k == 0);
    EXPECT(options.dtype == DTYPE_BF16 && options.causal && options.seed == 7);
    EXPECT_NEAR(options.scale, 0.125, 0);
    EXPECT(parse("--heads 3") == 0 && options.kv_heads == 3);  // as many as heads, not the lab's default
    EXPECT(parse("--dtype fp8") == 0 && options.dtype == DTYPE_E4M3);
    EXPECT(parse("--scale -0.5 --inputs=one-hot --schedule 3") == 0);
    EXPECT(options.scale == -0.5f && options.inputs == INPUTS_ONE_HOT && options.schedule == 3);
    EXPECT(options.schedule_given && parse("--sanitize") == 0 && !options.schedule_given);
    EXPECT(parse("--layout bshd") == 0 && options.layout[0] == LAYOUT_BSHD &&
           options.layout[3] == LAYOUT_BSHD);
    EXPECT(parse("--layout bshd,bhsd,bhsd,bshd") == 0 && options.layout[0] == LAYOUT_BSHD);
    EXPECT(options.layout[1] == LAYOUT_BHSD && options.layout[2] == LAYOUT_BHSD &&
           options.layout[3] == LAYOUT_BSHD);
    EXPECT(parse("--kernel fused --kernel naive --kernel fused") == 0 && options.kernel_count == 2);
    EXPECT(strcmp(options.kernel[0], "fused") == 0 && strcmp(options.kernel[1], "naive") == 0);
    EXPECT(parse("--batch 0") == 0 && options.batch == 0);
    EXPECT(parse("--seed 18446744073709551615") == 0 && options.seed == UINT64_MAX);
    EXPECT(parse("--seqlen 2147483647") == 0 && options.seqlen_k == INT32_MAX);
    EXPECT(parse("--load in --save out --json file --bench --sanitize") == 0 && options.bench &&
           options.sanitize);
    EXPECT(strcmp(options.load, "in") == 0 && strcmp(options.save, "out") == 0 &&
           strcmp(options.json, "file") == 0);
    EXPECT(parse("--help --no-such-thing") == 0 && options.help);
    EXPECT(parse("--list") == 0 && options.list);
}

static void wrong(void) {
    refuse("--casual", "Did you mean --causal?");
    refuse("--seqlen_q 3", "Did you mean --seqlen-q?");
    refuse("--kern naive", "Did you mean --kernel?");
    refuse("--xyzzy", "--help");
    refuse("-h", "-h");
    refuse("64", "64");
    refuse("--causal=false", "takes no value");
    refuse("--causal false", "false");
    refuse("--batch", "--batch needs a value");
    refuse("--batch --heads 2", "--batch needs a value");
    refuse("--batch=", "whole number");
    refuse("--batch 1.5", "whole number");
    refuse("--batch 2x", "whole number");
    refuse("--batch 0x10", "whole number");
    refuse("--batch +1", "whole number");
    refuse("--batch -1", "at least 0");
    refuse("--heads 0", "at least 1");
    refuse("--dim 0", "at least 1");
    refuse("--seqlen 2147483648", "at most 2147483647");
    refuse("--seqlen 99999999999999999999", "at most 2147483647");
    refuse("--seed -1", "whole number");
    refuse("--seed 18446744073709551616", "2^64");
    refuse("--scale nan", "finite");
    refuse("--scale 1e39", "finite");
    refuse("--scale 1,5", "number");
    refuse("--dtype fp61", "Did you mean fp16?");
    refuse("--dtype fp64", "Did you mean");
    refuse("--dtype quadruple", "Choose from fp16, bf16");
    refuse("--layout sbhd", "Did you mean");
    refuse("--layout bhsd,bshd", "four");
    refuse("--layout bhsd,bshd,bhsd,bhsd,bhsd", "four");
    refuse("--inputs zeroq", "Did you mean zero-q?");
    refuse("--kernel fuse", "Did you mean fused?");
    refuse("--kernel zzzzzzzz", "Choose from naive, fused");
    refuse("--dim 8 --dim 16", "twice");
    refuse("--seqlen 8 --seqlen-k 9", "--seqlen sets both");
    refuse("--heads 6 --kv-heads 4", "6 is not a multiple of 4");
    refuse("--heads 2 --kv-heads 6", "2 is not a multiple of 6");
    refuse("--kv-heads 4", "there are 6 heads");
    refuse("--load d --inputs normal", "--inputs");
    refuse("--load d --seed 3", "--seed");
    refuse("--profile --sanitize", "one of them");
    refuse("--sweep --seqlen 9", "--seqlen");
    refuse("--sweep --load d", "--load");
    refuse("--json=", "path");
}

// A word of any length must not hurt.
static void long_words(void) {
    static char line[400];
    memset(line, 'x', sizeof line - 1);
    memcpy(line, "--", 2);
    refuse(line, "no option");
    memcpy(line, "--dtype ", 8);
    refuse(line, "Choose from");
    memcpy(line, "--layout ", 9);
    refuse(line, "layout");
    memcpy(line, "--kernel ", 9);
    refuse(line, "Choose from");
}

int main(void) {
    right();
    wrong();
    long_words();
    return unit_end();
}
