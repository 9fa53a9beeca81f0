package processcontext_test

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	upstream "go.opentelemetry.io/proto/otlp/processcontext/v1development"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"

	"correlator/internal/attach/processcontext"
	"correlator/memread"
)

// payloadOf is a context whose service name and version say the same, with much between them.
func payloadOf(t *testing.T, letter string) []byte {
	t.Helper()
	attribute := func(key, value string) *common.KeyValue {
		text := &common.AnyValue_StringValue{StringValue: value}
		return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: text}}
	}
	payload, err := proto.Marshal(&upstream.ProcessContext{Resource: &resource.Resource{Attributes: []*common.KeyValue{
		attribute("service.name", letter), attribute("much", strings.Repeat(letter, 6000)),
		attribute("service.version", letter),
	}}})
	assert.NilError(t, err)
	return payload
}

// mapMemory maps memory of ours that the garbage collector does not know.
func mapMemory(bytes int) ([]byte, error) {
	return unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

func addressOf(memory []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&memory[0]))) }

// rewriter publishes two contexts in turn.
type rewriter struct {
	mapping, block []byte
	payloads       [2][]byte
	elsewhere      bool // each payload has memory of its own, as long as it is published
}

// publish publishes the nth context.
func (r *rewriter) publish(n uint64) (err error) {
	published := (*uint64)(unsafe.Pointer(&r.mapping[16]))
	atomic.StoreUint64(published, 0)
	payload := r.payloads[n%2]
	if r.elsewhere && r.block != nil {
		if err := unix.Munmap(r.block); err != nil {
			return err
		}
		r.block = nil
	}
	if r.block == nil {
		if r.block, err = mapMemory(len(payload)); err != nil {
			return err
		}
	}
	copy(r.block, payload)
	binary.NativeEndian.PutUint32(r.mapping[12:], uint32(len(payload)))
	binary.NativeEndian.PutUint64(r.mapping[24:], addressOf(r.block))
	atomic.StoreUint64(published, n)
	return nil
}

// run publishes until stop is closed; every eighth context stays long enough to be read.
func (r *rewriter) run(stop <-chan struct{}) error {
	for n := uint64(2); ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := r.publish(n); err != nil {
			return err
		}
		for began := time.Now(); n%8 == 0 && time.Since(began) < 20*time.Microsecond; {
		}
	}
}

// A process that updates its context without pause, in place or elsewhere with the old payload
// unmapped, is never read as what it never published.
func TestContextRewrittenWithoutPause(t *testing.T) {
	for name, elsewhere := range map[string]bool{"in place": false, "elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			mapping, err := mapMemory(os.Getpagesize())
			assert.NilError(t, err)
			defer unix.Munmap(mapping)
			copy(mapping, "OTEL_CTX\x02\x00\x00\x00")
			payloads := [2][]byte{payloadOf(t, "a"), payloadOf(t, "b")}
			r := rewriter{mapping: mapping, payloads: payloads, elsewhere: elsewhere}
			assert.NilError(t, r.publish(1))
			stop, ended := make(chan struct{}), make(chan error)
			go func() { ended <- r.run(stop) }()
			read, updating := readOften(t, addressOf(mapping))
			close(stop)
			err = <-ended
			assert.Check(t, err)
			unix.Munmap(r.block)
			t.Logf("%d read, %d being updated", read, updating)
		})
	}
}

// readOften reads many times, and on until both outcomes were there: on a single CPU reader and writer take turns.
func readOften(t *testing.T, addr uint64) (read, updating int) {
	t.Helper()
	mem := memread.Open("/proc", os.Getpid())
	defer mem.Close()
	until := time.Now().Add(time.Minute)
	for n := 0; n < 20_000 || read == 0 || updating == 0; n++ {
		if n >= 20_000 && time.Now().After(until) {
			t.Errorf("%d read, %d being updated", read, updating)
			return read, updating
		}
		c, err := processcontext.Read(mem, addr)
		name := c.Value("service.name")
		switch {
		case errors.Is(err, processcontext.ErrUpdating):
			updating++
		case err != nil:
			t.Error(err)
			return read, updating
		case name != c.Value("service.version") || c.Value("much") != strings.Repeat(name, 6000) || len(name) != 1:
			t.Errorf("%+v", c)
			return read, updating
		default:
			read++
		}
	}
	return read, updating
}
