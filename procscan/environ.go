package procscan

import (
	"bytes"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

const (
	// maxEnvironBytes is how much of an environment is looked at: twice what a shell's argument may
	// have (MAX_ARG_STRLEN), and a hundred times an ordinary one.
	maxEnvironBytes = 256 << 10
	// maxVariableBytes is the longest value that is returned.
	maxVariableBytes = 8 << 10
)

// Environment returns the values of variables in the memory that the kernel gave the program its
// environment in; those that the program set itself are elsewhere. A program can write anything there:
// values may be any bytes but zeros. A variable that is not set, whose value has more than 8 KiB, or
// that comes after 256 KiB of others is left out.
func (h *Handle) Environment(names ...string) (map[string]string, error) {
	fd, err := h.open("environ", unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("opening environ: %w", err)
	}
	defer unix.Close(fd)
	text, err := io.ReadAll(io.LimitReader(fdReader(fd), maxEnvironBytes))
	if err != nil {
		return nil, fmt.Errorf("reading environ: %w", classify(err))
	}
	return parseEnviron(text, names), nil
}

// parseEnviron parses entries NAME=VALUE, each ended by a zero byte. As for getenv, the first of a
// name counts.
func parseEnviron(text []byte, names []string) map[string]string {
	values := make(map[string]string)
	for len(names) > len(values) {
		entry, rest, ended := bytes.Cut(text, []byte{0})
		if !ended { // the rest of the last one may be missing
			break
		}
		text = rest
		for _, name := range names {
			value, is := bytes.CutPrefix(entry, []byte(name+"="))
			if _, known := values[name]; is && !known {
				values[name] = string(value)
			}
		}
	}
	for name, value := range values {
		if len(value) > maxVariableBytes {
			delete(values, name)
		}
	}
	return values
}
