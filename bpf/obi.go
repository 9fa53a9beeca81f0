package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"correlator/internal/host/safedir"
)

// OBIContexts is where OpenTelemetry eBPF Instrumentation (OBI) pins its map of what threads work on.
const OBIContexts = "/sys/fs/bpf/otel/traces_ctx_v1"

// maxOBIContexts is how many entries that map may have; OBI's has room for 16,384.
const maxOBIContexts = 1 << 17

// obi is the map of OBI, while it is there and somebody writes it. Who that is tells which entries hold: the map stays
// pinned when OBI has ended, with what it had then, and the next one goes on with that.
type obi struct {
	path    string
	maps    *ebpf.Map     // obi of obi.h
	layout  *ebpf.MapSpec // of a map in that
	writing *writers
	last    ebpf.MapID // that was there
	by      []uint32   // the programs that could write it when it was put in
	in      bool       // it is in maps
	said    string     // what the last look has returned

	accounted bool // all targets are, as any may have contexts: from now on, as what is not seen meanwhile were waits
}

// obiContext is struct obi_context.
type obiContext [24]byte

var (
	errNotOBIs = errors.New("is not as OBI makes it")
	errFormer  = errors.New("entries of a former OBI cannot be kept apart")
)

// FollowOBI looks whether OBI's map is there, and has it read from now on, or not any more, for threads of targets that
// have neither rule, nor ids in labels. It reports whether it is read, and an error when that is another than that of
// the last call. It is for one goroutine at a time.
func (s *Sampler) FollowOBI() (bool, error) {
	if s.options.OBI == "" {
		return false, nil
	}
	o := &s.obi
	o.path, o.maps = s.options.OBI, s.objects.OBI
	err := o.look()
	said := ""
	if err != nil {
		said = err.Error()
		o.by = nil // what is there at the next look may be a former OBI's
		err = errors.Join(fmt.Errorf("reading contexts of OBI: %w", err), o.takeOut())
	}
	if said == o.said {
		err = nil
	}
	o.said = said
	if o.in && !o.accounted {
		failure := s.table.accountAll()
		o.accounted = failure == nil
		err = errors.Join(err, failure)
	}
	return o.in, err
}

func (o *obi) look() error {
	contexts, err := openOBI(o.path)
	if contexts == nil {
		o.by = nil
		return errors.Join(err, o.takeOut())
	}
	defer contexts.Close() // maps keeps it
	info, err := contexts.Info()
	if err != nil {
		return err
	}
	id, _ := info.ID()
	if o.writing == nil {
		if o.writing, err = openWriters(); err != nil {
			return err
		}
	}
	by, err := o.writing.of(id)
	if err != nil {
		return err
	}
	same := id == o.last && slices.ContainsFunc(by, func(program uint32) bool { return slices.Contains(o.by, program) })
	o.last = id
	if len(by) == 0 {
		o.by = nil
		return o.takeOut()
	}
	if o.in && same { // one of those that were there when it was put in
		return nil
	}
	o.by = by
	if err := o.takeOut(); err != nil {
		return err
	}
	if err := o.keepFormer(contexts); err != nil {
		return err
	}
	if err := o.maps.Put(uint32(obiContexts), contexts); err != nil {
		return fmt.Errorf("%s %w: %w", o.path, errNotOBIs, err)
	}
	o.in = true
	return nil
}

// The keys of maps.
const (
	obiContexts = samplerObiMapOBI_CONTEXTS
	obiFormer   = samplerObiMapOBI_FORMER
)

func (o *obi) takeOut() error {
	if !o.in {
		return nil
	}
	in, former := o.maps.Delete(uint32(obiContexts)), o.maps.Delete(uint32(obiFormer))
	err := errors.Join(ignoreMissing(in), ignoreMissing(former))
	o.in = err != nil
	return err
}

// keepFormer has what is there now be no contexts until it changes.
func (o *obi) keepFormer(contexts *ebpf.Map) error {
	entries, err := readOBI(contexts)
	if err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	// The kernel keeps some free entries for each CPU, and drops others before it takes them.
	spec := o.layout.Copy()
	spec.MaxEntries = uint32(len(entries) + 256*(cpus+1))
	former, err := ebpf.NewMap(spec)
	if err != nil {
		return err
	}
	defer former.Close()
	for thread, context := range entries {
		if err := former.Put(thread, context); err != nil {
			return err
		}
	}
	if there, err := readOBI(former); err != nil || len(there) != len(entries) {
		return errors.Join(errFormer, err)
	}
	return o.maps.Put(uint32(obiFormer), former)
}

