package safedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A tree is made of these: a directory or link with an owner and a mode.
type node struct {
	name  string
	link  string // target of a symbolic link
	owner int
	mode  os.FileMode
}

func plant(t *testing.T, nodes []node) (root string) {
	t.Helper()
	testenv.NeedRoot(t)
	root = t.TempDir()
	for _, n := range nodes {
		path := filepath.Join(root, n.name)
		var err error
		if n.link != "" {
			err = os.Symlink(strings.ReplaceAll(n.link, "ROOT", root), path)
		} else if err = os.Mkdir(path, 0o755); err == nil {
			err = os.Chmod(path, n.mode)
		}
		assert.NilError(t, errors.Join(err, os.Lchown(path, n.owner, n.owner)))
	}
	return root
}

// Open accepts a directory exactly if nobody else can exchange a name on the way to it, and Follow
// one exactly if nobody else can exchange a symbolic link. The error names the place.
func TestOwnersAndModes(t *testing.T) {
	const other = testenv.Attacker
	sticky := os.ModeSticky | 0o777
	for _, test := range []struct {
		name             string
		nodes            []node
		path             string
		unsafe, unfollow string // what the error of Open, of Follow names; "" for none
	}{
		{"ours", []node{{"d", "", 0, 0o755}}, "d", "", ""},
		{"of another", []node{{"d", "", other, 0o755}}, "d", "/d belongs to user 1000", ""},
		{"of another who may not write to it now", []node{{"d", "", other, 0o555}}, "d", "/d belongs to", ""},
		{"for all", []node{{"d", "", 0, 0o777}}, "d", "/d (mode 0777)", ""},
		{"for a group", []node{{"d", "", 0, 0o775}}, "d", "/d (mode 0775)", ""},
		{"group inherited", []node{{"d", "", 0, 0o755 | os.ModeSetgid}}, "d", "", ""},
		{"sticky", []node{{"d", "", 0, sticky}}, "d", "", ""},
		{"sticky, of another", []node{{"d", "", other, sticky}}, "d", "/d belongs to", ""},
		{"ours in one of another", []node{{"d", "", other, 0o755}, {"d/e", "", 0, 0o755}}, "d/e", "/d belongs to", ""},
		{"ours in one for all", []node{{"d", "", 0, 0o777}, {"d/e", "", 0, 0o755}}, "d/e", "/d (mode 0777)", ""},
		{"ours in a sticky one", []node{{"d", "", 0, sticky}, {"d/e", "", 0, 0o755}}, "d/e", "", ""},
		{"of another in a sticky one", []node{{"d", "", 0, sticky}, {"d/e", "", other, 0o755}}, "d/e",
			"/d/e belongs to user 1000", ""},
		{"link", []node{{"d", "", 0, 0o755}, {"l", "d", 0, 0}}, "l", "", ""},
		{"absolute link", []node{{"d", "", 0, 0o755}, {"d/e", "", 0, 0o755}, {"l", "ROOT/d", 0, 0}}, "l/e", "", ""},
		{"link of another's name in our directory", []node{{"d", "", 0, 0o755}, {"l", "d", other, 0}}, "l", "", ""},
		{"link into one of another", []node{{"d", "", other, 0o755}, {"d/e", "", 0, 0o755}, {"l", "d/e", 0, 0}}, "l",
			"/d belongs to", ""},
		{"link of another", []node{{"d", "", other, 0o755}, {"e", "", 0, 0o755}, {"d/l", "../e", other, 0}}, "d/l",
			"/d belongs to", "/d/l is a symbolic link that user 1000 can exchange"},
		{"our link in one of another", []node{{"d", "", other, 0o755}, {"e", "", 0, 0o755}, {"d/l", "ROOT/e", 0, 0}},
			"d/l", "/d belongs to", "/d/l is a symbolic link that user 1000 can exchange"},
		{"our link in one for all", []node{{"d", "", 0, 0o777}, {"e", "", 0, 0o755}, {"d/l", "../e", 0, 0}}, "d/l",
			"/d (mode 0777)", "/d/l is a symbolic link that other users can exchange"},
		{"link behind a link", []node{{"d", "", other, 0o755}, {"e", "", 0, 0o755}, {"d/l", "ROOT/e", 0, 0},
			{"m", "d/l", 0, 0}}, "m", "/d belongs to", "/d/l is a symbolic link that user 1000 can exchange"},
		{"our link in a sticky one", []node{{"d", "", 0, sticky}, {"e", "", 0, 0o755}, {"d/l", "../e", 0, 0}}, "d/l",
			"",
			""},
		{"link of another in a sticky one", []node{{"d", "", 0, sticky}, {"e", "", 0, 0o755}, {"d/l", "../e", other,
			0}},
			"d/l", "/d/l belongs to", "/d/l is a symbolic link that user 1000 can exchange"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(plant(t, test.nodes), test.path)
			dir, err := Open(path)
			verifyUnsafe(t, "Open", err, test.unsafe)
			if err == nil {
				defer dir.Close()
				verifySame(t, path, dir.Path(""))
			}
			file, byMagic, err := Follow(path)
			assert.Check(t, !byMagic, "there is no magic link")
			verifyUnsafe(t, "Follow", err, test.unfollow)
			if err == nil {
				defer file.Close()
				verifySame(t, path, fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
			}
		})
	}
}

