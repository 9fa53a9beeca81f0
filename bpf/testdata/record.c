/* A thread that burns CPU, with a slot of Elastic's library and a record of OpenTelemetry's.
 *
 * "ready RECORD SLOT" says where the worker's pointers to them are, from its thread pointer. The
 * argument says what it does:
 *
 * - still leaves both alone. Commands change them: "record" or "slot", and HEX, its bytes; "null",
 * a null pointer; "wild", a pointer to no memory; "edge HEX", bytes behind which there is no
 * memory. They are answered by "done".
 * - exchange writes records as fast as it can, each elsewhere, and exchanges the pointer.
 * - rewrite does the same in one place, with valid = 0 meanwhile.
 *
 * The end of input ends the process.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BARRIER() __asm__ volatile("" ::: "memory")

struct record {
    uint64_t trace_id[2], span_id;
    volatile uint8_t valid;
    uint8_t flags;
    uint16_t size;
    uint8_t attributes[64];
} __attribute__((packed, aligned(2)));

static __thread const void *volatile record_pointer;
static __thread const void *volatile slot_pointer;
static const void *volatile *pointers[2]; /* of the worker */
static atomic_bool known;
static struct record records[2];

/* All of a record follows from the first word of its trace id. */
static void fill(struct record *record, uint64_t key) {
    uint64_t value = ~key;
    size_t more = key % 40;

    record->valid = 0;
    BARRIER();
    record->trace_id[0] = key;
    record->trace_id[1] = key * 3;
    record->span_id = key ^ 0x5555555555555555;
    record->flags = key & 1;
    record->attributes[0] = 0;
    record->attributes[1] = sizeof(value);
    memcpy(record->attributes + 2, &value, sizeof(value));
    record->attributes[10] = 1;
    record->attributes[11] = more;
    memset(record->attributes + 12, (uint8_t)key, more);
    record->size = 12 + more;
    BARRIER();
    record->valid = 1;
}

static void *work(void *argument) {
    const char *mode = argument;
    uint64_t key = 1;

    pointers[0] = &record_pointer;
    pointers[1] = &slot_pointer;
    printf("ready %td %td\n", (char *)&record_pointer - (char *)__builtin_thread_pointer(),
           (char *)&slot_pointer - (char *)__builtin_thread_pointer());
    fflush(stdout);
    atomic_store(&known, 1);
    while (*mode == 's') {
    }
    for (int which = 0;; which ^= *mode == 'e') {
        key = key * 6364136223846793005 + 1442695040888963407; /* never twice in 2^64 */
        fill(&records[which], key ? key : 1);
        BARRIER();
        record_pointer = &records[which];
        /* Emulated CPUs are interrupted at jumps only: there is one while the record is valid. */
        for (volatile int i = 0; *mode == 'r' && i < 8; i++) {
        }
    }
    return NULL;
}

/* Puts the bytes to the end of a mapping, or right behind its beginning. */
static const void *place(const char *hex, int at_edge) {
    size_t page = sysconf(_SC_PAGESIZE), size = strlen(hex) / 2;
    uint8_t *memory =
        mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *to = memory + (at_edge ? 2 * page - size : 0);

    if (memory == MAP_FAILED || munmap(memory + 2 * page, page)) {
        perror("mmap");
        exit(1);
    }
    for (size_t i = 0; i < size; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};

        to[i] = strtoul(digits, NULL, 16);
    }
    return to;
}

int main(int argc, char **argv) {
    char *line = NULL;
    size_t room = 0;
    pthread_t worker;

    if (argc != 2 || pthread_create(&worker, NULL, work, argv[1])) {
        return 1;
    }
    while (!atomic_load(&known)) {
    }
    while (getline(&line, &room, stdin) > 0) {
        char *rest = line, *what = strsep(&rest, " \n"), *how = strsep(&rest, " \n");
        const void *to;

        if (!how) {
            return 1;
        }
        if (!strcmp(how, "null")) {
            to = NULL;
        } else if (!strcmp(how, "wild")) {
            to = (const void *)0x10;
        } else if (!strcmp(how, "edge")) {
            to = place(strsep(&rest, " \n"), 1);
        } else {
            to = place(how, 0);
        }
        /* Also of this thread, which may run on behind the answer, and be sampled. */
        *pointers[!strcmp(what, "slot")] = to;
        *(strcmp(what, "slot") ? &record_pointer : &slot_pointer) = to;
        puts("done");
        fflush(stdout);
    }
    return 0;
}
