#include "train.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "kernel_run.h"
#include "learner.h"

enum { TWINS = 3, LINES = 10, TEACHER = 0, STUDENT = 1 };
static const double momentum = 0.9, share_of_rate = 0.25;

struct shape train_shape(const struct lab *lab) {
    return (struct shape){
        .batch = 1, .heads = 1, .kv_heads = 1, .seqlen = 64, .head_dim = lab->on_cpu.head_dim};
}

// Everything that the trainings have in common, and the curves of the losses.
struct school {
    struct layer layer;
    const struct options *options;
    double *target;  // [layer.outputs]
    double rate;
    double *reference;       // [steps + 1]
    double *plain;           // [TWINS][steps + 1]
    double *kernels;         // [kernel][steps + 1]
    struct result *results;  // [kernel]
    int kernel_count;        // that trained
};

static double *curve_of(double *curves, const struct school *s, int n) {
    return curves + (size_t)n * ((size_t)s->options->train + 1);
}

// The most that one curve is from the reference's, in proportion to it; NaN if it is not finite.
static double farthest(const struct school *s, const double *curve) {
    double most = 0;
    for (int step = 0; step <= s->options->train; ++step) {
        double distance = fabs(curve[step] / s->reference[step] - 1);
        if (!(distance <= most)) most = distance;
        if (isnan(distance)) return NAN;
    }
    return most;
}

// ---------------------------------------------------------------- on the host

static int host_pass(struct learner *r, int plain, double *loss) {
    struct rows rows;
    struct reference forward;
    struct gradient gradients[GRADIENTS];
    if (rows_choose(&r->a, INFINITY, &rows) != 0 || reference_forward(&r->a, &rows, &forward) != 0) return -1;
    *loss = learner_loss(r, plain ? forward.plain_o : forward.o);
    reference_free(&forward);
    rows_free(&rows);
    if (gradients_make(&r->a, INFINITY, gradients) != 0) return -1;
    for (int i = 0; i < GRADIENTS; ++i) {
        const struct gradient *g = &gradients[i];
        memcpy(r->gradient[i], plain ? g->plain : g->exact,
               (size_t)g->rows.count * (size_t)r->a.head_dim * sizeof *g->exact);
    }
    gradients_free(gradients);
    return 0;
}
static int exact_pass(struct learner *r, void *context, double *loss) {
    (void)context;
    return host_pass(r, 0, loss);
}
static int plain_pass(struct learner *r, void *context, double *loss) {
    (void)context;
    return host_pass(r, 1, loss);
}

// A learner with tensors of its own on the host, freed by host_end.
static int host_begin(struct learner *r, const struct school *s, int number, enum dtype dtype,
                      int (*pass)(struct learner *learner, void *context, double *loss)) {
    static const enum layout layout[4] = {LAYOUT_BHSD, LAYOUT_BHSD, LAYOUT_BHSD, LAYOUT_BHSD};
    struct attention a = problem_shape(s->options);
    int missing = 0;
    a.dtype = dtype, a.pad = 0;
    for (int i = TENSOR_Q; i <= TENSOR_DO; ++i) {
        void *data = malloc((size_t)tensor_bytes(&a, i));
        *tensor_at(&a, i) = tensor_place(&a, i, layout, data);
        missing |= !data;
    }
    int status = learner_make(r, &s->layer, number, &a);
    r->a = a;  // to be freed whatever came of it
    if (status != 0 || missing) return -1;
    r->pass = pass;
    if (number != TEACHER) memcpy(r->target, s->target, (size_t)s->layer.outputs * sizeof *r->target);
    return 0;
}
static void host_end(struct learner *r) {
    for (int i = TENSOR_Q; i <= TENSOR_DO; ++i) free(tensor_at(&r->a, i)->data);
    learner_free(r);
}

// What the teacher gives: its distance from a target of zeros.
static int ask_teacher(struct school *s) {
    struct learner teacher;
    double loss;
    int status = host_begin(&teacher, s, TEACHER, DTYPE_FP32, exact_pass);
    if (status == 0) status = learner_look(&teacher, &loss);
    if (status == 0) memcpy(s->target, teacher.d_o, (size_t)s->layer.outputs * sizeof *s->target);
    host_end(&teacher);
    return status;
}

