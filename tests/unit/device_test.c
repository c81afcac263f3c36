// device_test.c - guard bands: a byte written outside a buffer is found, wherever it is. Exit 77
// without a device.
#include "common/device.h"

#include "unit.h"

static const struct lab lab = {.name = "device_test00"};

static void poke(void *at, int value) { CUDA_CHECK(cudaMemset(at, value, 1)); }

int main(void) {
    struct device device;
    struct message why = {""};
    if (device_open(&lab, &device, &why) != 0) {
        printf("%s\n", why.text);
        return LAB_SKIPPED;
    }
    static const size_t sizes[] = {0, 1, 254, 256, 257, 100000};
    for (int i = 0; i < 6; ++i) {
        struct buffer buffer;
        EXPECT(buffer_make(&buffer, sizes[i], "B", &why) == 0);
        EXPECT((uintptr_t)buffer.data % 256 == 0);
        EXPECT(buffer_guards_intact(&buffer, &why));
        if (sizes[i]) {
            // Inside, everything is allowed.
            poke(buffer.data, 0), poke((char *)buffer.data + sizes[i] - 1, 0);
            buffer_poison(&buffer);
            unsigned char *host = malloc(sizes[i]);
            if (!host) return 1;
            memset(host, 0, sizes[i]);
            buffer_download(&buffer, host);
            for (size_t n = 0; n < sizes[i]; ++n) EXPECT(host[n] == 0xff);
            memset(host, 7, sizes[i]);
            buffer_upload(&buffer, host);
            memset(host, 0, sizes[i]);
            buffer_download(&buffer, host);
            EXPECT(host[0] == 7 && host[sizes[i] - 1] == 7);
            free(host);
        }
        EXPECT(buffer_guards_intact(&buffer, &why));
        static const size_t distances[] = {0, 1, 2, 31, 1000, 32767};
        for (int n = 0; n < 6; ++n) {
            char *behind = (char *)buffer.data + sizes[i] + distances[n],
                 *before = (char *)buffer.data - 1 - distances[n];
            char words[64];
            poke(behind, 0);
            EXPECT(!buffer_guards_intact(&buffer, &why));
            snprintf(words, sizeof words, "%zu bytes past the end of B", distances[n]);
            EXPECT_SAYS(why.text, words);
            poke(behind, 0xff);
            poke(before, 0);
            EXPECT(!buffer_guards_intact(&buffer, &why));
            snprintf(words, sizeof words, "%zu bytes before the beginning of B", distances[n] + 1);
            EXPECT_SAYS(why.text, words);
            poke(before, 0xff);
        }
        EXPECT(buffer_guards_intact(&buffer, &why));
        buffer_free(&buffer);
    }
    // More than the device has is refused before cudaMalloc is asked.
    struct buffer buffer;
    EXPECT(buffer_make(&buffer, (size_t)1 << 60, "S and P", &why) == -1);
    EXPECT_SAYS(why.text, "S and P needs 1152921504.6 GB");
    EXPECT(cudaGetLastError() == cudaSuccess);
    return unit_end();
}