func (o *obi) close() error {
	if o.writing == nil {
		return nil
	}
	return o.writing.close()
}

// openOBI opens the pinned map, for reading; nil: there is none. Only root may have put it there.
func openOBI(path string) (*ebpf.Map, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	dir, err := safedir.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	status, err := dir.Statfs()
	if err != nil {
		return nil, err
	}
	stat, err := dir.Lstat(filepath.Base(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case stat.Uid != 0 || stat.Mode&0o022 != 0 || stat.Mode&unix.S_IFMT != unix.S_IFREG ||
		status.Type != unix.BPF_FS_MAGIC:
		return nil, fmt.Errorf("%s (user %d, mode %04o) %w", path, stat.Uid, stat.Mode&0o7777, errNotOBIs)
	}
	contexts, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case contexts.Type() == ebpf.LRUHash && contexts.KeySize() == 8 &&
		contexts.ValueSize() == uint32(len(obiContext{})) && contexts.Flags()&^unix.BPF_F_RDONLY == 0 &&
		contexts.MaxEntries() <= maxOBIContexts:
		return contexts, nil
	}
	defer contexts.Close()
	return nil, fmt.Errorf("%s (%s) %w", path, contexts, errNotOBIs)
}

// readOBI returns what is in the map.
func readOBI(contexts *ebpf.Map) (map[uint64]obiContext, error) {
	entries := make(map[uint64]obiContext)
	keys, values := make([]uint64, 1<<12), make([]obiContext, 1<<12)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := contexts.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			entries[keys[i]] = values[i]
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// OBIProcesses returns the pids of the processes of which OBI's map has contexts now.
func OBIProcesses(path string) (map[int]bool, error) {
	contexts, err := openOBI(path)
	if contexts == nil {
		return nil, err
	}
	defer contexts.Close()
	info, err := contexts.Info()
	if err != nil {
		return nil, err
	}
	writing, err := openWriters()
	if err != nil {
		return nil, err
	}
	defer writing.close()
	id, _ := info.ID()
	if by, err := writing.of(id); err != nil || len(by) == 0 {
		return nil, err
	}
	entries, err := readOBI(contexts)
	if err != nil {
		return nil, err
	}
	known := make(map[uint32]bool) // by the number that the kernel says
	for thread := range entries {
		known[uint32(thread>>32)] = true
	}
	identities, err := openIdentities()
	if err != nil {
		return nil, err
	}
	defer identities.close()
	processes := make(map[int]bool)
	return processes, identities.each(everyProcess, func(r *identityIdentityRecord) bool {
		if known[r.Tgid] {
			processes[int(r.Pid)] = true
		}
		return true
	})
}

// writers is the iterator that returns which programs can write a map.
type writers struct {
	objects struct {
		Report *ebpf.Program  `ebpf:"report_writer"`
		Wanted *ebpf.Variable `ebpf:"wanted"`
	}
}

func openWriters() (*writers, error) {
	spec, err := shared.read(writersObject)
	if err != nil {
		return nil, err
	}
	w := &writers{}
	if err := load(spec, &w.objects, ebpf.CollectionOptions{}); err != nil {
		return nil, fmt.Errorf("loading program iterator: %w", err)
	}
	return w, nil
}

func (w *writers) close() error { return w.objects.Report.Close() }

// of returns their ids.
func (w *writers) of(id ebpf.MapID) (all []uint32, err error) {
	if err := w.objects.Wanted.Set(uint32(id)); err != nil {
		return nil, err
	}
	fd, err := openTaskIterator(w.objects.Report, everyProcess)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	programs := make([]uint32, 1<<10)
	for {
		n, err := unix.Read(fd, asBytes(programs))
		if err != nil {
			return nil, fmt.Errorf("reading program iterator: %w", err)
		}
		if n == 0 {
			return all, nil
		}
		all = append(all, programs[:n/int(unsafe.Sizeof(programs[0]))]...)
	}
}
