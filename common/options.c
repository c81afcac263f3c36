#include "options.h"

#include <math.h>
#include <string.h>

#include "option_values.h"
#include "suggest.h"
#include "trace_file.h"

// ---------------------------------------------------------------- the table of options

enum option {
    OPTION_BATCH,
    OPTION_HEADS,
    OPTION_KV_HEADS,
    OPTION_SEQLEN,
    OPTION_SEQLEN_Q,
    OPTION_SEQLEN_K,
    OPTION_SEQLENS,
    OPTION_SEQLENS_Q,
    OPTION_SEQLENS_K,
    OPTION_DIM,
    OPTION_DTYPE,
    OPTION_CAUSAL,
    OPTION_WINDOW,
    OPTION_FULL,
    OPTION_SPLITS,
    OPTION_SCALE,
    OPTION_LAYOUT,
    OPTION_PAD,
    OPTION_INPUTS,
    OPTION_SEED,
    OPTION_LOAD,
    OPTION_SAVE,
    OPTION_OUTPUTS,
    OPTION_KERNEL,
    OPTION_REPEAT,
    OPTION_BENCH,
    OPTION_PROFILE,
    OPTION_SANITIZE,
    OPTION_SWEEP,
    OPTION_TRAIN,
    OPTION_GENERATE,
    OPTION_LAYERS,
    OPTION_SCHEDULE,
    OPTION_TRACE,
    OPTION_JSON,
    OPTION_LIST,
    OPTION_HELP,
    OPTION_COUNT
};

