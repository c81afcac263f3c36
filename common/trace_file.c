#include "trace_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "report.h"

int trace_possible(const struct kernel *kernel, int head_dim, struct message *why) {
    if (!kernel->launch_traced || !kernel->trace_names) return fail(why, "it marks no phases"), 0;
    int most = kernel->trace_names->head_dim_max;
    if (most && head_dim > most) return fail(why, "it can only be traced up to --dim %d", most), 0;
    return 1;
}

int trace_file_open(struct trace_file *file, const char *path, int max_kernels, struct message *why) {
    memset(file, 0, sizeof *file);
    file->path = path;
    file->summary = calloc((size_t)max_kernels, sizeof *file->summary);
    if (!file->summary) return fail(why, "There is no memory left.");
    if (!(file->out = fopen(path, "w"))) {
        free(file->summary);
        file->summary = NULL;
        return fail(why, "%s of --trace cannot be written: %s.", path, strerror(errno));
    }
    fputs("{\"traceEvents\": [", file->out);
    return 0;
}

// ---------------------------------------------------------------- one launch

static int kept(const struct trace_track *track) {
    return track->marks < TRACE_EVENTS ? (int)track->marks : TRACE_EVENTS;
}

// Phases whose end is known: of a track that overflowed, the last one's is not.
static int phases_of(const struct trace_track *track) {
    return track->marks > TRACE_EVENTS ? kept(track) - 1 : kept(track);
}

static const char *track_name(const struct trace_names *names, int n, char text[32]) {
    if (names->track[n]) return names->track[n];
    snprintf(text, 32, "track %d", n);
    return text;
}

static const char *phase_name(const struct trace_names *names, uint64_t n, char text[32]) {
    if (n < TRACE_PHASES && names->phase[n]) return names->phase[n];
    snprintf(text, 32, "phase %llu", (unsigned long long)n);
    return text;
}

// The whole time of a stamp, of which the track has the low half, and which is not before `earlier`.
static uint64_t whole_time(uint32_t low, uint64_t earlier) {
    return earlier + (uint32_t)(low - (uint32_t)earlier);
}

// When phase i begins or, i being the number of marks, the last one ends; `earlier`: when the one before
// began.
static uint64_t mark_time(const struct trace_track *track, int i, uint64_t earlier) {
    return (uint64_t)i < track->marks ? whole_time(track->event[i].time, earlier) : track->last_time;
}

// Whether these stamps can be a role's.
static int check_track(const struct trace_track *track, const char *kernel, int block, const char *name,
                       struct message *why) {
    if (track->last_ns == 0)
        return fail(why, "kernel %s, block %d, %s: the track begins and does not end (trace_end)", kernel,
                    block, name);
    uint64_t last = track->first_time;
    for (int i = 0; i < kept(track); ++i) last = mark_time(track, i, last);
    if (track->last_time < last)
        return fail(why, "kernel %s, block %d, %s: its marks do not follow each other in time", kernel, block,
                    name);
    return 0;
}

// Cycles of the multiprocessors in a microsecond, from all tracks together: each one's stamps are off by as
// much as a tick of the global timer, which evens out.
static double measured_mhz(const struct trace *trace, double clock_mhz) {
    double cycles = 0, microseconds = 0;
    for (int b = 0; b < TRACE_BLOCKS; ++b)
        for (int t = 0; t < TRACE_TRACKS; ++t) {
            const struct trace_track *track = &trace->track[b][t];
            cycles += (double)(track->last_time - track->first_time);
            microseconds += (double)(track->last_ns - track->first_ns) / 1000;
        }
    return microseconds > 0 ? cycles / microseconds : clock_mhz;
}

// The track of a block that began first, null if none did. The clock of its multiprocessor dates the others;
// only between blocks the coarser global timer does.
static const struct trace_track *first_of(const struct trace_track tracks[TRACE_TRACKS]) {
    const struct trace_track *first = NULL;
    for (int t = 0; t < TRACE_TRACKS; ++t)
        if (tracks[t].first_ns && (!first || tracks[t].first_time < first->first_time)) first = &tracks[t];
    return first;
}

static void begin_event(struct trace_file *file, const char *name, const char *kind, int process) {
    fputs(file->events++ ? ",\n" : "\n", file->out);
    fputs("{\"name\": ", file->out);
    json_string(file->out, name);
    fprintf(file->out, ", \"ph\": \"%s\", \"pid\": %d", kind, process);
}

static void write_metadata(struct trace_file *file, const char *what, int process, int thread,
                           const char *name) {
    begin_event(file, what, "M", process);
    if (thread >= 0) fprintf(file->out, ", \"tid\": %d", thread);
    fputs(", \"args\": {\"name\": ", file->out);
    json_string(file->out, name);
    fputs("}}", file->out);
}

