/*
 * An agent library for tests: the two exported variables of the correlation
 * protocol and functions to set them. Needs no header of any C library, so that
 * one source serves every architecture and C library.
 *
 *   -DOMIT_STORAGE   without the process-storage symbol
 *   -DOMIT_TLS       without the thread-local symbol (both: an older agent)
 *   -DBIND_LOCALLY   the code reaches the variable under a hidden name, so that
 *                    its relocation has no symbol; the exported one stays
 */
#include "agentlib.h"

/*
 * Initialised, so that it lies in .tdata, before the variable in .tbss: the
 * variable's offset in the block is not 0, and in a library that binds locally
 * there are two TLS relocations without a symbol, of which only one is meant.
 */
static _Thread_local unsigned long other_variable[3] = {1, 2, 3};

AGENTLIB_EXPORT unsigned long agentlib_count_calls(void) {
    return ++other_variable[1];
}

#ifndef OMIT_STORAGE
void *elastic_apm_profiling_correlation_process_storage_v1;

void agentlib_set_process_storage(void *storage) {
    __atomic_store_n(&elastic_apm_profiling_correlation_process_storage_v1, storage,
                     __ATOMIC_RELEASE);
}

void *agentlib_get_process_storage(void) {
    return __atomic_load_n(&elastic_apm_profiling_correlation_process_storage_v1, __ATOMIC_ACQUIRE);
}
#endif

#ifndef OMIT_TLS
_Thread_local void *elastic_apm_profiling_correlation_tls_v1;

#ifdef BIND_LOCALLY
/* The model is named, or else the compiler would know a cheaper one for a hidden variable. */
extern _Thread_local void *variable
    __attribute__((alias("elastic_apm_profiling_correlation_tls_v1"), visibility("hidden"),
                   tls_model("global-dynamic")));
#else
#define variable elastic_apm_profiling_correlation_tls_v1
#endif

void agentlib_set_thread_slot(void *slot) {
    __atomic_store_n(&variable, slot, __ATOMIC_RELEASE);
}

void *agentlib_get_thread_slot(void) {
    return __atomic_load_n(&variable, __ATOMIC_ACQUIRE);
}

void **agentlib_thread_variable(void) {
    return &variable;
}
#endif
