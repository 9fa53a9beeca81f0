package procscan

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestParseImage(t *testing.T) {
	const before = "42 (a) b) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 1234 8192 100 18446744073709551615 "
	for _, test := range []struct {
		stat string
		want Image
		ok   bool
	}{
		{before + "94000000000000 94000000004096 140700000000000 0 0", Image{94000000000000, 140700000000000}, true},
		{before + "1 1 0 0 0", Image{}, true}, // not permitted
		{before + "94000000000000 94000000004096", Image{}, false},
		{before + "x 1 1 0", Image{}, false},
		{before + "1 1 x 0", Image{}, false},
		{"", Image{}, false},
	} {
		image, err := parseImage([]byte(test.stat))
		assert.Check(t, image == test.want && (err == nil) == test.ok, "%q: %v, %v", test.stat, image, err)
	}
}

// Where a program has what the kernel gave it at random is what the kernel told this one.
func TestRandomAddr(t *testing.T) {
	vector, err := unix.Auxv()
	assert.NilError(t, err)
	i := slices.IndexFunc(vector, func(v [2]uintptr) bool { return v[0] == atRandom })
	h, err := OpenProcess("/proc", identityOf(t, os.Getpid()))
	assert.NilError(t, err)
	defer h.Close()
	addr, err := h.RandomAddr()
	assert.Check(t, err == nil && addr == uint64(vector[i][1]), "%#x, %v, want %#x", addr, err, vector[i][1])
	pair := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, atRandom), 7)
	other := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, 7), atRandom)
	for _, test := range []struct {
		vector []byte
		ok     bool
	}{{nil, false}, {pair, true}, {pair[:15], false}, {other, false}, {append(other, pair...), true}} {
		addr, ok := parseRandomAddr(test.vector)
		assert.Check(t, ok == test.ok && (addr == 7) == ok, "%v: %d, %v", test.vector, addr, ok)
	}
}

// An exec of the same program gives a process another image.
func TestImage(t *testing.T) {
	const again = `echo x; read line; exec sh -c 'echo x; read line'`
	cmd := exec.Command("sh", "-c", again)
	stdin, stdout := testenv.Start(t, cmd)
	started := func() { // it has written its line
		_, err := stdout.Read(make([]byte, 2))
		assert.NilError(t, err)
	}
	started()
	h, err := OpenProcess("/proc", identityOf(t, cmd.Process.Pid))
	assert.NilError(t, err)
	t.Cleanup(func() { h.Close() })
	image := func() Image {
		image, err := h.Image()
		assert.Assert(t, err == nil && image.StartStack != 0, "%v, %v", image, err)
		return image
	}
	first := image()
	if again := image(); again != first {
		t.Errorf("%v, then %v", first, again)
	}
	_, err = stdin.Write([]byte("\n"))
	assert.NilError(t, err)
	started()
	next := image()
	assert.Check(t, next != first, "%v after an exec", next)
	_ = stdin.Close()
	_ = cmd.Wait() // read returns an error at the end
	_, err = h.Image()
	assert.Check(t, errors.Is(err, ErrGone), "%v after its end", err)
	_, err = h.RandomAddr()
	assert.Check(t, errors.Is(err, ErrGone), "%v after its end", err)
}
