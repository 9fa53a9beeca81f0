// A program that says where it is: a call chain of its own functions, with the C library's qsort
// in the middle, and then waits until its standard input ends.
//
//	function NAME ADDR   where a function of the program lies
//	stack ADDR ADDR ...  return addresses, leaf first
//	ready
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>

int inner(const void *a, const void *b);
void middle(void);
void outer(void);

static int calls;

__attribute__((noinline)) int inner(const void *a, const void *b) {
    void *stack[64];

    if (calls++ == 0) {
        int n = backtrace(stack, 64);

        printf("stack");
        for (int i = 0; i < n; i++)
            printf(" %lx", (unsigned long)stack[i]);
        printf("\n");
    }
    return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) void middle(void) {
    int numbers[] = {2, 1};

    qsort(numbers, 2, sizeof(numbers[0]), inner);
    printf("function middle %lx\n", (unsigned long)middle);
}

__attribute__((noinline)) void outer(void) {
    middle();
    printf("function outer %lx\n", (unsigned long)outer);
}

int main(void) {
    printf("function inner %lx\n", (unsigned long)inner);
    outer();
    printf("ready\n");
    fflush(stdout);
    getchar();
    return 0;
}
