/* A process whose threads are known: the tests compare what the iterator reports with what
 * the threads say about themselves.
 *
 * Every thread prints "thread TID THREAD-POINTER" when it starts. Commands come in on standard
 * input, one word a line, and each is answered with one line; end of input ends the process.
 *
 *   start    start one more thread; answered by its own line
 *   end      end the newest thread: "ended TID"
 *   halve    end every other thread, one by one: "keeping TID TID ...", and when done "halved"
 *   churn    from now on start and end threads without pause: "churning"
 *   leave    end the main thread, the others go on: "leaving"
 *   ring     have the kernel start an io_uring worker among the threads, which keeps a CPU busy:
 *            "ring", or "no ring"
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_THREADS 4096
#define SMALL_STACK (64 * 1024)

/* From linux/io_uring.h, which musl's headers do not have. Words are those of io_uring_params. */
#define SYS_IO_URING_SETUP 425
#define SYS_IO_URING_ENTER 426
#define SETUP_WORDS 30
#define SETUP_FLAGS_WORD 2
#define SETUP_SQPOLL 2
#define SETUP_IDLE_WORD 4
#define SETUP_IDLE_MS 60000 /* how long the worker looks for work before it sleeps */
#define SETUP_TAIL_WORD 11
#define RING_BYTES 4096
#define ENTER_WAKEUP 2

struct worker {
    pthread_t thread;
    long tid;
    sem_t end;
};

static struct worker workers[MAX_THREADS];
static int workers_used;
static sem_t main_leaves;
static pthread_attr_t small;

static unsigned long thread_pointer(void) {
    unsigned long pointer;

#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#else
#error "unknown thread pointer"
#endif
    return pointer;
}

static void introduce(long *tid) {
    *tid = syscall(SYS_gettid);
    printf("thread %ld %lx\n", *tid, thread_pointer());
}

static void *work(void *argument) {
    struct worker *self = argument;

    introduce(&self->tid);
    while (sem_wait(&self->end) != 0)
        ;
    return NULL;
}

static void start(pthread_t *thread, void *(*routine)(void *), void *argument) {
    if (pthread_create(thread, &small, routine, argument) != 0) {
        perror("pthread_create");
        exit(1);
    }
}

static void start_worker(void) {
    struct worker *worker = &workers[workers_used++];

    if (workers_used > MAX_THREADS)
        exit(1);
    sem_init(&worker->end, 0, 0);
    start(&worker->thread, work, worker);
}

static void end_worker(void) {
    struct worker *worker = &workers[--workers_used];

    if (workers_used < 0)
        exit(1);
    sem_post(&worker->end);
    pthread_join(worker->thread, NULL);
    printf("ended %ld\n", worker->tid);
}

static void halve(void) {
    printf("keeping");
    for (int i = 1; i < workers_used; i += 2)
        printf(" %ld", workers[i].tid);
    puts("");
    for (int i = 0; i < workers_used; i += 2) {
        sem_post(&workers[i].end);
        pthread_join(workers[i].thread, NULL);
    }
    puts("halved");
}

static void *nothing(void *argument) {
    return argument;
}

/* Four at a time, so that threads end while others are before and after them in the list. */
static void *churn(void *argument) {
    pthread_t threads[4];

    for (;;) {
        for (int i = 0; i < 4; i++)
            start(&threads[i], nothing, NULL);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    return argument;
}

/* Has the worker do one operation, the first of all, which does nothing: it sleeps before that. */
static int ring(void) {
    unsigned setup[SETUP_WORDS] = {
        [SETUP_FLAGS_WORD] = SETUP_SQPOLL,
        [SETUP_IDLE_WORD] = SETUP_IDLE_MS,
    };
    int fd = syscall(SYS_IO_URING_SETUP, 1, setup);
    char *queue;

    if (fd < 0)
        return 0;
    queue = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (queue == MAP_FAILED)
        return 0;
    __atomic_store_n((unsigned *)(queue + setup[SETUP_TAIL_WORD]), 1, __ATOMIC_RELEASE);
    return syscall(SYS_IO_URING_ENTER, fd, 0, 0, ENTER_WAKEUP, NULL, 0) >= 0;
}

static void *obey(void *argument) {
    long tid;
    char word[32];
    pthread_t thread;

    introduce(&tid);
    while (scanf("%31s", word) == 1) {
        if (strcmp(word, "start") == 0) {
            start_worker();
        } else if (strcmp(word, "end") == 0) {
            end_worker();
        } else if (strcmp(word, "halve") == 0) {
            halve();
        } else if (strcmp(word, "churn") == 0) {
            start(&thread, churn, NULL);
            puts("churning");
        } else if (strcmp(word, "leave") == 0) {
            puts("leaving");
            sem_post(&main_leaves);
        } else if (strcmp(word, "ring") == 0) {
            puts(ring() ? "ring" : "no ring");
        } else {
            exit(2);
        }
    }
    exit(0);
    return argument;
}

int main(int argc, char **argv) {
    long tid;
    pthread_t thread;

    setvbuf(stdout, NULL, _IOLBF, 0);
    sem_init(&main_leaves, 0, 0);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, SMALL_STACK);
    introduce(&tid);
    for (int i = 0; i < (argc > 1 ? atoi(argv[1]) : 0); i++)
        start_worker();
    start(&thread, obey, NULL);
    while (sem_wait(&main_leaves) != 0)
        ;
    pthread_exit(NULL);
}