int trace_file_add(struct trace_file *file, const char *kernel, const struct trace *trace,
                   const struct trace_names *names, double clock_mhz, struct message *why) {
    char text[32], process_name[128];
    int phases = 0, digits = clock_mhz > 0 ? 4 : 0;
    double dropped = 0;
    for (int b = 0; b < TRACE_BLOCKS; ++b)
        for (int t = 0; t < TRACE_TRACKS; ++t) {
            const struct trace_track *track = &trace->track[b][t];
            if (!track->first_ns) continue;
            if (check_track(track, kernel, b, track_name(names, t, text), why) != 0) return -1;
            phases += phases_of(track);
            dropped += (double)track->marks - phases_of(track);
        }
    if (phases == 0) return fail(why, "kernel %s: its traced launch marked no phase", kernel);

    double mhz = clock_mhz > 0 ? measured_mhz(trace, clock_mhz) : 1;
    uint64_t start_ns = UINT64_MAX;
    for (int b = 0; b < TRACE_BLOCKS; ++b) {
        const struct trace_track *first = first_of(trace->track[b]);
        if (first && first->first_ns < start_ns) start_ns = first->first_ns;
    }
    for (int b = 0; b < TRACE_BLOCKS; ++b) {
        const struct trace_track *first = first_of(trace->track[b]);
        if (!first) continue;
        int process = file->kernels * TRACE_BLOCKS + b;
        double offset = clock_mhz > 0 ? (double)(first->first_ns - start_ns) / 1000 : 0;
        snprintf(process_name, sizeof process_name, "%.80s, block %d, SM %d", kernel, b,
                 (int)first->multiprocessor);
        write_metadata(file, "process_name", process, -1, process_name);
        for (int t = 0; t < TRACE_TRACKS; ++t) {
            const struct trace_track *track = &trace->track[b][t];
            if (!track->first_ns) continue;
            write_metadata(file, "thread_name", process, t, track_name(names, t, text));
            uint64_t begin = mark_time(track, 0, track->first_time);
            for (int i = 0; i < phases_of(track); ++i) {
                uint64_t from = begin - first->first_time, end = mark_time(track, i + 1, begin);
                double cycles = (double)(end - begin);
                begin = end;
                begin_event(file, phase_name(names, track->event[i].phase, text), "X", process);
                fprintf(file->out, ", \"tid\": %d, \"ts\": %.*f, \"dur\": %.*f", t, digits,
                        offset + (double)from / mhz, digits, cycles / mhz);
                fputs(", \"args\": {\"kernel\": ", file->out);
                json_string(file->out, kernel);
                fputs("}}", file->out);
            }
        }
    }
    file->summary[file->kernels++] = (struct trace_summary){kernel, phases, dropped, clock_mhz > 0 ? mhz : 0};
    return 0;
}

// ---------------------------------------------------------------- all of them

int trace_file_close(struct trace_file *file, const struct report *report, struct message *why) {
    FILE *out = file->out;
    fputs("\n],\n\"displayTimeUnit\": \"ns\",\n\"otherData\": {\"lab\": ", out);
    json_string(out, report->lab->name);
    json_text(out, "backend", ON_CPU ? "cpu" : "gpu");
    json_text(out, "device", report->device->name);
    json_text(out, "unit", ON_CPU ? "steps" : "us");
    fputs(",\n\"shape\": ", out);
    report_write_shape(out, report);
    fputs(",\n\"kernels\": [", out);
    for (int i = 0; i < file->kernels; ++i) {
        const struct trace_summary *it = &file->summary[i];
        fputs(i ? ",\n{\"kernel\": " : "\n{\"kernel\": ", out);
        json_string(out, it->kernel);
        fprintf(out, ", \"first_pid\": %d, \"phases\": %d", i * TRACE_BLOCKS, it->phases);
        json_count(out, "dropped", it->dropped);
        if (it->clock_mhz > 0) json_number(out, "clock_mhz", it->clock_mhz);
        fputc('}', out);
        printf("%s: %d phases in %s", it->kernel, it->phases, file->path);
        if (it->dropped > 0) printf(", and %.0f more that found no place", it->dropped);
        putchar('\n');
    }
    fputs("\n]}\n}\n", out);
    int good = fflush(out) == 0 && !ferror(out);
    good = fclose(out) == 0 && good;
    free(file->summary);
    memset(file, 0, sizeof *file);
    if (!good) return fail(why, "The file of --trace could not be written to its end: %s.", strerror(errno));
    return 0;
}
