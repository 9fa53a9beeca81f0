package procscan

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lookupTries is how often resolving a path is tried when something on the machine was renamed or
// mounted meanwhile (EAGAIN of openat2, only for paths with "..").
const lookupTries = 8

// OpenMapped opens the file of a mapping of the process for reading. The file is regular and the
// one that is mapped: else the error is ErrNotRegular or errReplaced, the latter also for anonymous
// memory. It is opened through /proc/PID/map_files, even if it was unlinked; without the capability
// for that (CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, in the initial user namespace) or when the
// mapping has changed its bounds, by its path below the process's root, with every symbolic link
// confined to that root.
//
// The caller must close the file. A file system that the process serves can make this call, and
// reading the file, block forever, and the process can change or truncate the file at any time.
func (h *Handle) OpenMapped(m Mapping) (*os.File, error) {
	path, err := h.locateMapped(m)
	if err != nil && !errors.Is(err, ErrGone) {
		var belowErr error
		if path, belowErr = h.locateBelowRoot(m); belowErr != nil {
			err = fmt.Errorf("%w; %w", err, belowErr)
		} else {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	return h.openLocated(path, m)
}

// StatMapped returns the status of the file of a mapping, by which a file that was opened before is known again, in a
// fifth of the time that OpenMapped takes. An error only says that it is to be opened. It blocks like OpenMapped.
func (h *Handle) StatMapped(m Mapping) (stat unix.Stat_t, err error) {
	err = h.withMapFile(m, func(path string) error {
		_, err := ignoringEINTR(func() (struct{}, error) { return struct{}{}, unix.Stat(path, &stat) })
		return err
	})
	switch {
	case !h.Alive():
		return stat, ErrGone
	case err != nil:
		return stat, classify(err)
	case stat.Mode&unix.S_IFMT != unix.S_IFREG, stat.Dev != m.Dev, stat.Ino != m.Ino:
		return stat, errReplaced
	}
	return stat, nil
}

// openLocated opens path, an O_PATH descriptor of what should be the file of m, which it closes.
func (h *Handle) openLocated(path int, m Mapping) (*os.File, error) {
	defer unix.Close(path)
	fd, _, err := Reopen(h.procRoot, path)
	if err != nil {
		return nil, err
	}
	if err := h.checkSame(fd, m); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), m.Path), nil
}

// locateMapped opens, with O_PATH, the file that is mapped at exactly the addresses of m.
func (h *Handle) locateMapped(m Mapping) (int, error) {
	fd := -1
	err := h.withMapFile(m, func(path string) (err error) {
		fd, err = openFD(path, unix.O_PATH)
		return err
	})
	switch {
	case !h.Alive():
		err = ErrGone
	case errors.Is(err, unix.ENOENT):
		err = errReplaced
	default:
		err = classify(err)
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return -1, fmt.Errorf("opening map_files/%s: %w", mapBounds(m), err)
	}
	return fd, nil
}

// locateBelowRoot opens, with O_PATH, the file at the path of m. A \012 in it is a newline or,
// rarely, these four characters: maps does not distinguish them.
func (h *Handle) locateBelowRoot(m Mapping) (int, error) {
	root, err := h.OpenRoot()
	if err != nil {
		return -1, fmt.Errorf("opening root: %w", err)
	}
	defer root.Close()
	path, err := h.belowRoot(m.Path)
	if err != nil {
		return -1, err
	}
	fd, err := LookupBelow(root, strings.ReplaceAll(path, `\012`, "\n"), 0)
	if errors.Is(err, unix.ENOENT) && strings.Contains(path, `\012`) {
		fd, err = LookupBelow(root, path, 0)
	}
	if err != nil {
		return -1, fmt.Errorf("opening the path below the process's root: %w", classifyDenied(err))
	}
	if err := checkBeforeOpening(fd, m); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("opening the path below the process's root: %w", err)
	}
	return fd, nil
}

// checkBeforeOpening refuses most files that cannot be that of m before they are opened. A path
// that the process has redirected may lead to a file of procfs or tracefs, which are regular and
// yet have side effects when opened. Inode numbers differ between stat and maps on overlayfs alone.
func checkBeforeOpening(path int, m Mapping) error {
	stat, err := statRegular(path)
	if err != nil || stat.Ino == m.Ino {
		return err
	}
	var statfs unix.Statfs_t
	if err := unix.Fstatfs(path, &statfs); err != nil {
		return fmt.Errorf("reading its file system: %w", err)
	}
	if statfs.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%w: mapped was inode %d, this is inode %d", errReplaced, m.Ino, stat.Ino)
	}
	return nil
}

func statRegular(fd int) (unix.Stat_t, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return stat, fmt.Errorf("reading its metadata: %w", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return stat, fmt.Errorf("%w (mode %#o)", ErrNotRegular, stat.Mode)
	}
	return stat, nil
}

