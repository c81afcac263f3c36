// npy_test.c - .npy files written, read back, and damaged in every way that common/npy.h names.
#include "common/npy.h"

#include "unit.h"

static char path[1024];
static struct message why;

static void write_bytes(const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, count, file) != count || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

// A file with this header text and that many zero bytes of data; version 1 or 2.
static void write_npy(int version, const char *header, size_t data_bytes) {
    static unsigned char bytes[4096];
    size_t length = strlen(header), at = 6;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[at++] = (unsigned char)version, bytes[at++] = 0;
    bytes[at++] = (unsigned char)length, bytes[at++] = (unsigned char)(length >> 8);
    if (version == 2) at += 2;
    memcpy(bytes + at, header, length);
    write_bytes(bytes, at + length + data_bytes);
}

static void expect_refused(const char *words) {
    struct npy array;
    why.text[0] = '\0';
    EXPECT(npy_read(path, &array, &why) == -1);
    EXPECT_SAYS(why.text, words);
    EXPECT_SAYS(why.text, path);
    EXPECT(array.data == NULL);
}

static void expect_header_refused(const char *header, const char *words) {
    write_npy(1, header, 64);
    expect_refused(words);
}

static void round_trip(enum dtype dtype) {
    static const int64_t shape[4] = {2, 3, 5, 8};
    double data[240];
    struct npy array;
    for (int64_t i = 0; i < 240; ++i) number_store(dtype, data, i, (double)(i - 100) / 8);
    EXPECT(npy_write(path, dtype, 4, shape, data, &why) == 0);
    EXPECT(npy_read(path, &array, &why) == 0);
    EXPECT(array.dtype == dtype && array.rank == 4 && array.count == 240);
    EXPECT(memcmp(array.shape, shape, sizeof shape) == 0);
    EXPECT(array.data && memcmp(array.data, data, 240 * (size_t)dtype_bytes(dtype)) == 0);
    npy_free(&array);
}

static void read_good(void) {
    struct npy array;
    round_trip(DTYPE_FP16);
    round_trip(DTYPE_FP32);
    round_trip(DTYPE_FP64);
    // Format 2.0, no trailing comma, double quotes, other order of keys: all legal.
    write_npy(2, "{\"shape\": (2, 4), \"fortran_order\": False, \"descr\": \"<f4\"}\n", 32);
    EXPECT(npy_read(path, &array, &why) == 0 && array.rank == 2 && array.shape[1] == 4 && array.count == 8);
    npy_free(&array);
    // One number, and an array without any.
    write_npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n", 8);
    EXPECT(npy_read(path, &array, &why) == 0 && array.rank == 0 && array.count == 1);
    npy_free(&array);
    write_npy(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (3, 0, 8), }\n", 0);
    EXPECT(npy_read(path, &array, &why) == 0 && array.count == 0 && array.data != NULL);
    npy_free(&array);
    // The header's end is at a multiple of 64 bytes, as NumPy demands of itself.
    static const int64_t one[1] = {1};
    EXPECT(npy_write(path, DTYPE_FP16, 1, one, "\0", &why) == 0);
    FILE *file = fopen(path, "rb");
    EXPECT(file && fseek(file, 0, SEEK_END) == 0 && (ftell(file) - 2) % 64 == 0);
    if (file) fclose(file);
}

static void read_bad(void) {
    write_bytes("not numbers", 11);
    expect_refused("not a .npy file");
    write_bytes("", 0);
    expect_refused("not a .npy file");
    write_bytes("\x93NUMPY\1", 7);
    expect_refused("truncated");
    write_npy(3, "{}", 0);
    expect_refused("version 3.0");
    expect_header_refused("{'descr': '<i4', 'fortran_order': False, 'shape': (16,), }\n", "'<i4'");
    expect_header_refused("{'descr': '>f4', 'fortran_order': False, 'shape': (16,), }\n", "big-endian");
    expect_header_refused("{'descr': '|O', 'fortran_order': False, 'shape': (16,), }\n", "'|O'");
    expect_header_refused("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (16,), }\n",
                          "structured");
    expect_header_refused("{'descr': '<f4', 'fortran_order': True, 'shape': (4, 4), }\n", "Fortran order");
    expect_header_refused("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (16,), }\n", "fortran_order");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False}\n", "'shape'");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (-16,), }\n",
                          "no list of sizes");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': 16, }\n", "no shape");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (16", "no list of sizes");
    expect_header_refused("{'descr': '<f4", "'fortran_order'");
    expect_header_refused("{'fortran_order': False, 'shape': (16,), 'descr': '<f4", "no dtype");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (17,), }\n",
                          "68 bytes of data, 64 are there");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (15,), }\n",
                          "4 bytes after its data");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }\n",
                          "too large");
    expect_header_refused(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }\n", "too large");
    // Sizes whose product overflows to something small, hidden by a 0.
    expect_header_refused(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4, 0), }\n", "too large");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,16), }\n",
                          "dimensions");
    // A header that claims to be longer than the file, and one longer than any.
    write_bytes("\x93NUMPY\1\0\xff\xff", 10);
    expect_refused("truncated");
    write_bytes("\x93NUMPY\2\0\xff\xff\xff\xff", 12);
    expect_refused("4294967295 bytes");
    // Every possible cut of a sound file is noticed.
    write_npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (16,), }\n", 64);
    FILE *file = fopen(path, "rb");
    static char sound[256];
    size_t bytes = file ? fread(sound, 1, sizeof sound, file) : 0;
    if (file) fclose(file);
    EXPECT(bytes > 64);
    for (size_t cut = 0; cut < bytes; ++cut) {
        struct npy array;
        write_bytes(sound, cut);
        EXPECT(npy_read(path, &array, &why) == -1);
    }
    remove(path);
    expect_refused("cannot be opened");
}

static void write_bad(void) {
    static const int64_t shape[1] = {1};
    EXPECT(npy_write(path, DTYPE_BF16, 1, shape, "\0", &why) == -1);
    EXPECT_SAYS(why.text, "bf16");
    EXPECT(npy_write("/no/such/folder/x.npy", DTYPE_FP16, 1, shape, "\0", &why) == -1);
    EXPECT_SAYS(why.text, "/no/such/folder/x.npy cannot be written");
}

int main(int argc, char **argv) {
    // The argument is a folder to write in.
    snprintf(path, sizeof path, "%s/npy_test.npy", argc > 1 ? argv[1] : ".");
    read_good();
    read_bad();
    write_bad();
    return unit_end();
}