// Steps of --train unless it says how many: the emulator takes a second for a hundred and each kernel. And
// those of --generate, in so many layers unless --layers says otherwise.
#ifdef SIMT_CPU
#define TRAIN_STEPS "100"
#define GENERATE_STEPS "4"
#define GENERATE_LAYERS 2
#else
#define TRAIN_STEPS "300"
#define GENERATE_STEPS "64"
#define GENERATE_LAYERS 32
#endif
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static const struct {
    const char *name;   // without the dashes
    const char *value;  // what stands for its value in the manual; null: it takes none
    const char *text;
    const char *implied;  // its value where it stands alone; null: it needs one
} table[OPTION_COUNT] = {
    [OPTION_BATCH] = {"batch", "B", "sequences"},
    [OPTION_HEADS] = {"heads", "H", "query heads"},
    [OPTION_KV_HEADS] = {"kv-heads", "G", "heads of K and V, a divisor of H (default: H)"},
    [OPTION_SEQLEN] = {"seqlen", "N", "tokens of queries and of keys"},
    [OPTION_SEQLEN_Q] = {"seqlen-q", "M", "tokens of queries"},
    [OPTION_SEQLEN_K] = {"seqlen-k", "N", "tokens of keys"},
    [OPTION_SEQLENS] =
        {"seqlens", "N,N,...",
         "sequences of these lengths, packed behind each other (layout bshd, unless --layout)"},
    [OPTION_SEQLENS_Q] = {"seqlens-q", "M,...", "the same with lengths of their own for queries ..."},
    [OPTION_SEQLENS_K] = {"seqlens-k", "N,...", "... and keys, as many"},
    [OPTION_DIM] = {"dim", "D", "head dimension"},
    [OPTION_DTYPE] = {"dtype", "T", "storage type: fp16 (default), bf16, e4m3 (also fp8), e5m2, fp32"},
    [OPTION_CAUSAL] = {"causal", NULL, "query i sees keys j <= i + N - M only (aligned bottom right)"},
    [OPTION_FULL] = {"full", NULL, "no mask: every query sees every key (default, but for lab05)"},
    [OPTION_WINDOW] = {"window", "L,R",
                       "query i sees keys i + N - M - L ... i + N - M + R only; -1: no limit on that side; "
                       "R is L if left out, 0 with --causal"},
    [OPTION_SPLITS] = {"splits", "S",
                       "blocks that share a query's keys, 1 to 128 (default: as a kernel's own rule says)"},
    [OPTION_SCALE] = {"scale", "S", "factor of the scores (default: 1 / sqrt(D))"},
    [OPTION_LAYOUT] = {"layout", "L", "order in memory: bhsd (default) or bshd, or four of them: q,k,v,o"},
    [OPTION_PAD] = {"pad", "E", "elements between the rows of every tensor that nobody may touch"},
    [OPTION_INPUTS] = {"inputs", "NAME", "what Q, K and V hold (below; default: normal)"},
    [OPTION_SEED] = {"seed", "S", "of the inputs (default: 1); the same numbers on every machine"},
    [OPTION_LOAD] =
        {"load", "DIR",
         "read q.npy, k.npy, v.npy (and, if there, the answers o.npy and lse.npy; for gradients also do.npy, "
         "dq.npy, dk.npy and dv.npy) in place of --inputs"},
    [OPTION_SAVE] = {"save", "DIR",
                     "write inputs, reference and every kernel's o and lse (or also dq, dk, dv) as .npy"},
    [OPTION_OUTPUTS] =
        {"outputs", "DIR",
         "only run the kernels and write their o and lse (or also dq, dk, dv) as .npy: nothing "
         "is compared; with --json also what --profile counts or --bench times"},
    [OPTION_KERNEL] = {"kernel", "NAME", "run this kernel (may be repeated; default: all)"},
    [OPTION_REPEAT] = {"repeat", "N",
                       "run each kernel N times more: its results must be the same to the bit"},
    [OPTION_BENCH] = {"bench", NULL, "time the kernels that are right"},
    [OPTION_PROFILE] = {"profile", NULL,
                        "memory traffic line by line (cpu), or Nsight Compute's counters (gpu)"},
    [OPTION_SANITIZE] = {"sanitize", NULL,
                         "races, and bit-equal under five thread schedules (cpu); compute-sanitizer (gpu)"},
    [OPTION_SWEEP] = {"sweep", NULL, "memory and time over a range of N, \"does not fit\" included"},
    [OPTION_TRAIN] = {"train", "[STEPS]",
                      "fit a small layer's weights with each kernel's gradients (below), in " TRAIN_STEPS
                      " steps",
                      TRAIN_STEPS},
    [OPTION_GENERATE] =
        {"generate", "[STEPS]",
         "append a token to each sequence and attend from it, step by step in all layers, as a "
         "CUDA graph; --seqlen or --seqlens is the prompt (default: " GENERATE_STEPS " steps)",
         GENERATE_STEPS},
    [OPTION_LAYERS] = {"layers", "L", "layers of --generate (default: " TEXT(GENERATE_LAYERS) ")"},
    [OPTION_SCHEDULE] = {"schedule", "S",
                         "order of threads, cpu only: 0 ascending, 1 descending, other: random by seed; "
                         "--sanitize then looks at this one alone"},
    [OPTION_TRACE] = {"trace", "FILE",
                      "launch the kernels that are right once more and write a timeline of their warps, for "
                      "chrome://tracing, ui.perfetto.dev or bench/timeline.py"},
    [OPTION_JSON] = {"json", "FILE", "write the results there, too"},
    [OPTION_LIST] = {"list", NULL, "print the kernels, what each adds and what it supports"},
    [OPTION_HELP] = {"help", NULL, "print this"},
};

// ---------------------------------------------------------------- the command line

