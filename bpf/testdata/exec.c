/* A process that has a slot and executes itself again, with everything at the same addresses.
 *
 * A worker burns CPU. Its slot shows a trace whose bytes are all the generation, 1 at first and one
 * more after every exec. "ready OFFSET" says where the worker's pointer to the slot is, from its
 * thread pointer. Commands are words on standard input: "main" has the main thread execute the
 * program, "worker" the worker. The end of input ends the process.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __thread const uint8_t *volatile slot_pointer;
static uint8_t slot[37];
static atomic_bool worker_execs;
static char *program;

static void execute(void) {
    char generation[16];

    snprintf(generation, sizeof(generation), "%d", slot[5] + 1);
    execl(program, program, generation, (char *)NULL);
    perror("exec");
    _exit(1);
}

static void *work(void *unused) {
    slot_pointer = slot;
    printf("ready %td\n", (char *)&slot_pointer - (char *)__builtin_thread_pointer());
    fflush(stdout);
    while (!atomic_load_explicit(&worker_execs, memory_order_relaxed)) {
    }
    execute();
    return unused;
}

int main(int argc, char **argv) {
    int generation = argc > 1 ? atoi(argv[1]) : 1;
    char command[16];
    pthread_t worker;

    /* Version 1, valid, trace present, sampled; then the ids. */
    memcpy(slot, (uint8_t[]){1, 0, 1, 1, 1}, 5);
    memset(slot + 5, generation, sizeof(slot) - 5);
    program = argv[0];
    if (pthread_create(&worker, NULL, work, NULL)) {
        return 1;
    }
    while (scanf("%15s", command) == 1) {
        if (!strcmp(command, "main")) {
            execute();
        }
        atomic_store(&worker_execs, 1);
    }
    return 0;
}
