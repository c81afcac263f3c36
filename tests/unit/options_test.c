// options_test.c - command lines, right and wrong.
#include "common/device.h"
#include "common/options.h"

#include "unit.h"

static void no_launch(struct attention a) { (void)a; }
static const struct kernel kernels[] = {
    {"naive", "the first", no_launch, NULL, {1u << DTYPE_FP16, 8, 128, 0, 0, 0}},
    {"fused", "the second", no_launch, NULL, {1u << DTYPE_FP16, 8, 128, 0, FEATURE_WINDOW, 100}},
    {"slopes", "gradients", no_launch, NULL, {1u << DTYPE_FP16, 8, 96, 0, 0, 0}, no_launch},
    {"quick", "more of them", no_launch, NULL, {1u << DTYPE_FP16, 8, 64, 0, 0, 0, 1}, no_launch},
};
static const struct lab lab = {
    .name = "lab00_test", .idea = "an idea", .lecture = "a section", .kernels = kernels, .kernel_count = 4};
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
    EXPECT(parse("--pad 8 --repeat 200") == 0 && options.pad == 8 && options.repeat == 200);
    EXPECT(parse("") == 0 && options.pad == 0 && options.repeat == 0);
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
    refuse("--pad -1", "at least 0");
    refuse("--repeat -1", "at least 0");
}

static void windows(void) {
    EXPECT(parse("") == 0 && !options.window && options.sequences == 0);
    EXPECT(parse("--window 3,5") == 0 && options.window && options.window_left == 3 &&
           options.window_right == 5);
    // One number: both sides; but to the left only under --causal, wherever that stands.
    EXPECT(parse("--window 3") == 0 && options.window_left == 3 && options.window_right == 3);
    EXPECT(parse("--window 3 --causal") == 0 && options.window_left == 3 && options.window_right == 0);
    EXPECT(parse("--causal --window=0") == 0 && options.window_left == 0 && options.window_right == 0);
    EXPECT(parse("--causal --window 3,2") == 0 && options.causal && options.window_right == 2);
    EXPECT(parse("--window -1,0") == 0 && options.window_left == NO_LIMIT && options.window_right == 0);
    EXPECT(parse("--window 7,-1") == 0 && options.window_left == 7 && options.window_right == NO_LIMIT);
    EXPECT(parse("--window -1") == 0 && options.window && options.window_right == NO_LIMIT);
    EXPECT(parse("--window 2147483647,2147483647") == 0 && options.window_left == INT32_MAX);
    EXPECT(parse("--window -1,4 --inputs huge") == 0);
    refuse("--window", "--window needs a value");
    refuse("--window=", "whole number");
    refuse("--window 3,", "whole number");
    refuse("--window x", "whole number");
    refuse("--window 3,-2", "or -1 for no limit");
    refuse("--window -3", "or -1 for no limit");
    refuse("--window 1,2,3", "one number or two");
    refuse("--window 2147483648", "at most 2147483647");
    refuse("--window 3 --window 4", "twice");
    refuse("--window 3 --inputs huge", "key 0");
}

static void packed(void) {
    EXPECT(parse("--seqlens 17,0,300") == 0 && options.sequences == 3 && options.batch == 1);
    EXPECT(options.seqlen_q == 317 && options.seqlen_k == 317 && options.layout[2] == LAYOUT_BSHD);
    static const int cu[] = {0, 17, 17, 317};
    EXPECT(memcmp(options.cu_seqlens_q, cu, sizeof cu) == 0 &&
           memcmp(options.cu_seqlens_k, cu, sizeof cu) == 0);
    EXPECT(parse("--seqlens-k=0,8 --layout bhsd --seqlens-q 4,0") == 0 && options.sequences == 2);
    EXPECT(options.seqlen_q == 4 && options.seqlen_k == 8 && options.layout[0] == LAYOUT_BHSD);
    EXPECT(options.cu_seqlens_q[1] == 4 && options.cu_seqlens_q[2] == 4 && options.cu_seqlens_k[1] == 0);
    EXPECT(parse("--seqlens 0") == 0 && options.sequences == 1 && options.seqlen_k == 0);
    EXPECT(parse("--seqlens 2147483647,0") == 0 && options.seqlen_k == INT32_MAX);
    EXPECT(parse("--load in --seqlens 3 --save out --bench") == 0);
    refuse("--seqlens", "--seqlens needs a value");
    refuse("--seqlens=", "no number");
    refuse("--seqlens ,3", "no number");
    refuse("--seqlens 3,", "no number");
    refuse("--seqlens 3,,4", "no number");
    refuse("--seqlens 3,-4", "--seqlens is -4; it must be at least 0");
    refuse("--seqlens 3,4x", "whole number");
    refuse("--seqlens 3;4", "whole number");
    refuse("--seqlens 2147483647,1", "more than 2147483647 tokens");
    refuse("--seqlens 2147483648", "at most 2147483647");
    refuse("--seqlens-q 1,2 --seqlens-k 3", "--seqlens-q has 2 sequences and --seqlens-k 1");
    refuse("--seqlens-q 1,2 --seqlens-k 3,x", "--seqlens-k needs a whole number");
    refuse("--seqlens-q 1", "--seqlens-k is missing");
    refuse("--seqlens-k 1", "--seqlens-q is missing");
    refuse("--seqlens 1 --seqlens-k 1", "give it alone");
    refuse("--seqlens 1 --seqlen 1", "leave out --seqlen.");
    refuse("--seqlens 1 --seqlen-k 1", "leave out --seqlen-k.");
    refuse("--seqlens 1 --batch 1", "leave out --batch.");
    refuse("--seqlens 1 --sweep", "leave out --sweep.");
    refuse("--seqlens 1 --seqlens 2", "twice");

    // As many as there is room for, and one more.
    static char many[2 * MAX_SEQUENCES + 20], program[] = "lab00_test", option[] = "--seqlens";
    char *argv[] = {program, option, many};
    memset(many, ',', sizeof many - 1);
    for (size_t i = 0; i < MAX_SEQUENCES; ++i) many[2 * i] = '1';
    many[2 * MAX_SEQUENCES - 1] = '\0';
    EXPECT(options_parse(3, argv, &lab, &shape, &options, &why) == 0 && options.sequences == MAX_SEQUENCES);
    EXPECT(options.seqlen_q == MAX_SEQUENCES && options.cu_seqlens_k[MAX_SEQUENCES] == MAX_SEQUENCES);
    memcpy(many + (size_t)2 * MAX_SEQUENCES - 1, ",1", 3);
    EXPECT(options_parse(3, argv, &lab, &shape, &options, &why) == -1);
    EXPECT_SAYS(why.text, "more than 8192 sequences");
}

