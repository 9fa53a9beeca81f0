package unwind

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"

	"correlator/internal/testenv"
	"correlator/internal/worker"
	"correlator/procscan"
)

// hostileKind is a worker that does what the user of a target says.
var hostileKind = worker.Kind{Name: "hostile", MemoryBytes: workerMemoryBytes, Serve: serveHostile}

func serveHostile(_ string, conn *worker.Conn) {
	for {
		message, fds, err := conn.ReceiveDescriptors()
		if err != nil {
			return
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
		if conn.Send(beHostile(conn, message), -1) != nil {
			return
		}
	}
}

func beHostile(conn *worker.Conn, message []byte) []byte {
	op := message[0]
	var r synchronize
	if op != opSynchronize || json.Unmarshal(message[1:], &r) != nil {
		return append([]byte{op}, "{}"...)
	}
	tables := func(bucket byte, n int) {
		for range n {
			if conn.Send([]byte{opTable, bucket}, -1) != nil {
				return
			}
			if _, fds, err := conn.ReceiveDescriptors(); err == nil {
				for _, fd := range fds {
					unix.Close(fd)
				}
			}
		}
	}
	switch r.User {
	case "outcome":
		return []byte(`S{"Outcome":99}`)
	case "text":
		return []byte(`S{"Outcome":`)
	case "other":
		return []byte("F")
	case "long":
		return make([]byte, worker.MaxMessageBytes)
	case "tables":
		tables(support.StackDeltaBucketSmallest, maxTables+1)
	case "large table":
		tables(99, 1)
	case "memory":
		tables(support.StackDeltaBucketLargest, int(maxWorkerBytes/tableBytes(support.StackDeltaBucketLargest))+1)
	case "descriptor":
		_ = conn.Send([]byte(`S{}`), 0)
	case "silent":
		time.Sleep(time.Hour)
	}
	return []byte(`S{}`)
}

// What a worker does that was taken over by a target costs that worker and that target.
func TestHostileWorker(t *testing.T) {
	testenv.NeedRoot(t)
	var counters Counters
	e, err := open("/proc", &counters, hostileKind)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Synchronize(t.Context(), Target{KernelPID: 1, Program: "honest"}); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		user    worker.User
		counter interface{ Load() uint64 }
	}{
		{"outcome", &counters.Nonsense}, {"text", &counters.Nonsense}, {"other", &counters.Nonsense},
		{"long", &counters.Nonsense}, {"tables", &counters.Nonsense}, {"large table", &counters.Nonsense},
		{"memory", &counters.Exhausted}, {"descriptor", &counters.Nonsense}, {"silent", &counters.TimedOut},
	} {
		before := c.counter.Load()
		bad := Target{ID: procscan.ProcessID{PID: i}, KernelPID: uint32(i), Program: i, User: c.user}
		if _, err := e.Synchronize(t.Context(), bad); !errors.Is(err, ErrKilled) {
			t.Errorf("%s: %v", c.user, err)
		}
		if c.counter.Load() != before+1 {
			t.Errorf("%s is not counted: %+v", c.user, &counters)
		}
		if _, err := e.Synchronize(t.Context(), Target{KernelPID: 1000, Program: "honest"}); err != nil {
			t.Fatalf("after %s: %v", c.user, err)
		}
	}
	testenv.Poll(t, deadline, "the workers to be reaped", func() bool { return e.Status().Unreaped == 0 })
}

// Frames are nonsense, an error, or within bounds.
func FuzzDecodeFrames(f *testing.F) {
	f.Add(appendFrames(nil, nil))
	f.Add(appendFrames(nil, []Frame{
		{Kind: NativeFrame, Address: 1 << 40}, {Kind: JVMFrame, Function: "a.b", SourceFile: "c", Line: 3},
		{Kind: CutFrame},
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, err := decodeFrames(nil, b)
		if err != nil {
			return
		}
		again, err := decodeFrames(nil, appendFrames(nil, frames))
		if err != nil || len(again) != len(frames) {
			t.Fatalf("%d frames, then %d: %v", len(frames), len(again), err)
		}
		for i := range frames {
			if again[i] != frames[i] {
				t.Fatalf("%+v, then %+v", frames[i], again[i])
			}
		}
	})
}
