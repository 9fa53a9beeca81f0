/*
 * The agent's socket: bound, polled and read the way the Java agent does it, but every
 * message is checked strictly and counted in exactly one place.
 */
#ifndef RECEIVER_H
#define RECEIVER_H

#include "events.h"

/* Every 20 ms the Java agent reads all that is there, into a buffer of 1024 bytes. */
#define RECEIVER_POLL_MS 20
#define RECEIVER_BUFFER 1024

/* Starts the thread that polls. With never_read it does not exist, and nothing is ever read. */
void receiver_start(bool never_read);

/*
 * Binds a datagram socket at path, in place of any earlier one, which is closed and its
 * file removed. Null, or why it did not work.
 */
const char *receiver_bind(const char *path);
/* The program that this process executes next gets the socket when it binds one at the path. */
void receiver_hand_on(void);
/* Closes the socket and leaves its file: a sender gets ECONNREFUSED. */
void receiver_close(void);
/* Removes the file and leaves the socket: who is connected stays connected. */
void receiver_unlink(void);
/* Path of the last socket bound; empty before. */
const char *receiver_path(void);

/* The present socket, to wait for something to read, or -1. */
int receiver_fd(void);
/* Reads what is there now. */
void receiver_drain(void);

/* Has any registration been read? */
bool receiver_registered(void);

/* Adds all counters. */
void receiver_report(struct event *event);

#endif
