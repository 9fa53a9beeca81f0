package report

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/host/safedir"
	"correlator/internal/lab/testenv"
)

func TestWriteFile(t *testing.T) {
	r, names := fixture(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "out.pb.gz")
	testenv.WriteFile(t, path, "before")
	assert.NilError(t, CheckFile(path))
	lenBytes, err := saveProfile(path, buildProfile(r, names))
	assert.NilError(t, err)
	info, err := os.Stat(path)
	assert.Check(t, err == nil && info.Mode().Perm() == 0o600 && info.Size() == int64(lenBytes),
		"%v, %v, %d bytes", info, err, lenBytes)
	content := testenv.ReadFile(t, path)
	_, err = pprof.ParseData(content)
	assert.Check(t, err)
	entries, err := os.ReadDir(dir)
	assert.Check(t, err == nil && len(entries) == 1, "left behind: %v, %v", entries, err)
	for _, path := range []string{dir, filepath.Join(dir, "missing", "out.pb.gz")} {
		assert.Check(t, CheckFile(path) != nil, "%s can be written", path)
		_, err := saveProfile(path, buildProfile(r, names))
		assert.Check(t, err != nil, "%s was written", path)
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
			assert.NilError(t, test.make(path))
			checkErr := CheckFile(path)
			_, err := saveProfile(path, buildProfile(r, names))
			assert.Check(t, errors.Is(err, test.want) && errors.Is(checkErr, test.want),
				"%v, %v; want %v", checkErr, err, test.want)
			if info, err := os.Stat(path); what == "file" && (err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 ||
				info.Mode().Perm() != 0o600) {
				t.Errorf("%v, %v", info, err)
			}
		})
	}
}

// A link at the path of the profile stays one. What it leads to is written in place if it is what a
// process has open, as standard output; else the user has to name it.
func TestWriteToLink(t *testing.T) {
	testenv.NeedRoot(t)
	r, names := fixture(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	stdout, err := os.Create(file) // of the user who calls sudo
	assert.NilError(t, err)
	defer stdout.Close()
	assert.NilError(t, stdout.Chown(testenv.Attacker, testenv.Attacker))
	for _, test := range []struct {
		name, target string
		want         error // nil: written
	}{
		{"stdout", fmt.Sprintf("/proc/self/fd/%d", stdout.Fd()), nil}, // as /dev/stdout
		{"stdout by a relative link", "stdout", nil},
		{"ordinary", "file", errLink},
		{"dangling", "missing", errLink},
	} {
		t.Run(test.name, func(t *testing.T) {
			link := filepath.Join(dir, test.name)
			assert.NilError(t, os.Symlink(test.target, link))
			testenv.WriteFile(t, file, strings.Repeat("longer than a profile", 1000))
			checkErr := CheckFile(link)
			_, err := saveProfile(link, buildProfile(r, names))
			assert.Check(t, errors.Is(err, test.want) && errors.Is(checkErr, test.want),
				"%v, %v; want %v", checkErr, err, test.want)
			target, err := os.Readlink(link)
			assert.Check(t, target == test.target, "the link: %q, %v", target, err)
			content := testenv.ReadFile(t, file)
			_, err = pprof.ParseData(content)
			assert.Check(t, (err == nil) == (test.want == nil), "the file has %d bytes: %v", len(content), err)
			if info, err := stdout.Stat(); err != nil || info.Size() != int64(len(content)) ||
				info.Sys().(*syscall.Stat_t).Uid != testenv.Attacker {
				t.Errorf("the open file: %v, %v", info, err)
			}
		})
	}
	_, err = os.Lstat(filepath.Join(dir, "missing"))
	assert.Check(t, errors.Is(err, os.ErrNotExist), "the file that was missing: %v", err)
}

// Our own FIFO is written to.
func TestWriteFIFO(t *testing.T) {
	r, names := fixture(t)
	path := filepath.Join(t.TempDir(), "fifo")
	assert.NilError(t, unix.Mkfifo(path, 0o600))
	content := make(chan []byte)
	go func() {
		b, _ := os.ReadFile(path)
		content <- b
	}()
	assert.Check(t, CheckFile(path))
	_, err := saveProfile(path, buildProfile(r, names))
	assert.NilError(t, err)
	_, err = pprof.ParseData(<-content)
	assert.Check(t, err)
}

// A device stays what it is.
func TestWriteDevice(t *testing.T) {
	r, names := fixture(t)
	assert.NilError(t, CheckFile(os.DevNull))
	_, err := saveProfile(os.DevNull, buildProfile(r, names))
	assert.NilError(t, err)
	info, err := os.Lstat(os.DevNull)
	assert.Check(t, err == nil && !info.Mode().IsRegular(), "%v, %v", info, err)
}

// While the owner of a directory exchanges another for a link to one of root's, the profile is
// never written there, nor does anything stay behind.
func TestWriteWhileNamesAreExchanged(t *testing.T) {
	testenv.NeedRoot(t)
	r, names := fixture(t)
	root := t.TempDir()
	victim := filepath.Join(root, "victim", "out.pb.gz")
	testenv.WriteFile(t, victim, "precious")
	theirs := filepath.Join(root, "theirs")
	for _, dir := range []string{theirs, filepath.Join(theirs, "prof")} {
		assert.NilError(t, errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, testenv.Attacker, testenv.Attacker)))
	}
	link := filepath.Join(theirs, "link")
	assert.NilError(t, errors.Join(os.Symlink("../victim", link), os.Lchown(link, testenv.Attacker, -1)))
	testenv.ExchangeNames(t, theirs, "prof", "link")
	path := filepath.Join(theirs, "prof", "out.pb.gz")
	for written, refused := 0, 0; written < 20 || refused < 20; {
		_, err := saveProfile(path, buildProfile(r, names))
		switch unsafe := (*safedir.UnsafeError)(nil); {
		case err == nil:
			written++
		case errors.As(err, &unsafe):
			refused++
		default:
			t.Fatal(err)
		}
		assert.Assert(t, string(testenv.ReadFile(t, victim)) == "precious",
			"after %d profiles root's file was replaced", written)
	}
	entries, err := os.ReadDir(filepath.Dir(victim))
	assert.Check(t, err == nil && len(entries) == 1, "left behind: %v, %v", entries, err)
}

// As with sudo: root writes where the user is, also by a path that has a link of theirs above.
func TestWriteInDirectoryOfAnother(t *testing.T) {
	testenv.NeedRoot(t)
	r, names := fixture(t)
	home := filepath.Join(t.TempDir(), "home")
	assert.NilError(t, errors.Join(os.Mkdir(home, 0o775), os.Symlink(".", filepath.Join(home, "link")),
		os.Lchown(filepath.Join(home, "link"), testenv.Attacker, -1),
		os.Chown(home, testenv.Attacker, -1)))
	t.Chdir(filepath.Join(home, "link"))
	for _, path := range []string{"x.pb.gz", "./y.pb.gz", filepath.Join(home, "z.pb.gz")} {
		assert.Check(t, CheckFile(path))
		_, err := saveProfile(path, buildProfile(r, names))
		assert.Check(t, err)
		info, err := os.Stat(path)
		assert.Check(t, err == nil && info.Mode() == 0o600, "%v, %v", info, err)
	}
}

// saveProfile writes a profile as a file, and returns its size.
func saveProfile(path string, p *pprof.Profile) (lenBytes int, err error) {
	var content bytes.Buffer
	if err := p.Write(&content); err != nil {
		return 0, err
	}
	return content.Len(), WriteFile(path, content.Bytes())
}
