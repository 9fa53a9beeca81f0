/*
 * Commands: one per line, a word and its arguments, separated by single spaces; the last
 * argument may hold spaces. Every command is answered by exactly one event with
 * "reply":true; "error" when it was not done.
 */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "worker.h"

/* What the options say and commands change. */
struct agent {
    char **argv;              /* of the program */
    const char *library_path; /* null: none given */
    const char *service, *environment;
    struct library library; /* handle null: not loaded */
    uint64_t late_ns;       /* how late the process came to publish what was due */
};

/* Obeys one line. False: the command was quit, and was answered with the final report. */
bool command_obey(struct agent *agent, char *line);

/* The steps that options take too; reply says who asked. Null, or why not. */
const char *agent_load(struct agent *agent, bool reply);
const char *agent_publish(struct agent *agent, bool reply);
void agent_report(bool reply);

#endif
