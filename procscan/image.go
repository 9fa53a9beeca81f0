package procscan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Image tells the programs that a process runs one after the other apart: an exec places another
// one elsewhere, unless address space randomization is off and it is the same program again. It is
// zero where reading it is not permitted.
type Image struct{ StartCode, StartStack uint64 }

// Image returns which program the process runs. The error is ErrGone when it has exited.
func (h *Handle) Image() (Image, error) {
	fd, err := h.open("stat", unix.O_RDONLY)
	if err != nil {
		return Image{}, err
	}
	defer unix.Close(fd)
	text := make([]byte, maxStatBytes)
	n, err := fdReader(fd).Read(text) // one read returns all of it
	if err != nil {
		return Image{}, fmt.Errorf("reading the process's image: %w", classify(err))
	}
	image, err := parseImage(text[:n])
	if err != nil {
		return Image{}, fmt.Errorf("reading the process's image: %w", err)
	}
	if !h.Alive() {
		return Image{}, ErrGone
	}
	return image, nil
}

// The vector of a program (/proc/PID/auxv, elf.h) is of pairs of words, a type and a value. What the
// kernel gives it at random is 16 bytes long.
const (
	atRandom     = 25
	maxAuxvBytes = 1024 // more than the kernel writes of any architecture: 50 pairs
)

// RandomAddr returns where the program has the bytes that the kernel made up for it when it was
// executed. The program may have overwritten them. The error is ErrGone when the process has exited,
// ErrDenied where reading is not permitted, and ErrNotFound if the program has none.
func (h *Handle) RandomAddr() (uint64, error) {
	fd, err := h.open("auxv", unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	vector := make([]byte, maxAuxvBytes)
	n, err := fdReader(fd).Read(vector) // one read returns all of it
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("reading the program's vector: %w", classify(err))
	}
	addr, ok := parseRandomAddr(vector[:n])
	switch {
	case !h.Alive():
		return 0, ErrGone
	case !ok:
		return 0, fmt.Errorf("reading the program's vector: %w", ErrNotFound)
	}
	return addr, nil
}

func parseRandomAddr(vector []byte) (uint64, bool) {
	for ; len(vector) >= 16; vector = vector[16:] {
		if binary.NativeEndian.Uint64(vector) == atRandom {
			return binary.NativeEndian.Uint64(vector[8:]), true
		}
	}
	return 0, false
}

// parseImage parses /proc/PID/stat (do_task_stat in fs/proc/array.c):
//
//	field  text        without permission
//	   26  startcode   1
//	   28  startstack  0
func parseImage(stat []byte) (Image, error) {
	code, err := statField(stat, 26)
	if err != nil {
		return Image{}, err
	}
	stack, err := statField(stat, 28)
	if err != nil || stack == 0 {
		return Image{}, err
	}
	return Image{code, stack}, nil
}
