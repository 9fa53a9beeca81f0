package demo

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"correlator/internal/testenv"
)

// OTelProgram is how a writer by OpenTelemetry's standards has its thread-local variable.
type OTelProgram string

const (
	OTelLoaded    OTelProgram = ""          // in a library that it loads by dlopen
	OTelLinked    OTelProgram = "linked"    // in a library that it is linked with
	OTelPIE       OTelProgram = "pie"       // in the program itself, exported
	OTelAligned   OTelProgram = "aligned"   // the same, in a block that is aligned to 128 bytes
	OTelNoPIE     OTelProgram = "nopie"     // the same as OTelPIE, at a fixed address
	OTelHidden    OTelProgram = "hidden"    // the same as OTelPIE, in .symtab alone
	OTelStatic    OTelProgram = "static"    // the same, without PT_DYNAMIC
	OTelStaticPIE OTelProgram = "staticpie" // the same, static at any address
)

// OTelForm is how the code of a library reaches the variable: testdata/otel/README.md says more.
type OTelForm string

const (
	OTelTLSDESC       OTelForm = "tlsdesc"        // TLSDESC naming the symbol
	OTelTLSDESCLocal  OTelForm = "tlsdesc-local"  // TLSDESC without the symbol
	OTelTLSDESCLD     OTelForm = "tlsdesc-ld"     // TLSDESC of the library's block
	OTelTLSDESCHidden OTelForm = "tlsdesc-hidden" // as -local, and the symbol is in .symtab alone
	OTelGD            OTelForm = "gd"             // DTPMOD64
	OTelGDLocal       OTelForm = "gd-local"
	OTelGDHidden      OTelForm = "gd-hidden"
	OTelLD            OTelForm = "ld" // DTPMOD64 of the library's block
	OTelIE            OTelForm = "ie" // TPOFF64
	OTelIELocal       OTelForm = "ie-local"
	OTelIEHidden      OTelForm = "ie-hidden"
)

// OTelForms returns all forms of libraries.
func OTelForms() []OTelForm {
	return []OTelForm{OTelTLSDESC, OTelTLSDESCLocal, OTelTLSDESCLD, OTelTLSDESCHidden, OTelGD, OTelGDLocal,
		OTelGDHidden, OTelLD, OTelIE, OTelIELocal, OTelIEHidden}
}

// OTelOptions describe a process that publishes by OpenTelemetry's standards. The zero value is one
// with glibc and a main thread alone, which has loaded a library with TLSDESC and has published a
// process context with the attributes of OTelResource and the keys of OTelKeys.
type OTelOptions struct {
	Program OTelProgram
	Form    OTelForm // of the library; default OTelTLSDESC
	Library string   // file of a library to copy instead of the form's
	Musl    bool
	AArch64 bool // for that machine, with glibc, emulated if it is another one
	Dynamic bool // glibc has no static memory for libraries loaded later: GLIBC_TUNABLES

	InPlace bool // records are rewritten in place, with their valid field 0; else exchanged
	Threads int  // beside the main one; they sleep until Busy

	Resource       []OTelPair // default OTelResource
	Attributes     []OTelPair // beside the resource
	Schema         string     // default "tlsdesc_v1_dev"
	Keys           []string   // default OTelKeys
	NoThreads      bool       // without schema and keys: the process context says nothing of threads
	KeysInResource bool       // schema and keys are in the resource, as older writers have them
	SamePayload    bool       // updates rewrite the payload where it is
	Hold           bool       // neither load nor publish at the start

	Placement
}

// OTelPair is an attribute of a process context. Neither has spaces at its ends; the key has no space
// and no "=".
type OTelPair struct{ Key, Value string }

// OTelResource is the resource of a writer that is given none.
func OTelResource() []OTelPair {
	return []OTelPair{{"service.name", "checkout"}, {"service.instance.id", "123d8444-2c7e-46e3-89f6-6217880f7123"},
		{"deployment.environment.name", "prod"}, {"telemetry.sdk.language", "cpp"}}
}

// OTelKeys is the key map of a writer that is given none.
func OTelKeys() []string { return []string{"datadog.local_root_span_id", "http.route"} }

func (o *OTelOptions) arguments() (out []string) {
	if o.Resource == nil {
		o.Resource = OTelResource()
	}
	for _, pair := range o.Resource {
		out = append(out, "--resource", pair.Key+"="+pair.Value)
	}
	for _, pair := range o.Attributes {
		out = append(out, "--attribute", pair.Key+"="+pair.Value)
	}
	if !o.NoThreads {
		if o.Schema == "" {
			o.Schema = "tlsdesc_v1_dev"
		}
		if o.Keys == nil {
			o.Keys = OTelKeys()
		}
		out = append(out, "--schema", o.Schema, "--keys", strings.Join(o.Keys, ","))
	}
	out = append(out, "--threads", strconv.Itoa(o.Threads))
	for name, set := range map[string]bool{
		"in-place": o.InPlace, "keys-in-resource": o.KeysInResource, "same-payload": o.SamePayload, "hold": o.Hold,
	} {
		if set {
			out = append(out, "--"+name)
		}
	}
	return out
}

