package demo

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"correlator/internal/lab/testenv"
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
	NoMemfd        bool       // an anonymous mapping: kernels without CONFIG_ANON_VMA_NAME refuse it

	Placement
}

// OTelPair is an attribute of a process context. Neither has spaces at its ends; the key has no
// space and no "=".
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
		"no-memfd": o.NoMemfd,
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
	*Process
	File string // path of the file with the variable, as the process sees it
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

// StartOTel builds and starts a process that ends with the test, and waits until it has done what
// the options require.
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
	w := &OTel{File: l.add(o.build(t, program), "otel", 0o755)}
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
	w.Process = l.start(t, argv)
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
