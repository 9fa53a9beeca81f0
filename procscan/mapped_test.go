package procscan

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan/internal/child"
)

// openBelowRoot is OpenMapped without map_files.
func openBelowRoot(h *Handle, m Mapping) (*os.File, error) {
	path, err := h.locateBelowRoot(m)
	if err != nil {
		return nil, err
	}
	return h.openLocated(path, m)
}

// openThroughMapFiles is OpenMapped with map_files only.
func openThroughMapFiles(h *Handle, m Mapping) (*os.File, error) {
	path, err := h.locateMapped(m)
	if err != nil {
		return nil, err
	}
	return h.openLocated(path, m)
}

func contentsOf(t *testing.T, f *os.File) string {
	t.Helper()
	defer f.Close()
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	assert.Check(t, err == nil && flags&(unix.O_NONBLOCK|unix.O_ACCMODE) == 0, "flags %#x, %v", flags, err)
	text, err := io.ReadAll(f)
	assert.NilError(t, err)
	return string(text)
}

// overlayOn returns the mounts of an overlay whose layers are of two file systems, so that stat has
// a device for each.
func overlayOn(overlay, lower, rw string) []child.MountSpec {
	layers := "lowerdir=" + lower + ",upperdir=" + rw + "/upper,workdir=" + rw + "/work"
	return []child.MountSpec{
		{Source: "rw", Target: rw, Type: "tmpfs", Dirs: []string{"upper", "work"}},
		{Source: "overlay", Target: overlay, Type: "overlay", Data: layers},
	}
}

func TestOpenMapped(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	odd := filepath.Join(dir, "a b\nc ")
	literal := filepath.Join(dir, `a\012b`)
	lower := filepath.Join(dir, "lower")
	overlay := filepath.Join(dir, "overlay")
	for _, d := range []string{odd, literal, lower, overlay, filepath.Join(dir, "root\nof"), filepath.Join(dir, "rw")} {
		assert.NilError(t, os.Mkdir(d, 0o755))
	}
	assert.NilError(t, os.WriteFile(filepath.Join(lower, realName), []byte("contents of lower"), 0o755))
	overlayMounts := overlayOn(overlay, lower, filepath.Join(dir, "rw"))

	for _, c := range []struct {
		name      string
		spec      child.HostSpec
		want      string // contents, "" for those that the host writes
		belowRoot error  // the error without map_files
	}{
		{"plain", child.HostSpec{Maps: []child.MapSpec{{Path: filepath.Join(dir, realName)}}}, "", nil},
		{"deleted", child.HostSpec{Maps: []child.MapSpec{{Path: filepath.Join(dir, "elastic-jvmti-linux-gone.so"),
			Unlink: true}}}, "", unix.ENOENT},
		{"newline in the path", child.HostSpec{Maps: []child.MapSpec{{Path: filepath.Join(odd, realName)}}}, "", nil},
		{"escaped newline in the path", child.HostSpec{Maps: []child.MapSpec{{Path: filepath.Join(literal, realName)}}},
			"", nil},
		{"chroot", child.HostSpec{Chroot: dir, Maps: []child.MapSpec{{Path: "/elastic-jvmti-linux-root.so"}}}, "", nil},
		{"chroot with a newline", child.HostSpec{
			Chroot: filepath.Join(dir, "root\nof"), Maps: []child.MapSpec{{Path: "/" + realName}},
		}, "", nil},
		{"mapped outside of the later root", child.HostSpec{Leave: odd,
			Maps: []child.MapSpec{{Path: filepath.Join(dir, realName)}}}, "", unix.ENOENT},
		{"mount namespace", child.HostSpec{
			Mounts: []child.MountSpec{{Source: "private", Target: lower, Type: "tmpfs"}},
			Maps:   []child.MapSpec{{Path: filepath.Join(lower, "elastic-jvmti-linux-private.so")}},
		}, "", nil},
		{"overlay, lower layer", child.HostSpec{
			Mounts: overlayMounts, Maps: []child.MapSpec{{Path: filepath.Join(overlay, realName), ReadOnly: true}},
		}, "contents of lower", nil},
		{"overlay, upper layer", child.HostSpec{
			Mounts: overlayMounts,
			Maps:   []child.MapSpec{{Path: filepath.Join(overlay, "elastic-jvmti-linux-upper.so")}},
		}, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := child.StartHost(t, c.spec)
			h, m := openHost(t, p)
			want := c.want
			if want == "" {
				want = "contents of " + c.spec.Maps[0].Path
			}
			before := child.Descriptors(t)
			for way, open := range map[string]func(*Handle, Mapping) (*os.File, error){
				"any": (*Handle).OpenMapped, "mapped": openThroughMapFiles, "below root": openBelowRoot,
			} {
				f, err := open(h, m)
				if way == "below root" && c.belowRoot != nil {
					assert.Check(t, errors.Is(err, c.belowRoot), "%s: %v, want %v", way, err, c.belowRoot)
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", way, err)
					continue
				}
				stat, err := h.StatMapped(m)
				var opened unix.Stat_t
				same := unix.Fstat(int(f.Fd()), &opened) == nil && opened == stat
				assert.Check(t, same || err != nil && c.name != "plain", "%+v, %v, want %+v", stat, err, opened)
				got := contentsOf(t, f)
				assert.Check(t, got == want, "%s: got %q, want %q", way, got, want)
			}
			after := child.Descriptors(t)
			assert.Check(t, after == before, "%d descriptors before, %d after", before, after)
		})
	}
}