static int apply(enum option option, const char *value, const struct lab *lab, struct options *o,
                 struct message *why) {
    const char *name = table[option].name;
    switch (option) {
    case OPTION_BATCH:
        o->given |= GIVEN_BATCH;
        return parse_int(name, value, 0, &o->batch, why);
    case OPTION_HEADS:
        o->given |= GIVEN_HEADS;
        return parse_int(name, value, 1, &o->heads, why);
    case OPTION_KV_HEADS:
        o->given |= GIVEN_KV_HEADS;
        return parse_int(name, value, 1, &o->kv_heads, why);
    case OPTION_SEQLEN:
        if (parse_int(name, value, 0, &o->seqlen_q, why) != 0) return -1;
        o->seqlen_k = o->seqlen_q, o->given |= GIVEN_SEQLEN_Q | GIVEN_SEQLEN_K;
        return 0;
    case OPTION_SEQLEN_Q:
        o->given |= GIVEN_SEQLEN_Q;
        return parse_int(name, value, 0, &o->seqlen_q, why);
    case OPTION_SEQLEN_K:
        o->given |= GIVEN_SEQLEN_K;
        return parse_int(name, value, 0, &o->seqlen_k, why);
    case OPTION_SEQLENS:
        o->seqlens_text[0] = o->seqlens_text[1] = value;
        return 0;
    case OPTION_SEQLENS_Q:
        o->seqlens_text[0] = value;
        return 0;
    case OPTION_SEQLENS_K:
        o->seqlens_text[1] = value;
        return 0;
    case OPTION_DIM:
        o->given |= GIVEN_DIM;
        return parse_int(name, value, 1, &o->head_dim, why);
    case OPTION_DTYPE:
        return parse_dtype(value, &o->dtype, why);
    case OPTION_CAUSAL:
        o->causal = 1;
        return 0;
    case OPTION_FULL:
        o->causal = 0;
        return 0;
    case OPTION_WINDOW:
        o->window_text = value;
        return 0;
    case OPTION_SPLITS:
        if (parse_int(name, value, 1, &o->splits, why) != 0) return -1;
        if (o->splits > MAX_SPLITS)
            return fail(why, "--splits is %d; it is at most %d.", o->splits, MAX_SPLITS);
        return 0;
    case OPTION_SCALE:
        o->given |= GIVEN_SCALE;
        return parse_scale(value, &o->scale, why);
    case OPTION_LAYOUT:
        return parse_layout(value, o->layout, why);
    case OPTION_PAD:
        return parse_int(name, value, 0, &o->pad, why);
    case OPTION_INPUTS:
        o->given |= GIVEN_INPUTS;
        return parse_inputs(value, &o->inputs, why);
    case OPTION_SEED:
        o->given |= GIVEN_SEED;
        return parse_u64(name, value, &o->seed, why);
    case OPTION_LOAD:
        return parse_path(name, value, &o->load, why);
    case OPTION_SAVE:
        return parse_path(name, value, &o->save, why);
    case OPTION_OUTPUTS:
        return parse_path(name, value, &o->outputs, why);
    case OPTION_KERNEL:
        return parse_kernel(value, lab, o, why);
    case OPTION_REPEAT:
        return parse_int(name, value, 0, &o->repeat, why);
    case OPTION_BENCH:
        o->bench = 1;
        return 0;
    case OPTION_PROFILE:
        o->profile = 1;
        return 0;
    case OPTION_SANITIZE:
        o->sanitize = 1;
        return 0;
    case OPTION_SWEEP:
        o->sweep = 1;
        return 0;
    case OPTION_TRAIN:
        return parse_int(name, value, 1, &o->train, why);
    case OPTION_GENERATE:
        return parse_int(name, value, 1, &o->generate, why);
    case OPTION_LAYERS:
        return parse_int(name, value, 1, &o->layers, why);
    case OPTION_SCHEDULE:
        o->schedule_given = 1;
        return parse_u64(name, value, &o->schedule, why);
    case OPTION_TRACE:
        return parse_path(name, value, &o->trace, why);
    case OPTION_JSON:
        return parse_path(name, value, &o->json, why);
    case OPTION_LIST:
        o->list = 1;
        return 0;
    case OPTION_HELP:
        o->help = 1;
        return 0;
    case OPTION_COUNT:
        break;
    }
    return 0;
}

// The option that this word names ("--dim", "--dim=64"), OPTION_COUNT if none.
static enum option find_option(const char *word, size_t length) {
    int option = 0;
    while (option < OPTION_COUNT &&
           (strlen(table[option].name) != length || strncmp(table[option].name, word, length) != 0))
        ++option;
    return (enum option)option;
}

static int unknown_option(const char *word, struct message *why) {
    struct words words = {.count = 0};
    for (int i = 0; i < OPTION_COUNT; ++i) add_word(&words, table[i].name);
    char bare[64], hint[200];
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(word + strspn(word, "-"), "="),
             word + strspn(word, "-"));
    suggest(hint, sizeof hint, &words, "--", bare, "--help lists the options.");
    return fail(why, "There is no option %.60s.%s", word, hint);
}

