package symbols

import (
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// root makes a directory that is a process's root, with /tmp.
func root(t *testing.T) (dir string, opened *os.File) {
	t.Helper()
	dir = t.TempDir()
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o700))
	opened, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { opened.Close() })
	return dir, opened
}

// openPerfMap opens the perf map of a process with this root and pid 42.
func openPerfMap(root *os.File, uid uint32) (*os.File, error) {
	opener := Opener{ProcRoot: "/proc"}
	dir, err := opener.OpenPerfMapDir(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return opener.OpenPerfMap(dir, 42, uid, time.Time{})
}

func TestOpenPerfMap(t *testing.T) {
	dir, root := root(t)
	path := filepath.Join(dir, "tmp/perf-42.map")
	uid := uint32(os.Geteuid())
	for _, test := range []struct {
		what string
		make func() error
		want error
	}{
		{"nothing", func() error { return nil }, fs.ErrNotExist},
		{"a file", func() error { return os.WriteFile(path, []byte("1000 20 f\n"), 0o600) }, nil},
		{"a FIFO", func() error { return unix.Mkfifo(path, 0o600) }, procscan.ErrNotRegular},
		{"a directory", func() error { return os.Mkdir(path, 0o700) }, procscan.ErrNotRegular},
		{"a symbolic link", func() error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "tmp/target"), nil, 0o600), os.Symlink("target", path))
		}, procscan.ErrNotRegular},
	} {
		t.Run(test.what, func(t *testing.T) {
			assert.NilError(t, test.make())
			defer os.RemoveAll(path)
			file, err := openPerfMap(root, uid)
			assert.Assert(t, errors.Is(err, test.want), "%v, want %v", err, test.want)
			if err != nil {
				return
			}
			defer file.Close()
			q := NewQuery([]uint64{0x1000})
			if err := q.ReadPerfMap(file, 10); err != nil || q.Name(0x1000) != "f" {
				t.Errorf("%q, %v", q.names, err)
			}
		})
	}
}

func TestOpenPerfMapOfAnotherUser(t *testing.T) {
	testenv.NeedRoot(t)
	dir, root := root(t)
	path := filepath.Join(dir, "tmp/perf-42.map")
	testenv.WriteFile(t, path, "")
	for _, test := range []struct {
		owner int
		want  error
	}{{0, nil}, {1000, nil}, {1001, ErrOwner}} {
		assert.NilError(t, os.Chown(path, test.owner, -1))
		file, err := openPerfMap(root, 1000)
		assert.Check(t, errors.Is(err, test.want), "owned by %d: %v, want %v", test.owner, err, test.want)
		file.Close()
	}
}

// A link leads nowhere but below the root: what lies there is read, not the machine's own.
func TestOpenStaysBelowTheRoot(t *testing.T) {
	outside := t.TempDir()
	testenv.WriteFile(t, filepath.Join(outside, "perf-42.map"), "")
	dir, root := root(t)
	sibling := filepath.Base(outside)
	assert.NilError(t, errors.Join(os.Remove(filepath.Join(dir, "tmp")),
		os.Symlink("../"+sibling, filepath.Join(dir, "tmp"))))
	_, err := os.Stat(filepath.Join(dir, "tmp/perf-42.map"))
	assert.NilError(t, err, "the link leads to nothing outside")
	uid := uint32(os.Geteuid())
	_, err = openPerfMap(root, uid)
	assert.Check(t, errors.Is(err, fs.ErrNotExist), err)
	testenv.WriteFile(t, filepath.Join(dir, sibling, "perf-42.map"), "")
	file, err := openPerfMap(root, uid)
	assert.NilError(t, err)
	file.Close()
}

func TestOpenDebugFile(t *testing.T) {
	_, _, debug := build(t)
	dir, root := root(t)
	place := filepath.Join(dir, "usr/lib/debug/.build-id")
	const right, wrong = "01/23456789abcdef.debug", "01/23456789abcdee.debug"
	// Where distributions have files by name, those by build id are links to them.
	testenv.WriteFile(t, filepath.Join(dir, "usr/lib/debug/program.debug"), testenv.ReadFile(t, debug))
	err := errors.Join(os.MkdirAll(filepath.Join(place, "01"), 0o700),
		os.Symlink("../../program.debug", filepath.Join(place, right)),
		os.Symlink("../../program.debug", filepath.Join(place, wrong)))
	assert.NilError(t, err)
	opener := Opener{ProcRoot: "/proc"}
	id := []byte("\x01\x23\x45\x67\x89\xab\xcd\xef")
	file, e, err := opener.OpenDebugFile(root, id)
	assert.Assert(t, err == nil && e.Static != nil, "%v %v", e, err)
	file.Close()
	for _, test := range []struct {
		id   string
		want error
	}{
		{"\x01\x23\x45\x67\x89\xab\xcd\xee", errBuildID},
		{"\x01\x23", fs.ErrNotExist},
		{"\x01", fs.ErrNotExist},
		{"", fs.ErrNotExist},
	} {
		_, _, err := opener.OpenDebugFile(root, []byte(test.id))
		assert.Check(t, errors.Is(err, test.want), "%x: %v, want %v", test.id, err, test.want)
	}
}