// On the layers of an overlay stat and maps differ, as the other tests assume.
func TestOverlayDiffers(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	rw, lower, overlay := filepath.Join(dir, "rw"), filepath.Join(dir, "lower"), filepath.Join(dir, "overlay")
	for _, d := range []string{rw, lower, overlay} {
		assert.NilError(t, os.Mkdir(d, 0o755))
	}
	assert.NilError(t, os.WriteFile(filepath.Join(lower, realName), []byte("x"), 0o755))
	p := child.StartHost(t, child.HostSpec{
		Mounts: overlayOn(overlay, lower, rw),
		Maps:   []child.MapSpec{{Path: filepath.Join(overlay, realName), ReadOnly: true}},
	})
	h, m := openHost(t, p)
	f, err := h.OpenMapped(m)
	assert.NilError(t, err)
	defer f.Close()
	var stat unix.Stat_t
	assert.NilError(t, unix.Fstat(int(f.Fd()), &stat))
	assert.Check(t, stat.Dev != m.Dev, "device %#x both of stat and maps", stat.Dev)
	_, err = h.StatMapped(m)
	assert.Check(t, errors.Is(err, errReplaced), "it may be another file: %v", err)
	other := m
	other.Ino++
	err = h.checkSame(int(f.Fd()), other)
	assert.Check(t, errors.Is(err, errReplaced), "another inode of the overlay: %v", err)
	other = m
	other.Dev = stat.Dev
	assert.Check(t, h.checkSame(int(f.Fd()), other), "the numbers of stat")
}

// Mappings without a path, or without a file, that look like those of files in maps.
func TestOpenMappedWithoutPath(t *testing.T) {
	testenv.NeedRoot(t)
	for _, c := range []struct {
		name string
		spec child.MapSpec
		path string // as maps shows it
		want string // what the contents begin with
		err  error
	}{
		{"memfd", child.MapSpec{Path: "memfd:code"}, "/memfd:code", "contents of memfd:code", nil},
		{"shared memory", child.MapSpec{Flags: unix.MAP_SHARED}, "/dev/zero", "\x00", nil},
		{"device", child.MapSpec{Path: "/dev/zero", ReadOnly: true}, "/dev/zero", "", ErrNotRegular},
		{"vDSO", child.MapSpec{}, "[vdso]", "", errReplaced},
		{"no file", child.MapSpec{}, "", "", errReplaced},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startHost(t, child.MapSpec{Path: filepath.Join(t.TempDir(), realName)}, c.spec)
			h, _ := openHost(t, p)
			all, err := h.ExecutableMemory()
			assert.NilError(t, err)
			i := slices.IndexFunc(all, func(m Mapping) bool { return m.Path == c.path })
			assert.Assert(t, i >= 0, "no %q among %+v", c.path, all)
			f, err := h.OpenMapped(all[i])
			assert.Assert(t, errors.Is(err, c.err), "%v, want %v", err, c.err)
			assert.Check(t, err != nil || strings.HasPrefix(contentsOf(t, f), c.want), "contents are not %q", c.want)
			if f, err := openBelowRoot(h, all[i]); err == nil {
				t.Errorf("below the root: %s", f.Name())
			}
		})
	}
}

