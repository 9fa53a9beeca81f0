package procscan

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

const (
	// maxEnvironBytes is more than the kernel gives a program: 6 MiB with its arguments (fs/exec.c).
	// Kubernetes alone has variables of 300 KiB for a namespace with a thousand services.
	maxEnvironBytes = 8 << 20
	// maxVariableBytes is the longest value that is returned. Two of them are sent in one message of a worker.
	maxVariableBytes = 40 << 10
	// environBufferBytes is room for such a value with its name.
	environBufferBytes = 48 << 10
)

// Environment returns the values of variables in the memory that the kernel gave the program its
// environment in; those that the program set itself are elsewhere. A program can write anything there:
// values may be any bytes but zeros. A variable that is not set is left out, and so is one whose value has more
// than 40 KiB; then the error is ErrLong, as it is if one was searched in vain in the first 8 MiB.
// It reads no further than the last of the variables.
func (h *Handle) Environment(names ...string) (map[string]string, error) {
	fd, err := h.open("environ", unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("opening environ: %w", err)
	}
	defer unix.Close(fd)
	values, err := parseEnviron(fdReader(fd), names)
	if err != nil && !errors.Is(err, ErrLong) {
		return nil, fmt.Errorf("reading environ: %w", classify(err))
	}
	return values, err
}

// parseEnviron parses entries NAME=VALUE, each ended by a zero byte. As for getenv, the first of a
// name counts.
func parseEnviron(environ io.Reader, names []string) (map[string]string, error) {
	first := &io.LimitedReader{R: environ, N: maxEnvironBytes}
	r := bufio.NewReaderSize(first, environBufferBytes)
	values := make(map[string]string)
	for len(names) > len(values) {
		entry, err := r.ReadSlice(0)
		for _, name := range names {
			value, is := bytes.CutPrefix(entry, []byte(name+"="))
			if _, known := values[name]; is && !known && !errors.Is(err, io.EOF) {
				values[name] = string(bytes.TrimSuffix(value, []byte{0}))
			}
		}
		for errors.Is(err, bufio.ErrBufferFull) { // its end, which nobody wants
			_, err = r.ReadSlice(0)
		}
		if errors.Is(err, io.EOF) { // the rest of the last one may be missing
			break
		}
		if err != nil {
			return nil, err
		}
	}
	var long error
	if first.N == 0 && len(names) > len(values) {
		long = fmt.Errorf("more than %d bytes: %w", maxEnvironBytes-1, ErrLong)
	}
	for name, value := range values {
		if len(value) > maxVariableBytes {
			delete(values, name)
			long = fmt.Errorf("%s has more than %d bytes: %w", name, maxVariableBytes, ErrLong)
		}
	}
	return values, long
}
