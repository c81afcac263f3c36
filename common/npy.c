#define _DEFAULT_SOURCE
#include "npy.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
enum { PREFIX_BYTES = 10, MAX_HEADER_BYTES = 1 << 16 };

static int host_is_big_endian(void) {
    const uint16_t one = 1;
    return *(const uint8_t *)&one == 0;
}

// ---------------------------------------------------------------- the header, a Python dictionary
// in plain text

// The text after `'key':`, without leading blanks; null if the key is missing.
static const char *value_of(const char *header, const char *key) {
    char quoted[2][40];
    snprintf(quoted[0], sizeof quoted[0], "'%s'", key);
    snprintf(quoted[1], sizeof quoted[1], "\"%s\"", key);
    for (int i = 0; i < 2; ++i) {
        const char *at = strstr(header, quoted[i]);
        if (!at) continue;
        at += strlen(quoted[i]);
        while (isspace((unsigned char)*at)) ++at;
        if (*at++ != ':') continue;
        while (isspace((unsigned char)*at)) ++at;
        return at;
    }
    return NULL;
}

static int read_descr(const char *path, const char *at, struct npy *array, struct message *why) {
    char descr[64] = "";
    if (*at == '[')
        return fail(why, "%s holds records (a structured dtype); save a plain float16 or float32 array",
                    path);
    char quote = *at;
    const char *end = quote == '\'' || quote == '"' ? strchr(at + 1, quote) : NULL;
    if (!end || (size_t)(end - at) > sizeof descr)
        return fail(why, "%s has a damaged header: no dtype in it", path);
    memcpy(descr, at + 1, (size_t)(end - at - 1));
    const char *type = descr + (*descr != '\0' && strchr("<>=|", *descr) != NULL);
    array->dtype = strcmp(type, "f2") == 0   ? DTYPE_FP16
                   : strcmp(type, "f4") == 0 ? DTYPE_FP32
                   : strcmp(type, "f8") == 0 ? DTYPE_FP64
                                             : DTYPE_COUNT;
    if (array->dtype == DTYPE_COUNT)
        return fail(
            why, "%s has dtype '%s'; float16, float32 and float64 are read: save it with .astype(np.float32)",
            path, descr);
    if (*descr == '>')
        return fail(why, "%s is big-endian (dtype '%s'); save it with .astype('<%s')", path, descr, type);
    return 0;
}

static int read_shape(const char *path, const char *at, struct npy *array, struct message *why) {
    if (*at++ != '(') return fail(why, "%s has a damaged header: no shape in it", path);
    uint64_t count = 1;
    int empty = 0;
    for (;;) {
        while (isspace((unsigned char)*at) || *at == ',') ++at;
        if (*at == ')') break;
        if (!isdigit((unsigned char)*at))
            return fail(why, "%s has a damaged header: its shape is no list of sizes", path);
        if (array->rank == NPY_MAX_RANK)
            return fail(why, "%s has more than %d dimensions", path, NPY_MAX_RANK);
        uint64_t size = 0;
        while (isdigit((unsigned char)*at)) {
            if (size > (uint64_t)INT64_MAX / 10 - 1)
                return fail(why, "%s claims a shape too large for any file", path);
            size = size * 10 + (uint64_t)(*at++ - '0');
        }
        if (*at == 'L') ++at;  // Python 2 wrote 64L
        if (size == 0) empty = 1;
        // Sizes beside a 0 are bounded as well: (2^62, 2^62, 0) must not overflow later arithmetic.
        if (size != 0 && count > (uint64_t)INT64_MAX / 8 / size)
            return fail(why, "%s claims a shape too large for any file", path);
        if (size != 0) count *= size;
        array->shape[array->rank++] = (int64_t)size;
    }
    array->count = empty ? 0 : (int64_t)count;
    return 0;
}

static int parse_header(const char *path, const char *header, struct npy *array, struct message *why) {
    const char *descr = value_of(header, "descr"), *order = value_of(header, "fortran_order");
    const char *shape = value_of(header, "shape");
    if (!descr || !order || !shape)
        return fail(why, "%s has a damaged header: it lacks %s", path,
                    !descr   ? "'descr'"
                    : !order ? "'fortran_order'"
                             : "'shape'");
    if (read_descr(path, descr, array, why) != 0) return -1;
    if (strncmp(order, "True", 4) == 0)
        return fail(why, "%s is in Fortran order; save it with np.ascontiguousarray(...)", path);
    if (strncmp(order, "False", 5) != 0)
        return fail(why, "%s has a damaged header: fortran_order is no bool", path);
    return read_shape(path, shape, array, why);
}

// ---------------------------------------------------------------- files