// belowRoot converts a path of maps to one below the process's root. Both maps and the link
// /proc/PID/root show paths from the root of the mount namespace, or from our own where it can be
// reached from that; so for a process in a chroot both begin with its directory.
func (h *Handle) belowRoot(path string) (string, error) {
	root, err := os.Readlink(h.path("root"))
	if !h.Alive() {
		return "", ErrGone
	}
	if err != nil {
		return "", fmt.Errorf("reading root: %w", classify(err))
	}
	root = strings.ReplaceAll(root, "\n", `\012`)
	if root == "/" {
		return path, nil
	}
	below, ok := strings.CutPrefix(path, root)
	if !ok || !strings.HasPrefix(below, "/") {
		return "", fmt.Errorf("path is not below the process's root %q: %w", root, unix.ENOENT)
	}
	return below, nil
}

// LookupBelow opens, with O_PATH and flags, the file at path below root. Symbolic links are
// confined to root, and magic links are not followed. The caller must close the descriptor.
func LookupBelow(root *os.File, path string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | flags,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for try := 1; ; try++ {
		fd, err := ignoringEINTR(func() (int, error) { return unix.Openat2(int(root.Fd()), path, &how) })
		if !errors.Is(err, unix.EAGAIN) || try == lookupTries {
			return fd, err
		}
	}
}

// Reopen opens the file of an O_PATH descriptor for reading, if it is regular, else the error is
// ErrNotRegular: opening a FIFO or a device can block and have side effects. procRoot must be one
// that NewScanner accepts. O_NONBLOCK is for leases (fcntl, F_SETLEASE), with which the owner of a
// file could block us for 45 seconds; it is cleared afterwards, or os.File would ask the file
// system whether the file can be polled. Comparing the result guards against a proc root that was
// not checked.
func Reopen(procRoot string, path int) (int, unix.Stat_t, error) {
	want, err := statRegular(path)
	if err != nil {
		return -1, want, err
	}
	own := procRoot + "/self/fd/" + strconv.Itoa(path)
	fd, err := openFD(own, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return -1, want, fmt.Errorf("opening for reading: %w", classifyDenied(err))
	}
	got, err := statRegular(fd)
	if err == nil && (got.Dev != want.Dev || got.Ino != want.Ino) {
		err = errReplaced
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		unix.Close(fd)
		return -1, got, fmt.Errorf("opening for reading: %w", err)
	}
	return fd, got, nil
}

// checkSame checks that an open file is the one that maps shows as m.
//
// When stat returns the device and inode of m, it is. Otherwise it still can be: maps shows the
// inode in its superblock, and stat what the file system reports. On btrfs, stat has a device per
// subvolume; on overlayfs (where the files of containers are) one per layer when the layers are of
// several file systems, and in maps older kernels show the inode of the layer itself. So the file
// is mapped into our own process, not accessed, and our own maps show it as the process's maps show
// m.
//
// What remains: inode numbers of btrfs are unique only within a subvolume, and maps does not show
// which, so a file with the same number in another subvolume or snapshot passes. Then one regular
// file that the process's paths lead to is read instead of another.
func (h *Handle) checkSame(fd int, m Mapping) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("reading its metadata: %w", err)
	}
	if stat.Dev == m.Dev && stat.Ino == m.Ino {
		return nil
	}
	shown, err := h.mapHere(fd)
	if err != nil {
		return fmt.Errorf("comparing with the mapping: %w", err)
	}
	if shown.Dev != m.Dev || shown.Ino != m.Ino {
		return fmt.Errorf("%w: mapped was inode %d of device %d:%d, this is inode %d of device %d:%d", errReplaced,
			m.Ino, unix.Major(m.Dev), unix.Minor(m.Dev), shown.Ino, unix.Major(shown.Dev), unix.Minor(shown.Dev))
	}
	return nil
}

// mapHere maps the start of a file into our own process for a moment and returns the mapping as our
// own maps show it.
func (h *Handle) mapHere(fd int) (Mapping, error) {
	page, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return Mapping{}, fmt.Errorf("mapping the file: %w", err)
	}
	defer func() { _ = unix.Munmap(page) }()
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(page))))

	// In a procfs of our own pid namespace, which NewScanner has checked, "self" is our process.
	maps, err := openFD(path.Join(h.procRoot, "self/maps"), unix.O_RDONLY)
	if err != nil {
		return Mapping{}, fmt.Errorf("opening our own maps: %w", err)
	}
	defer unix.Close(maps)
	lines := newMapsReader(mapsBufferBytes)
	lines.reset(fdReader(maps))
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			err = errors.New("mapping not found")
		}
		if err != nil {
			return Mapping{}, fmt.Errorf("reading our own maps: %w", err)
		}
		// The kernel may have merged the mapping with an adjacent one of the same file.
		if m, _, ok := parseMapping(line); ok && m.Start <= addr && addr < m.End {
			return m, nil
		}
	}
}
