package access

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/worker"
	"correlator/memread"
)

// Reading memory, in native byte order. A request, after its operation:
//
//	offset  size  field
//	0       16·n  ranges: address (8), pid (4), length (4)
//
// The answer, after answerOK:
//
//	0       5·n   of each range: bytes read (4), one of the results below (1)
//	5·n           the bytes read, of one range after the other
//
// Ranges of one process that follow each other are read in one system call.
const (
	memoryRangeBytes  = 16
	memoryResultBytes = 5

	memoryComplete = 0
	memoryUnmapped = 1
	memoryGone     = 2
	memoryDenied   = 3
	memoryFailed   = 4

	// maxMemoryRanges is as many as one call of process_vm_readv takes.
	maxMemoryRanges = 1024
	// maxMemoryBytes leaves room for the results in an answer.
	maxMemoryBytes = worker.MaxMessageBytes - 1 - maxMemoryRanges*memoryResultBytes
)

// errMemory: memory cannot be read for a reason that is neither the process's nor one of rights.
var errMemory = errors.New("reading memory failed")

func memoryError(result byte) error {
	switch result {
	case memoryComplete:
		return nil
	case memoryUnmapped:
		return memread.ErrUnmapped
	case memoryGone:
		return memread.ErrGone
	case memoryDenied:
		return memread.ErrDenied
	}
	return errMemory
}

func memoryResult(err error) byte {
	switch {
	case err == nil:
		return memoryComplete
	case errors.Is(err, memread.ErrUnmapped):
		return memoryUnmapped
	case errors.Is(err, memread.ErrGone):
		return memoryGone
	case errors.Is(err, memread.ErrDenied):
		return memoryDenied
	}
	return memoryFailed
}

// ReadBatch is memread.Process.ReadBatch. Up to 1024 requests that ask for up to 120 KB are read in
// one system call, as there.
func (p *Process) ReadBatch(reqs []memread.Request) error {
	at := func(i int) (int, *memread.Request) { return p.id.PID, &reqs[i] }
	err := p.client.read(&p.spent, p.owner, timeout, len(reqs), at)
	for i := 0; i < len(reqs) && err == nil; i++ {
		if reqs[i].Err != nil && !errors.Is(reqs[i].Err, memread.ErrUnmapped) {
			err = reqs[i].Err // of the whole process
		}
	}
	if err != nil {
		return fmt.Errorf("reading %d ranges: %w", len(reqs), err)
	}
	return nil
}

// MemoryRead is a read of the memory of a process. Its error is memread's, also that of the whole
// process.
type MemoryRead struct {
	PID int
	memread.Request
}

// Read reads the memory of several processes of one user. The error is that of the workers:
// ErrTimeout when it takes longer than timeout, because of any of the processes; with one, the
// reads are not all valid. Reads of one process that follow each other are one system call, as far
// as they fit in a message.
func (c *Client) Read(user worker.User, timeout time.Duration, reads []MemoryRead) error {
	owner := worker.Owner{User: user}
	if len(reads) > 0 && reads[0].PID == reads[len(reads)-1].PID {
		owner.PID = reads[0].PID
	}
	return c.read(nil, owner, timeout, len(reads), func(i int) (int, *memread.Request) {
		return reads[i].PID, &reads[i].Request
	})
}

// read reads n ranges: that at i of the process with a pid. With an error, that is of all that were
// not read before.
func (c *Client) read(spent *atomic.Int64, owner worker.Owner, timeout time.Duration, n int,
	at func(i int) (pid int, r *memread.Request)) error {
	for from := 0; from < n; {
		to, bytes := from, 0
		for ; to < n; to++ {
			_, r := at(to)
			if bytes += len(r.Buf); to > from && (to-from == maxMemoryRanges || bytes > maxMemoryBytes) {
				break
			}
		}
		if err := c.readMessage(spent, owner, timeout, from, to, at); err != nil {
			for i := from; i < n; i++ {
				_, r := at(i)
				r.N, r.Err = 0, err
			}
			return err
		}
		from = to
	}
	return nil
}

