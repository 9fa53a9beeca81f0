package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"unsafe"
	"weak"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// load loads the programs and maps that the struct objects points to names in its `ebpf` tags, and
// stores them there. The options lack only the cache. What the machine lacks is a [MissingError].
func load(spec *ebpf.CollectionSpec, objects any, options ebpf.CollectionOptions) error {
	types := shared.cache()
	kernel, err := kernelTypes(types)
	if err != nil {
		return err
	}
	if err := findIterators(spec, kernel); err != nil {
		return err
	}
	options.Cache, options.Programs.LogLevel = types, shortLog
	return Permitted(func() error { return shorten(spec.LoadAndAssign(objects, &options)) })
}

// NewCollection loads programs and maps, of which some are shared. The error about what the kernel's verifier refuses
// is an [ebpf.VerifierError] with the reason alone.
func NewCollection(spec *ebpf.CollectionSpec, shared map[string]*ebpf.Map) (*ebpf.Collection, error) {
	options := ebpf.CollectionOptions{MapReplacements: shared}
	options.Programs.LogLevel = shortLog
	c, err := ebpf.NewCollectionWithOptions(spec, options)
	return c, shorten(err)
}

// shortLog has the verifier write what it refuses and why. By default the library reads each instruction on the way
// there as well: up to 1 GB, which takes minutes.
const shortLog = ebpf.LogLevelStats

// refusal is an error about what the verifier refuses, with the reason in its text.
type refusal struct {
	refused *ebpf.VerifierError
	text    string
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.refused }

// shorten leaves out statistics, of which the library's text would have the last but one.
func shorten(err error) error {
	var refused *ebpf.VerifierError
	if !errors.As(err, &refused) {
		return err
	}
	refused.Log = slices.DeleteFunc(refused.Log, func(line string) bool {
		return strings.HasPrefix(line, "verification time ") || strings.HasPrefix(line, "stack depth ") ||
			strings.HasPrefix(line, "processed ")
	})
	what, _, _ := strings.Cut(err.Error(), refused.Cause.Error())
	return &refusal{refused, strings.Join(append([]string{what + refused.Cause.Error()}, refused.Log...), ": ")}
}

// typeCache is a cache of the kernel's types that loads share as long as one of them, or a test, uses it,
// and until the next garbage collection: loads come in rows, and most of their CPU time is that of reading
// the types, which nobody should pay for with memory afterwards.
type typeCache struct {
	mu      sync.Mutex
	types   weak.Pointer[btf.Cache]
	objects map[*byte]*ebpf.CollectionSpec // what is in those that were read; nil: it is not kept
}

var shared typeCache

func (c *typeCache) cache() *btf.Cache {
	c.mu.Lock()
	defer c.mu.Unlock()
	types := c.types.Value()
	if types == nil {
		types = btf.NewCache()
		c.types = weak.Make(types)
	}
	return types
}

// read returns what is in an object, for the caller to change.
func (c *typeCache) read(object []byte) (*ebpf.CollectionSpec, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := unsafe.SliceData(object)
	if spec := c.objects[key]; spec != nil {
		return spec.Copy(), nil
	}
	spec, err := decompress(object)
	if err == nil && c.objects != nil {
		c.objects[key] = spec.Copy()
	}
	return spec, err
}

// KernelTypes returns the types of the kernel, which loads share: see typeCache. The caller must not keep it. The error
// is a [MissingError] if there are none.
func KernelTypes() (*btf.Spec, error) { return kernelTypes(shared.cache()) }

// KeepTypes returns a reference that keeps the types that loads share, and has what is in objects kept for good: for
// processes that load again and again, such as tests.
func KeepTypes() any {
	types := shared.cache()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.objects = make(map[*byte]*ebpf.CollectionSpec)
	return types
}

// kernelTypes reads the BTF of the kernel.
func kernelTypes(types *btf.Cache) (*btf.Spec, error) {
	kernel, err := types.Kernel()
	if errors.Is(err, ebpf.ErrNotSupported) {
		return nil, missingBTF(err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading kernel BTF: %w", err)
	}
	return kernel, nil
}

// Permitted calls build, which makes programs or maps, and returns what is missing, a
// [MissingError], when the kernel refuses that. It may call build again, with a higher limit of
// locked memory.
func Permitted(build func() error) error {
	err := build()
	if errors.Is(err, unix.EPERM) {
		if missing := missingRight(err, capBPF, capPerfmon); missing != nil {
			return missing
		}
		// The remaining usual reason: kernels before 5.11 charge programs and maps to the locked
		// memory limit.
		raiseLockedMemoryLimit()
		err = build()
	}
	var pathErr *fs.PathError
	switch {
	case errors.As(err, &pathErr) && pathErr.Path == ownMounts:
		return missingProc(err)
	case errors.Is(err, unix.EPERM):
		return missingPermission(err)
	case errors.Is(err, unix.ENOSYS):
		return missingSyscall(err)
	case errors.Is(err, unix.EINVAL) && lockedDown(): // the verifier knows no such function
		return missingKernelReads(err)
	}
	return err
}

// findIterators checks that the kernel has the iterators that the programs of spec are for. An
// iterator X is a function bpf_iter_X of the kernel.
func findIterators(spec *ebpf.CollectionSpec, kernel *btf.Spec) error {
	for _, program := range spec.Programs {
		if program.AttachType != ebpf.AttachTraceIter {
			continue
		}
		var function *btf.Func
		if err := kernel.TypeByName("bpf_iter_"+program.AttachTo, &function); err != nil {
			return missingIterator(program.AttachTo, err)
		}
	}
	return nil
}

// raiseLockedMemoryLimit raises RLIMIT_MEMLOCK as far as permitted: without CAP_SYS_RESOURCE to the
// hard limit. If that is not enough, loading the program fails.
func raiseLockedMemoryLimit() {
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited) == nil {
		return
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit) // if that fails, the next load reports it
	}
}

// SetVariables sets variables of programs.
func SetVariables(spec *ebpf.CollectionSpec, values map[string]any) error {
	for name, value := range values {
		v := spec.Variables[name]
		if v == nil {
			return fmt.Errorf("the programs have no variable %s", name)
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}