// --seqlens, or --seqlens-q and --seqlens-k: the lengths, and what they say of the shape.
static int settle_packed(struct options *o, const unsigned seen[OPTION_COUNT], struct message *why) {
    const char *not_with = seen[OPTION_SEQLEN]     ? "--seqlen"
                           : seen[OPTION_SEQLEN_Q] ? "--seqlen-q"
                           : seen[OPTION_SEQLEN_K] ? "--seqlen-k"
                           : seen[OPTION_BATCH]    ? "--batch"
                           : o->sweep              ? "--sweep"
                                                   : NULL;
    if (not_with) return fail(why, "--seqlens says how many tokens there are; leave out %s.", not_with);
    if (seen[OPTION_SEQLENS] && (seen[OPTION_SEQLENS_Q] || seen[OPTION_SEQLENS_K]))
        return fail(why,
                    "--seqlens sets the lengths of both; give it alone, or --seqlens-q and --seqlens-k.");
    if (!o->seqlens_text[0] || !o->seqlens_text[1])
        return fail(why, "--seqlens-%s is missing beside --seqlens-%s; give both, or --seqlens for both.",
                    o->seqlens_text[0] ? "k" : "q", o->seqlens_text[0] ? "q" : "k");
    int both = seen[OPTION_SEQLENS] != 0, sequences_k = 0;
    if (parse_seqlens(both ? "seqlens" : "seqlens-q", o->seqlens_text[0], o->cu_seqlens_q, &o->sequences,
                      why) != 0 ||
        parse_seqlens(both ? "seqlens" : "seqlens-k", o->seqlens_text[1], o->cu_seqlens_k, &sequences_k,
                      why) != 0)
        return -1;
    if (o->sequences != sequences_k)
        return fail(why, "--seqlens-q has %d sequences and --seqlens-k %d; give as many of both.",
                    o->sequences, sequences_k);
    o->batch = 1, o->seqlen_q = o->cu_seqlens_q[o->sequences], o->seqlen_k = o->cu_seqlens_k[o->sequences];
    o->given |= GIVEN_BATCH | GIVEN_SEQLEN_Q | GIVEN_SEQLEN_K;
    for (int i = 0; i < 4 && !seen[OPTION_LAYOUT]; ++i) o->layout[i] = LAYOUT_BSHD;
    return 0;
}

static int has_backward(const struct lab *lab, const struct options *o) {
    int backward = 0;
    for (int i = 0; i < lab->kernel_count; ++i)
        backward |= lab->kernels[i].forward && options_choose(o, &lab->kernels[i]);
    return backward;
}

// The first of these options that was given, null if none was.
static const char *first_given(const enum option *options, size_t count, const unsigned seen[OPTION_COUNT]) {
    for (size_t i = 0; i < count; ++i)
        if (seen[options[i]]) return table[options[i]].name;
    return NULL;
}

static int settle_train(const struct lab *lab, struct options *o, const unsigned seen[OPTION_COUNT],
                        struct message *why) {
    static const enum option own[] = {OPTION_BATCH,     OPTION_SEQLEN_Q,  OPTION_SEQLEN_K, OPTION_SEQLENS,
                                      OPTION_SEQLENS_Q, OPTION_SEQLENS_K, OPTION_INPUTS,   OPTION_LOAD,
                                      OPTION_SAVE,      OPTION_REPEAT,    OPTION_BENCH,    OPTION_PROFILE,
                                      OPTION_SANITIZE,  OPTION_SWEEP,     OPTION_TRACE,    OPTION_JSON};
    const char *other = first_given(own, sizeof own / sizeof *own, seen);
    if (other) return fail(why, "--train has a layer, inputs and a table of its own; leave out --%s.", other);
    if (o->seqlen_q == 0) return fail(why, "--train needs tokens to learn from; --seqlen is 0.");
    if (!o->backward)
        return fail(why, "--train needs gradients, which %s %s not compute (but lab06_backward does).",
                    o->kernel_count > 0 ? "the kernels of --kernel" : lab->name,
                    o->kernel_count > 0 ? "do" : "does");
    return 0;
}

