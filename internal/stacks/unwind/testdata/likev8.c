#include <stdio.h>

int _ZN2v82V810GetVersionEv; // a name of V8's, if the symbol is left

int main(void) {
    puts("ready");
    fflush(stdout);
    for (;;)
        ;
}
