package report

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"correlator/internal/testenv"
)

func TestWriteFile(t *testing.T) {
	r, names := fixture(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "out.pb.gz")
	testenv.WriteFile(t, path, "before")
	if err := checkFile(path); err != nil {
		t.Fatal(err)
	}
	lenBytes, err := writeFile(path, buildProfile(r, names))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != int64(lenBytes) {
		t.Errorf("%v, %v, %d bytes", info, err, lenBytes)
	}
	content := testenv.ReadFile(t, path)
	if _, err := pprof.ParseData(content); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "missing", "out.pb.gz")} {
		if err := checkFile(path); err == nil {
			t.Errorf("%s can be written", path)
		}
		if _, err := writeFile(path, buildProfile(r, names)); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// A FIFO or link of another user at the path of the profile does not receive it.
func TestWriteToAnother(t *testing.T) {
	testenv.NeedRoot(t)
	r, names := fixture(t)
	dir := t.TempDir()
	const other = 12345
	for what, test := range map[string]struct {
		make func(path string) error
		want error // nil: written
	}{
		"FIFO": {func(path string) error {
			return errors.Join(unix.Mkfifo(path, 0o666),
				os.Chown(path, other, other))
		}, errNotOurs},
		"link": {func(path string) error {
			return errors.Join(os.Symlink(os.DevNull, path), os.Lchown(path, other, other))
		}, errNotOurs},
		"own link": {func(path string) error { return os.Symlink(os.DevNull, path) }, nil},
		"own link to a FIFO of another": {func(path string) error {
			return errors.Join(unix.Mkfifo(path+".fifo", 0o666), os.Chown(path+".fifo", other, other),
				os.Symlink(path+".fifo", path))
		}, errNotOurs},
		"file": {func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o666), os.Chown(path, other, other))
		}, nil},
		"directory": {func(path string) error { return os.Mkdir(path, 0o700) }, unix.EISDIR},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(dir, what)
			if err := test.make(path); err != nil {
				t.Fatal(err)
			}
			checkErr := checkFile(path)
			_, err := writeFile(path, buildProfile(r, names))
			if !errors.Is(err, test.want) || !errors.Is(checkErr, test.want) {
				t.Errorf("%v, %v; want %v", checkErr, err, test.want)
			}
			if info, err := os.Stat(path); what == "file" && (err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 ||
				info.Mode().Perm() != 0o600) {
				t.Errorf("%v, %v", info, err)
			}
		})
	}
}

// Our own FIFO is written to.
func TestWriteFIFO(t *testing.T) {
	r, names := fixture(t)
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	content := make(chan []byte)
	go func() {
		b, _ := os.ReadFile(path)
		content <- b
	}()
	if err := checkFile(path); err != nil {
		t.Error(err)
	}
	if _, err := writeFile(path, buildProfile(r, names)); err != nil {
		t.Fatal(err)
	}
	if _, err := pprof.ParseData(<-content); err != nil {
		t.Error(err)
	}
}

// A device stays what it is.
func TestWriteDevice(t *testing.T) {
	r, names := fixture(t)
	if err := checkFile(os.DevNull); err != nil {
		t.Fatal(err)
	}
	if _, err := writeFile(os.DevNull, buildProfile(r, names)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
}
