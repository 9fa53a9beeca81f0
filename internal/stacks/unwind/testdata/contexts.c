/* A program that works in coroutines, of which each has others resume. */
#include <stdio.h>
#include <ucontext.h>

static ucontext_t origin, coroutines[2];
static char stacks[2][1 << 16];
static volatile double sink;

__attribute__((noinline)) void work(void) {
    for (int i = 0; i < 100000; i++)
        sink = sink * 1.0001 + i;
}

__attribute__((noinline)) void coroutine(int n) {
    for (;;) {
        work();
        swapcontext(&coroutines[n], n ? &origin : &coroutines[1]);
    }
}

int main(void) {
    for (int n = 0; n < 2; n++) {
        getcontext(&coroutines[n]);
        coroutines[n].uc_stack.ss_sp = stacks[n];
        coroutines[n].uc_stack.ss_size = sizeof(stacks[n]);
        coroutines[n].uc_link = &origin;
        makecontext(&coroutines[n], (void (*)(void))coroutine, 1, n);
    }
    puts("ready");
    fflush(stdout);
    for (;;)
        swapcontext(&origin, &coroutines[0]);
}