// The prompts, of --seqlens or all of --seqlen, grow by a token a step: what that comes to in the end is a
// causal problem of packed sequences, with a query for each step.
static int settle_generate(const struct lab *lab, struct options *o, const unsigned seen[OPTION_COUNT],
                           struct message *why) {
    static const enum option own[] = {
        OPTION_SEQLEN_Q, OPTION_SEQLENS_Q, OPTION_SEQLENS_K, OPTION_WINDOW, OPTION_LAYOUT,  OPTION_PAD,
        OPTION_LOAD,     OPTION_SAVE,      OPTION_REPEAT,    OPTION_BENCH,  OPTION_PROFILE, OPTION_SANITIZE,
        OPTION_SWEEP,    OPTION_TRAIN,     OPTION_TRACE,     OPTION_JSON,   OPTION_OUTPUTS};
    const char *other = first_given(own, sizeof own / sizeof *own, seen);
    if (other)
        return fail(
            why,
            "--generate has one query for each sequence, and caches and a table of its own; leave out --%s.",
            other);
    if (!lab->growth)
        return fail(why,
                    "--generate needs kernels for sequences that grow, and %s has none (but "
                    "lab08_flashdecoding has).",
                    lab->name);
    int packed = o->sequences > 0, steps = o->generate;
    if (!packed && o->batch > MAX_SEQUENCES)
        return fail(why, "--generate takes up to %d sequences; --batch is %d.", MAX_SEQUENCES, o->batch);
    if (!packed) o->sequences = o->batch;
    if (o->sequences == 0) return fail(why, "--generate needs a sequence that grows; --batch is 0.");
    int64_t prompts = packed ? o->cu_seqlens_k[o->sequences] : (int64_t)o->sequences * o->seqlen_k;
    int64_t total = prompts + (int64_t)o->sequences * steps;
    if (total > INT32_MAX)
        return fail(why,
                    "--generate would come to %lld tokens, more than 2^31 - 1; choose fewer steps or shorter "
                    "prompts.",
                    (long long)total);
    for (int s = 0; s <= o->sequences; ++s) {
        o->cu_seqlens_k[s] = (packed ? o->cu_seqlens_k[s] : s * o->seqlen_k) + s * steps;
        o->cu_seqlens_q[s] = s * steps;
    }
    o->batch = 1, o->seqlen_q = o->sequences * steps, o->seqlen_k = (int)total, o->causal = 1;
    for (int i = 0; i < 4; ++i) o->layout[i] = LAYOUT_BSHD;
    if (!seen[OPTION_LAYERS]) o->layers = GENERATE_LAYERS;
    return 0;
}

static int settle_trace(const struct lab *lab, const struct options *o, const unsigned seen[OPTION_COUNT],
                        struct message *why) {
    static const enum option other_runs[] = {OPTION_SWEEP, OPTION_PROFILE, OPTION_SANITIZE};
    const char *other = first_given(other_runs, sizeof other_runs / sizeof *other_runs, seen);
    if (other) return fail(why, "--trace and --%s are two runs; give one of them.", other);
    if (o->json && strcmp(o->trace, o->json) == 0)
        return fail(why, "--trace and --json would write the same file; give two.");
    int can = 0, can_at_dim = 0;
    for (int i = 0; i < lab->kernel_count; ++i) {
        if (!options_choose(o, &lab->kernels[i])) continue;
        can |= trace_possible(&lab->kernels[i], 1, why);
        can_at_dim |= trace_possible(&lab->kernels[i], o->load ? 1 : o->head_dim, why);
    }
    const struct message reason = *why;
    if (can_at_dim) return 0;
    if (can) return fail(why, "--trace has no kernel at --dim %d: %.300s.", o->head_dim, reason.text);
    return fail(
        why, "--trace needs kernels that mark their phases, and %s %s none (but lab07_fa3_hopper has).",
        o->kernel_count > 0 ? "among those of --kernel" : lab->name, o->kernel_count > 0 ? "is" : "has");
}

static int settle_outputs(const struct options *o, const unsigned seen[OPTION_COUNT], struct message *why) {
    static const enum option own[] = {OPTION_SAVE, OPTION_REPEAT, OPTION_SWEEP, OPTION_TRAIN, OPTION_TRACE};
    const char *other = first_given(own, sizeof own / sizeof *own, seen);
    if (other) return fail(why, "--outputs only runs kernels and writes results; leave out --%s.", other);
    if (o->profile && o->bench)
        return fail(why, "With --outputs, --profile and --bench are two runs; give one of them.");
    return 0;
}

