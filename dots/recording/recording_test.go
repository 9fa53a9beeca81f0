package recording

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/value"
)

var start = time.Unix(1700000000, 250000000)

// file returns a recording of two objects.
func file(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{StartTime: start, Name: "test"})
	for i := range uint32(2) {
		x := demo.DemoGadget{ID: value.Some(i), Color: value.Some(demo.DemoColorBlue)}
		h := frame.Header{TypeName: []byte("DemoGadget"), Sender: 7, Attributes: x.Valid(),
			Set: frame.TypeName | frame.Sender | frame.Attributes}
		if err == nil {
			// the second time goes back, as clocks may
			err = w.Write(start.Add(-time.Duration(i)), &h, x.Descriptor(), x.AppendInstance(nil, x.Valid()))
		}
	}
	if err == nil {
		err = w.Flush()
	}
	assert.NilError(t, err)
	return out.Bytes()
}

// TestLayout compares the beginning of a file with what is documented.
func TestLayout(t *testing.T) {
	const want = "17979cfe4510b280" + // 1700000000250000000
		"1a00000028" + // 40 bytes
		"a2" + "0170" + "446f74735265636f7264486561646572" + "030e" + // DotsRecordHeader
		"a3" + "0101" + "02fb41d954fc40100000" + "036474657374"
	got := hex.EncodeToString(file(t))
	assert.Check(t, strings.HasPrefix(got, want), "%s\nbegins not with\n%s", got, want)
}

func TestReader(t *testing.T) {
	for name, in := range map[string]io.Reader{
		"whole": bytes.NewReader(file(t)), "bytes": iotest.OneByteReader(bytes.NewReader(file(t))),
	} {
		r, err := NewReader(in, 0)
		assert.NilError(t, err, name)
		assert.Check(t, r.Header.Name == "test" && r.Header.StartTime.Equal(start), "%s: %+v", name, r.Header)
		var x Record
		for i := range byte(2) {
			assert.NilError(t, r.Next(&x), name)
			if !x.Time.Equal(start) || x.Header.Sender != 7 || x.Type == nil || x.Type.Name != "DemoGadget" ||
				!bytes.Equal(x.Instance, []byte{0xa2, 1, i, 3, 5}) || !bytes.HasSuffix(x.Frame, x.Instance) {
				t.Errorf("%s: %+v", name, x)
			}
		}
		err = r.Next(&x)
		assert.Check(t, err == io.EOF, "%s: %v at the end", name, err)
		assert.Check(t, r.Types().Enum("DemoColor") != nil, "%s: the enum is not known", name)
	}
}

// TestCut has files that end anywhere: what is complete is read.
func TestCut(t *testing.T) {
	all := file(t)
	records := 0
	for n := range all {
		r, err := NewReader(bytes.NewReader(all[:n]), 0)
		if err != nil {
			assert.Check(t, errors.Is(err, ErrFormat) && n <= 60, "%d bytes: %v", n, err)
			continue
		}
		var x Record
		before := 0
		for err = r.Next(&x); err == nil; err = r.Next(&x) {
			before++
		}
		assert.Check(t, (err == io.EOF || errors.Is(err, ErrTruncated)) && before >= records && before <= 1,
			"%d bytes: %d records, %v", n, before, err)
		records = before
	}
}

func TestErrors(t *testing.T) {
	good := file(t)
	change := func(at int, to byte) []byte {
		data := bytes.Clone(good)
		data[at] = to
		return data
	}
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"empty":         {nil, ErrFormat},
		"text":          {[]byte("what is this, no recording at all?"), ErrFormat},
		"version":       {change(bytes.Index(good, []byte{0xa3, 1, 1})+2, 2), ErrVersion},
		"another type":  {change(17, 'x'), ErrFormat},
		"large frame":   {[]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x1a\x7f\xff\xff\xff"), ErrFormat},
		"header's type": {change(bytes.Index(good, []byte{2, 0xfb}), 1), ErrFormat},
	} {
		_, err := NewReader(bytes.NewReader(c.data), 0)
		assert.Check(t, errors.Is(err, c.want), "%s: %v", name, err)
	}
	wrong := errors.New("wrong")
	_, err := NewReader(iotest.ErrReader(wrong), 0)
	assert.Check(t, errors.Is(err, wrong), "a reader with an error: %v", err)
	r, err := NewReader(bytes.NewReader(append(bytes.Clone(good), make([]byte, 100)...)), 0)
	for x := (Record{}); err == nil; {
		err = r.Next(&x)
	}
	assert.Check(t, errors.Is(err, ErrFormat), "nonsense after frames: %v", err)
	_, err = NewWriter(brokenWriter{}, Header{Name: strings.Repeat("x", readBytes)})
	assert.Check(t, errors.Is(err, io.ErrClosedPipe), "a writer with an error: %v", err)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func FuzzReader(f *testing.F) {
	f.Add(file(f))
	f.Add(file(f)[:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := NewReader(bytes.NewReader(data), 1<<20)
		last := time.Time{}
		for x := (Record{}); err == nil; {
			if err = r.Next(&x); err == nil && x.Time.Before(last) {
				t.Errorf("%v after %v", x.Time, last)
			}
			last = x.Time
		}
	})
}
