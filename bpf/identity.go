package bpf

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// An ExecID identifies the program that a process runs: another process with the same pid has
// another one, and so has the same process after an exec.
type ExecID struct {
	PID       int    // in our own pid namespace
	StartTime uint64 // of the process, ns since boot, as in [Thread]

	execID, memory uint64 // as in struct correlator_target
	tgid, level    uint32 // the key of the target table; the level of our pid namespace
}

// KernelPID returns the process's pid in the initial pid namespace: what BPF programs see.
func (i ExecID) KernelPID() uint32 { return i.tgid }

// identities is the task iterator that returns which programs processes run.
type identities struct {
	program *ebpf.Program
	filters bool // the kernel can walk a single process
}

func openIdentities() (*identities, error) {
	spec, err := shared.read(identityObject)
	if err != nil {
		return nil, err
	}
	var programs identityPrograms
	if err := load(spec, &programs, ebpf.CollectionOptions{}); err != nil {
		return nil, fmt.Errorf("loading identity iterator: %w", err)
	}
	i := &identities{program: programs.ReportIdentity}
	if i.filters, err = canFilter(i.program); err != nil {
		i.close()
		return nil, err
	}
	return i, nil
}

func (i *identities) close() error { return i.program.Close() }

func (i *identities) identify(pid int) (ExecID, error) {
	if pid <= 0 || pid > math.MaxInt32 {
		return ExecID{}, ErrGone
	}
	if i.filters {
		// The walk ends early when the thread that it has reached is reaped.
		if identity, err := i.walk(uint32(pid), pid); !errors.Is(err, ErrGone) {
			return identity, err
		}
	}
	return i.walk(everyProcess, pid)
}

// identityRecords is how many records one read requests. The kernel walks no further than that, so
// that the number of threads does not matter.
const identityRecords = 64

func (i *identities) walk(filter uint32, pid int) (ExecID, error) {
	found, err := ExecID{}, ErrGone
	walkErr := i.each(filter, func(r *identityIdentityRecord) bool {
		if int(r.Pid) != pid {
			return true
		}
		found, err = ExecID{
			PID: pid, StartTime: r.StartTime,
			execID: r.ExecId, memory: r.Memory, tgid: r.Tgid, level: r.Level,
		}, nil
		return false
	})
	if walkErr != nil {
		return ExecID{}, walkErr
	}
	return found, err
}

// each calls yield with what the threads of processes run, until it returns false.
func (i *identities) each(filter uint32, yield func(*identityIdentityRecord) bool) error {
	fd, err := openTaskIterator(i.program, filter)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var records [identityRecords]identityIdentityRecord
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&records)), unsafe.Sizeof(records))
	for {
		n, err := unix.Read(fd, raw)
		if err != nil {
			return fmt.Errorf("reading identity iterator: %w", err)
		}
		if n == 0 {
			return nil
		}
		for j := range records[:n/int(unsafe.Sizeof(records[0]))] {
			if !yield(&records[j]) {
				return nil
			}
		}
	}
}
