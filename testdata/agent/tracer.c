#include "tracer.h"

#include "edge.h"
#include "receiver.h"
#include "self.h"
#include "truth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BURST = 256 };

static _Atomic(const struct library *) used_library;

void tracers_use(const struct library *library) {
    atomic_store(&used_library, library);
}

/* A page whose contents the kernel has elsewhere, too, so that it can be taken from the process. */
static void *shared_page(void) {
    void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return page;
}

void tracer_init(struct tracer *t, unsigned index, const struct tracer_options *options) {
    t->options = options;
    t->index = index;
    t->slots = options->page_out ? shared_page() : t->own;
    t->work = &work_gap;
    t->cpu_ns = self_cpu_ns();
}

static void point_to(struct tracer *t, void *slot) {
    t->library->set_thread_slot(slot);
    atomic_store(&t->slot, slot);
}

bool tracer_touch(struct tracer *t) {
    if (t->library) {
        return true;
    }
    const struct library *library = atomic_load(&used_library);
    if (!library || !library->set_thread_slot ||
        (t->options->auto_enable && !receiver_registered())) {
        return false;
    }
    t->library = library;
    atomic_store(&t->variable, library->thread_variable());
    slot_write(&t->slots[t->current], NULL, 0);
    point_to(t, &t->slots[t->current]);
    return true;
}

void tracer_leave(struct tracer *t) {
    tracer_end(t);
    if (t->library) {
        point_to(t, NULL);
        atomic_store(&t->variable, NULL);
        t->library = NULL;
    }
}

static void show(struct tracer *t, const struct context *context) {
    t->current ^= t->options->swap;
    struct slot *slot = &t->slots[t->current];
    slot_write(slot, context, !t->options->unsampled);
    if (atomic_load_explicit(&t->slot, memory_order_relaxed) != slot) {
        point_to(t, slot);
    }
}

void tracer_page_out(struct tracer *t) {
    if (t->options->page_out && madvise(t->slots, (size_t)sysconf(_SC_PAGESIZE), MADV_DONTNEED)) {
        perror("madvise");
        exit(1);
    }
}

void tracer_begin(struct tracer *t) {
    tracer_end(t);
    t->begun = true;
    t->work = &work_kinds[t->turn++ % WORK_KINDS];
    t->traced = tracer_touch(t);
    if (t->traced) {
        truth_begin(t->index, t->work->kind, t->cpu_ns, &t->context);
        show(t, &t->context);
    }
}

void tracer_end(struct tracer *t) {
    if (t->traced) {
        show(t, NULL);
    }
    uint64_t cpu = self_cpu_ns();
    if (t->traced) {
        truth_end(t->index, cpu);
    } else if (!t->options->rewrite) {
        truth_gap(t->index, cpu - t->cpu_ns);
    }
    t->cpu_ns = cpu;
    t->begun = t->traced = false;
    t->work = &work_gap;
}

bool tracer_span(struct tracer *t, unsigned number) {
    if (t->traced) {
        ids_span(&t->context, number);
        show(t, &t->context);
    }
    return t->traced;
}

bool tracer_rewrite(struct tracer *t) {
    if (!tracer_touch(t)) {
        return false;
    }
    bool cycle = t->options->rewrite == REWRITE_CYCLE;
    for (; cycle && t->turn < TRACER_CYCLE; t->turn++) {
        truth_begin(t->index, "rewrite", t->cpu_ns, &t->cycle[t->turn]);
    }
    for (unsigned i = 0; i < BURST; i++) {
        if (!cycle) {
            truth_issue(t->index, &t->context);
        }
        show(t, cycle ? &t->cycle[i % TRACER_CYCLE] : &t->context);
        tracer_page_out(t);
    }
    atomic_fetch_add_explicit(&t->rewrites, BURST, memory_order_relaxed);
    return true;
}

const char *tracer_spoil(struct tracer *t, const char *kind) {
    if (!tracer_touch(t)) {
        return "the thread has no slot to spoil";
    }
    struct slot *slot = &t->slots[t->current];
    char *edge = edge_of_memory(sizeof(*slot));
    if (!strcmp(kind, "slot-null")) {
        point_to(t, NULL);
    } else if (!strcmp(kind, "slot-unmapped")) {
        point_to(t, edge);
    } else if (!strcmp(kind, "slot-hangs") || !strncmp(kind, "slot-file:", 10)) {
        const char *path = strchr(kind, ':');
        void *page = path ? file_page(path + 1) : hanging_page();
        if (!page) {
            return strerror(errno);
        }
        point_to(t, page);
    } else if (!strcmp(kind, "slot-wild")) {
        point_to(t, WILD_ADDRESS);
    } else if (!strcmp(kind, "slot-edge")) { /* its ids cannot be read */
        memcpy(edge - offsetof(struct slot, trace_id), slot, offsetof(struct slot, trace_id));
        point_to(t, edge - offsetof(struct slot, trace_id));
    } else if (!strcmp(kind, "slot-updating")) { /* for ever */
        __atomic_store_n(&slot->valid, 0, __ATOMIC_RELEASE);
    } else if (!strcmp(kind, "slot-version")) {
        slot->minor_version = 0;
    } else if (!strcmp(kind, "slot-junk")) {
        memset(slot, 0xff, sizeof(*slot));
    } else {
        return "no such kind";
    }
    return NULL;
}
