/* The context of the current thread, whoever publishes it: for programs that run in the kernel's
 * own code, where the thread leaves its CPU, comes to it, or wakes another one. */
#ifndef CONTEXTS_H
#define CONTEXTS_H

#include "golabels.h"
#include "obi.h"

/* What was read, and is needed for that.
 *
 *   offset size field
 *        0  120 context
 *      120    4 of_labels  1: context is that of labels, and attributes are theirs
 *      124    4 outcome    enum correlator_outcome
 *      128  512 attributes
 *      640 1480 labels
 *     2120  168 target
 */
struct current_context {
    struct correlator_context context;
    __u32 of_labels;
    __u32 outcome;
    struct correlator_attributes attributes;
    struct go_scratch labels;
    struct correlator_target target; /* for which the stack has hardly room */
};

_Static_assert(__builtin_offsetof(struct current_context, of_labels) == 120, "of_labels");
_Static_assert(__builtin_offsetof(struct current_context, attributes) == 128, "attributes");
_Static_assert(__builtin_offsetof(struct current_context, labels) == 640, "labels");
_Static_assert(__builtin_offsetof(struct current_context, target) == 2120, "target");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct current_context);
} contexts SEC(".maps");

static const __u32 here = 0; /* the key of contexts */

/* Reads labels into contexts. The verifier goes through a function that is not static once, whoever
 * calls it. */
__noinline int read_goroutine(void) {
    struct current_context *found = bpf_map_lookup_elem(&contexts, &here);
    enum correlator_outcome outcome;
    bool refused;

    if (!found) /* never */
        return 0;
    outcome = go_read(NULL, &found->labels, &found->context, &found->attributes, &refused);
    found->of_labels = outcome == CORRELATOR_SAMPLED;
    found->outcome = refused ? CORRELATOR_UNREADABLE : outcome;
    return 0;
}

static __always_inline enum correlator_outcome find_context(struct current_context *found,
                                                            bool reads) {
    struct correlator_context *context = &found->context;
    struct correlator_target *target = &found->target;
    enum correlator_outcome outcome = correlator_find(&targets, context, target);
    bool publishes = outcome == CORRELATOR_SAMPLED;

    found->of_labels = 0;
    if (!reads || (!publishes && outcome != CORRELATOR_NO_SLOT))
        return outcome;
    if (publishes)
        outcome = correlator_read(target, context);
    if (target->labels && is_untraced(outcome)) {
        found->labels.layout = target->labels;
        read_goroutine();
        outcome = found->outcome;
    }
    if (!publishes && is_untraced(outcome) && !context->kind)
        return obi_read(context);
    return outcome;
}

/* As correlator_current; where a process publishes none, or not for this thread, the labels of the
 * goroutine, and then, if it publishes none, OBI's. Labels that are refused, or cannot be read, are
 * CORRELATOR_UNREADABLE. Unless it reads, all that is known is whose thread it is. */
static __always_inline enum correlator_outcome read_context(struct current_context *found,
                                                            bool reads) {
    found->outcome = find_context(found, reads);
    /* The verifier, which knows nothing of the memory of maps, goes on once for all outcomes. */
    __asm__ __volatile__("" ::: "memory");
    return found->outcome;
}

#endif
