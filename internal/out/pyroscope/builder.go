package pyroscope

import (
	"encoding/hex"
	"net/netip"
	"path"
	"strconv"
	"time"

	pprof "github.com/google/pprof/profile"

	"correlator/internal/out/keep"
	"correlator/profile"
)

// Labels as Pyroscope has them: of otlp/profiles, with underscores.
const (
	traceLabel       = "trace_id"
	transactionLabel = "transaction_id"
	serviceLabel     = "service_name"
)

// perSecond makes a sample of every microsecond on a CPU: how long the period was is not kept.
const perSecond = int(time.Second / time.Microsecond)

// What there is room for in an answer: a profile may name each line of each location any number of times.
const (
	maxStackFrames  = 2048    // an agent sends 1024 and those of the kernel
	maxAnswerFrames = 1 << 21 // of all stacks; a sample counts as one more
)

// builder makes an answer of profiles. Nothing of them is trusted: what makes no sense is not known.
type builder struct {
	answer       *keep.Answer
	processes    map[keep.Process]int
	transactions map[transactionID]int
	files        map[string]int
	frames       map[frameID]uint32
	stacks       map[string]int
	added        int           // frames of all stacks
	time         time.Duration // of all samples
}

type transactionID struct {
	process   int
	trace, id string
}

type frameID struct {
	keep.Frame
	file int // File
}

// place returns the index of a key, at which there is what add adds if it is new.
func place[K comparable, I int | uint32](of *map[K]I, key K, add func() int) I {
	if at, known := (*of)[key]; known {
		return at
	}
	if *of == nil {
		*of = make(map[K]I)
	}
	(*of)[key] = I(add() - 1)
	return (*of)[key]
}

// add adds the profile of a series, if there is room for it.
func (b *builder) add(s series, p *pprof.Profile) {
	a := b.answer
	if !b.hasRoom(p) {
		a.LeftOutSeries++
		return
	}
	tid, tx := number(s["thread_id"]), -1
	isWait := s.kind() == waitType
	places := make(map[int]int) // of samples or waits, by their stack: equal ones are one
	for _, sample := range p.Sample {
		if len(sample.Value) == 0 || sample.Value[0] <= 0 {
			continue
		}
		if tx < 0 {
			tx = b.transaction(s)
		}
		value, stack := sample.Value[0], b.stack(sample.Location, s["wait_kind"])
		at, known := places[stack]
		if !isWait {
			count := uint64(time.Duration(value) / time.Microsecond)
			a.Transactions[tx].Samples += count
			if known {
				a.Samples[at].Count += count
				continue
			}
			places[stack] = len(a.Samples)
			a.Samples = append(a.Samples, keep.Sample{Transaction: tx, Stack: stack, TID: tid, Thread: s["thread_name"],
				Count: count})
			continue
		}
		if known {
			a.Waits[at].Sum += time.Duration(value)
			continue
		}
		places[stack] = len(a.Waits)
		a.Waits = append(a.Waits, keep.Wait{Transaction: tx, Stack: stack, TID: tid, Thread: s["thread_name"],
			State: stateOf(profile.WaitKind(s["wait_kind"])), StateTimes: profile.StateTimes{Sum: time.Duration(value)},
			Peer: peerOf(s), Path: s["wait_file_name"], Waker: wakerOf(s)})
	}
}

// hasRoom reports whether there is room for a profile, which then is taken, and for its time in a sum.
func (b *builder) hasRoom(p *pprof.Profile) bool {
	added, sum := b.added, b.time
	for _, sample := range p.Sample {
		frames := 0
		for _, l := range sample.Location {
			frames += len(linesOf(l))
		}
		added += frames + 1
		if len(sample.Value) > 0 {
			sum += time.Duration(max(sample.Value[0], 0))
		}
		if frames > maxStackFrames || added > maxAnswerFrames || sum < 0 {
			return false
		}
	}
	b.added, b.time = added, sum
	return true
}

// transaction returns the index of the transaction of a series.
func (b *builder) transaction(s series) int {
	a := b.answer
	p := keep.Process{Host: s["host_name"], PID: number(s["process_pid"]), Service: s[serviceLabel],
		Environment: s["deployment_environment_name"], ContainerID: s["container_id"]}
	if p.Host == "" {
		p.Host = "unknown host"
		if id := s["host_id"]; id != "" {
			p.Host = "host " + id
		}
	}
	id := transactionID{trace: id(s[traceLabel], 16), id: id(s[transactionLabel], 8)}
	id.process = place(&b.processes, p, func() int {
		a.Processes = append(a.Processes, p)
		return len(a.Processes)
	})
	return place(&b.transactions, id, func() int {
		a.Transactions = append(a.Transactions, keep.Transaction{Trace: id.trace, ID: id.id, Process: id.process})
		return len(a.Transactions)
	})
}

