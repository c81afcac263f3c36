// trace_file_test.c - from a kernel's stamps to the file of --trace, which tests/cli/check_json reads again.
#include "common/trace_file.h"

#include "common/report.h"
#include "unit.h"

static const struct lab lab = {.name = "lab \"00\"", .idea = "an idea", .lecture = "a section"};
static const struct device device = {.name = "a\\b", .major = 9};
static struct options options;
static const struct report report = {.lab = &lab,
                                     .options = &options,
                                     .device = &device,
                                     .shape = {.batch = 1, .heads = 2, .kv_heads = 1, .head_dim = 8}};
static const struct trace_names names = {{"producer", "consumer \"0\""}, {"wait", "load"}};
static struct trace trace;
static char text[1 << 20];

// A track that began at `time` and `ns`, with marks of alternating phases `step` cycles apart, from `step`
// after the beginning on, and ended as long after the last one.
static void make_track(struct trace_track *track, uint64_t time, uint64_t ns, int marks, uint64_t step) {
    memset(track, 0, sizeof *track);
    track->first_time = time, track->first_ns = ns, track->marks = (uint64_t)marks;
    for (int i = 0; i < marks && i < TRACE_EVENTS; ++i)
        track->event[i] = (struct trace_event){(uint32_t)(time + step * (uint64_t)(i + 1)), (uint32_t)i % 2};
    track->last_time = time + step * (uint64_t)(marks + 1);
    track->last_ns = ns + step * (uint64_t)(marks + 1) / 2;  // 2000 MHz
}

static int count(const char *words) {
    int found = 0;
    for (const char *at = text; (at = strstr(at, words)); ++at) ++found;
    return found;
}

static void close_and_read(struct trace_file *file, const char *path) {
    struct message why = {""};
    EXPECT(trace_file_close(file, &report, &why) == 0);
    FILE *in = fopen(path, "r");
    text[in ? fread(text, 1, sizeof text - 1, in) : 0] = '\0';
    if (in) fclose(in);
}

// What is no timeline is refused, and leaves the file as it was.
static void refusals(struct trace_file *file) {
    struct message why = {""};
    struct trace_track *track = &trace.track[0][1];
    memset(&trace, 0, sizeof trace);
    EXPECT(trace_file_add(file, "silent", &trace, &names, 1000, &why) == -1);
    EXPECT_SAYS(why.text, "kernel silent: its traced launch marked no phase");
    make_track(track, 100, 7, 3, 10);
    track->last_ns = track->last_time = 0;
    EXPECT(trace_file_add(file, "unended", &trace, &names, 1000, &why) == -1);
    EXPECT_SAYS(why.text, "kernel unended, block 0, consumer \"0\": the track begins and does not end");
    make_track(track, 100, 7, 3, 10);
    track->event[1].time = 105;  // before mark 0
    EXPECT(trace_file_add(file, "backwards", &trace, &names, 1000, &why) == -1);
    EXPECT_SAYS(why.text, "kernel backwards, block 0, consumer \"0\": its marks do not follow each other");
    make_track(track, 100, 7, 3, 10);
    track->last_time = 125;  // before the last mark
    EXPECT(trace_file_add(file, "early", &trace, &names, 1000, &why) == -1);
    make_track(track, 100, 7, 0, 10);  // begun and ended, but nothing marked
    EXPECT(trace_file_add(file, "silent", &trace, &names, 1000, &why) == -1);
    EXPECT(file->kernels == 0 && file->events == 0);
}

