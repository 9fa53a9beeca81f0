/* Has workers of io_uring wait. For each line on standard input it has one open PIPE, which waits
 * for who opens the other end, as this thread does later, and one sync FILE to the disk; then it
 * prints a line, as it does when there is a ring, or "-" where there can be none. Arguments: PIPE
 * FILE. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct io_uring_params params;
static int ring;
static char *rings;
static struct io_uring_sqe *entry;

static unsigned *at(unsigned offset) {
    return (unsigned *)(rings + offset);
}

static int enter(unsigned submits, unsigned awaits) {
    return (int)syscall(SYS_io_uring_enter, ring, submits, awaits, IORING_ENTER_GETEVENTS, NULL, 0);
}

/* Has a worker do what the entry says. */
static int begin(void) {
    unsigned *tail = at(params.sq_off.tail);
    entry->flags = IOSQE_ASYNC;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    return enter(1, 0) != 1;
}

/* Returns what it did, once it has. */
static int end(void) {
    unsigned *head = at(params.cq_off.head);
    while (*head == __atomic_load_n(at(params.cq_off.tail), __ATOMIC_ACQUIRE))
        if (enter(0, 1) < 0)
            return -1;
    int result = ((struct io_uring_cqe *)at(params.cq_off.cqes))->res; /* there is room for one */
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

int main(int argc, char **argv) {
    static char block[1 << 16];
    struct timespec nap = {0, 20000000};
    if (argc < 3)
        return 2;
    params.flags = IORING_SETUP_CQSIZE;
    params.cq_entries = 1;
    ring = (int)syscall(SYS_io_uring_setup, 1, &params);
    if (ring < 0 && (errno == ENOSYS || errno == EPERM)) {
        puts("-");
        return 0;
    }
    rings = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    entry = mmap(NULL, sizeof(*entry), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    int file = open(argv[2], O_CREAT | O_WRONLY, 0600);
    if (ring < 0 || rings == MAP_FAILED || entry == MAP_FAILED || file < 0)
        return 1;
    puts("");
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;) {
        *entry = (struct io_uring_sqe){
            .opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (uintptr_t)argv[1]};
        if (begin())
            return 1;
        nanosleep(&nap, NULL);
        int written = open(argv[1], O_WRONLY), read = end();
        if (written < 0 || read < 0 || close(written) || close(read))
            return 1;
        *entry = (struct io_uring_sqe){.opcode = IORING_OP_FSYNC, .fd = file};
        if (pwrite(file, block, sizeof(block), 0) != sizeof(block) || begin() || end())
            return 1;
        printf("%c", c);
        fflush(stdout);
    }
    return 0;
}