func verifyUnsafe(t *testing.T, what string, err error, named string) {
	t.Helper()
	var unsafe *UnsafeError
	switch {
	case named == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case named != "" && (!errors.As(err, &unsafe) || !strings.Contains(unsafe.Problem, named) || unsafe.Remedy == ""):
		t.Errorf("%s: %v, want one that names %q", what, err, named)
	}
}

func verifySame(t *testing.T, want, got string) {
	t.Helper()
	a, err1 := os.Stat(want)
	b, err2 := os.Stat(got)
	assert.Check(t, err1 == nil && err2 == nil && os.SameFile(a, b), "%s is not %s: %v, %v", got, want, err1, err2)
}

// The errors of the kernel come through, and what leads nowhere ends.
func TestOpenErrors(t *testing.T) {
	root := t.TempDir()
	testenv.WriteFile(t, filepath.Join(root, "file"), "")
	for name, target := range map[string]string{"loop": "loop", "dangling": "missing", "tofile": "file"} {
		assert.NilError(t, os.Symlink(target, filepath.Join(root, name)))
	}
	for name, want := range map[string]error{"missing": unix.ENOENT, "dangling": unix.ENOENT, "loop": unix.ELOOP,
		"file": unix.ENOTDIR, "tofile": unix.ENOTDIR, "file/below": unix.ENOTDIR} {
		dir, err := Open(filepath.Join(root, name))
		assert.Check(t, errors.Is(err, want), "%s: %v, %v", name, dir, err)
	}
}

// A magic link of procfs leads where the kernel says, not where its text says.
func TestMagicLink(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	moved := dir + ".moved"
	assert.NilError(t, os.Rename(dir, moved))
	assert.NilError(t, os.Mkdir(dir, 0o755))
	opened, err := Open("/proc/self/cwd")
	assert.NilError(t, err)
	defer opened.Close()
	verifySame(t, moved, fmt.Sprintf("/proc/self/fd/%d", opened.fd()))

	testenv.WriteFile(t, filepath.Join(moved, "file"), "")
	for path, want := range map[string]bool{"/proc/self/cwd": true, "/proc/self/cwd/file": false} {
		file, byMagic, err := Follow(path)
		assert.NilError(t, err)
		file.Close()
		assert.Check(t, byMagic == want, "%s: by a magic link: %v", path, byMagic)
	}
}

// While the owner of a directory exchanges it for a link, Follow never follows the link.
func TestFollowWhileNamesAreExchanged(t *testing.T) {
	root := plant(t, []node{{"theirs", "", testenv.Attacker, 0o755}, {"theirs/out", "", testenv.Attacker, 0o755},
		{"victim", "", 0, 0o755}, {"theirs/link", "../victim", testenv.Attacker, 0}})
	victim, err := os.Stat(filepath.Join(root, "victim"))
	assert.NilError(t, err)
	testenv.ExchangeNames(t, filepath.Join(root, "theirs"), "out", "link")
	for opened, refused := 0, 0; opened < 20 || refused < 20; {
		file, _, err := Follow(filepath.Join(root, "theirs/out"))
		if unsafe := (*UnsafeError)(nil); errors.As(err, &unsafe) {
			refused++
			continue
		}
		assert.NilError(t, err)
		opened++
		info, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
		file.Close()
		assert.Assert(t, err == nil && !os.SameFile(info, victim), "it was led away: %v", err)
	}
}

// Mkdir creates nothing where another user could exchange it.
func TestMkdir(t *testing.T) {
	root := plant(t, []node{{"ours", "", 0, 0o755}, {"theirs", "", testenv.Attacker, 0o755}})
	for range 2 { // the second time it exists
		assert.Check(t, Mkdir(filepath.Join(root, "ours/new"), 0o700))
	}
	verifyUnsafe(t, "Mkdir", Mkdir(filepath.Join(root, "theirs/new"), 0o700), "/theirs belongs to")
	_, err := os.Lstat(filepath.Join(root, "theirs/new"))
	assert.Check(t, errors.Is(err, os.ErrNotExist), "the directory: %v", err)
}
