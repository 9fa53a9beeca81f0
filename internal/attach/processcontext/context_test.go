package processcontext

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/memread"
)

const (
	mapping = 0x7f0000001000
	block   = 0x7f0011223340
)

// newHeader encodes a header.
func newHeader(version, size uint32, time, payload uint64) header {
	h := header([]byte("OTEL_CTX........................"))
	binary.NativeEndian.PutUint32(h[8:], version)
	binary.NativeEndian.PutUint32(h[12:], size)
	binary.NativeEndian.PutUint64(h[16:], time)
	binary.NativeEndian.PutUint64(h[24:], payload)
	return h
}

// process is a process that does something between two reads.
type process struct {
	t      *testing.T
	memory map[uint64][]byte
	reads  int              // so far
	before map[int]func()   // what it does before the nth read, counted from 1
	gone   map[int]struct{} // reads at which it is gone
}

func newProcess(t *testing.T, h header) *process {
	return &process{t: t, memory: map[uint64][]byte{mapping: h[:], block: unhex(t, payloadHex)},
		before: make(map[int]func()), gone: make(map[int]struct{})}
}

func (p *process) publish(h header) { p.memory[mapping] = h[:] }

func (p *process) ReadBatch(requests []memread.Request) error {
	total := 0
	for i := range requests {
		p.reads++
		if act := p.before[p.reads]; act != nil {
			act()
		}
		r := &requests[i]
		total += len(r.Buf)
		assert.Check(p.t, total <= maxPayloadBytes+HeaderBytes, "%d bytes are read at once", total)
		if _, gone := p.gone[p.reads]; gone {
			return memread.ErrGone
		}
		r.N, r.Err = copy(r.Buf, p.memory[r.Addr]), nil
		if r.N < len(r.Buf) {
			r.Err = memread.ErrUnmapped
		}
	}
	return nil
}

var unhex = testenv.Unhex

// The header of the specification's rules, by hand.
func TestHeader(t *testing.T) {
	const text = "4f54454c5f435458" + "02000000" + "28010000" + "cb04fb711f010000" + "403322" + "1100" + "7f0000"
	h := header(unhex(t, text))
	assert.Check(t, h == newHeader(2, 296, 1234567890123, block), "%x", h)
	p := newProcess(t, h)
	c, err := Read(p, mapping)
	if err != nil || c.Header != h || c.PublishedAt != 1234567890123 || c.Value("service.name") != "checkout" ||
		!c.HasThreadContexts() || p.reads != 3 {
		t.Errorf("%+v, %v after %d reads", c, err, p.reads)
	}
}

