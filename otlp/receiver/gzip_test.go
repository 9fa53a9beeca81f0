package receiver

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
)

// The output is no larger than the limit, and takes little more memory than it has bytes, whatever
// size the trailer announces.
func TestInflate(t *testing.T) {
	const limit = 64 << 10
	random := make([]byte, limit+1)
	rand.NewChaCha8([32]byte{}).Read(random)
	two := append(zip(t, random[:3000]), zip(t, random[3000:3001])...)
	liar := zip(t, random[:2000])
	liar[len(liar)-1] = 0x7f // 2 GB
	for name, c := range map[string]struct {
		body []byte
		want []byte
		code codes.Code
	}{
		"nothing":            {zip(t, nil), []byte{}, codes.OK},
		"a byte":             {zip(t, random[:1]), random[:1], codes.OK},
		"the limit":          {zip(t, random[:limit]), random[:limit], codes.OK},
		"one more":           {zip(t, random), nil, codes.ResourceExhausted},
		"much more":          {zip(t, make([]byte, 50*limit)), nil, codes.ResourceExhausted},
		"two files":          {two, random[:3001], codes.OK},
		"two, together more": {append(zip(t, random[:limit]), zip(t, random[:1])...), nil, codes.ResourceExhausted},
		"more than it says":  {append(zip(t, make([]byte, limit)), liar...), nil, codes.ResourceExhausted},
		"a wrong size":       {liar, nil, codes.Internal},
		"half of it":         {zip(t, random[:2000])[:1000], nil, codes.Internal},
		"rubbish behind it":  {append(zip(t, random[:2000]), "rubbish behind"...), nil, codes.Internal},
		"no gzip":            {random[:2000], nil, codes.Internal},
		"three bytes":        {[]byte{0x1f, 0x8b, 8}, nil, codes.Internal},
		"no bytes":           {nil, nil, codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			var z inflater
			z.inflate(zip(t, []byte("the state of an earlier one")), limit)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := z.inflate(c.body, limit)
			runtime.ReadMemStats(&after)
			if status.Code(err) != c.code || !bytes.Equal(got, c.want) {
				t.Fatalf("%d bytes, %v, want %d, %v", len(got), err, len(c.want), c.code)
			}
			if cap(got) > len(got)+len(got)/8 {
				t.Errorf("%d bytes take %d", len(got), cap(got))
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 2*limit+64<<10 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}

// FuzzInflate compares inflate with the standard library, up to the limit.
func FuzzInflate(f *testing.F) {
	const limit = 1000
	for _, size := range []int{0, 1, limit, limit + 1} {
		f.Add(zip(f, make([]byte, size)))
		f.Add(append(zip(f, bytes.Repeat([]byte("ab"), size/2)), zip(f, []byte("c"))...))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var want []byte
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err == nil {
			want, err = io.ReadAll(io.LimitReader(r, limit+1))
		}
		code := codes.OK
		switch {
		case len(want) > limit: // whatever follows
			code = codes.ResourceExhausted
		case err != nil:
			code = codes.Internal
		}
		var z inflater
		got, err := z.inflate(body, limit)
		assert.Assert(t, status.Code(err) == code && (err != nil || bytes.Equal(got, want)),
			"%x, %v, want %x, %v", got, err, want, code)
	})
}