// OTel is a process that publishes by OpenTelemetry's standards. Commands must not be given
// concurrently.
type OTel struct {
	PID  int
	Dir  string // its directory for files, as the process sees it
	File string // path of the file with the variable, as the process sees it

	process *Process
}

// OTelContext is the process context as the process has published it.
type OTelContext struct {
	Header      uint64 // its address; 0: nothing is published
	PublishedAt uint64 `json:"published_at"` // CLOCK_BOOTTIME, ns
	Payload     uint64
	PayloadSize uint64 `json:"payload_size"`
}

// OTelThread is a thread of the process. Thread 0 is the main thread.
type OTelThread struct {
	Index         int
	TID           int
	ThreadPointer uint64 `json:"thread_pointer"`
	Variable      uint64 // its address, 0 while the thread has not touched it
	Record        uint64 // what it holds
}

// OTelRecord is what a thread works on.
type OTelRecord struct {
	TraceID    TraceID
	SpanID     SpanID
	Flags      uint8
	Attributes []byte // OTelAttribute makes them
}

// OTelAttribute appends an attribute by its index in the key map.
func OTelAttribute(attributes []byte, index uint8, value string) []byte {
	return append(append(attributes, index, uint8(len(value))), value...)
}

// Bytes returns the record in its encoded form, valid.
func (r OTelRecord) Bytes() []byte {
	size := len(r.Attributes)
	return slices.Concat(r.TraceID[:], r.SpanID[:], []byte{1, r.Flags, byte(size), byte(size >> 8)}, r.Attributes)
}

// StartOTel builds and starts a process that ends with the test, and waits until it has done what the
// options require.
func StartOTel(t testing.TB, o OTelOptions) *OTel {
	t.Helper()
	libc, compiler := "glibc", "cc"
	if o.Musl {
		libc, compiler = "musl", "musl-gcc"
	}
	testenv.NeedTool(t, compiler)
	program := "otel-" + libc
	if o.Program != OTelLoaded {
		program += "-" + string(o.Program)
	}
	l := newLauncher(t, o.Placement)
	w := &OTel{Dir: l.dir, File: l.add(o.build(t, program), "otel", 0o755)}
	argv := append([]string{w.File}, o.arguments()...)
	if o.Program == OTelLoaded || o.Program == OTelLinked {
		w.File = l.add(o.library(t, libc), "libthreadctx.so", 0o644) // what the linked program asks for
	}
	if o.Program == OTelLoaded {
		argv = append(argv, "--library", w.File)
	}
	const dynamic = "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=0"
	if o.emulated() {
		emulator := []string{testenv.NeedTool(t, "qemu-aarch64-static"), "-L", needAArch64(t)}
		if o.Dynamic {
			emulator = append(emulator, "-E", dynamic)
		}
		argv = append(emulator, argv...)
	} else if o.Dynamic {
		l.env = append(slices.Clone(l.env), dynamic)
	}
	w.process = l.start(t, argv)
	w.PID = w.process.PID
	return w
}

func (o *OTelOptions) library(t testing.TB, libc string) string {
	t.Helper()
	if o.Library != "" {
		return o.Library
	}
	form := o.Form
	if form == "" {
		form = OTelTLSDESC
	}
	return o.build(t, "otel-lib-"+libc+"-"+string(form)) + ".so"
}

func (o *OTelOptions) emulated() bool { return o.AArch64 && runtime.GOARCH != "arm64" }

// build builds a target and returns its path, without the ".so" of a library.
func (o *OTelOptions) build(t testing.TB, target string) string {
	t.Helper()
	if !o.emulated() {
		return filepath.Join(Build(t, target), target)
	}
	compiler := testenv.NeedTool(t, "aarch64-linux-gnu-gcc")
	dir := Build(t, "O=out/aarch64", "MACHINE=aarch64", "COMPILER="+compiler, target)
	return filepath.Join(dir, "aarch64", target)
}

// needAArch64 returns the directory with glibc for aarch64, or ends the test.
func needAArch64(t testing.TB) string {
	t.Helper()
	const root = "/usr/aarch64-linux-gnu"
	if _, err := os.Stat(root + "/lib/ld-linux-aarch64.so.1"); err != nil {
		testenv.Missing(t, "needs glibc for aarch64 in "+root+" (libc6-dev-arm64-cross)")
	}
	return root
}

// HostPath converts a path as the process sees it into one for this process.
func (w *OTel) HostPath(path string) string { return w.process.HostPath(path) }

// Command gives a command, see testdata/otel/README.md, and decodes the reply into out, unless that
// is nil. An error is what the process replied, or that it ended.
func (w *OTel) Command(out any, words ...string) error {
	w.process.t.Helper()
	return w.process.Command(out, words...)
}

// Load loads the library in a process with OTelOptions.Hold. Others have it from the start.
func (w *OTel) Load() { w.process.t.Helper(); w.process.must(nil, "load") }

// Publish publishes the process context, or an update with what was set since.
func (w *OTel) Publish() (out OTelContext) {
	w.process.t.Helper()
	w.process.must(&out, "publish")
	return out
}