// A debug file is found by the link to it: next to the file, or in /usr/lib/debug at its directory. It must have the
// checksum of the link, and no other build id.
func TestOpenLinked(t *testing.T) {
	_, _, debug := build(t)
	content := testenv.ReadFile(t, debug)
	link := elfsym.DebugLink{Name: "p.debug", CRC: crc32.ChecksumIEEE(content)}
	opener, id := Opener{ProcRoot: "/proc"}, []byte("\x01\x23\x45\x67\x89\xab\xcd\xef")
	for place, beside := range map[string]bool{"opt/p.debug": true, "opt/.debug/p.debug": true,
		"usr/lib/debug/opt/p.debug": false} {
		dir, root := root(t)
		assert.NilError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(place)), 0o700))
		testenv.WriteFile(t, filepath.Join(dir, place), content)
		file, tables, err := opener.OpenLinked(root, "/opt/bin/../p", link, id, true)
		assert.Assert(t, err == nil && tables.Static != nil, "%s: %v", place, err)
		assert.Check(t, CheckLinked(file, link))
		err = CheckLinked(file, elfsym.DebugLink{Name: link.Name, CRC: link.CRC + 1})
		assert.Check(t, errors.Is(err, ErrLinked), err)
		file.Close()
		for _, test := range []struct {
			of, name string
			id       []byte
			beside   bool
			want     error
		}{
			{"/opt/p", "p.debug", id, false, fs.ErrNotExist}, {"/opt/p", "other.debug", id, true, fs.ErrNotExist},
			{"/opt/p", "p.debug", id[:4], true, errBuildID}, {"/bin/p", "p.debug", id, true, fs.ErrNotExist},
			{"opt/p", "p.debug", id, true, fs.ErrNotExist}, {"/opt/p", "", id, true, fs.ErrNotExist},
		} {
			file, _, err := opener.OpenLinked(root, test.of, elfsym.DebugLink{Name: test.name}, test.id, test.beside)
			if !beside && !test.beside {
				assert.Check(t, err)
				file.Close()
				continue
			}
			assert.Check(t, errors.Is(err, test.want) && (err == nil || errors.Is(err, errBuildID) !=
				errors.Is(err, fs.ErrNotExist)), "%+v: %v", test, err)
		}
	}
}

// Of a directory that may not be entered nobody knows whether it has a debug file; one that may not be read is told.
func TestOpenLinkedClosed(t *testing.T) {
	testenv.NeedRoot(t)
	dir, root := root(t)
	assert.NilError(t, os.Chmod(dir, 0o755))
	for _, of := range []string{"closed", "open"} {
		assert.NilError(t, os.MkdirAll(filepath.Join(dir, of), 0o755))
		testenv.WriteFile(t, filepath.Join(dir, of, "p.debug"), "")
	}
	assert.NilError(t, errors.Join(os.Chmod(filepath.Join(dir, "closed"), 0o700),
		os.Chmod(filepath.Join(dir, "open/p.debug"), 0o600)))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, err := unix.SetfsuidRetUid(65534)
	assert.NilError(t, err)
	defer func() { _, _ = unix.SetfsuidRetUid(0) }()
	for of, want := range map[string]error{"closed": fs.ErrNotExist, "open": fs.ErrPermission} {
		link := elfsym.DebugLink{Name: "p.debug"}
		_, _, err := Opener{ProcRoot: "/proc"}.OpenLinked(root, "/"+of+"/p", link, nil, true)
		assert.Check(t, errors.Is(err, want), "%s: %v", of, err)
	}
}

// A debug file that is too large is not read.
func TestCheckLinkedSize(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "zeros"))
	assert.NilError(t, err)
	defer file.Close()
	assert.NilError(t, file.Truncate(maxLinkedBytes+1))
	const crcOfZeros = 0xe90177c6
	err = CheckLinked(file, elfsym.DebugLink{CRC: crcOfZeros})
	assert.Check(t, errors.Is(err, ErrLinked), "%v", err)
}

// What the kernel shows as files is refused before it is opened.
func TestOpenPseudoFile(t *testing.T) {
	testenv.NeedRoot(t)
	for _, path := range []string{"/proc/self/environ", "/sys/kernel/notes"} {
		dir, root := root(t)
		target := filepath.Join(dir, "tmp/perf-42.map")
		testenv.WriteFile(t, target, "")
		if err := unix.Mount(path, target, "", unix.MS_BIND, ""); err != nil {
			testenv.Missing(t, "needs bind mounts: "+err.Error())
		}
		defer unix.Unmount(target, unix.MNT_DETACH)
		_, err := openPerfMap(root, 0)
		assert.Check(t, errors.Is(err, procscan.ErrPseudoFile), "%s: %v", path, err)
	}
}
