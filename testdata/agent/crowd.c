#include "crowd.h"

#include "work.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

bool crowd_join(unsigned n, unsigned *number, bool *well) {
    int status;
    *well = true;
    for (*number = 0; *number < n; ++*number) {
        pid_t pid = fork();
        if (pid == 0) {
            return true;
        }
        if (pid < 0) {
            perror("fork");
            *well = false;
            break;
        }
    }
    while (wait(&status) > 0 || errno == EINTR) {
        *well &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return false;
}

/* Whoever waits for the end of the parent's output must not wait for the child. */
static void fall_silent(void) {
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
}

int crowd_fork(bool busy) {
    signal(SIGCHLD, SIG_IGN); /* nobody waits for it */
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    fall_silent();
    struct pollfd input = {.fd = STDIN_FILENO};
    while (poll(&input, 1, busy ? 0 : -1) <= 0) {
        work_kinds[0].run();
    }
    _exit(0);
}
