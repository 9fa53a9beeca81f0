package demo

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// readMemory reads from the process with the system call itself: what is tested here must not
// depend on the packages that are tested with it.
func readMemory(t *testing.T, pid int, address uint64, n int) []byte {
	t.Helper()
	data := make([]byte, n)
	local := []unix.Iovec{{Base: &data[0], Len: uint64(n)}}
	remote := []unix.RemoteIovec{{Base: uintptr(address), Len: n}}
	got, err := unix.ProcessVMReadv(pid, local, remote, 0)
	assert.Assert(t, err == nil && got == n, "reading %d bytes at %#x of process %d: %d, %v", n, address, pid, got, err)
	return data
}

func readWord(t *testing.T, pid int, address uint64) uint64 {
	t.Helper()
	return binary.NativeEndian.Uint64(readMemory(t, pid, address, 8))
}

func connect(t *testing.T, p *Process) *net.UnixConn {
	t.Helper()
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: p.HostPath(p.Socket)})
	assert.NilError(t, err)
	t.Cleanup(func() { socket.Close() })
	return socket
}

func send(t *testing.T, socket *net.UnixConn, messages ...string) {
	t.Helper()
	for _, message := range messages {
		_, err := socket.Write([]byte(message))
		assert.NilError(t, err)
	}
}

func unhex(t *testing.T, text string) string {
	t.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	assert.NilError(t, err)
	return string(data)
}

// registration of 300 ms and host-id "ab", little-endian.
const registration = "0200 0100 2c010000 02000000 6162"

func correlation(id TraceID, transaction TransactionID, stack, count string) string {
	return "0100 0100" + id.String() + transaction.String() + stack + count
}

const (
	stackA = "60b420bb3851d9d47acb933dbe70399b"
	stackB = "4c9326bb9805fa8f85882c12eae724ce"
)

func needLittleEndian(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		testenv.Missing(t, "the messages are written down in little-endian")
	}
}

func TestWorkedExample(t *testing.T) {
	needLittleEndian(t)
	p := Start(t, Options{Idle: 1, Manual: true})
	context := p.Begin(1)
	send(t, connect(t, p), unhex(t, registration),
		unhex(t, correlation(context.TraceID, context.TransactionID, stackA, "0200")),
		unhex(t, correlation(context.TraceID, context.TransactionID, stackB, "0100")),
		unhex(t, correlation(context.TraceID, context.TransactionID, stackA, "0100")))
	r := p.Registration(1)
	assert.Check(t, r.SamplesDelayMillis == 300 && r.HostID == "ab", "registration %+v", r)
	if published := p.Published(); r.SentNs <= published.TimeNs || r.ReadNs < r.SentNs {
		t.Errorf("published at %d, sent at %d, read at %d", published.TimeNs, r.SentNs, r.ReadNs)
	}
	p.End(1)
	report := p.Quit()
	transaction, ok := report.Transaction(context.TraceID)
	assert.Assert(t, ok, "the transaction is not in %+v", report)
	assert.Check(t, len(transaction.Stacks) == 2 && transaction.Stacks["YLQguzhR2dR6y5M9vnA5mw"] == 3 &&
		transaction.Stacks["TJMmu5gF-o-FiCwS6uckzg"] == 1 && transaction.Samples == 4,
		"transaction %+v", transaction)
	assert.Check(t, report.Messages == 4 && report.Registrations == 1 && report.InTime == 3 && report.Samples == 4 &&
		report.HostID == "ab" && report.SamplesDelayMillis == 300,
		"report %+v", report)
}

func TestEveryMessageIsCountedOnce(t *testing.T) {
	needLittleEndian(t)
	p := Start(t, Options{Idle: 2, Manual: true})
	first, second := p.Begin(1), p.Begin(2)
	good := correlation(first.TraceID, first.TransactionID, stackA, "0100")
	mixed := first.TraceID
	copy(mixed[8:], second.TraceID[8:])
	foreign := TraceID{1, 2, 3}
	socket := connect(t, p)
	send(t, socket,
		unhex(t, good), // before the registration
		unhex(t, "0200 0100 00000000 00000000"),
		unhex(t, correlation(first.TraceID, second.TransactionID, stackA, "0200")),
		unhex(t, correlation(mixed, second.TransactionID, stackA, "0300")),
		unhex(t, correlation(foreign, foreign.TransactionID(), stackA, "0400")),
		unhex(t, "0300"+good[4:]),               // no such type
		unhex(t, "0100 0200"+good[9:]),          // no such version
		unhex(t, "0200 0000 00000000 00000000"), // no such version
	)
	p.ReportWhen("the first messages", func(r Report) bool { return r.Messages == 8 })
	send(t, socket,
		unhex(t, good+"00"), // too long
		unhex(t, "0200 0100 00000000 03000000 6162"),
		"x",
		unhex(t, good[:len(good)-4]+"0000"), // counts that are not allowed
		unhex(t, good[:len(good)-4]+"0080"),
		unhex(t, registration)+strings.Repeat("x", 1024),
	)
	report := p.ReportWhen("the other messages", func(r Report) bool { return r.Messages == 14 })
	want := Report{Messages: 14, Registrations: 1, InTime: 1, Torn: 2, Foreign: 1,
		Malformed: 9, BadType: 1, BadMinor: 2, BadLength: 3, BadCount: 2, Truncated: 1,
		Samples: 1, TornSamples: 5, ForeignSamples: 4, Unregistered: 1}
	got := report
	got.TransactionsBegun, got.Transactions, got.CPUInGaps, got.CPUInTransactions = 0, nil, 0, 0
	assert.Check(t, reflect.DeepEqual(got, want), "got  %+v\nwant %+v", got, want)
	sum := report.Registrations + report.InTime + report.Late + report.Torn + report.Foreign +
		report.Malformed
	assert.Check(t, sum == report.Messages, "%d messages, but the kinds add up to %d", report.Messages, sum)
}

