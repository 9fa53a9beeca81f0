package symbols

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// root makes a directory that is a process's root, with /tmp.
func root(t *testing.T) (dir string, opened *os.File) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	opened, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
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
			if err := test.make(); err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(path)
			file, err := openPerfMap(root, uid)
			if !errors.Is(err, test.want) {
				t.Fatalf("%v, want %v", err, test.want)
			}
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
		if err := os.Chown(path, test.owner, -1); err != nil {
			t.Fatal(err)
		}
		file, err := openPerfMap(root, 1000)
		if !errors.Is(err, test.want) {
			t.Errorf("owned by %d: %v, want %v", test.owner, err, test.want)
		}
		file.Close()
	}
}

// A link leads nowhere but below the root: what lies there is read, not the machine's own.
func TestOpenStaysBelowTheRoot(t *testing.T) {
	outside := t.TempDir()
	testenv.WriteFile(t, filepath.Join(outside, "perf-42.map"), "")
	dir, root := root(t)
	sibling := filepath.Base(outside)
	if err := errors.Join(os.Remove(filepath.Join(dir, "tmp")),
		os.Symlink("../"+sibling, filepath.Join(dir, "tmp"))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tmp/perf-42.map")); err != nil {
		t.Fatal("the link leads to nothing outside:", err)
	}
	uid := uint32(os.Geteuid())
	if _, err := openPerfMap(root, uid); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	testenv.WriteFile(t, filepath.Join(dir, sibling, "perf-42.map"), "")
	file, err := openPerfMap(root, uid)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	opener := Opener{ProcRoot: "/proc"}
	id := []byte("\x01\x23\x45\x67\x89\xab\xcd\xef")
	file, e, err := opener.OpenDebugFile(root, id)
	if err != nil || e.Static == nil {
		t.Fatal(e, err)
	}
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
		if _, _, err := opener.OpenDebugFile(root, []byte(test.id)); !errors.Is(err, test.want) {
			t.Errorf("%x: %v, want %v", test.id, err, test.want)
		}
	}
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
		if !errors.Is(err, ErrPseudoFile) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
