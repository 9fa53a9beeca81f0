/*
 * The variable by which a thread says what it works on (OTEP 4947), and the one function by which
 * programs reach it: linked into the program, or in a library that it links with or loads.
 */
#ifndef THREADCTX_H
#define THREADCTX_H

/* Address of the calling thread's variable. Touches it: afterwards the thread has memory for it. */
__attribute__((visibility("default"))) void **threadctx_variable(void);

#endif