// stack returns the index of a stack.
func (b *builder) stack(locations []*pprof.Location, kind string) int {
	var frames []uint32
	var key []byte
	for _, l := range locations {
		for _, line := range linesOf(l) {
			at := b.frame(l, line, kind)
			frames = append(frames, at)
			key = strconv.AppendUint(append(key, ' '), uint64(at), 36)
		}
	}
	return place(&b.stacks, string(key), func() int {
		b.answer.Stacks = append(b.answer.Stacks, frames)
		return len(b.answer.Stacks)
	})
}

// linesOf returns the lines of a location, innermost first: one without a function if there is none.
func linesOf(l *pprof.Location) []pprof.Line {
	if len(l.Line) == 0 {
		return []pprof.Line{{}}
	}
	return l.Line
}

// kinds are those of frames by the extension of the source file, all that Pyroscope keeps of them.
var kinds = map[string]profile.Kind{
	".java": profile.JVMFrame, ".kt": profile.JVMFrame, ".scala": profile.JVMFrame, ".groovy": profile.JVMFrame,
	".py": profile.PythonFrame, ".js": profile.V8Frame, ".mjs": profile.V8Frame, ".cjs": profile.V8Frame,
	".ts": profile.V8Frame, ".php": profile.PHPFrame,
}

func (b *builder) frame(l *pprof.Location, line pprof.Line, kind string) uint32 {
	a := b.answer
	made := frameID{Frame: keep.Frame{Address: l.Address}, file: -1}
	switch f := line.Function; {
	case f != nil && f.Name != "":
		made.Function, made.Source, made.Address = f.Name, f.Filename, 0
		if line.Line > 0 && line.Line < 1<<31 {
			made.Line = uint32(line.Line)
		}
		made.Kind = kinds[path.Ext(f.Filename)] // symbol tables have no source files
		if profile.WaitKind(kind) == profile.GCWait {
			made.Kind = profile.JVMFrame // no other has such waits
		}
	case l.Mapping != nil && l.Mapping.File != "":
		made.file = place(&b.files, l.Mapping.File, func() int {
			a.Files = append(a.Files, keep.File{Kind: profile.NativeFrame, Path: l.Mapping.File})
			return len(a.Files)
		})
	}
	return place(&b.frames, made, func() int {
		if made.file >= 0 {
			made.File = &made.file
		}
		a.Frames = append(a.Frames, made.Frame)
		return len(a.Frames)
	})
}

// stateOf returns the state of a thread that waited.
func stateOf(kind profile.WaitKind) profile.ThreadState {
	for state := range profile.ThreadStates {
		waits := state.Blocks() || state == profile.Runnable || state == profile.Throttled
		if waits && profile.KindOf(state) == kind {
			return state
		}
	}
	if kind == profile.GCWait || kind == profile.IdleWait { // most of these
		return profile.Futex
	}
	return profile.Other
}

func peerOf(s series) string {
	address, err := netip.ParseAddr(s["network_peer_address"])
	if err != nil {
		return ""
	}
	return netip.AddrPortFrom(address, uint16(number(s["network_peer_port"]))).String()
}

// wakerOf returns who ended the waits of a series; nil: that is not known.
func wakerOf(s series) *keep.Waker {
	var kind profile.WakerKind
	if kind.UnmarshalText([]byte(s["wait_waker"])) != nil || kind == profile.UnknownWaker {
		return nil
	}
	return &keep.Waker{Source: kind, PID: number(s["wait_waker_process_pid"]), TID: number(s["wait_waker_thread_id"]),
		Thread: s["wait_waker_thread_name"], Service: s["wait_waker_service_name"],
		Trace: id(s["wait_waker_trace_id"], 16), ID: id(s["wait_waker_transaction_id"], 8)}
}

// number returns a number above 0, else 0.
func number(text string) int {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}

// id returns an id of so many bytes, else none.
func id(text string, size int) string {
	if bytes, err := hex.DecodeString(text); err != nil || len(bytes) != size {
		return ""
	}
	return text
}