// What the options say together.
static int settle(const struct lab *lab, struct options *o, const unsigned seen[OPTION_COUNT],
                  struct message *why) {
    if (seen[OPTION_SEQLEN] && (seen[OPTION_SEQLEN_Q] || seen[OPTION_SEQLEN_K]))
        return fail(why, "--seqlen sets both lengths; give it alone, or --seqlen-q and --seqlen-k.");
    if ((o->seqlens_text[0] || o->seqlens_text[1]) && settle_packed(o, seen, why) != 0) return -1;
    if (o->window_text && parse_window(o, why) != 0) return -1;
    if (o->inputs == INPUTS_HUGE && o->window && o->window_left != NO_LIMIT)
        return fail(why, "--inputs huge is built on key 0, which a window hides from most queries; give "
                         "--window -1,R or other inputs.");
    if (seen[OPTION_CAUSAL] && seen[OPTION_FULL])
        return fail(why, "--causal and --full exclude each other; leave one out.");
    if (o->load && (o->given & (GIVEN_INPUTS | GIVEN_SEED)))
        return fail(why, "--load reads the inputs from files; leave out %s.",
                    o->given & GIVEN_INPUTS ? "--inputs" : "--seed");
    if (o->sweep) {
        const char *not_with = o->load                                        ? "--load"
                               : o->save                                      ? "--save"
                               : o->profile                                   ? "--profile"
                               : o->sanitize                                  ? "--sanitize"
                               : o->given & (GIVEN_SEQLEN_Q | GIVEN_SEQLEN_K) ? "--seqlen"
                                                                              : NULL;
        if (not_with)
            return fail(why, "--sweep goes through its own lengths and inputs; leave out %s.", not_with);
    }
    if (o->profile && o->sanitize)
        return fail(why, "--profile and --sanitize are two runs; give one of them.");
    if (!(o->given & GIVEN_KV_HEADS) && (o->given & GIVEN_HEADS)) o->kv_heads = o->heads;
    if (!(o->given & GIVEN_HEADS) && (o->given & GIVEN_KV_HEADS) && !o->load && o->heads % o->kv_heads != 0)
        return fail(
            why,
            "--kv-heads is %d, but there are %d heads unless --heads says otherwise: give --heads as a "
            "multiple of %d.",
            o->kv_heads, o->heads, o->kv_heads);
    if (!o->load && o->heads % o->kv_heads != 0)
        return fail(why, "--heads must be a multiple of --kv-heads: %d is not a multiple of %d.", o->heads,
                    o->kv_heads);
    if (!(o->given & GIVEN_SCALE)) o->scale = (float)(1 / sqrt(o->head_dim));
    o->backward = has_backward(lab, o);
    if (seen[OPTION_LAYERS] && !o->generate) return fail(why, "--layers is for --generate; leave it out.");
    if (o->generate) return settle_generate(lab, o, seen, why);
    if (o->outputs && settle_outputs(o, seen, why) != 0) return -1;
    if (o->train) return settle_train(lab, o, seen, why);
    return o->trace ? settle_trace(lab, o, seen, why) : 0;
}

int options_parse(int argc, char **argv, const struct lab *lab, const struct shape *shape, struct options *o,
                  struct message *why) {
    memset(o, 0, sizeof *o);
    o->batch = shape->batch, o->heads = shape->heads, o->kv_heads = shape->kv_heads;
    o->seqlen_q = shape->seqlen_q ? shape->seqlen_q : shape->seqlen;
    o->seqlen_k = shape->seqlen, o->head_dim = shape->head_dim;
    o->dtype = DTYPE_FP16, o->seed = 1, o->causal = lab->causal;
    unsigned seen[OPTION_COUNT] = {0};
    for (int i = 1; i < argc; ++i) {
        const char *word = argv[i];
        if (strncmp(word, "--", 2) != 0)
            return fail(why, "\"%.60s\" is not an option; options begin with --, and --help lists them.",
                        word);
        size_t length = strcspn(word + 2, "=");
        enum option option = find_option(word + 2, length);
        if (option == OPTION_COUNT) return unknown_option(word, why);
        const char *name = table[option].name, *value = word[2 + length] == '=' ? word + 3 + length : NULL;
        if (!table[option].value && value)
            return fail(why, "--%s takes no value; leave out \"=%.60s\".", name, value);
        if (table[option].value && !value) {
            int follows = i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0;
            value = follows ? argv[++i] : table[option].implied;
            if (!value) return fail(why, "--%s needs a value: --%s %s.", name, name, table[option].value);
        }
        if (seen[option]++ && option != OPTION_KERNEL && table[option].value)
            return fail(why, "--%s is given twice.", name);
        if (apply(option, value ? value : "", lab, o, why) != 0) return -1;
        if (o->help || o->list) return 0;
    }
    return settle(lab, o, seen, why);
}

int options_choose(const struct options *o, const struct kernel *kernel) {
    for (int i = 0; i < o->kernel_count; ++i)
        if (strcmp(o->kernel[i], kernel->name) == 0) return 1;
    return o->kernel_count == 0;
}

