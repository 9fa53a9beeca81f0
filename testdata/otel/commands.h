/* What the process is, and the commands that it takes: see README.md in the directory above. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "process.h"
#include "thread.h"

struct writer {
    struct process_context context;
    const char *library; /* to be loaded; null: none */
    bool in_place, hold;
    unsigned threads;
    char **argv; /* of main */
};

/* The variable that is linked with the program; null: it is to be loaded. */
extern void **(*const writer_linked_variable)(void);

/* Both: null, or why it did not work. They send an event, as the reply to a command or not. */
const char *writer_load(struct writer *writer, bool reply);
const char *writer_publish(struct writer *writer, bool reply);

/* Obeys one command and replies. False: it was quit. */
bool command_obey(struct writer *writer, char *line);

#endif