static int train_reference(struct school *s) {
    struct learner r;
    int status = host_begin(&r, s, STUDENT, DTYPE_FP32, exact_pass);
    double curvature = status == 0 ? learner_curvature(&r) : -1;
    if (curvature < 0) status = -1;
    s->rate = curvature > 0 ? share_of_rate / curvature : 0;
    if (status == 0) status = learner_descend(&r, s->options->train, momentum, s->rate, s->reference);
    host_end(&r);
    return status;
}

static int train_plain(struct school *s) {
    int status = 0;
    for (int twin = 0; twin < TWINS && status == 0; ++twin) {
        struct learner r;
        status = host_begin(&r, s, STUDENT, s->options->dtype, plain_pass);
        if (status == 0 && twin > 0) learner_mirror(&r, twin);
        if (status == 0)
            status = learner_descend(&r, s->options->train, momentum, s->rate, curve_of(s->plain, s, twin));
        host_end(&r);
    }
    return status;
}

// ---------------------------------------------------------------- on the device

struct pupil {
    struct device_case *c;
    const struct kernel *kernel;
    double *o;  // [layer.outputs]
};

static int kernel_pass(struct learner *r, void *context, double *loss) {
    const struct pupil *p = context;
    for (int i = TENSOR_Q; i <= TENSOR_V; ++i) case_upload(p->c, i);
    case_begin(p->c, p->kernel);
    learner_load(&r->a, TENSOR_O, p->o);
    *loss = learner_loss(r, p->o);
    case_upload(p->c, TENSOR_DO);
    case_launch(p->c, p->kernel);
    for (int i = 0; i < GRADIENTS; ++i) learner_load(&r->a, gradient_tensor(i), r->gradient[i]);
    return 0;
}

// Trains with one kernel and returns 1, or 0 if it cannot run: the result says why. -1 without memory.
static int train_kernel(struct school *s, struct device_case *c, const struct kernel *kernel,
                        const struct lab *lab) {
    struct learner r;
    struct result *result = &s->results[s->kernel_count];
    struct pupil pupil = {.c = c, .kernel = kernel};
    result_begin(result, kernel, &c->on_device);
    if (!kernel_prepare(c, kernel, lab, result)) return 0;
    int status = learner_make(&r, &s->layer, STUDENT, &c->problem.host);
    pupil.o = malloc((size_t)s->layer.outputs * sizeof *pupil.o);
    if (status == 0 && pupil.o) {
        memcpy(r.target, s->target, (size_t)s->layer.outputs * sizeof *r.target);
        r.pass = kernel_pass, r.context = &pupil;
        status = learner_descend(&r, s->options->train, momentum, s->rate,
                                 curve_of(s->kernels, s, s->kernel_count));
        check_guards(c, result);
        ++s->kernel_count;
    }
    learner_free(&r);
    free(pupil.o);
    buffer_free(&c->buffer[BUFFER_WORKSPACE]);
    return status == 0 && pupil.o ? 1 : -1;
}

// ---------------------------------------------------------------- what came of it

static void print_curves(const struct school *s) {
    int steps = s->options->train, step_of_line = steps < LINES ? 1 : steps / LINES;
    printf("%5s  %10s  %10s", "step", "reference", "plain");
    for (int k = 0; k < s->kernel_count; ++k) printf("  %10s", s->results[k].kernel);
    for (int step = 0; step <= steps; ++step) {
        if (step % step_of_line != 0 && step != steps) continue;
        printf("\n%5d  %#10.4g  %#10.4g", step, s->reference[step], s->plain[step]);
        for (int k = 0; k < s->kernel_count; ++k) {
            int width = (int)strlen(s->results[k].kernel);
            printf("  %#*.4g", width > 10 ? width : 10, curve_of(s->kernels, s, k)[step]);
        }
    }
    printf("\n");
}

