/*
 * What an agent library exports, for the programs that load one.
 *
 * The first two names are the protocol's and are what a profiling host agent
 * looks for. The functions are this project's own: the loading program cannot
 * reach a thread-local variable of a dlopened library by itself.
 */
#ifndef AGENTLIB_H
#define AGENTLIB_H

#define AGENTLIB_EXPORT __attribute__((visibility("default")))

/* Process storage, or null while nothing is published. */
AGENTLIB_EXPORT extern void *elastic_apm_profiling_correlation_process_storage_v1;

/* Slot of this thread, or null. "The variable" below. */
AGENTLIB_EXPORT extern _Thread_local void *elastic_apm_profiling_correlation_tls_v1;

/* Publishes storage with release order; null withdraws it. */
AGENTLIB_EXPORT void agentlib_set_process_storage(void *storage);
AGENTLIB_EXPORT void *agentlib_get_process_storage(void);

/* Stores into the variable of the calling thread, with release order. */
AGENTLIB_EXPORT void agentlib_set_thread_slot(void *slot);
AGENTLIB_EXPORT void *agentlib_get_thread_slot(void);

/*
 * Address of the calling thread's variable. Touches it: afterwards the thread
 * has memory for the library's thread-local block.
 */
AGENTLIB_EXPORT void **agentlib_thread_variable(void);

#endif