func monotonicNs(t *testing.T) uint64 {
	t.Helper()
	var now unix.Timespec
	assert.NilError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return uint64(now.Nano())
}

func TestLateIsWhatComesAfterTheDelayAndOnePoll(t *testing.T) {
	needLittleEndian(t)
	p := Start(t, Options{Manual: true})
	socket := connect(t, p)
	inTime := p.Begin(0)
	p.End(0)
	send(t, socket, unhex(t, "0200 0100 00ca9a3b 00000000"), // ten days
		unhex(t, correlation(inTime.TraceID, inTime.TransactionID, stackA, "0500")))
	p.ReportWhen("the message in time", func(r Report) bool { return r.InTime == 1 && r.Samples == 5 })

	send(t, socket, unhex(t, "0200 0100 00000000 00000000"))
	p.Registration(2)
	late := p.Begin(0)
	p.End(0)
	ended := monotonicNs(t)
	testenv.Poll(t, deadline, "the time after which samples are late", func() bool {
		return monotonicNs(t) > ended+uint64(20*time.Millisecond)
	})
	send(t, socket, unhex(t, correlation(late.TraceID, late.TransactionID, stackA, "0700")))
	report := p.ReportWhen("the late message", func(r Report) bool { return r.Messages == 4 })
	transaction, _ := report.Transaction(late.TraceID)
	if report.Late != 1 || report.LateSamples != 7 || transaction.LateSamples != 7 || transaction.Samples != 0 {
		t.Errorf("report %+v", report)
	}
}

// static reports whether every thread has the variable at one distance from its thread pointer, the
// main thread included.
func static(threads []Thread) bool {
	for _, thread := range threads {
		if thread.Variable-thread.ThreadPointer != threads[0].Variable-threads[0].ThreadPointer {
			return false
		}
	}
	return true
}

func TestFlavorsPlaceTheVariableWhereTheySay(t *testing.T) {
	for _, flavor := range Flavors() {
		t.Run(flavor.String(), func(t *testing.T) {
			p := Start(t, Options{Flavor: flavor, Idle: 1, Busy: 1, Untouched: 1, Manual: true})
			contexts := []Context{p.Begin(0), p.Begin(1), p.Begin(2)}
			threads := p.Threads()
			assert.Assert(t, len(threads) == 4 && threads[0].TID == p.PID && threads[0].Kind == "main",
				"threads %+v", threads)
			for i, context := range contexts {
				if context.Thread != threads[i] || context.TransactionID != context.TraceID.TransactionID() ||
					context.SpanID != context.TraceID.SpanID() || !context.TraceID.Whole() {
					t.Errorf("context %+v of thread %+v", context, threads[i])
				}
				verifySlot(t, p, context)
			}
			untouched := threads[3]
			assert.Check(t, untouched.Kind == "untouched" && untouched.Variable == 0 && untouched.ThreadPointer != 0,
				"untouched thread %+v", untouched)
			want := flavor == Glibc || flavor == MuslPreloaded
			assert.Check(t, static(threads[:3]) == want, "static is %v, threads %+v", !want, threads)
			loaded := p.Loaded()
			if pointer := readWord(t, p.PID, loaded.StoragePointer); pointer != p.Published().Storage {
				t.Errorf("the exported pointer holds %#x, not %#x", pointer, p.Published().Storage)
			}
			for number := range 3 {
				switched := contexts[1]
				switched.SpanID = p.Span(1, number)
				assert.Check(t, switched.SpanID == switched.TraceID.Span(number) &&
					(switched.SpanID == contexts[1].SpanID) == (number == 1),
					"span %d is %v", number, switched.SpanID)
				verifySlot(t, p, switched)
			}
			p.End(1)
			slot := readMemory(t, p.PID, threads[1].Slot, 4)
			assert.Check(t, slot[2] == 1 && slot[3] == 0, "after the end, the slot begins %x", slot)
		})
	}
}

// verifySlot checks the variable of a thread, and its slot byte for byte.
func verifySlot(t *testing.T, p *Process, context Context) {
	t.Helper()
	if slot := readWord(t, p.PID, context.Thread.Variable); slot != context.Thread.Slot {
		t.Errorf("thread %d: the variable holds %#x, not %#x", context.Thread.Index, slot, context.Thread.Slot)
	}
	want := string(binary.NativeEndian.AppendUint16(nil, 1)) + "\x01\x01\x01" +
		string(context.TraceID[:]) + string(context.SpanID[:]) + string(context.TransactionID[:])
	if slot := readMemory(t, p.PID, context.Thread.Slot, 37); string(slot) != want {
		t.Errorf("thread %d: slot %x, want %x", context.Thread.Index, slot, want)
	}
}

func TestStorageIsLaidOutAsTheSpecificationSays(t *testing.T) {
	needLittleEndian(t)
	p := Start(t, Options{Service: "shop"})
	want := unhex(t, "0100 04000000") + "shop" + unhex(t, "04000000") + "test" +
		string([]byte{byte(len(p.Socket)), 0, 0, 0}) + p.Socket
	got := readMemory(t, p.PID, p.Published().Storage, len(want))
	assert.Check(t, string(got) == want, "storage %x, want %x", got, want)
	newer := p.Hostile("storage-newer", "")
	want = "\x07" + want[1:] + "fields"
	got = readMemory(t, p.PID, newer.Storage, len(want))
	assert.Check(t, string(got) == want, "newer storage %x, want %x", got, want)
}