// Published returns the publication at the start.
func (w *OTel) Published() (out OTelContext) {
	w.process.t.Helper()
	w.process.await("published", 1, &out)
	return out
}

// Withdraw unmaps the process context.
func (w *OTel) Withdraw() { w.process.t.Helper(); w.process.must(nil, "withdraw") }

// SetResource sets an attribute of the resource for the next Publish.
func (w *OTel) SetResource(key, value string) {
	w.process.t.Helper()
	w.process.must(nil, "set", "resource", key, value)
}

// SetKeys sets the key map for the next Publish.
func (w *OTel) SetKeys(keys ...string) {
	w.process.t.Helper()
	w.process.must(nil, "set", "keys", strings.Join(keys, ","))
}

// SetSchema sets the schema for the next Publish; empty: there is none.
func (w *OTel) SetSchema(schema string) {
	w.process.t.Helper()
	words := []string{"set", "schema"}
	if schema != "" {
		words = append(words, schema)
	}
	w.process.must(nil, words...)
}

// SpoilHeader sets a field of the published header, as no writer does: signature (8 bytes), version,
// payload_size, published_at or payload.
func (w *OTel) SpoilHeader(field string, value uint64) {
	w.process.t.Helper()
	w.process.must(nil, "spoil", field, strconv.FormatUint(value, 10))
}

type otelThreads struct{ Threads []OTelThread }

// Threads returns all threads.
func (w *OTel) Threads() []OTelThread {
	w.process.t.Helper()
	var out otelThreads
	w.process.must(&out, "threads")
	return out.Threads
}

// StartThreads adds n threads and returns all.
func (w *OTel) StartThreads(n int) []OTelThread {
	w.process.t.Helper()
	var out otelThreads
	w.process.must(&out, "start-threads", strconv.Itoa(n))
	return out.Threads
}

// tell gives a command to a thread and returns what it is then.
func (w *OTel) tell(command string, thread int, words ...string) OTelThread {
	w.process.t.Helper()
	var out otelThreads
	w.process.must(&out, slices.Concat([]string{command, strconv.Itoa(thread)}, words)...)
	return out.Threads[thread]
}

// Begin has a thread work on what a record says.
func (w *OTel) Begin(thread int, record OTelRecord) OTelThread {
	w.process.t.Helper()
	return w.SetRecord(thread, record.Bytes())
}

// SetRecord is Begin with any bytes, at least 28: not valid, with zero ids, with a size of attributes
// that are not there.
func (w *OTel) SetRecord(thread int, record []byte) OTelThread {
	w.process.t.Helper()
	return w.tell("record", thread, hex.EncodeToString(record))
}

// Resize changes the size of the attributes of a thread's record, which stays valid meanwhile. What
// is more is written behind those that there are before.
func (w *OTel) Resize(thread int, size uint16, more []byte) OTelThread {
	w.process.t.Helper()
	words := []string{strconv.Itoa(int(size))}
	if len(more) > 0 {
		words = append(words, hex.EncodeToString(more))
	}
	return w.tell("resize", thread, words...)
}

// Clear has a thread work on nothing.
func (w *OTel) Clear(thread int) OTelThread { w.process.t.Helper(); return w.tell("clear", thread) }

// SetPointer sets the variable of a thread, as no writer does.
func (w *OTel) SetPointer(thread int, addr uint64) OTelThread {
	w.process.t.Helper()
	return w.tell("pointer", thread, fmt.Sprintf("%#x", addr))
}

// Busy has a thread, not the main one, burn CPU in the function otel_burn, or sleep again.
func (w *OTel) Busy(thread int, busy bool) {
	w.process.t.Helper()
	w.tell("busy", thread, map[bool]string{true: "on", false: "off"}[busy])
}

// Fork makes the process fork and returns the pid of the child, which has a copy of the main thread's
// variable and record, and executes no other program. It publishes a process context of its own, if
// told so: none is inherited. It is idle, or burns CPU. It ends after Quit, and at the end of the
// test, but not with Kill.
func (w *OTel) Fork(publish, busy bool) int {
	w.process.t.Helper()
	var out Forked
	words := []string{"fork"}
	if publish {
		words = append(words, "publish")
	}
	if busy {
		words = append(words, "busy")
	}
	w.process.must(&out, words...)
	return out.Child
}

// Restart makes the process execute its program again, with the same options, and returns when that
// is ready.
func (w *OTel) Restart() {
	w.process.t.Helper()
	w.process.forget()
	w.process.must(nil, "exec")
	w.process.await("ready", 1, nil)
}

// Exec makes the process execute another program, which knows no commands: Kill it at the end.
func (w *OTel) Exec(program, argument string) {
	w.process.t.Helper()
	w.process.must(nil, "exec", program, argument)
}

// Ended reports whether the process is gone.
func (w *OTel) Ended() bool { return w.process.Ended() }

// Kill ends the process with SIGKILL and returns when it has been reaped.
func (w *OTel) Kill() { w.process.t.Helper(); w.process.Kill() }

// Quit ends the process regularly.
func (w *OTel) Quit() {
	w.process.t.Helper()
	w.process.must(nil, "quit")
	w.process.await("bye", 1, nil)
}
