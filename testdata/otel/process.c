#include "process.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U /* linux/memfd.h, since Linux 6.3 */
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41 /* linux/prctl.h, since Linux 5.17 */
#define PR_SET_VMA_ANON_NAME 0
#endif

static const char name[] = "OTEL_CTX";

struct process_header *process_header;
static size_t mapping_size;
static void *payload; /* by malloc; null: behind the header */

/* --- protocol buffers ----------------------------------------------------------------------- */

struct buffer {
    char *bytes;
    size_t size;
    FILE *out;
};

static void buffer_open(struct buffer *b) {
    b->out = open_memstream(&b->bytes, &b->size);
    if (!b->out) {
        perror("open_memstream");
        exit(1);
    }
}

static void put_varint(struct buffer *b, uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
        fputc((int)(value & 0x7f) | 0x80, b->out);
    }
    fputc((int)value, b->out);
}

/* A field of wire type 2: a string or a message. */
static void put_bytes(struct buffer *b, unsigned field, const char *bytes, size_t size) {
    put_varint(b, field << 3 | 2);
    put_varint(b, size);
    fwrite(bytes, 1, size, b->out);
}

/* Closes the message and makes it a field of another one. */
static void put_message(struct buffer *b, unsigned field, struct buffer *message) {
    fclose(message->out);
    put_bytes(b, field, message->bytes, message->size);
    free(message->bytes);
}

enum { STRING_VALUE = 1, ARRAY_VALUE = 5 };            /* of AnyValue */
enum { ARRAY_VALUES = 1, KEY = 1, VALUE = 2 };         /* of ArrayValue, and of KeyValue */
enum { RESOURCE_ATTRIBUTES = 1 };                      /* of Resource */
enum { CONTEXT_RESOURCE = 1, CONTEXT_ATTRIBUTES = 2 }; /* of ProcessContext */

static void put_key(struct buffer *pair, const char *key) {
    buffer_open(pair);
    put_bytes(pair, KEY, key, strlen(key));
}

static void put_pair(struct buffer *b, unsigned field, const char *key, const char *value) {
    struct buffer pair, any;
    put_key(&pair, key);
    buffer_open(&any);
    put_bytes(&any, STRING_VALUE, value, strlen(value));
    put_message(&pair, VALUE, &any);
    put_message(b, field, &pair);
}

static void put_array(struct buffer *b, unsigned field, const char *key, const char *words) {
    struct buffer pair, any, array, item;
    put_key(&pair, key);
    buffer_open(&any);
    buffer_open(&array);
    for (size_t n; *words; words += n + (words[n] != 0)) {
        n = strcspn(words, ",");
        buffer_open(&item);
        put_bytes(&item, STRING_VALUE, words, n);
        put_message(&array, ARRAY_VALUES, &item);
    }
    put_message(&any, ARRAY_VALUE, &array);
    put_message(&pair, VALUE, &any);
    put_message(b, field, &pair);
}

static void put_thread_keys(struct buffer *b, unsigned field, const struct process_context *c) {
    if (c->schema) {
        put_pair(b, field, "threadlocal.schema_version", c->schema);
    }
    if (c->keys) {
        put_array(b, field, "threadlocal.attribute_key_map", c->keys);
    }
}

static void encode(struct buffer *b, const struct process_context *c) {
    struct buffer resource;
    buffer_open(b);
    buffer_open(&resource);
    for (unsigned i = 0; i < c->resource.n; i++) {
        put_pair(&resource, RESOURCE_ATTRIBUTES, c->resource.list[i].key,
                 c->resource.list[i].value);
    }
    if (c->keys_in_resource) {
        put_thread_keys(&resource, RESOURCE_ATTRIBUTES, c);
    }
    put_message(b, CONTEXT_RESOURCE, &resource);
    for (unsigned i = 0; i < c->attributes.n; i++) {
        put_pair(b, CONTEXT_ATTRIBUTES, c->attributes.list[i].key, c->attributes.list[i].value);
    }
    if (!c->keys_in_resource) {
        put_thread_keys(b, CONTEXT_ATTRIBUTES, c);
    }
    fclose(b->out);
}

/* --- the mapping ---------------------------------------------------------------------------- */

static uint64_t boottime(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The memfd holds zeros for ever: the mapping is private. */
static void *map_memfd(size_t size) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0) {
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    if (fd < 0) {
        return MAP_FAILED;
    }
    void *mapping = MAP_FAILED;
    if (!ftruncate(fd, (off_t)size)) {
        mapping = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    }
    close(fd);
    return mapping;
}

/* The call is also the signal of a new context, and of an update, for who watches for it: it is
 * made where naming is not possible, too. */
static bool set_name(void) {
    return !prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, process_header, mapping_size, name);
}

/* Takes the payload into the mapping or keeps it apart, and publishes where it is. */
static void set_payload(const struct process_context *c, struct buffer *b) {
    void *before = payload;
    void *behind = process_header + 1;
    if (c->same_payload && b->size <= mapping_size - sizeof(*process_header)) {
        memcpy(behind, b->bytes, b->size);
        free(b->bytes);
        payload = NULL;
    } else {
        payload = b->bytes;
    }
    process_header->payload = (uintptr_t)(payload ? payload : behind);
    process_header->payload_size = (uint32_t)b->size;
    free(before);
}

static const char *publish_first(const struct process_context *c) {
    struct buffer b;
    mapping_size = (size_t)sysconf(_SC_PAGESIZE) * (c->same_payload ? 2 : 1);
    void *mapping = c->no_memfd ? MAP_FAILED : map_memfd(mapping_size);
    bool named = mapping != MAP_FAILED;
    if (!named) {
        mapping =
            mmap(NULL, mapping_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (mapping == MAP_FAILED) {
        return strerror(errno);
    }
    process_header = mapping;
    if (madvise(mapping, mapping_size, MADV_DONTFORK)) {
        process_withdraw();
        return "MADV_DONTFORK is not possible";
    }
    encode(&b, c);
    memcpy(process_header->signature, name, sizeof(process_header->signature));
    process_header->version = 2;
    set_payload(c, &b);
    atomic_thread_fence(memory_order_seq_cst);
    *(volatile uint64_t *)&process_header->published_at = boottime();
    named |= set_name();
    if (!named) {
        process_withdraw();
        return "neither a memfd nor a name is possible";
    }
    return NULL;
}

const char *process_publish(const struct process_context *c) {
    struct buffer b;
    if (!process_header) {
        return publish_first(c);
    }
    uint64_t before = process_header->published_at, now = boottime();
    encode(&b, c);
    *(volatile uint64_t *)&process_header->published_at = 0;
    atomic_thread_fence(memory_order_seq_cst);
    set_payload(c, &b);
    atomic_thread_fence(memory_order_seq_cst);
    *(volatile uint64_t *)&process_header->published_at = now > before ? now : before + 1;
    set_name();
    return NULL;
}

void process_withdraw(void) {
    if (process_header) {
        munmap(process_header, mapping_size);
    }
    free(payload);
    process_forget();
}

void process_forget(void) {
    process_header = NULL;
    payload = NULL;
}

bool pairs_set(struct pairs *pairs, const char *key, const char *value) {
    unsigned i = 0;
    while (i < pairs->n && strcmp(pairs->list[i].key, key)) {
        i++;
    }
    if (i == PROCESS_MAX_PAIRS) {
        return false;
    }
    pairs->n += i == pairs->n;
    pairs->list[i] = (struct pair){key, value};
    return true;
}