// ---------------------------------------------------------------- manual

static void print_shape(FILE *out, const struct shape *s) {
    fprintf(out, " --batch %d --heads %d --kv-heads %d --seqlen%s %d --dim %d", s->batch, s->heads,
            s->kv_heads, s->seqlen_q ? "-k" : "", s->seqlen, s->head_dim);
    if (s->seqlen_q) fprintf(out, " --seqlen-q %d", s->seqlen_q);
}

void options_print_help(FILE *out, const struct lab *lab, const struct shape *shape) {
    fprintf(out, "%s: %s\n(%s)\n\nusage: %s [options]\n\n", lab->name, lab->idea, lab->lecture, lab->name);
    for (int i = 0; i < OPTION_COUNT; ++i) {
        char left[40];
        snprintf(left, sizeof left, "--%s %s", table[i].name, table[i].value ? table[i].value : "");
        fprintf(out, "  %-17s %s\n", left, table[i].text);
    }
    fputs("\nDefault shape here:", out);
    print_shape(out, shape);
    fputc('\n', out);
    if (memcmp(shape, &lab->on_cpu, sizeof *shape) != 0) {  // lab_main
        fputs("(with --profile or --sanitize:", out);
        print_shape(out, &lab->on_cpu);
        fputs(")\n", out);
    }
    fprintf(out, "\nInputs:\n");
    for (int i = 0; i < INPUTS_COUNT; ++i)
        fprintf(out, "  %-11s %s\n", inputs_name((enum input_kind)i), inputs_purpose((enum input_kind)i));
    fputs(
        "\nTraining (--train, of labs with gradients): a layer of attention, Q = X Wq and so on, learns to "
        "give what\nanother one gives, by gradient descent from fixed random X and weights; likewise with "
        "exact "
        "gradients (the\nreference) and, three times, with those of a plain implementation in the storage "
        "type. "
        "A kernel is right if its\nloss falls, and at every step is as near to the reference's as twice the "
        "most that the plain ones are off.\nDefault: --heads 1 --kv-heads 1 --seqlen 64\n",
        out);
    fprintf(
        out,
        "\nExit code: 0 all right; 1 a wrong result; 2 a request that makes no sense or that no kernel "
        "supports;\n"
        "77 skipped (no GPU, or too old a one).\n\n"
        "Example: causal attention, 300 queries at the end of 500 keys, six heads sharing two of K and V:\n"
        "  %s --heads 6 --kv-heads 2 --seqlen-q 300 --seqlen-k 500 --dim 64 --causal\n",
        lab->name);
}

void options_print_list(FILE *out, const struct lab *lab) {
    fprintf(out, "%s: %s\n", lab->name, lab->idea);
    int name_width = 6;
    for (int i = 0; i < lab->kernel_count; ++i) {
        int width = (int)strlen(lab->kernels[i].name);
        if (width > name_width) name_width = width;
    }
    for (int i = 0; i < lab->kernel_count; ++i) {
        const struct kernel *kernel = &lab->kernels[i];
        fprintf(out, "  %-*s  %s\n  %-*s  supports", name_width, kernel->name, kernel->adds, name_width, "");
        for (int t = 0; t < DTYPE_COUNT; ++t)
            if (kernel->support.dtypes >> t & 1) fprintf(out, " %s", dtype_name((enum dtype)t));
        unsigned features = kernel->support.features;
        fprintf(out, "; head_dim a multiple of %d up to %d%s%s%s%s%s%s%s", kernel->support.head_dim_multiple,
                kernel->support.head_dim_max, features & FEATURE_WINDOW ? "; --window" : "",
                features & FEATURE_PACKED ? "; --seqlens" : "",
                features & FEATURE_UNALIGNED ? "; any alignment" : "",
                features & FEATURE_SPLITS ? "; --splits" : "",
                features & FEATURE_GROWING ? "; --generate" : "",
                kernel->workspace ? "; needs workspace" : "",
                kernel->support.gpu_only ? "; gpu backend only" : "");
        if (kernel->support.score_max > 0) fprintf(out, "; scores up to %g", kernel->support.score_max);
        if (kernel->launch_traced) fputs("; --trace", out);
        if (kernel->forward) fputs("; backward pass", out);
        if (kernel->support.unordered_dq) fputs(", dQ summed in any order", out);
        fputc('\n', out);
    }
}