// readMessage reads the ranges [from, to) by one message.
func (c *Client) readMessage(spent *atomic.Int64, owner worker.Owner, timeout time.Duration, from, to int,
	at func(i int) (int, *memread.Request)) error {
	message := make([]byte, 0, 1+memoryRangeBytes*(to-from))
	message = append(message, opMemory)
	for i := from; i < to; i++ {
		pid, r := at(i)
		message = binary.NativeEndian.AppendUint64(message, r.Addr)
		message = binary.NativeEndian.AppendUint32(message, uint32(pid))
		message = binary.NativeEndian.AppendUint32(message, uint32(len(r.Buf)))
	}
	return c.pool.Measure(spent, owner, timeout, message, func(answer []byte, fd int) error {
		if fd >= 0 {
			unix.Close(fd)
			return errAnswer
		}
		if len(answer) == 0 || answer[0] != answerOK {
			return decodeAnswer(answer, nil)
		}
		return decodeMemory(answer[1:], from, to, at)
	})
}

// decodeMemory stores an answer, after its first byte, in the ranges [from, to).
func decodeMemory(answer []byte, from, to int, at func(i int) (int, *memread.Request)) error {
	results := memoryResultBytes * (to - from)
	if len(answer) < results {
		return errAnswer
	}
	data := answer[results:]
	for i := from; i < to; i++ {
		_, r := at(i)
		n := binary.NativeEndian.Uint32(answer)
		if uint64(n) > uint64(min(len(data), len(r.Buf))) || answer[4] == memoryComplete && int(n) != len(r.Buf) {
			return errAnswer
		}
		r.N, r.Err = copy(r.Buf, data[:n]), memoryError(answer[4])
		answer, data = answer[memoryResultBytes:], data[n:]
	}
	return nil
}

// readMemory answers a request.
func (s *server) readMemory(message []byte) []byte {
	reads, err := decodeMemoryRequest(message)
	if err != nil {
		return encodeAnswer(nil, err)
	}
	for from := 0; from < len(reads); {
		to := from + 1
		for to < len(reads) && reads[to].PID == reads[from].PID {
			to++
		}
		s.readProcess(reads[from:to])
		from = to
	}
	answer := []byte{answerOK}
	for i := range reads {
		answer = binary.NativeEndian.AppendUint32(answer, uint32(reads[i].N))
		answer = append(answer, memoryResult(reads[i].Err))
	}
	for i := range reads {
		answer = append(answer, reads[i].Buf[:reads[i].N]...)
	}
	return answer
}

// readProcess serves reads of one process.
func (s *server) readProcess(reads []MemoryRead) {
	process := memread.OpenAlone(s.procRoot, reads[0].PID)
	defer process.Close()
	s.requests = s.requests[:0]
	for i := range reads {
		s.requests = append(s.requests, reads[i].Request)
	}
	_ = process.ReadBatch(s.requests) // every request has the error
	for i := range reads {
		reads[i].Request = s.requests[i]
	}
}

func decodeMemoryRequest(message []byte) (reads []MemoryRead, err error) {
	if len(message)%memoryRangeBytes != 0 || len(message)/memoryRangeBytes > maxMemoryRanges {
		return nil, errRequest
	}
	total := 0
	for ; len(message) > 0; message = message[memoryRangeBytes:] {
		length := binary.NativeEndian.Uint32(message[12:])
		if length > maxMemoryBytes || total+int(length) > maxMemoryBytes {
			return nil, errRequest
		}
		total += int(length)
		reads = append(reads, MemoryRead{
			PID:     int(binary.NativeEndian.Uint32(message[8:])),
			Request: memread.Request{Addr: binary.NativeEndian.Uint64(message), Buf: make([]byte, length)},
		})
	}
	return reads, nil
}
