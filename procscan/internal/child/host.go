package child

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HostSpec is what a process of the role "host" does before it prints "ready" and waits for
// commands until its stdin ends.
type HostSpec struct {
	Mounts []MountSpec
	Chroot string
	Comm   string // written to /proc/self/comm
	Maps   []MapSpec
	Leave  string // root directory after that
}

// MountSpec is a mount of a host.
type MountSpec struct {
	Source, Target, Type, Data string
	Dirs                       []string // made below Target afterwards
}

// MapSpec is a file or memory that a host maps.
type MapSpec struct {
	// Path is of a file, which is made, one page long, unless it exists; or "" for memory without a
	// file, "memfd:...", "sysv:", "heap:".
	Path     string
	Below    []string // directories to go down to first, the first as it is, the others made
	Prot     int      // PROT_READ|PROT_EXEC when 0
	Flags    int      // MAP_PRIVATE when 0
	Times    int      // 1 when 0
	Unlink   bool
	ReadOnly bool   // the file must exist
	Write    string // to the start of each mapping
	Name     string // of each mapping, where the kernel can name memory
}

// NameMemory names a mapping as SDKs do (PR_SET_VMA of linux/prctl.h). The error is EINVAL where the
// kernel has no names (CONFIG_ANON_VMA_NAME), or cannot name this.
func NameMemory(pages []byte, name string) error {
	text, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	err = unix.Prctl(unix.PR_SET_VMA, unix.PR_SET_VMA_ANON_NAME, uintptr(unsafe.Pointer(unsafe.SliceData(pages))),
		uintptr(len(pages)), uintptr(unsafe.Pointer(text)))
	runtime.KeepAlive(text)
	return err
}

func init() {
	if os.Getenv(RoleVariable) != "" {
		runtime.LockOSThread() // of main to the first thread, which a command ends
	}
}

func runHost() error {
	runtime.LockOSThread() // mounts and root may be this thread's alone
	var spec HostSpec
	stdin := bufio.NewReader(os.Stdin)
	line, err := stdin.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &spec); err != nil {
		return err
	}
	for _, m := range spec.Mounts {
		if err := unix.Mount(m.Source, m.Target, m.Type, 0, m.Data); err != nil {
			return fmt.Errorf("mounting %s: %w", m.Type, err)
		}
		for _, dir := range m.Dirs {
			if err := os.MkdirAll(filepath.Join(m.Target, dir), 0o755); err != nil {
				return err
			}
		}
	}
	if spec.Comm != "" {
		if err := os.WriteFile("/proc/self/comm", []byte(spec.Comm), 0); err != nil {
			return err
		}
	}
	if spec.Chroot != "" {
		if err := unix.Chroot(spec.Chroot); err != nil {
			return err
		}
	}
	var mapped [][]byte
	for _, m := range spec.Maps {
		pages, err := m.Apply()
		if err != nil {
			return fmt.Errorf("mapping %q: %w", m.Path, err)
		}
		mapped = append(mapped, pages...)
	}
	if spec.Leave != "" {
		if err := unix.Chroot(spec.Leave); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	return obey(stdin, mapped)
}

// obey obeys commands.
func obey(stdin *bufio.Reader, mapped [][]byte) error {
	for {
		command, err := stdin.ReadString('\n')
		switch {
		case err == io.EOF:
			return nil
		case command == "unmap\n":
			for _, b := range mapped {
				if err := unix.Munmap(b); err != nil {
					return err
				}
			}
			mapped = nil
			fmt.Println("done")
		case command == "leave\n": // the first thread ends, the process lives
			go func() {
				if obey(stdin, mapped) != nil {
					os.Exit(1)
				}
				os.Exit(0)
			}()
			fmt.Println("done")
			_, _, err := syscall.Syscall(unix.SYS_EXIT, 0, 0, 0)
			return err
		case command == "exec\n":
			fmt.Println("done")
			return syscall.Exec("/proc/self/exe", os.Args[:1], os.Environ()) // waits for a spec again
		default:
			return fmt.Errorf("command %q: %w", command, err)
		}
	}
}

// open returns the file to map, nil when there is none.
func (m MapSpec) open() (*os.File, error) {
	switch {
	case m.Path == "":
		return nil, nil
	case m.ReadOnly:
		return os.Open(m.Path)
	}
	var fd int
	var err error
	if name, ok := strings.CutPrefix(m.Path, "memfd:"); ok {
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	} else {
		fd, err = unix.Open(m.Path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o755)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), m.Path)
	_, err = f.WriteString("contents of " + m.Path)
	return f, err
}

// Apply makes the mappings and returns them.
func (m MapSpec) Apply() ([][]byte, error) {
	prot := cmp.Or(m.Prot, unix.PROT_READ|unix.PROT_EXEC)
	switch m.Path {
	case "sysv:":
		return nil, attachSysV()
	case "heap:":
		return nil, growHeap(prot)
	}
	if err := descend(m.Below); err != nil {
		return nil, err
	}
	f, err := m.open()
	if err != nil {
		return nil, err
	}
	fd, flags := -1, cmp.Or(m.Flags, unix.MAP_PRIVATE)
	if f == nil {
		flags |= unix.MAP_ANONYMOUS
	} else {
		defer f.Close()
		fd = int(f.Fd())
	}
	var mapped [][]byte
	for range max(m.Times, 1) {
		page, err := unix.Mmap(fd, 0, os.Getpagesize(), prot, flags)
		if err != nil {
			return nil, err
		}
		copy(page, m.Write)
		if m.Name != "" {
			if err := NameMemory(page, m.Name); err != nil && !errors.Is(err, unix.EINVAL) {
				return nil, err
			}
		}
		mapped = append(mapped, page)
	}
	if m.Unlink {
		return mapped, os.Remove(m.Path)
	}
	return mapped, nil
}

// attachSysV attaches an executable System V segment that goes with this process.
func attachSysV() error {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, os.Getpagesize(), unix.IPC_CREAT|0o600)
	if err != nil {
		return err
	}
	const shmExec = 0o100000 // SHM_EXEC of linux/shm.h
	_, attachErr := unix.SysvShmAttach(id, 0, shmExec)
	_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	return errors.Join(attachErr, err)
}

// growHeap makes the memory that brk adds executable.
func growHeap(prot int) error {
	start, _, _ := unix.Syscall(unix.SYS_BRK, 0, 0, 0)
	pageBytes := uintptr(os.Getpagesize())
	start = (start + pageBytes - 1) &^ (pageBytes - 1)
	if end, _, _ := unix.Syscall(unix.SYS_BRK, start+pageBytes, 0, 0); end != start+pageBytes {
		return errors.New("brk does nothing")
	}
	if _, _, errno := unix.Syscall(unix.SYS_MPROTECT, start, pageBytes, uintptr(prot)); errno != 0 {
		return errno
	}
	return nil
}

// descend makes a path that no system call takes.
func descend(dirs []string) error {
	for i, dir := range dirs {
		if i > 0 {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
		}
		if err := os.Chdir(dir); err != nil {
			return err
		}
	}
	return nil
}
