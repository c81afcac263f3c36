// honest_quantised_test.c - kernels that quantise as quantise.h says, whatever the order of their sums, and
// whether in fp32 or as tensor cores sum, pass compare.h against reference_quantised; each planted fault does
// not. Says how near the honest ones come.
#include "quantised_kernel.h"

static double worst_o, worst_lse;

// The verdict on what quantised_kernel left.
static enum verdict judge(enum quantised as, const char *line, int report) {
    struct comparison o = problem_comparison(&problem, OUTPUT_O, as);
    struct comparison lse = problem_comparison(&problem, OUTPUT_LSE, as);
    struct finding f = compare(&o), g = compare(&lse);
    enum verdict verdict = f.verdict != VERDICT_RIGHT ? f.verdict : g.verdict;
    if (report) {
        if (f.err > 0) worst_o = fmax(worst_o, f.err / f.bound);
        if (g.err > 0) worst_lse = fmax(worst_lse, g.err / g.bound);
        if (verdict != VERDICT_RIGHT)
            printf("  that was: %s, rotated %d: %s, O %g of %g, LSE %g of %g\n", line,
                   as == QUANTISED_E4M3_ROTATED, verdict_text(verdict), f.err, f.bound, g.err, g.bound);
    }
    return verdict;
}

// The plain implementation is honest: in no row is it off by more than the worst case.
static void check_worst_case(const char *line) {
    const struct reference *r = &problem.quantised;
    int dim = problem.host.head_dim, beyond = 0;
    for (int64_t row = 0; row < problem.rows.count; ++row) {
        const struct row_facts *facts = &r->facts[row];
        if (facts->keys == 0) continue;
        double err = 0, lse = fabs(r->plain_lse[row] - r->lse[row]);
        for (int64_t i = row * dim; i < (row + 1) * dim; ++i) err = fmax(err, fabs(r->plain_o[i] - r->o[i]));
        beyond += !(err <= facts->o.worst + dtype_min_positive(problem.host.dtype));
        beyond += !(lse <= facts->lse.worst + 0x1p-22 * (1 + fabs(r->lse[row])));
    }
    EXPECT(beyond == 0);
    if (beyond) printf("  that was: %s\n", line);
}

static void start(const char *line, enum quantised as) {
    make(line);
    if (problem_quantised(&problem, as, &why) != 0) printf("%s\n", why.text), exit(1);
}

static void honest(const char *line) {
    static const struct way ways[] = {{32, 0, HONEST},    {64, 1, HONEST},  {128, 1, HONEST},
                                      {192, 0, HONEST},   {224, 1, HONEST}, {32, 0, HONEST, 1},
                                      {256, 1, HONEST, 1}};
    for (int as = QUANTISED_E4M3; as <= QUANTISED_E4M3_ROTATED; ++as) {
        start(line, (enum quantised)as);
        check_worst_case(line);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; ++w) {
            quantised_kernel(ways[w], as == QUANTISED_E4M3_ROTATED);
            EXPECT(judge((enum quantised)as, line, 1) == VERDICT_RIGHT);
        }
        problem_free(&problem);
    }
}

// Number `n` of the cases: few rows to many, few keys to many, all kinds of inputs that are finite.
static void random_case(int n) {
    static const int dims[] = {8, 24, 40, 64, 72, 128};
    char line[256];
    unsigned draw[8];
    for (int i = 0; i < 8; ++i) draw[i] = (unsigned)(fabs(inputs_normal((uint64_t)n, 0, 0, 0, 0, i)) * 1e6);
    int kind = n % INPUTS_COUNT, kv_heads = 1 + (int)(draw[0] % 2);
    if (kind == INPUTS_NAN || kind == INPUTS_NAN_Q || kind == INPUTS_NAN_V) kind = INPUTS_NORMAL;
    snprintf(line, sizeof line,
             "--batch 1 --heads %d --kv-heads %d --seqlen-q %u --seqlen-k %u --dim %d --dtype %s --inputs %s "
             "--seed %d%s",
             kv_heads * (1 + (int)(draw[1] % 2)), kv_heads, 1 + draw[2] % (n % 3 ? 10 : 150),
             1 + draw[3] % (n % 4 ? 400 : 5), dims[draw[4] % 6], draw[5] % 3 ? "fp16" : "bf16",
             inputs_name((enum input_kind)kind), n, draw[6] % 2 ? " --causal" : "");
    honest(line);
}