int main(int argc, char **argv) {
    struct trace_file file;
    struct message why = {""};
    char path[1024];
    snprintf(path, sizeof path, "%s/trace_file_test.json", argc > 1 ? argv[1] : ".");
    EXPECT(trace_file_open(&file, "/no/such/folder/trace.json", 4, &why) == -1);
    EXPECT_SAYS(why.text, "/no/such/folder/trace.json of --trace cannot be written: ");

    // Two blocks on multiprocessors whose clocks are far apart: the second began 3 us after the first, whose
    // low half of the clock comes round in between. The consumer of block 0 began 20 cycles after its
    // producer, whatever the coarse global timer says of that.
    EXPECT(trace_file_open(&file, path, 4, &why) == 0);
    refusals(&file);
    memset(&trace, 0, sizeof trace);
    make_track(&trace.track[0][0], 0x1ffffff00, 5000000, 2, 200);
    make_track(&trace.track[0][1], 0x1ffffff00 + 20, 5001000, 4, 100);
    make_track(&trace.track[1][0], 40, 5003000, 1, 300);
    trace.track[0][0].multiprocessor = trace.track[0][1].multiprocessor = 17;
    trace.track[1][0].multiprocessor = 131;
    EXPECT(trace_file_add(&file, "timed", &trace, &names, 1000, &why) == 0);
    close_and_read(&file, path);
    EXPECT(count("\"ph\": \"X\"") == 7);
    EXPECT_SAYS(text, "\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"name\": \"timed, "
                      "block 0, SM 17\"}");
    EXPECT_SAYS(text, "\"pid\": 1, \"args\": {\"name\": \"timed, block 1, SM 131\"}");
    EXPECT_SAYS(text, "\"pid\": 0, \"tid\": 1, \"args\": {\"name\": \"consumer \\\"0\\\"\"}");
    EXPECT_SAYS(
        text, "{\"name\": \"wait\", \"ph\": \"X\", \"pid\": 0, \"tid\": 0, \"ts\": 0.1000, \"dur\": 0.1000");
    EXPECT_SAYS(
        text, "{\"name\": \"load\", \"ph\": \"X\", \"pid\": 0, \"tid\": 0, \"ts\": 0.2000, \"dur\": 0.1000");
    EXPECT_SAYS(
        text, "{\"name\": \"wait\", \"ph\": \"X\", \"pid\": 0, \"tid\": 1, \"ts\": 0.0600, \"dur\": 0.0500");
    EXPECT_SAYS(
        text, "{\"name\": \"load\", \"ph\": \"X\", \"pid\": 0, \"tid\": 1, \"ts\": 0.2100, \"dur\": 0.0500");
    EXPECT_SAYS(
        text, "{\"name\": \"wait\", \"ph\": \"X\", \"pid\": 1, \"tid\": 0, \"ts\": 3.1500, \"dur\": 0.1500");
    EXPECT_SAYS(text, "\"phases\": 7, \"dropped\": 0, \"clock_mhz\": 2000}");

    // On the cpu backend units are units, and every block begins at 0. A launch too short for the global
    // timer goes by the clock that it is told. Names that the lab does not give are numbers. A track that
    // overflows keeps the phases whose ends it has, and one as long as its track all of them.
    EXPECT(trace_file_open(&file, path, 4, &why) == 0);
    EXPECT(trace_file_add(&file, "simulated", &trace, &names, 0, &why) == 0);
    memset(&trace, 0, sizeof trace);
    make_track(&trace.track[0][2], 1000, 9, TRACE_EVENTS + 76, 8);
    make_track(&trace.track[0][3], 1000, 9, TRACE_EVENTS, 8);
    trace.track[0][2].event[4].phase = TRACE_PHASES - 1;
    trace.track[0][2].event[5].phase = 4000000000u;
    trace.track[0][2].last_ns = trace.track[0][3].last_ns = 9;
    EXPECT(trace_file_add(&file, "long", &trace, &names, 500, &why) == 0);
    close_and_read(&file, path);
    EXPECT_SAYS(text, "\"pid\": 0, \"tid\": 1, \"ts\": 120, \"dur\": 100");
    EXPECT_SAYS(text, "\"pid\": 1, \"tid\": 0, \"ts\": 300, \"dur\": 300");
    EXPECT_SAYS(text, "\"name\": \"long, block 0, SM 0\"");
    EXPECT_SAYS(text, "\"pid\": 2, \"tid\": 2, \"args\": {\"name\": \"track 2\"}");
    EXPECT_SAYS(
        text,
        "{\"name\": \"phase 15\", \"ph\": \"X\", \"pid\": 2, \"tid\": 2, \"ts\": 0.0800, \"dur\": 0.0160");
    EXPECT_SAYS(text, "\"name\": \"phase 4000000000\"");
    EXPECT(count("\"ph\": \"X\", \"pid\": 2, \"tid\": 2") == TRACE_EVENTS - 1);
    EXPECT(count("\"ph\": \"X\", \"pid\": 2, \"tid\": 3") == TRACE_EVENTS);
    EXPECT_SAYS(text, "{\"kernel\": \"simulated\", \"first_pid\": 0, \"phases\": 7, \"dropped\": 0}");
    EXPECT_SAYS(
        text,
        "{\"kernel\": \"long\", \"first_pid\": 2, \"phases\": 2047, \"dropped\": 77, \"clock_mhz\": 500}");
    EXPECT_SAYS(text, "\"lab\": \"lab \\\"00\\\"\"");
    return unit_end();
}
