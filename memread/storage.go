package memread

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxStringBytes bounds each string of the process storage. The longest meaningful one is a path,
// and PATH_MAX is 4096; twice that leaves room for long names.
const maxStringBytes = 8192

var (
	// errShort: the storage is longer than the bytes given.
	errShort = errors.New("process storage is longer")
	// ErrVersion: layout-minor-version is 0, so no agent has written this.
	ErrVersion = errors.New("layout version is 0")
	// ErrStringTooLong: a string has more than maxStringBytes.
	ErrStringTooLong = errors.New("string is too long")
	// ErrInvalidUTF8: a string is not UTF-8.
	ErrInvalidUTF8 = errors.New("string is not UTF-8")
	// ErrSocketPath: the socket path is empty or has a NUL in it, so it names no file.
	ErrSocketPath = errors.New("socket path names no file")
	// ErrNotPublished: the pointer to the process storage is null.
	ErrNotPublished = errors.New("process storage is not published")
	// ErrChanged: the process storage was replaced, withdrawn or rewritten while it was read.
	ErrChanged = errors.New("process storage changed while it was read")
)

const (
	storageLengthBytes = 4
	// firstStorageBytes is how much is read before any length is known: most storages are shorter.
	firstStorageBytes = 512
)

// ProcessStorage is what an agent publishes once for its process. SocketPath is a path as the
// process sees it; it is not empty and has no NUL, nothing else is checked.
type ProcessStorage struct {
	MinorVersion       uint16
	ServiceName        string
	ServiceEnvironment string
	SocketPath         string
}

// decodeProcessStorage decodes the storage at the start of b and returns how many bytes of b it
// takes; fields that a later minor version may append are ignored. With errShort the number is how
// many bytes are needed at least, by the lengths in b: more than were given, at most 24590. With
// any other error it is how many bytes led to the error. No string is allocated before all are
// known to be complete.
//
//	size  field
//	   2  layout-minor-version, at least 1
//	 4+n  service-name: length, UTF-8
//	 4+n  service-environment
//	 4+n  socket-file-path
//
// Packed, byte order of the machine (correlation protocol, part 2).
func decodeProcessStorage(b []byte) (ProcessStorage, int, error) {
	const versionBytes = 2
	names := [...]string{"service-name", "service-environment", "socket-file-path"}
	var texts [len(names)][]byte
	if need := versionBytes + len(texts)*storageLengthBytes; len(b) < need {
		return ProcessStorage{}, need, errShort
	}
	s := ProcessStorage{MinorVersion: binary.NativeEndian.Uint16(b)}
	if s.MinorVersion == 0 {
		return ProcessStorage{}, versionBytes, ErrVersion
	}
	off := versionBytes
	for i := range texts {
		length := binary.NativeEndian.Uint32(b[off:])
		off += storageLengthBytes
		if length > maxStringBytes {
			return ProcessStorage{}, off, fmt.Errorf("decoding %s of %d bytes: %w", names[i], length, ErrStringTooLong)
		}
		end := off + int(length)
		if need := end + (len(texts)-1-i)*storageLengthBytes; len(b) < need {
			return ProcessStorage{}, need, errShort
		}
		texts[i] = b[off:end]
		off = end
	}
	for i, text := range texts {
		if !utf8.Valid(text) {
			return ProcessStorage{}, off, fmt.Errorf("decoding %s: %w", names[i], ErrInvalidUTF8)
		}
	}
	if path := texts[2]; len(path) == 0 || bytes.IndexByte(path, 0) >= 0 {
		return ProcessStorage{}, off, ErrSocketPath
	}
	s.ServiceName, s.ServiceEnvironment, s.SocketPath = string(texts[0]), string(texts[1]), string(texts[2])
	return s, off, nil
}

// AppendTo appends the encoded storage to b, without fields of later minor versions.
func (s *ProcessStorage) AppendTo(b []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, s.MinorVersion)
	for _, text := range [...]string{s.ServiceName, s.ServiceEnvironment, s.SocketPath} {
		b = binary.NativeEndian.AppendUint32(b, uint32(len(text)))
		b = append(b, text...)
	}
	return b
}

// ReadProcessStorage reads the storage that the pointer at pointerAddr (the run-time address of the
// exported variable) points to, twice: the pointer, the storage, and in one call the pointer and
// the storage again. addr is the value of the pointer, also with an error.
//
// Errors of decodeProcessStorage are returned if both reads gave the same bytes; else the error is
// ErrChanged, and reading again may help. A storage that cannot be read is ErrUnmapped if the
// pointer is unchanged.
func (p *Process) ReadProcessStorage(pointerAddr uint64) (addr uint64, s ProcessStorage, err error) {
	if _, err := p.Read(pointerAddr, p.word[:]); err != nil {
		return 0, ProcessStorage{}, fmt.Errorf("reading pointer to process storage: %w", err)
	}
	addr = binary.NativeEndian.Uint64(p.word[:])
	if addr == 0 {
		return 0, ProcessStorage{}, ErrNotPublished
	}
	s, first, contentErr := p.readStorage(addr)
	again := [...]Request{
		{Addr: pointerAddr, Buf: p.word[:]},
		{Addr: addr, Buf: make([]byte, len(first))},
	}
	if err := p.ReadBatch(again[:]); err != nil {
		return addr, ProcessStorage{}, fmt.Errorf("reading process storage at %#x again: %w", addr, err)
	}
	switch {
	case again[0].Err != nil:
		err = fmt.Errorf("reading pointer to process storage at %#x again: %w", pointerAddr, again[0].Err)
	case binary.NativeEndian.Uint64(p.word[:]) != addr, again[1].Err != nil, !bytes.Equal(again[1].Buf, first):
		err = ErrChanged
	case contentErr != nil:
		err = fmt.Errorf("reading process storage at %#x: %w", addr, contentErr)
	default:
		return addr, s, nil
	}
	return addr, ProcessStorage{}, err
}

// readStorage decodes the storage at addr and returns the bytes that led to the result; none when
// they could not be read. It reads as far as the lengths in them require, and never into a page
// beyond that.
func (p *Process) readStorage(addr uint64) (ProcessStorage, []byte, error) {
	restOfPage := smallestPage - addr%smallestPage
	buf := make([]byte, min(firstStorageBytes, restOfPage))
	for have := 0; ; {
		n, err := p.Read(addr+uint64(have), buf[have:])
		if err != nil {
			return ProcessStorage{}, nil, err
		}
		have += n
		s, need, err := decodeProcessStorage(buf)
		if !errors.Is(err, errShort) {
			return s, buf[:need], err
		}
		buf = append(buf, make([]byte, need-len(buf))...)
	}
}
