package demo

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"correlator/internal/lab/testenv"
)

// Bias returns at which distance from its addresses the file with the variable is loaded. bias is that
// method of an elfsym.File.
func (w *OTel) Bias(bias func(start, off uint64) (uint64, bool)) uint64 {
	w.t.Helper()
	for line := range strings.Lines(string(testenv.ReadFile(w.t, fmt.Sprintf("/proc/%d/maps", w.PID)))) {
		var start, end, off uint64
		var skip, path string
		_, err := fmt.Sscanf(line, "%x-%x %s %x %s %s %s", &start, &end, &skip, &off, &skip, &skip, &path)
		if err == nil && path == w.File && off == 0 {
			if loaded, ok := bias(start, off); ok {
				return loaded
			}
		}
	}
	w.t.Fatalf("%s is not mapped", w.File)
	return 0
}

// Load loads the library in a process with OTelOptions.Hold. Others have it from the start.
func (w *OTel) Load() { w.t.Helper(); w.must(nil, "load") }

// Publish publishes the process context, or an update with what was set since.
func (w *OTel) Publish() (out OTelContext) {
	w.t.Helper()
	w.must(&out, "publish")
	return out
}

// Published returns the publication at the start.
func (w *OTel) Published() (out OTelContext) {
	w.t.Helper()
	w.await("published", 1, &out)
	return out
}

// Withdraw unmaps the process context.
func (w *OTel) Withdraw() { w.t.Helper(); w.must(nil, "withdraw") }

// SetResource sets an attribute of the resource for the next Publish.
func (w *OTel) SetResource(key, value string) {
	w.t.Helper()
	w.must(nil, "set", "resource", key, value)
}

// SetKeys sets the key map for the next Publish.
func (w *OTel) SetKeys(keys ...string) {
	w.t.Helper()
	w.must(nil, "set", "keys", strings.Join(keys, ","))
}

// SetSchema sets the schema for the next Publish; empty: there is none.
func (w *OTel) SetSchema(schema string) {
	w.t.Helper()
	words := []string{"set", "schema"}
	if schema != "" {
		words = append(words, schema)
	}
	w.must(nil, words...)
}

// SpoilHeader sets a field of the published header, as no writer does: signature (8 bytes),
// version, payload_size, published_at or payload.
func (w *OTel) SpoilHeader(field string, value uint64) {
	w.t.Helper()
	w.must(nil, "spoil", field, strconv.FormatUint(value, 10))
}

type otelThreads struct{ Threads []OTelThread }

// Threads returns all threads.
func (w *OTel) Threads() []OTelThread {
	w.t.Helper()
	var out otelThreads
	w.must(&out, "threads")
	return out.Threads
}

// StartThreads adds n threads and returns all.
func (w *OTel) StartThreads(n int) []OTelThread {
	w.t.Helper()
	var out otelThreads
	w.must(&out, "start-threads", strconv.Itoa(n))
	return out.Threads
}

// tell gives a command to a thread and returns what it is then.
func (w *OTel) tell(command string, thread int, words ...string) OTelThread {
	w.t.Helper()
	var out otelThreads
	w.must(&out, slices.Concat([]string{command, strconv.Itoa(thread)}, words)...)
	return out.Threads[thread]
}

// Begin has a thread work on what a record says.
func (w *OTel) Begin(thread int, record OTelRecord) OTelThread {
	w.t.Helper()
	return w.SetRecord(thread, record.Bytes())
}

// SetRecord is Begin with any bytes, at least 28: not valid, with zero ids, with a size of
// attributes that are not there.
func (w *OTel) SetRecord(thread int, record []byte) OTelThread {
	w.t.Helper()
	return w.tell("record", thread, hex.EncodeToString(record))
}

// Resize changes the size of the attributes of a thread's record, which stays valid meanwhile. What
// is more is written behind those that there are before.
func (w *OTel) Resize(thread int, size uint16, more []byte) OTelThread {
	w.t.Helper()
	words := []string{strconv.Itoa(int(size))}
	if len(more) > 0 {
		words = append(words, hex.EncodeToString(more))
	}
	return w.tell("resize", thread, words...)
}

// Clear has a thread work on nothing.
func (w *OTel) Clear(thread int) OTelThread { w.t.Helper(); return w.tell("clear", thread) }

// SetPointer sets the variable of a thread, as no writer does.
func (w *OTel) SetPointer(thread int, addr uint64) OTelThread {
	w.t.Helper()
	return w.tell("pointer", thread, fmt.Sprintf("%#x", addr))
}

// Busy has a thread, not the main one, burn CPU in the function otel_burn, or sleep again.
func (w *OTel) Busy(thread int, busy bool) {
	w.t.Helper()
	w.tell("busy", thread, map[bool]string{true: "on", false: "off"}[busy])
}

// Fork makes the process fork and returns the pid of the child, which has a copy of the main
// thread's variable and record, and executes no other program. It publishes a process context of
// its own, if told so: none is inherited. It is idle, or burns CPU. It ends after Quit, and at the
// end of the test, but not with Kill.
func (w *OTel) Fork(publish, busy bool) int {
	w.t.Helper()
	var out Forked
	words := []string{"fork"}
	if publish {
		words = append(words, "publish")
	}
	if busy {
		words = append(words, "busy")
	}
	w.must(&out, words...)
	return out.Child
}

// Restart makes the process execute its program again, with the same options, and returns when that
// is ready.
func (w *OTel) Restart() {
	w.t.Helper()
	w.forget()
	w.must(nil, "exec")
	w.await("ready", 1, nil)
}

// Quit ends the process regularly.
func (w *OTel) Quit() {
	w.t.Helper()
	w.must(nil, "quit")
	w.await("bye", 1, nil)
}
