package unwind

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"

	"correlator/internal/worker"
)

const (
	// maxTables bounds the tables that a worker asks for while it serves one request: one for each file
	// of a process.
	maxTables = 1024

	// maxTableBytes bounds the memory of all tables of files, in the worker. It could keep tables
	// that it has removed, so it gets no more than maxWorkerBytes, and then another one starts
	// anew. That of libjvm takes 4 MB, all of a JVM's 8.
	maxTableBytes  = 128 << 20
	maxWorkerBytes = 2 * maxTableBytes
)

// minWorkerLife is how long a worker serves at least whose table of ways to unwind a frame is full:
// until then some files are not unwound, which is better than that no process is, all the time, when
// the next worker's table is full at once.
const minWorkerLife = 10 * time.Minute

// errExhausted: a worker has asked for maxWorkerBytes of tables, or one that it never clears is full.
var errExhausted = errors.New("worker has used up its tables")

// call sends a request in JSON and returns the answer without its first byte.
func (e *Engine) call(t *Target, timeout time.Duration, op byte, request any) ([]byte, error) {
	message, err := jsonMessage(op, request)
	if err != nil {
		return nil, err
	}
	answer, err := e.exchange(t, timeout, message)
	if err != nil {
		return nil, err
	}
	return answer[1:], nil
}

// exchange sends a request and returns the answer. If there is none, the worker is killed.
func (e *Engine) exchange(t *Target, timeout time.Duration, message []byte) ([]byte, error) {
	err := e.worker.Send(message)
	var answer []byte
	if err == nil {
		wait := e.worker.Wait(timeout)
		answer, err = e.receive(wait, message[0])
		e.starved += wait.Starved()
	}
	if err != nil {
		return nil, e.kill(t, err)
	}
	return answer, nil
}

// receive waits for the answer to a request, and makes the tables that the worker asks for before.
func (e *Engine) receive(wait *worker.Wait, op byte) ([]byte, error) {
	tables := 0
	var filled filledTable
	defer filled.close()
	for {
		message, fd, err := wait.Receive()
		if fd >= 0 {
			_ = unix.Close(fd)
			err = errAnswer
		}
		switch {
		case err != nil:
			return nil, err
		case len(message) == 0:
			return nil, errAnswer
		case message[0] == op:
			return message, nil
		case op != opSynchronize, len(message) != 2 && message[0] != opEntries:
			return nil, errAnswer
		}
		began := time.Now()
		switch message[0] {
		case opTable:
			if tables++; tables > maxTables {
				return nil, errAnswer
			}
			err = e.makeTable(uint(message[1]), &filled)
		case opEntries:
			if err = filled.add(message[1:]); err == nil {
				err = e.worker.Send([]byte{opEntries})
			}
		case opRuntime:
			err = e.sendRuntime(int(message[1]))
		default:
			err = errAnswer
		}
		if err != nil {
			return nil, err
		}
		wait.Prolong(time.Since(began)) // it waited for us
	}
}

// makeTable sends the worker a table of 1<<bucket entries, which it may fill next, or refuses to.
func (e *Engine) makeTable(bucket uint, filled *filledTable) error {
	filled.close()
	if bucket < support.StackDeltaBucketSmallest || bucket > support.StackDeltaBucketLargest {
		return errAnswer
	}
	size := tableBytes(bucket)
	if e.tableBytes += size; e.tableBytes > maxWorkerBytes {
		return errExhausted
	}
	spec := e.chain.inner.Copy()
	spec.Name, spec.MaxEntries = "unwind_file", 1<<bucket
	table, err := ebpf.NewMap(spec)
	if err != nil {
		return e.worker.Send([]byte{opTableRefused}) // the machine has no memory for it
	}
	defer table.Close()
	filled.mapped, err = unix.Mmap(table.FD(), 0, entryBytes<<bucket, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return e.worker.Send([]byte{opTableRefused})
	}
	return e.worker.SendDescriptors([]byte{opTable}, []int{table.FD()})
}

// filledTable is the table that a worker has got last.
type filledTable struct {
	mapped  []byte // nil: there is none
	entries int    // that it has got
}

// add adds entries.
func (f *filledTable) add(entries []byte) error {
	n := len(entries) / sentBytes
	if n == 0 || n > maxEntriesSent || len(entries)%sentBytes != 0 || f.entries%maxEntriesSent != 0 ||
		entryBytes*(f.entries+n) > len(f.mapped) {
		return errAnswer
	}
	for i := range n {
		copy(f.mapped[entryBytes*(f.entries+i):], entries[sentBytes*i:sentBytes*(i+1)])
	}
	f.entries += n
	return nil
}

func (f *filledTable) close() {
	if f.mapped != nil {
		_ = unix.Munmap(f.mapped)
	}
	*f = filledTable{}
}

// sendRuntime switches a kind of runtime on, if it is not yet, and sends the worker its table, or refuses to. A
// worker asks once for each.
func (e *Engine) sendRuntime(number int) error {
	if number >= len(runtimeKinds) || e.asked[number] {
		return errAnswer
	}
	e.asked[number] = true
	kind := runtimeKinds[number]
	loaded, err := e.chain.loadRuntime(kind)
	e.mu.Lock()
	e.runtimes[kind] = err
	e.noWaits = e.chain.noWaits
	e.mu.Unlock()
	if err != nil {
		return e.worker.Send([]byte{opTableRefused})
	}
	return e.worker.SendDescriptors([]byte{opRuntime}, []int{loaded.table.FD()})
}

// entryBytes is the size of an entry of a table of files: the kernel rounds it up.
const entryBytes = 8

// tableBytes is the size of a table: whole pages, so that it can be mapped.
func tableBytes(bucket uint) uint64 { return max(uint64(entryBytes)<<bucket, pageBytes) }
