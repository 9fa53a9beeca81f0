/*
 * Needs no header of any C library, so that one source serves every architecture and C library.
 *
 *   -DMODEL="..."    the TLS model of the access, instead of the compiler's choice
 *   -DBIND_LOCALLY   the code reaches the variable under a hidden name, so that its relocation
 *                    has no symbol; the exported one stays
 *   -DHIDE           the symbol is not exported: only .symtab has it
 *   -DALIGN=N        the alignment of the block, instead of 8
 */
#include "threadctx.h"

#ifndef ALIGN
#define ALIGN 8
#endif

/*
 * Initialised, so that it lies in .tdata, before the variable in .tbss: the variable's offset in
 * the block is not 0. Its own access needs a TLS relocation that leads elsewhere.
 */
static _Thread_local unsigned long other_variable[3] __attribute__((aligned(ALIGN))) = {1, 2, 3};

#ifdef MODEL
#define MODEL_ATTRIBUTE , tls_model(MODEL)
#else
#define MODEL_ATTRIBUTE
#endif

#ifdef HIDE
#define VISIBILITY "hidden"
#else
#define VISIBILITY "default"
#endif

_Thread_local void *otel_thread_ctx_v1 __attribute__((visibility(VISIBILITY) MODEL_ATTRIBUTE));

#ifdef BIND_LOCALLY
extern _Thread_local void *variable
    __attribute__((alias("otel_thread_ctx_v1"), visibility("hidden") MODEL_ATTRIBUTE));
#else
#define variable otel_thread_ctx_v1
#endif

/* With two accesses, the one that the local-dynamic model shares is not worth replacing. */
void **threadctx_variable(void) {
    other_variable[0]++;
    return &variable;
}
