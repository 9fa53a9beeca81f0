package sampling

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"correlator/bpf"
	"correlator/elfsym"
	"correlator/internal/demo"
	"correlator/internal/process"
	"correlator/procscan"
	"correlator/tlsdesc"
)

// openTarget opens a process that publishes, and looks at it.
func openTarget(t *testing.T, p *demo.Process) *process.Target {
	t.Helper()
	scanner, err := procscan.NewScanner("/proc")
	if err != nil {
		t.Fatal(err)
	}
	found, err := scanner.Process(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := process.Open("/proc", found, process.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	files, err := elfsym.NewCache(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := opened.Load(files); err != nil {
		t.Fatal(err)
	}
	if _, err := opened.Look(); err != nil {
		t.Fatal(err)
	}
	return opened
}

// A program that a process executes while it is about to be followed is not taken for the one before, and
// its samples are nobody's, even where the rule of the one would fit the other.
func TestFollowerExec(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1, Placement: demo.Placement{FixedLayout: true}})
	s := open(t, bpf.SamplerOptions{})
	before, after := newReceiver(t, 1<<20), newReceiver(t, 1<<20)
	stop := after.serve(s)
	receivers := []*receiver{before, after}
	var identities []bpf.ExecID
	f := NewFollower(s.Sampling, openTarget(t, p), func(identity bpf.ExecID) Receiver {
		identities = append(identities, identity)
		if len(identities) == 1 { // it is identified, and its rule is known
			p.Restart(true)
		}
		return receivers[len(identities)-1]
	})
	if err := f.Follow(); err != nil {
		t.Fatal(err)
	}
	s.poll("the exec to be noticed", func() bool { return !f.Runs() })
	if s.kernel(bpf.Stale) == 0 {
		t.Error("no sample of the new program was refused")
	}
	old := f.Program()
	if err := f.Unfollow(); err != nil || f.Program() != nil {
		t.Fatalf("still followed: %v", err)
	}
	if err := f.Follow(); err != nil {
		t.Fatal(err)
	}
	s.poll("samples", func() bool { samples, _ := after.sum(); return samples > 100 })
	if err := f.Follow(); err != nil || len(identities) != 2 || identities[0] == identities[1] {
		t.Errorf("followed as %v: %v", identities, err)
	}
	s.end()
	stop()
	if samples, held := before.sum(); samples+held+s.outcome(process.OutcomeUnknownProcess) != 0 {
		t.Errorf("%d samples, and %d to hold, of a program that was gone", samples, held)
	}
	s.added(0)

	// What was held for the program before is not read from this one.
	f.Report([]PendingSample{{program: old, sample: Sample{Samples: 3, At: time.Now()}, needsContext: true}}, time.Hour)
	f.Report([]PendingSample{{program: f.Program(), sample: Sample{Samples: 5, At: time.Now().Add(-time.Hour)}}}, time.Minute)
	if gone, late := before.refused[process.OutcomeNotRegistered].Load(), after.refused[process.OutcomeStale].Load(); gone != 3 || late != 5 {
		t.Errorf("%d samples of the program before and %d late ones refused, want 3 and 5", gone, late)
	}
}

// A rule that is not supported is so for good: the process is left alone until the library is another one.
func TestFollowerUnsupported(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Untouched: 1}) // nothing uses the words that are spoilt
	s := open(t, bpf.SamplerOptions{})
	opened := openTarget(t, p)
	asked := 0
	f := NewFollower(s.Sampling, opened, func(bpf.ExecID) Receiver {
		asked++
		return newReceiver(t, 0)
	})
	restore := spoilDescriptor(t, p)
	for range 2 {
		if err := f.Follow(); !errors.Is(err, tlsdesc.ErrUnsupported) || f.Program() != nil || asked != 0 {
			t.Errorf("%v, program %v, %d receivers", err, f.Program(), asked)
		}
		restore()
	}
	opened.ForgetRule()
	if err := f.Follow(); err != nil || f.Program() == nil || asked != 1 {
		t.Errorf("%v, program %v, %d receivers", err, f.Program(), asked)
	}
	only := NewFollower(nil, opened, nil)
	if err := only.Follow(); err != nil || only.Program() != nil || !only.Runs() {
		t.Errorf("without a sampling: %v, program %v", err, only.Program())
	}
}

// spoilDescriptor has the process's thread-local variable resolved by what is no code of a C library.
func spoilDescriptor(t *testing.T, p *demo.Process) (restore func()) {
	t.Helper()
	parsed := libraryOf(t, p)
	at := int64(p.Loaded().Base + parsed.Relocation.Addr)
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.PID), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	var whole [8]byte
	if _, err := memory.ReadAt(whole[:], at); err != nil {
		t.Fatal(err)
	}
	write := func(word []byte) {
		if _, err := memory.WriteAt(word, at); err != nil {
			t.Fatal(err)
		}
	}
	storage := binary.NativeEndian.AppendUint64(nil, p.Published().Storage) // mapped, of no file
	write(storage)
	return func() { write(whole[:]) }
}

// A context that is read from outside has the span of the slot, as in the kernel: by span, and else none.
func TestFollowerSpan(t *testing.T) {
	for _, bySpan := range []bool{false, true} {
		t.Run(fmt.Sprint(bySpan), func(t *testing.T) {
			p := demo.Start(t, demo.Options{Busy: 1, Manual: true, PageOut: true})
			begun := p.Begin(1)
			want := Sample{TraceID: begun.TraceID, TransactionID: begun.TransactionID, TID: begun.Thread.TID}
			if span := p.Span(1, 2); bySpan {
				want.SpanID = span
			}
			s := open(t, bpf.SamplerOptions{BySpan: bySpan, ByThread: true})
			r := newReceiver(t, 1<<20)
			f := NewFollower(s.Sampling, openTarget(t, p), func(bpf.ExecID) Receiver { return r })
			if err := f.Follow(); err != nil {
				t.Fatal(err)
			}
			s.poll("a sample whose context was read from outside, and others", func() bool {
				f.Report(r.take(), time.Hour)
				p.Span(1, 2) // not in memory again
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.alone > 0 && len(r.counted) > 0
			})
			s.end()
			for got := range r.samples {
				want.Stack = got.Stack
				if got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
			if s.kernel(bpf.TableFull) != 0 { // then those alone may be others
				t.Errorf("%d samples found no place", s.kernel(bpf.TableFull))
			}
		})
	}
}
