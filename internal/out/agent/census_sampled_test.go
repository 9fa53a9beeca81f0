package agent

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
)

// spoilDescriptor has the process's thread-local variable resolved by what is no code of a C
// library.
func spoilDescriptor(t *testing.T, p *demo.Process) {
	t.Helper()
	library, err := os.Open(p.HostPath(p.Library))
	assert.NilError(t, err)
	defer library.Close()
	info, err := library.Stat()
	assert.NilError(t, err)
	parsed, err := elfsym.ParseLibrary(library, info.Size())
	assert.NilError(t, err)
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.PID), os.O_RDWR, 0)
	assert.NilError(t, err)
	defer memory.Close()
	storage := binary.NativeEndian.AppendUint64(nil, p.Published().Storage) // mapped, of no file
	_, err = memory.WriteAt(storage, int64(p.Loaded().Base+parsed.Relocation.Addr))
	assert.NilError(t, err)
}

func TestWhyNotSampled(t *testing.T) {
	now := time.Now()
	const unresolved = "unresolved"
	got, want := make(map[string]int), make(map[string]int)
	for _, c := range []struct {
		tls    string
		reason process.Reason // of the last error
		at     time.Time
		want   string
	}{
		{tls: unresolved, want: "unresolved"},
		{tls: "dynamic", want: "other"},
		{tls: unresolved, reason: process.ReasonTLS, at: now, want: "tls_unsupported"},
		{tls: unresolved, reason: process.ReasonTLS, at: now.Add(-time.Second), want: "unresolved"}, // before it
		{tls: "static", reason: process.ReasonSampling, at: now.Add(time.Second), want: "sampling"},
		{tls: "static", reason: process.ReasonSocketFull, at: now.Add(time.Second), want: "other"},
	} {
		s := lifecycle.Status{AttachedAt: now, View: process.View{Library: "/lib", TLS: c.tls}}
		if c.reason != process.ReasonNone {
			s.LastError = &ProcessError{Reason: c.reason.String(), At: c.at}
		}
		why := notSampled(&s)
		assert.Check(t, why == c.want, "%+v: %s", c, why)
		got[notSampled(&s)] = 0
	}
	for _, reason := range NotSampledReasons() {
		want[reason] = 0
	}
	assert.Check(t, maps.Equal(got, want), "reasons %v, want %v", got, want)
}