static int read_open_file(const char *path, FILE *file, int64_t file_bytes, struct npy *array,
                          struct message *why) {
    unsigned char prefix[PREFIX_BYTES + 2];
    size_t got = fread(prefix, 1, PREFIX_BYTES, file);
    if (got < sizeof magic || memcmp(prefix, magic, sizeof magic) != 0)
        return fail(why, "%s is not a .npy file (it does not begin with \\x93NUMPY); write it with np.save",
                    path);
    if (got < PREFIX_BYTES) return fail(why, "%s is truncated: it ends inside its header", path);
    int version = prefix[6];
    if (version != 1 && version != 2)
        return fail(why, "%s is in .npy format version %d.%d; versions 1.0 and 2.0 are read", path, version,
                    prefix[7]);
    uint64_t header_bytes = (uint64_t)prefix[8] | (uint64_t)prefix[9] << 8;
    int64_t offset = PREFIX_BYTES;
    if (version == 2) {  // four bytes of length in place of two
        if (fread(prefix + PREFIX_BYTES, 1, 2, file) != 2)
            return fail(why, "%s is truncated: it ends inside its header", path);
        header_bytes |= (uint64_t)prefix[10] << 16 | (uint64_t)prefix[11] << 24;
        offset += 2;
    }
    if (header_bytes > MAX_HEADER_BYTES)
        return fail(why, "%s has a damaged header: it claims to be %llu bytes long", path,
                    (unsigned long long)header_bytes);
    char *header = calloc(1, header_bytes + 1);
    if (!header) return fail(why, "there is no memory left to read %s", path);
    int status = 0;
    if (fread(header, 1, header_bytes, file) != header_bytes)
        status = fail(why, "%s is truncated: it ends inside its header", path);
    else
        status = parse_header(path, header, array, why);
    free(header);
    if (status != 0) return -1;

    int64_t element = (int64_t)dtype_bytes(array->dtype), need = array->count * element;
    int64_t have = file_bytes - offset - (int64_t)header_bytes;
    if (have < need)
        return fail(why, "%s is truncated: its header promises %lld bytes of data, %lld are there", path,
                    (long long)need, (long long)have);
    if (have > need)
        return fail(why, "%s has %lld bytes after its data: it is damaged, or holds more than one array",
                    path, (long long)(have - need));
    array->data = malloc(need ? (size_t)need : 1);
    if (!array->data)
        return fail(why, "there is no memory left for the %lld bytes of %s", (long long)need, path);
    if (fread(array->data, 1, (size_t)need, file) != (size_t)need)
        return fail(why, "%s cannot be read to its end", path);
    return 0;
}

int npy_read(const char *path, struct npy *array, struct message *why) {
    memset(array, 0, sizeof *array);
    if (host_is_big_endian())
        return fail(why, "%s: .npy files are read on little-endian machines only", path);
    struct stat info;
    if (stat(path, &info) != 0) return fail(why, "%s cannot be opened: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return fail(why, "%s is not a regular file", path);
    FILE *file = fopen(path, "rb");
    if (!file) return fail(why, "%s cannot be opened: %s", path, strerror(errno));
    int status = read_open_file(path, file, (int64_t)info.st_size, array, why);
    fclose(file);
    if (status != 0) npy_free(array);
    return status;
}

void npy_free(struct npy *array) {
    free(array->data);
    memset(array, 0, sizeof *array);
}

int npy_write(const char *path, enum dtype dtype, int rank, const int64_t *shape, const void *data,
              struct message *why) {
    const char *descr = dtype == DTYPE_FP16   ? "<f2"
                        : dtype == DTYPE_FP32 ? "<f4"
                        : dtype == DTYPE_FP64 ? "<f8"
                                              : NULL;
    if (!descr) return fail(why, "%s: a .npy file holds fp16, fp32 or fp64, not %s", path, dtype_name(dtype));
    char header[512];
    size_t count = 1, used = 0;
    used +=
        (size_t)snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < rank; ++i) {
        used += (size_t)snprintf(header + used, sizeof header - used, "%lld,%s", (long long)shape[i],
                                 i + 1 < rank ? " " : "");
        count *= (size_t)shape[i];
    }
    used += (size_t)snprintf(header + used, sizeof header - used, "), }");
    // NumPy wants the data to begin at a multiple of 64 bytes and the header to end with a newline.
    while ((PREFIX_BYTES + used + 1) % 64 != 0) header[used++] = ' ';
    header[used++] = '\n';

    unsigned char prefix[PREFIX_BYTES] = {0};
    memcpy(prefix, magic, sizeof magic);
    prefix[6] = 1, prefix[8] = (unsigned char)(used & 255), prefix[9] = (unsigned char)(used >> 8);
    FILE *file = fopen(path, "wb");
    if (!file) return fail(why, "%s cannot be written: %s", path, strerror(errno));
    size_t element = dtype_bytes(dtype);
    int good = fwrite(prefix, 1, sizeof prefix, file) == sizeof prefix &&
               fwrite(header, 1, used, file) == used && fwrite(data, element, count, file) == count;
    if (fclose(file) != 0) good = 0;
    return good ? 0 : fail(why, "%s cannot be written to its end: %s", path, strerror(errno));
}
