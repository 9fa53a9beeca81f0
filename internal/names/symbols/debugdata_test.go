package symbols

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"
	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
)

// compress compresses as xz does.
func compress(t testing.TB, contents []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := xz.NewWriter(&b)
	assert.NilError(t, err)
	_, err = w.Write(contents)
	assert.NilError(t, errors.Join(err, w.Close()))
	return b.Bytes()
}

// A stripped file has the names of its local functions in .gnu_debugdata, as distributions build files.
func TestDebugData(t *testing.T) {
	full, stripped, debug := build(t)
	contents, err := os.ReadFile(debug)
	assert.NilError(t, err)
	dir := t.TempDir()
	section, mini := filepath.Join(dir, "section"), filepath.Join(dir, "mini")
	testenv.WriteFile(t, section, compress(t, contents))
	out, err := exec.Command(testenv.NeedTool(t, "objcopy"), "--add-section", ".gnu_debugdata="+section, stripped,
		mini).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	addr := testenv.Symbols(t, full)
	plain, _ := open(t, stripped)
	tables, _ := open(t, mini)
	assert.Assert(t, plain.DebugData == nil && tables.DebugData != nil && tables.Static == nil, "%+v, %+v", plain,
		tables)
	inside, err := ReadDebugData(tables.DebugData)
	assert.NilError(t, err)
	for name, want := range map[string]string{"hidden": "hidden", "exported": "exported", "data": ""} {
		q := NewQuery([]uint64{addr[name]})
		assert.NilError(t, q.ReadTable(inside.Static))
		assert.Check(t, q.Name(addr[name]) == want, "%s: %q", name, q.Name(addr[name]))
	}
}

// What is decompressed is bounded, and what is broken is an error.
func TestDecompress(t *testing.T) {
	contents := []byte(strings.Repeat("contents ", 1000))
	packed := compress(t, contents)
	huge := bytes.Clone(packed)
	if at := bytes.Index(huge, []byte{0x21, 1}); assert.Check(t, at > 0) {
		huge[at+2] = 40 // a dictionary of 4 GiB, of which only what is unpacked is needed
	}
	for name, c := range map[string]struct {
		packed []byte
		most   int
		good   bool
	}{
		"all": {packed, len(contents), true}, "a huge dictionary": {huge, len(contents), true},
		"too much": {packed, len(contents) - 1, false}, "nothing": {nil, 100, false},
		"cut": {packed[:len(packed)/2], len(contents), false}, "a header alone": {packed[:20], len(contents), false},
		"another format": {[]byte("\x1f\x8b0123456789abcdefghijklmnop"), 100, false},
		"another filter": {bytes.Replace(packed, []byte{0x21, 1}, []byte{0x03, 1}, 1), len(contents), false},
		"no dictionary":  {bytes.Replace(packed, []byte{0x21, 1}, []byte{0x21, 0}, 1), len(contents), false},
	} {
		got, err := decompress(bufio.NewReader(bytes.NewReader(c.packed)), c.most)
		assert.Check(t, (err == nil) == c.good && (!c.good || bytes.Equal(got, contents)), "%s: %d bytes, %v", name,
			len(got), err)
	}
	_, err := decompress(bufio.NewReader(bytes.NewReader(packed)), 10)
	assert.Check(t, errors.Is(err, elfsym.ErrLimit), "%v", err)
}

// What xz makes is decompressed, in whatever blocks, streams and checks it comes.
func TestDecompressKinds(t *testing.T) {
	contents := []byte(strings.Repeat("contents of a debug file ", 10_000))
	for _, kind := range []string{"", "--check=none", "--check=crc32", "--check=sha256", "--block-size=100000",
		"-T4 --block-size=4096", "-T4 --block-size=4000 --check=none", "-0", "-9e", "--block-list=1,2,3,4,50000,0"} {
		pack := exec.Command(testenv.NeedTool(t, "xz"), append(strings.Fields(kind), "-c")...)
		pack.Stdin = bytes.NewReader(contents)
		packed, err := pack.Output()
		assert.NilError(t, err)
		for name, c := range map[string]struct {
			packed []byte
			times  int
		}{
			"one stream": {packed, 1}, "two": {slices.Concat(packed, packed), 2},
			"two, padded": {slices.Concat(packed, make([]byte, 8), packed, make([]byte, 4)), 2},
		} {
			got, err := decompress(bufio.NewReader(bytes.NewReader(c.packed)), 2*len(contents))
			switch {
			case strings.Contains(kind, "--block-size=40") && c.times == 2: // of 126 blocks
				assert.Check(t, errors.Is(err, elfsym.ErrLimit), "%s, %s: %v", kind, name, err)
			default:
				assert.Check(t, err == nil && bytes.Equal(got, bytes.Repeat(contents, c.times)), "%s, %s: %d bytes, %v",
					kind, name, len(got), err)
			}
			_, err = decompress(bufio.NewReader(bytes.NewReader(c.packed)), c.times*len(contents)-1)
			assert.Check(t, errors.Is(err, elfsym.ErrLimit), "%s, %s: %v", kind, name, err)
		}
	}
}

// A file may have holes of any size: padding behind a stream, or the records of an index, are not read for ever.
func TestDecompressHoles(t *testing.T) {
	packed := compress(t, []byte("contents"))
	index := binary.AppendUvarint(append(bytes.Clone(packed[:12]), 0), 1<<62)
	for name, before := range map[string][]byte{"padding": packed, "an index": index} {
		hole := bytes.NewReader(make([]byte, 1<<20))
		_, err := decompress(bufio.NewReader(io.MultiReader(bytes.NewReader(before), hole)), 1<<16)
		left := hole.Len()
		assert.Check(t, errors.Is(err, elfsym.ErrLimit) && left > 1<<19, "%s: %v, %d bytes left", name, err, left)
	}
}

// Whatever a file has there, it is read or an error, within bounds.
func FuzzDecompress(f *testing.F) {
	f.Add(compress(f, []byte(strings.Repeat("contents ", 100))))
	f.Add(compress(f, nil))
	f.Fuzz(func(t *testing.T, packed []byte) {
		const most = 1 << 16
		got, err := decompress(bufio.NewReader(bytes.NewReader(packed)), most)
		assert.Assert(t, err != nil || len(got) <= most, "%d bytes", len(got))
	})
}
