/*
 * Many processes of one program: members, each with its own mapping of the library, storage and
 * socket, and with standard input and output in common. A member ends with standard input, reads no
 * commands from it, and says in each event which process it is. Its events must not be longer than
 * PIPE_BUF to come out whole: it has no transactions.
 */
#ifndef CROWD_H
#define CROWD_H

#include <stdbool.h>

/*
 * Forks n members, without exec. True in each of them, with its number from 0; false in the process
 * itself, when all have ended, with whether all of them ended well.
 */
bool crowd_join(unsigned n, unsigned *number, bool *well);

/*
 * Forks a process that goes on with all that this thread has: copies of the storage and of its
 * slot, the socket, the library. It reads and says nothing, burns CPU if asked to, and ends with
 * standard input, also when its parent has ended before. Its pid, or -1 and errno.
 */
int crowd_fork(bool busy);

#endif