// Each fault, where it shows, and that the same case is right without it.
static void faults(void) {
    static const struct {
        enum fault fault;
        int rotated;
        const char *line;
    } planted[] = {
        {FAULT_Q_SCALE, 0, "--batch 1 --heads 1 --kv-heads 1 --seqlen 260 --inputs steps"},
        {FAULT_K_SCALE, 0, "--batch 1 --heads 1 --kv-heads 1 --seqlen 260 --inputs steps"},
        {FAULT_V_SCALE, 0, "--batch 1 --heads 1 --kv-heads 1 --seqlen 260 --inputs steps"},
        {FAULT_Q_SCALE, 1, "--batch 1 --heads 1 --kv-heads 1 --seqlen 260 --inputs steps"},
        {FAULT_K_SCALE, 1, "--batch 1 --heads 1 --kv-heads 1 --seqlen 260 --inputs steps"},
        {FAULT_V_SCALE, 1, "--batch 1 --heads 1 --kv-heads 1 --seqlen 260 --inputs steps"},
        {FAULT_NO_V_SCALE, 0, "--batch 1 --heads 2 --kv-heads 1 --seqlen-q 9 --seqlen-k 40"},
        {FAULT_P_UNSCALED, 0, "--batch 1 --heads 1 --kv-heads 1 --seqlen-q 9 --seqlen-k 130 --inputs peak"},
        {FAULT_P_TO_512, 0, "--batch 1 --heads 1 --kv-heads 1 --seqlen-q 40 --seqlen-k 100 --inputs one-hot"},
        {FAULT_P_TO_512, 0,
         "--batch 1 --heads 1 --kv-heads 1 --seqlen-q 40 --seqlen-k 100 --inputs constant-v"},
        {FAULT_P_OVERFLOW, 0, "--batch 1 --heads 1 --kv-heads 1 --seqlen-q 1 --seqlen-k 1"},
        {FAULT_LSE, 0, "--batch 1 --heads 1 --kv-heads 1 --seqlen-q 3 --seqlen-k 20"},
        {FAULT_Q_ROTATED, 1, "--batch 1 --heads 1 --kv-heads 1 --seqlen-q 9 --seqlen-k 40"},
        {FAULT_TAIL, 0,
         "--batch 1 --heads 2 --kv-heads 1 --seqlen-q 9 --seqlen-k 250 --inputs added-outliers"},
    };
    unsigned seen = 0;
    for (size_t n = 0; n < sizeof planted / sizeof *planted; ++n) {
        enum quantised as = planted[n].rotated ? QUANTISED_E4M3_ROTATED : QUANTISED_E4M3;
        struct way way = {128, 0, planted[n].fault};
        start(planted[n].line, as);
        quantised_kernel(way, planted[n].rotated);
        enum verdict verdict = judge(as, planted[n].line, 0);
        EXPECT(verdict == (way.fault == FAULT_P_OVERFLOW ? VERDICT_NAN : VERDICT_WRONG));
        if (verdict == VERDICT_RIGHT) printf("  that was: fault %d, %s\n", (int)way.fault, planted[n].line);
        way.fault = HONEST;
        quantised_kernel(way, planted[n].rotated);
        EXPECT(judge(as, planted[n].line, 1) == VERDICT_RIGHT);
        problem_free(&problem);
        seen |= 1u << planted[n].fault;
    }
    EXPECT(seen == (1u << FAULTS) - 2);  // all but HONEST
}

int main(void) {
    for (int n = 0; n < 2 * INPUTS_COUNT; ++n) random_case(n);
    honest("--batch 1 --heads 1 --kv-heads 1 --seqlen-q 150 --seqlen-k 600 --inputs steps");
    honest("--batch 1 --heads 1 --kv-heads 1 --seqlen 300 --inputs added-outliers --causal --dim 128");
    honest("--batch 1 --heads 4 --kv-heads 4 --seqlen-q 9 --seqlen-k 20 --inputs uneven");
    honest("--batch 1 --heads 1 --kv-heads 1 --seqlen-q 9 --seqlen-k 130 --dim 16 --inputs peak");
    honest(
        "--batch 1 --heads 1 --kv-heads 1 --seqlen-q 9 --seqlen-k 600 --dim 64 --inputs peak --dtype bf16");
    honest("--batch 1 --heads 1 --kv-heads 1 --seqlen-q 9 --seqlen-k 600 --inputs constant-v --scale 0.01");
    for (int seed = 11; seed <= 14; ++seed) {
        char line[128];
        snprintf(
            line, sizeof line,
            "--batch 1 --heads 2 --kv-heads 2 --seqlen-q 2 --seqlen-k 300 --dim 8 --inputs zero-q --seed %d",
            seed);
        honest(line);
    }
    faults();
    printf("honest kernels: O at most %.3f of its bound, LSE %.3f\n", worst_o, worst_lse);
    EXPECT(worst_o > 0.3);  // of a bound that nobody comes near, nothing could be said
    return unit_end();
}