static void outputs(void) {
    EXPECT(parse("--outputs there --kernel fused --profile --json f") == 0);
    EXPECT(options.outputs && strcmp(options.outputs, "there") == 0 && options.profile);
    EXPECT(parse("--load here --outputs=there --sanitize --bench") == 0);
    refuse("--outputs", "--outputs needs a value: --outputs DIR.");
    refuse("--outputs a --outputs b", "twice");
    refuse("--outputs a --save b", "leave out --save.");
    refuse("--outputs a --repeat 3", "leave out --repeat.");
    refuse("--outputs a --sweep", "leave out --sweep.");
    refuse("--outputs a --profile --bench", "give one of them");
    refuse("--output a", "Did you mean --outputs?");
}

static void list(void) {
    static char text[2000];
    FILE *file = tmpfile();
    if (!file) exit(1);
    options_print_list(file, &lab);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    EXPECT_SAYS(text, "supports fp16; head_dim a multiple of 8 up to 128\n");
    EXPECT_SAYS(text, "up to 128; --window; scores up to 100\n");
    EXPECT_SAYS(text, "up to 96; backward pass\n");
    EXPECT_SAYS(text, "up to 64; backward pass, dQ summed in any order\n");
}

static void gradients(void) {
    EXPECT(parse("") == 0 && options.backward && options.train == 0);
    EXPECT(parse("--kernel naive --kernel fused") == 0 && !options.backward);
    EXPECT(parse("--kernel naive --kernel quick") == 0 && options.backward);
    EXPECT(parse("--train") == 0 && options.train == (ON_CPU ? 100 : 300));
    EXPECT(parse("--train --causal") == 0 && options.train == (ON_CPU ? 100 : 300) && options.causal);
    EXPECT(parse("--train 7 --dim 64") == 0 && options.train == 7 && options.head_dim == 64);
    EXPECT(parse("--train=7 --kernel slopes --seqlen 3 --heads 4 --kv-heads 2 --pad 8") == 0);
    refuse("--train 0", "at least 1");
    refuse("--train -3", "at least 1");
    refuse("--train=", "whole number");
    refuse("--train soon", "whole number");
    refuse("--train 1.5", "whole number");
    refuse("--train 2147483648", "at most");
    refuse("--train 3 --train 4", "twice");
    refuse("--train --kernel naive", "--train needs gradients, which the kernels of --kernel do not compute");
    refuse("--train --seqlen 0", "--seqlen is 0");
    refuse("--train --bench", "leave out --bench.");
    refuse("--json f --train", "leave out --json.");
    refuse("--train --load d", "leave out --load.");
    refuse("--train --inputs tiny", "leave out --inputs.");
    refuse("--train --seqlens 3,4", "leave out --seqlens.");
    refuse("--train --seqlen-q 3 --seqlen-k 3", "leave out --seqlen-q.");
    refuse("--train --batch 1", "leave out --batch.");
    refuse("--train --repeat 2", "leave out --repeat.");
    EXPECT(parse("--inputs one-row") == 0 && options.inputs == INPUTS_ONE_ROW);
    // A lab without gradients says so.
    struct lab forward = lab;
    static char program[] = "lab00_test", option[] = "--train";
    char *argv[] = {program, option};
    forward.kernel_count = 2;
    EXPECT(options_parse(2, argv, &forward, &shape, &options, &why) == -1);
    EXPECT_SAYS(why.text, "--train needs gradients, which lab00_test does not compute");
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
    memcpy(line, "--seqlens ", 10);
    refuse(line, "whole number");
    memset(line + 10, '1', 300);
    refuse(line, "at most");
}

int main(void) {
    right();
    wrong();
    windows();
    packed();
    gradients();
    outputs();
    list();
    long_words();
    return unit_end();
}
