package main

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// levelWarning is KERN_WARNING of include/linux/kern_levels.h. More important levels are lower.
const levelWarning = 4

// messagesLost is what an event says instead of messages of the kernel.
const messagesLost = "messages of the kernel were lost"

// reportLog reports the warnings and errors in the kernel's log.
func (g *guest) reportLog() error {
	log, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(log)
	message := make([]byte, 8192) // the kernel's CONSOLE_EXT_LOG_MAX
	var next uint64
	for {
		n, err := unix.Read(log, message)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EPIPE): // messages were overwritten: the number of the next one says so
			continue
		case err != nil:
			return err
		}
		events, err := readMessage(string(message[:n]), &next)
		if err != nil {
			return err
		}
		for _, e := range events {
			g.send(e)
		}
	}
}

// readMessage returns the events that a message of the kernel's log is worth. Before its text are
// numbers: the first has the level in its low 3 bits, the second counts messages from 0
// (Documentation/ABI/testing/dev-kmsg). next is the one that is expected.
func readMessage(message string, next *uint64) (events []event, err error) {
	head, text, _ := strings.Cut(message, ";")
	var level int
	var number uint64
	if _, err := fmt.Sscanf(head, "%d,%d,", &level, &number); err != nil {
		return nil, fmt.Errorf("parsing the message %q: %w", message, err)
	}
	if number != *next {
		events = append(events, event{Kernel: fmt.Sprintf("%s: %d to %d", messagesLost, *next, number-1)})
	}
	*next = number + 1
	if level&7 <= levelWarning {
		line, _, _ := strings.Cut(text, "\n")
		events = append(events, event{Kernel: line})
	}
	return events, nil
}
