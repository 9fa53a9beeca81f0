package access

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
	"correlator/memread"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/tlsdesc"
)

// hostileKind is a worker that answers a request that concerns process n as the n'th of hostileAnswers says.
var hostileKind = worker.Kind{Name: "hostile", MemoryBytes: workerMemoryBytes, Serve: serveHostile}

func serveHostile(_ string, conn *worker.Conn) {
	for {
		message, err := conn.Receive()
		if err != nil {
			return
		}
		var r request
		if message[0] == opMemory {
			r.Process.PID = int(binary.NativeEndian.Uint32(message[9:]))
		} else if json.Unmarshal(message[1:], &r) != nil {
			return
		}
		bad, fd := hostileAnswers[r.Process.PID], -1
		if bad.withDescriptor {
			fd = 0
		}
		if conn.Send([]byte(bad.answer()), fd) != nil {
			return
		}
	}
}

// answers returns what is always answered.
func answers(text string) func() string { return func() string { return text } }

func ofSlots(p *Process) error {
	read, err := p.ReadSlots(tlsdesc.Rule{}, []uint64{1, 2})
	return errors.Join(err, isNothing(len(read)))
}

func ofMemory(p *Process) error {
	reads := []memread.Request{{Buf: make([]byte, 8)}, {Buf: make([]byte, 8)}}
	return p.ReadBatch(reads)
}

func ofVariables(p *Process) error {
	results := p.ThreadContexts(make([]procscan.Mapping, 2))
	return errors.Join(results[0].Err, isNothing(len(results)-2))
}

// isNothing returns an error, not errAnswer, if there is something.
func isNothing(n int) error {
	if n != 0 {
		return fmt.Errorf("%d too many", n)
	}
	return nil
}

var hostileAnswers = []struct {
	name           string
	answer         func() string
	withDescriptor bool
	ask            func(p *Process) error
}{
	{"no socket", answers("\x00{}"), false, func(p *Process) error {
		_, err := p.Connect("/socket", messaging.Credentials{}, 0)
		return err
	}},
	{"what is no socket", answers("\x00{}"), true, func(p *Process) error {
		_, err := p.Connect("/socket", messaging.Credentials{}, 0)
		return err
	}},
	{"a descriptor with an environment", answers("\x00{}"), true, func(p *Process) error {
		_, err := p.Environment()
		return err
	}},
	{"neither an answer nor an error", answers("\x02{}"), false, func(p *Process) error {
		_, err := p.Place()
		return err
	}},
	{"half an answer", answers("\x00{"), false, func(p *Process) error {
		_, err := p.Place()
		return err
	}},
	{"half an error", answers("\x01{"), false, func(p *Process) error {
		_, err := p.Place()
		return err
	}},
	{"a kind of agent that there is not", answers("\x00{\"kind\":\"other\"}"), false, func(p *Process) error {
		_, err := p.JavaAgent()
		return err
	}},
	{"too few slots", func() string {
		return fmt.Sprintf("\x00{\"Slots\":[{}],\"ReadAt\":%d}", monotonic())
	}, false, ofSlots},
	{"slots of long ago", answers("\x00{\"Slots\":[{},{}],\"ReadAt\":1}"), false, ofSlots},
	{"slots of the future", answers("\x00{\"Slots\":[{},{}],\"ReadAt\":9000000000000000000}"), false, ofSlots},
	{"no files", answers("\x00[]"), false, func(p *Process) error {
		results := p.Files(make([]procscan.Mapping, 2))
		return errors.Join(results[1].Err, isNothing(len(results)-2))
	}},
	{"no variables", answers("\x00[]"), false, ofVariables},
	{"neither a variable nor an error", answers("\x00[{},{}]"), false, ofVariables},
	{"a variable and an error", answers("\x00[{\"Variable\":{},\"Error\":{}},{},{}]"), false, ofVariables},
	{"a descriptor with memory", answers("\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x01"), true, ofMemory},
	{"results of too few ranges", answers("\x00\x00\x00\x00\x00\x01"), false, ofMemory},
	{"less memory than it says", answers("\x00\x08\x00\x00\x00\x00\x08\x00\x00\x00\x00........"), false, ofMemory},
	{"all memory, but shorter", answers("\x00\x04\x00\x00\x00\x00\x04\x00\x00\x00\x00........"), false, ofMemory},
}

// Of what a worker answers that was taken over, only what was asked for is taken, and no descriptor stays open.
func TestHostileAnswers(t *testing.T) {
	pool, err := worker.NewPool("/proc", hostileKind, new(worker.Counters))
	assert.NilError(t, err)
	client := &Client{pool}
	defer client.Close()
	open := func() (n int) { // of what answers come with; there are others of workers, which end meanwhile
		entries, err := os.ReadDir("/proc/self/fd")
		assert.NilError(t, err)
		for _, e := range entries {
			if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && link == os.DevNull {
				n++
			}
		}
		return n
	}
	ask := func(n int) error { return hostileAnswers[n].ask(client.Process(procscan.ProcessID{PID: n}, "user")) }
	_ = ask(0) // the worker is there
	before := open()
	for n, bad := range hostileAnswers {
		err := ask(n)
		assert.Check(t, errors.Is(err, errAnswer), "%s: %v", bad.name, err)
	}
	testenv.Poll(t, time.Minute, "the end of all descriptors", func() bool { return open() <= before })
}