func TestRead(t *testing.T) {
	whole := newHeader(2, 296, 5, block)
	updating := newHeader(2, 296, 0, block)
	updated := newHeader(2, 296, 6, block)
	tests := []struct {
		name  string
		is    header
		play  func(p *process)
		reads int
		want  error // nil: the time is that of the last header
	}{
		{"at rest", whole, nil, 3, nil},
		{"being updated", updating, nil, 1 + 3, ErrUpdating},
		{"an update that ends", updating, func(p *process) {
			p.before[2] = func() { p.publish(updated) }
		}, 2 + 2, nil},
		{"an update while the payload is read", whole, func(p *process) {
			p.before[2] = func() { p.publish(updating) }
			p.before[4] = func() { p.publish(updated) }
		}, 3 + 1 + 2, nil},
		{"an update in place", whole, func(p *process) {
			p.before[2] = func() { p.memory[block] = make([]byte, 296) }
			p.before[3] = func() { p.memory[block] = unhex(t, payloadHex); p.publish(updated) }
		}, 3 + 2, nil},
		{"updates without end", whole, func(p *process) {
			for i := range 10 {
				p.before[i] = func() { p.publish(newHeader(2, 296, uint64(100+i), block)) }
			}
		}, 1 + 3*2, ErrUpdating},
		{"another payload, the old one is freed", whole, func(p *process) {
			const other = block + 0x1000
			p.before[2] = func() {
				p.memory[other] = p.memory[block]
				delete(p.memory, block)
				p.publish(newHeader(2, 296, 6, other))
			}
		}, 3 + 2, nil},
		{"another payload, the old one's memory is used", whole, func(p *process) {
			const other = block + 0x1000
			p.before[2] = func() {
				p.memory[other], p.memory[block] = p.memory[block], slices.Repeat([]byte{0xff}, 296)
				p.publish(newHeader(2, 296, 6, other))
			}
		}, 3 + 2, nil},
		{"the time alone is the same", whole, func(p *process) {
			p.before[3] = func() { p.publish(newHeader(2, 200, 5, block)); p.memory[block] = p.memory[block][:200] }
			p.before[5] = func() { p.publish(whole); p.memory[block] = unhex(t, payloadHex) }
		}, 3 + 2 + 2, nil},
		{"payload not mapped", newHeader(2, 296, 5, 0x1000), nil, 3, ErrMalformed},
		{"payload in part mapped", newHeader(2, 297, 5, block), nil, 3, ErrMalformed},
		{"payload at the end of the address space", newHeader(2, 296, 5, math.MaxUint64), nil, 3, ErrMalformed},
		{"payload nowhere", newHeader(2, 296, 5, 0), nil, 2, ErrMalformed},
		{"payload nowhere, yet", newHeader(2, 296, 5, 0), func(p *process) {
			p.before[2] = func() { p.publish(updated) }
		}, 2 + 2, nil},
		{"no payload", newHeader(2, 0, 5, block), nil, 2, ErrMalformed},
		{"too large", newHeader(2, maxPayloadBytes+1, 5, block), nil, 2, ErrMalformed},
		{"far too large", newHeader(2, math.MaxUint32, 5, block), nil, 2, ErrMalformed},
		{"too large for a moment", newHeader(2, math.MaxUint32, 5, block), func(p *process) {
			p.before[2] = func() { p.publish(updated) }
		}, 2 + 2, nil},
		{"as large as possible", newHeader(2, maxPayloadBytes, 5, block), func(p *process) {
			// An unknown field of 64 KiB: its tag, and its length in three bytes.
			p.memory[block] = append([]byte{0x7a, 0xfc, 0xff, 0x03}, make([]byte, maxPayloadBytes-4)...)
		}, 3, nil},
		{"payload that is none", newHeader(2, 200, 5, block), func(p *process) {
			p.memory[block] = p.memory[block][:200]
		}, 3, ErrMalformed},
		{"version 1", newHeader(1, 296, 5, block), nil, 1, ErrVersion},
		{"version 3", newHeader(3, 296, 5, block), nil, 1, ErrVersion},
		{"version 3 in update", newHeader(3, 296, 0, block), nil, 1, ErrVersion},
		{"version 0", newHeader(0, 296, 5, block), nil, 1, ErrVersion},
		{"being written", newHeader(0, 0, 0, 0), func(p *process) {
			p.before[2] = func() { p.publish(newHeader(2, 296, 0, 0)) }
			p.before[3] = func() { p.publish(whole) }
		}, 3 + 2, nil},
		{"not yet written", header{}, nil, 1, ErrNoContext},
		{"no signature", header([]byte("OTEL_CTY\x02\x00\x00\x00....................")), nil, 1, ErrNoContext},
		{"unmapped", header{}, func(p *process) { delete(p.memory, mapping) }, 1, memread.ErrUnmapped},
		{"unmapped meanwhile", whole, func(p *process) {
			p.before[3] = func() { delete(p.memory, mapping) }
		}, 3, memread.ErrUnmapped},
		{"another mapping meanwhile", whole, func(p *process) {
			p.before[2] = func() { p.publish(header{}) }
		}, 3, ErrNoContext},
		{"gone", whole, func(p *process) { p.gone[1] = struct{}{} }, 1, memread.ErrGone},
		{"gone meanwhile", whole, func(p *process) { p.gone[2] = struct{}{} }, 2, memread.ErrGone},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newProcess(t, test.is)
			if test.play != nil {
				test.play(p)
			}
			c, err := Read(p, mapping)
			if !errors.Is(err, test.want) || p.reads != test.reads {
				t.Errorf("error %v after %d reads, want %v after %d", err, p.reads, test.want, test.reads)
			}
			last := header(slices.Clone(append(p.memory[mapping], make([]byte, HeaderBytes)...))[:HeaderBytes])
			if test.want == nil && (c.Header != last || c.PublishedAt != last.time() ||
				last.size() == 296 && c.Value("service.name") != "checkout") {
				t.Errorf("%+v", c)
			}
			if test.want != nil && (c.Resource != nil || c.PublishedAt != 0) {
				t.Errorf("%+v with an error", c)
			}
		})
	}
}

func TestReadTellsWhy(t *testing.T) {
	_, err := Read(newProcess(t, newHeader(2, 296, 5, 0x1000)), mapping)
	assert.Check(t, errors.Is(err, memread.ErrUnmapped), err)
	want := "malformed process context: its payload has not 1 to 65536 bytes: 70000"
	_, err = Read(newProcess(t, newHeader(2, 70000, 5, block)), mapping)
	assert.Check(t, err != nil && err.Error() == want, err)
}
