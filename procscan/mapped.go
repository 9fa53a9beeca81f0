package procscan

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lookupTries is how often a path is resolved again when something on the machine was renamed or
// mounted during the walk (EAGAIN of openat2, only where ".." is on the way).
const lookupTries = 8

// OpenMapped opens the file of a mapping of the process for reading. The file is regular and the
// one that the mapping showed: ErrNotRegular and ErrReplaced otherwise, the latter also for memory
// without a file. It is found through /proc/PID/map_files, also when it was unlinked; without the
// capability for that (CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, in the initial user namespace) or
// when the mapping has changed its bounds, by its path below the process's root, with every
// symbolic link confined to that root.
//
// The caller closes the file. A file system of the process's own can make this call, and reading
// the file, block for ever, and the process can change or truncate the file at any time.
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

// openLocated takes over path, an O_PATH descriptor of what should be the file of m.
func (h *Handle) openLocated(path int, m Mapping) (*os.File, error) {
	defer unix.Close(path)
	fd, err := h.reopen(path)
	if err != nil {
		return nil, err
	}
	if err := h.checkSame(fd, m); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), m.Path), nil
}

// locateMapped opens, with O_PATH, what is mapped now at exactly the addresses of m.
func (h *Handle) locateMapped(m Mapping) (int, error) {
	bounds := mapBounds(m)
	fd, err := h.open(filepath.Join("map_files", bounds), unix.O_PATH)
	if errors.Is(err, unix.ENOENT) { // of a process that lives
		err = ErrReplaced
	}
	if err != nil {
		return -1, fmt.Errorf("opening map_files/%s: %w", bounds, err)
	}
	return fd, nil
}

// locateBelowRoot opens, with O_PATH, what is now at the path of m. A name with \012 in it has a
// newline there or, hardly ever, these characters: maps does not tell.
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
	fd, err := lookup(int(root.Fd()), strings.ReplaceAll(path, `\012`, "\n"))
	if errors.Is(err, unix.ENOENT) && strings.Contains(path, `\012`) {
		fd, err = lookup(int(root.Fd()), path)
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

// checkBeforeOpening refuses most of what cannot be the file of m while it is not open yet. A path
// that the process has bent may lead to a file of procfs or tracefs, which are regular and yet
// have effects when opened. Inode numbers differ between stat and maps on overlayfs alone.
func checkBeforeOpening(path int, m Mapping) error {
	stat, err := statRegular(path)
	if err != nil || stat.Ino == m.Ino {
		return err
	}
	var statfs unix.Statfs_t
	if err := unix.Fstatfs(path, &statfs); err != nil {
		return fmt.Errorf("looking at its file system: %w", err)
	}
	if statfs.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%w: mapped was inode %d, this is inode %d", ErrReplaced, m.Ino, stat.Ino)
	}
	return nil
}

func statRegular(fd int) (unix.Stat_t, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return stat, fmt.Errorf("looking at the file: %w", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return stat, fmt.Errorf("%w (mode %#o)", ErrNotRegular, stat.Mode)
	}
	return stat, nil
}

// belowRoot makes a path of maps one below the process's root. Both maps and the link of the root
// show paths from the root of the mount namespace, or from our own where that can be reached; so
// for a process that was put into a directory (chroot) both begin with that directory.
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

func lookup(root int, path string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for try := 1; ; try++ {
		fd, err := ignoringEINTR(func() (int, error) { return unix.Openat2(root, path, &how) })
		if err != unix.EAGAIN || try == lookupTries {
			return fd, err
		}
	}
}

// reopen opens for reading what an O_PATH descriptor refers to, if it is a regular file: opening
// a FIFO or a device can block and have effects. O_NONBLOCK is for leases (fcntl, F_SETLEASE),
// with which the owner of a file could keep us waiting for 45 seconds; it is switched off
// afterwards, or os.File would ask the file system whether the file can be polled. That the result
// is compared guards against a proc root that NewScanner has not seen.
func (h *Handle) reopen(path int) (int, error) {
	want, err := statRegular(path)
	if err != nil {
		return -1, err
	}
	fd, err := h.openOwn(filepath.Join("fd", strconv.Itoa(path)), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return -1, fmt.Errorf("opening for reading: %w", classifyDenied(err))
	}
	got, err := statRegular(fd)
	if err == nil && (got.Dev != want.Dev || got.Ino != want.Ino) {
		err = ErrReplaced
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("opening for reading: %w", err)
	}
	return fd, nil
}

// openOwn opens a file of our own process in procfs: below the proc root, where "self" is
// ourselves because NewScanner has made sure that it is a procfs of our pid namespace.
func (h *Handle) openOwn(name string, flags int) (int, error) {
	return openFD(filepath.Join(h.procRoot, "self", name), flags)
}

// checkSame checks that an open file is the one that maps showed as m.
//
// When stat answers the device and inode of m, it is. When not, that says nothing: maps shows the
// inode in its superblock, and stat what the file system makes of it. On btrfs, stat has a device
// per subvolume; on overlayfs (where the files of containers are) one per layer when the layers are
// of several file systems, and in maps older kernels show the inode of the layer itself. So
// the file is mapped here, untouched, and our own maps show it as they showed m.
//
// What remains: inode numbers of btrfs are unique only within a subvolume, and maps does not show
// which, so a file with the same number in another subvolume or snapshot passes. Then one regular
// file that the process's paths lead to is read in place of another.
func (h *Handle) checkSame(fd int, m Mapping) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("looking at the file: %w", err)
	}
	if stat.Dev == m.Dev && stat.Ino == m.Ino {
		return nil
	}
	shown, err := h.mapHere(fd)
	if err != nil {
		return fmt.Errorf("comparing with the mapping: %w", err)
	}
	if shown.Dev != m.Dev || shown.Ino != m.Ino {
		return fmt.Errorf("%w: mapped was inode %d of device %d:%d, this is inode %d of device %d:%d", ErrReplaced,
			m.Ino, unix.Major(m.Dev), unix.Minor(m.Dev), shown.Ino, unix.Major(shown.Dev), unix.Minor(shown.Dev))
	}
	return nil
}

// mapHere maps the start of a file into our own process for a moment and returns how our own
// maps show that.
func (h *Handle) mapHere(fd int) (Mapping, error) {
	page, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return Mapping{}, fmt.Errorf("mapping the file: %w", err)
	}
	defer unix.Munmap(page)
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(page))))

	maps, err := h.openOwn("maps", unix.O_RDONLY)
	if err != nil {
		return Mapping{}, fmt.Errorf("opening our own maps: %w", err)
	}
	defer unix.Close(maps)
	lines := newMapsReader(mapsBufferBytes)
	lines.reset(fdReader(maps))
	for {
		line, err := lines.next()
		if err == io.EOF {
			err = errors.New("mapping not found")
		}
		if err != nil {
			return Mapping{}, fmt.Errorf("reading our own maps: %w", err)
		}
		// The kernel may have joined the mapping with a neighbour of the same file.
		if m, _, ok := parseMapping(line); ok && m.Start <= addr && addr < m.End {
			return m, nil
		}
	}
}