// Whatever is at the path since it was mapped, only the mapped file is opened.
func TestOpenMappedReplaced(t *testing.T) {
	testenv.NeedRoot(t)
	for _, c := range []struct {
		name    string
		replace func(path string) error
		want    error
	}{
		{"missing", func(string) error { return nil }, unix.ENOENT},
		{"other file", func(path string) error { return os.WriteFile(path, []byte("other"), 0o755) }, errReplaced},
		{"link to a file outside", func(path string) error { return os.Symlink("/etc/passwd", path) }, unix.ENOENT},
		{"link to a file inside", func(path string) error {
			return errors.Join(os.WriteFile(path+".2", nil, 0o644), os.Symlink(filepath.Base(path)+".2", path))
		}, errReplaced},
		{"link upwards out of the root", func(path string) error {
			return os.Symlink("../../../../../etc/passwd", path)
		}, unix.ENOENT},
		{"loop", func(path string) error { return os.Symlink(path, path) }, unix.ENOENT},
		{"FIFO", func(path string) error { return unix.Mkfifo(path, 0o666) }, ErrNotRegular},
		{"device", func(path string) error {
			return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0)))
		}, ErrNotRegular},
		{"directory", func(path string) error { return os.Mkdir(path, 0o777) }, ErrNotRegular},
		{"socket", func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o666, 0) }, ErrNotRegular},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			p := child.StartHost(t, child.HostSpec{Chroot: root, Maps: []child.MapSpec{{Path: "/" + realName}}})
			h, m := openHost(t, p)
			path := filepath.Join(root, realName)
			assert.NilError(t, errors.Join(os.Remove(path), c.replace(path)))
			if f, err := openBelowRoot(h, m); !errors.Is(err, c.want) {
				t.Errorf("below the root: %v, %v, want %v", f, err, c.want)
			}
			f, err := h.OpenMapped(m)
			assert.NilError(t, err)
			got := contentsOf(t, f)
			assert.Check(t, got == "contents of /"+realName, "got %q", got)
		})
	}
}

// A link can lead to procfs, whose files are regular and must not be opened.
func TestOpenMappedPseudoFile(t *testing.T) {
	testenv.NeedRoot(t)
	root := t.TempDir()
	assert.NilError(t, os.Mkdir(filepath.Join(root, "proc"), 0o755))
	p := child.StartHost(t, child.HostSpec{
		Mounts: []child.MountSpec{{Source: "proc", Target: filepath.Join(root, "proc"), Type: "proc"}},
		Chroot: root,
		Maps:   []child.MapSpec{{Path: "/" + realName}},
	})
	h, m := openHost(t, p)
	path := filepath.Join(root, realName)
	for _, target := range []string{"version", "self/maps", "self/root/etc/passwd", "self/exe"} {
		target = "/proc/" + target
		assert.NilError(t, errors.Join(os.Remove(path), os.Symlink(target, path)))
		if fd, err := h.locateBelowRoot(m); !errors.Is(err, errReplaced) && !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s: descriptor %d, %v", target, fd, err)
		}
	}
}

// There is no mapping at the addresses any more, or another one.
func TestOpenMappedUnmapped(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	otherPath := filepath.Join(dir, "other.so")
	p := startHost(t, child.MapSpec{Path: filepath.Join(dir, realName)}, child.MapSpec{Path: otherPath})
	h, m := openHost(t, p)

	moved := m
	moved.End += 1 << 20
	fd, err := h.locateMapped(moved)
	assert.Check(t, errors.Is(err, errReplaced) && !errors.Is(err, ErrGone), "bounds of no mapping: %d, %v", fd, err)
	f, err := h.OpenMapped(moved)
	if err != nil {
		t.Errorf("with other bounds, and the file at its path: %v", err)
	} else {
		f.Close()
	}

	all, err := h.ExecutableMappings()
	assert.NilError(t, err)
	for _, other := range all {
		if other.Path != otherPath {
			continue
		}
		swapped := m
		swapped.Start, swapped.End = other.Start, other.End
		f, err := h.OpenMapped(swapped)
		assert.Check(t, errors.Is(err, errReplaced), "another file is mapped there: %v, %v", f, err)
		return
	}
	t.Errorf("no other.so among %+v", all)
}

// The owner of a file can hold a lease on it; opening it does not wait for the owner.
func TestOpenMappedLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), realName)
	f, err := os.Create(path)
	assert.NilError(t, err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		testenv.Missing(t, "needs a file system with leases: "+err.Error())
	}
	located, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(located)
	fd, _, err := Reopen("/proc", located)
	assert.Check(t, errors.Is(err, unix.EWOULDBLOCK), "descriptor %d, %v", fd, err)
}

// Without capabilities, a file of a process of the same user is opened by its path.
func TestOpenMappedUnprivileged(t *testing.T) {
	testenv.NeedRoot(t)
	path := filepath.Join(child.SharedDir(t), realName)
	p := startAs(t, child.Nobody, child.MapSpec{Path: path, ReadOnly: true})
	cmd := child.Command(t, "read", strconv.Itoa(p.PID))
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: child.Nobody, Gid: child.Nobody}
	got := child.Output(t, cmd)
	assert.Check(t, got == "contents of "+path, "got %q", got)
}
