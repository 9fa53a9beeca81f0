package symbols

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"correlator/elfsym"
	"correlator/procscan"
)

var (
	// ErrOwner: a perf map belongs neither to the process's user nor to root. Any user may create a
	// file in /tmp.
	ErrOwner = errors.New("belongs to another user")
	// ErrOld: a perf map was last written before the program started: it is of an earlier process
	// with this pid, or of an earlier program of the process.
	ErrOld = errors.New("is older than the program")
	// errBuildID: a debug file is that of another file.
	errBuildID = errors.New("debug file has another build id")
)

// minBuildIDBytes is the shortest build id that can have a debug file: its first byte is a
// directory.
const minBuildIDBytes = 2

// Opener opens files of processes. Every path is resolved below a root that the caller holds,
// symbolic links confined to it, and leads to a regular file or to an error. A file system that the
// process serves can make every call block.
type Opener struct {
	// ProcRoot is a procfs of our own pid namespace: files are opened by its self/fd.
	ProcRoot string
	Mounts   *Mounts // nil: those of each process are read anew
}

// OpenPerfMapDir opens, with O_PATH, the directory of perf maps of a process with this root: /tmp.
// What is in it is found even when the process has ended. fs.ErrNotExist is a normal result. The
// caller must close the directory.
func (o Opener) OpenPerfMapDir(root *os.File) (*os.File, error) {
	fd, err := procscan.LookupBelow(root, "/tmp", unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of perf maps: %w", err)
	}
	return os.NewFile(uintptr(fd), "/tmp"), nil
}

// OpenPerfMap opens the perf map of a process in the directory that OpenPerfMapDir returns:
// perf-PID.map with the pid that the process has in its own pid namespace. It must belong to root or
// to uid, the process's user, and not have been written for the last time before since.
// fs.ErrNotExist is the normal result. The caller must close the file.
func (o Opener) OpenPerfMap(dir *os.File, pid int, uid uint32, since time.Time) (*os.File, error) {
	// The last component must not be a symbolic link: any user can create one in /tmp.
	file, stat, err := procscan.OpenBelow(o.ProcRoot, dir, "perf-"+strconv.Itoa(pid)+".map", unix.O_NOFOLLOW)
	if err != nil {
		return nil, fmt.Errorf("opening perf map: %w", err)
	}
	if stat.Uid != 0 && stat.Uid != uid {
		file.Close()
		return nil, fmt.Errorf("opening perf map: %w: user %d, the process has %d", ErrOwner, stat.Uid, uid)
	}
	if time.Unix(stat.Mtim.Unix()).Before(since) {
		file.Close()
		return nil, fmt.Errorf("opening perf map: %w", ErrOld)
	}
	return file, nil
}

// OpenDebugFile opens what /usr/lib/debug has for a build id, and reads where its symbols are. The
// caller closes the file, and the tables can be read until then. fs.ErrNotExist is the normal result.
func (o Opener) OpenDebugFile(root *os.File, buildID []byte) (*os.File, *elfsym.SymbolTables, error) {
	if len(buildID) < minBuildIDBytes {
		return nil, nil, fmt.Errorf("opening debug file: %w", unix.ENOENT)
	}
	name := hex.EncodeToString(buildID)
	file, stat, err := procscan.OpenBelow(o.ProcRoot, root, path.Join("/usr/lib/debug/.build-id", name[:2],
		name[2:]+".debug"), 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening debug file: %w", err)
	}
	tables, err := elfsym.ReadSymbolTables(file, stat.Size)
	if err == nil && !bytes.Equal(tables.BuildID, buildID) {
		err = errBuildID
	}
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("reading debug file: %w", err)
	}
	return file, tables, nil
}

// maxLinkedBytes bounds what is read of a file for its checksum: half a second of work. The debug
// file of libjvm.so has 150 MB.
const maxLinkedBytes = 512 << 20

// ErrLinked: a debug file is not the one that a link names, or nobody will find out.
var ErrLinked = errors.New("debug file has another checksum, or is too large")

// OpenLinked opens the debug file that a file at a path names by .gnu_debuglink, as OpenDebugFile
// does: below /usr/lib/debug, and with beside also next to the file, as gdb does. A build id, if both
// files have one, must be the same; then it is the right file. Else that takes CheckLinked, too.
func (o Opener) OpenLinked(root *os.File, of string, link elfsym.DebugLink, buildID []byte, beside bool) (*os.File,
	*elfsym.SymbolTables, error) {
	if link.Name == "" || !path.IsAbs(of) {
		return nil, nil, fmt.Errorf("opening debug file: %w", unix.ENOENT)
	}
	dir := path.Dir(path.Clean(of))
	places := []string{path.Join("/usr/lib/debug", dir, link.Name)}
	if beside {
		places = append(places, path.Join(dir, ".debug", link.Name), path.Join(dir, link.Name))
	}
	var errs []error
	for _, place := range places {
		file, stat, err := procscan.OpenBelow(o.ProcRoot, root, place, 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) && isClosed(root, path.Dir(place)) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		tables, err := elfsym.ReadSymbolTables(file, stat.Size)
		switch {
		case err != nil:
		case stat.Size > maxLinkedBytes:
			err = ErrLinked
		case len(buildID) > 0 && len(tables.BuildID) > 0 && !bytes.Equal(tables.BuildID, buildID):
			err = errBuildID
		case tables.Static == nil && tables.DWARF == nil: // the file itself, without the name of another
		default:
			return file, tables, nil
		}
		file.Close()
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, unix.ENOENT)
	}
	return nil, nil, fmt.Errorf("opening debug file: %w", errors.Join(errs...))
}

// isClosed reports whether it cannot be known what there is in a directory: a program of a user who may run it may be
// in one that we may not enter.
func isClosed(root *os.File, dir string) bool {
	fd, err := procscan.LookupBelow(root, dir+"/.", unix.O_DIRECTORY)
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, fs.ErrPermission)
}

// CheckLinked reads a debug file, and returns an error unless it is the one that a link names: ErrLinked, or that of
// reading.
func CheckLinked(file *os.File, link elfsym.DebugLink) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() > maxLinkedBytes {
		return ErrLinked
	}
	sum := crc32.NewIEEE()
	_, err = io.Copy(sum, io.NewSectionReader(file, 0, info.Size()))
	if err == nil && sum.Sum32() != link.CRC {
		err = ErrLinked
	}
	return err
}