// A line for each kernel. Returns 1 if all are right.
static int judge(const struct school *s) {
    int all = 1, steps = s->options->train;
    double plain = 0;
    for (int twin = 0; twin < TWINS; ++twin) plain = fmax(plain, farthest(s, curve_of(s->plain, s, twin)));
    printf("The plain implementation is at most %.2e of the loss from the reference's; twice that is "
           "allowed.\n",
           plain);
    for (int k = 0; k < s->kernel_count; ++k) {
        const double *curve = curve_of(s->kernels, s, k);
        double distance = farthest(s, curve);
        int falls = curve[steps] < curve[0], near = distance <= 2 * plain;
        const struct result *r = &s->results[k];
        printf("%s: at most %.2e, %s: %s%s%s\n", r->kernel, distance,
               falls ? "and the loss falls" : "but the loss does not fall",
               falls && near && !r->detail[0] ? "right" : "not right", r->detail[0] ? ", " : "", r->detail);
        all &= falls && near && !r->detail[0];
    }
    return all;
}

static int no_memory(struct message *why) {
    return fail(why, "There is no memory left for --train; choose a smaller shape.");
}

// A curve to compare others with: it falls, and is finite all the way (the sum of what is not is not).
static int is_sound(const struct school *s, const double *curve, const char *whose, struct message *why) {
    int steps = s->options->train;
    double sum = 0;
    for (int step = 0; step <= steps; ++step) sum += curve[step];
    if (isfinite(sum) && curve[steps] < curve[0]) return 1;
    fail(why,
         "With these options not even the %s learns: its loss goes from %.3g to %.3g. Choose another --scale "
         "or --seed.",
         whose, curve[0], curve[steps]);
    return 0;
}

// The reference, the plain implementation, then each kernel that can.
static int train_all(struct school *s, const struct lab *lab, struct device_case *c, struct message *why) {
    if (ask_teacher(s) != 0 || train_reference(s) != 0) return no_memory(why);
    if (!is_sound(s, s->reference, "reference", why)) return -1;
    if (train_plain(s) != 0) return no_memory(why);
    for (int twin = 0; twin < TWINS; ++twin)
        if (!is_sound(s, curve_of(s->plain, s, twin), "plain implementation", why)) return -1;
    for (int i = 0; i < lab->kernel_count; ++i) {
        if (!options_choose(s->options, &lab->kernels[i]) || !lab->kernels[i].forward) continue;
        int trained = train_kernel(s, c, &lab->kernels[i], lab);
        if (trained < 0) return no_memory(why);
        if (trained == 0) {
            fail(why, "%.900s.", s->results[s->kernel_count].refused);
            printf("%s did not run: %s\n", lab->kernels[i].name, why->text);
        }
    }
    return s->kernel_count > 0 ? 0 : -1;
}

static int school_make(struct school *s, const struct lab *lab, const struct options *o) {
    size_t steps = (size_t)o->train + 1, kernels = (size_t)lab->kernel_count;
    memset(s, 0, sizeof *s);
    s->options = o;
    if (layer_make(&s->layer, o) != 0) return -1;
    s->target = calloc((size_t)s->layer.outputs, sizeof *s->target);
    s->reference = calloc((1 + TWINS + kernels) * steps, sizeof *s->reference);
    s->results = calloc(kernels, sizeof *s->results);
    if (!s->target || !s->reference || !s->results) return -1;
    s->plain = s->reference + steps, s->kernels = s->plain + TWINS * steps;
    return 0;
}
static void school_free(struct school *s) {
    free(s->target);
    free(s->reference);
    free(s->results);
    layer_free(&s->layer);
}

int train_run(const struct lab *lab, const struct options *o, const struct device *device,
              struct message *why) {
    struct school school;
    struct device_case c;
    struct report report = {.lab = lab, .options = o, .device = device};
    if ((double)o->heads * o->seqlen_q * o->seqlen_k * o->head_dim > REFERENCE_BUDGET)
        return fail(why,
                    "--train works out every row of its reference in every step, which takes too long at "
                    "this shape; choose a smaller --seqlen.");
    if (case_make(&c, o, device, why) != 0) return -1;
    report.shape = c.problem.host;
    report_print_configuration(stdout, &report);
    int made = school_make(&school, lab, o) == 0;
    int status = made ? train_all(&school, lab, &c, why) : -1;
    if (!made) no_memory(why);
    case_free(&c);
    if (status == 0) {
        printf("%d steps of gradient descent at a rate of %.2g; loss:\n", o->train, school.rate);
        print_curves(&school);
        status = judge(&school) ? LAB_OK : LAB_WRONG;
    }
    school_free(&school);
    return status;
}
