/* A library with the function by which V8 calls its garbage collector, two of JVMs, and behind
 * each one that describes itself; and a table with more names than any. */
int MARK = 1;

__asm__(".pushsection .text\n"
        ".type PushAllRegistersAndIterateStack, @function\n"
        "PushAllRegistersAndIterateStack:\n"
        "push %rbp; mov %rsp, %rbp; push $0xcdcdcd; push %rbx; push %r12; push %r13; push %r14; "
        "push %r15\n"
        "mov %rdx, %r8; mov %rsp, %rdx; call *%r8; add $48, %rsp; pop %rbp; ret\n"
        ".cfi_startproc; nop; ret; .cfi_endproc\n"
        ".balign 64\n"
        ".type SpinPause, @function\n"
        "SpinPause:\n"
        "pause; mov $1, %rax; ret\n"
        ".cfi_startproc; nop; ret; .cfi_endproc\n"
        ".balign 64\n"
        ".type SafeFetch32_impl, @function\n"
        "SafeFetch32_impl:\n"
        "mov (%rdi), %eax; ret\n"
        ".cfi_startproc; nop; ret; .cfi_endproc\n"
        ".popsection\n"
        ".pushsection .names\n"
        ".rept 1025; .asciz \"SpinPause\"; .endr\n"
        ".popsection");
