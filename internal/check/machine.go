package check

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/admin"
	"correlator/memread"
	"correlator/procscan"
	"correlator/procscan/watch"
	"correlator/profile"
)

// machine is what checks look at. It is used by one goroutine at a time.
type machine struct {
	config  Config
	sysRoot string // where sysfs is mounted
	cpus    int    // that are online
	caps    capabilities

	// What several checks want to know; tried once, when the first one asks.
	procfs, sampler, liveEvents, kernelSymbols, readv func() error
	memory                                            func() (access, error)
	admin                                             func() error
	connect                                           func() map[string]error // of destinations, by name
}

func newMachine(config Config) *machine {
	m := &machine{config: config, sysRoot: "/sys", cpus: runtime.NumCPU(), caps: ownCapabilities()}
	if cpus, err := procscan.ReadCPUs(procscan.OnlineCPUs); err == nil {
		m.cpus = len(cpus)
	}
	m.procfs = sync.OnceValue(func() error { return procscan.ProbeProcRoot(config.ProcRoot) })
	m.sampler = sync.OnceValue(m.trySampler)
	m.liveEvents = sync.OnceValue(func() error { return watch.ProbeEvents(config.ProcRoot) })
	m.kernelSymbols = sync.OnceValue(func() error {
		_, err := profile.NewKernel(config.ProcRoot, m.sysRoot, profile.Pace{}, time.Time{})
		return err
	})
	m.readv = sync.OnceValue(memread.ProbeReadv)
	m.memory = sync.OnceValues(func() (access, error) { return tryMemory(config.ProcRoot) })
	m.admin = sync.OnceValue(func() error { return admin.Probe(config.AdminSocket) })
	m.connect = sync.OnceValue(m.tryDestinations)
	return m
}

// trySampler loads the sampler and attaches it to each CPU, but pins nothing.
func (m *machine) trySampler() error {
	sampler, err := bpf.OpenSampler(bpf.SamplerOptions{
		SamplesPerSecond: m.config.SamplesPerSecond,
		KernelStacks:     m.config.KernelStacks,
		KeepUnsampled:    m.config.Unsampled,
		MaxTargets:       m.config.MaxProcesses,
	})
	if err != nil {
		return err
	}
	return sampler.Close()
}

// proc is a path below the proc root.
func (m *machine) proc(path ...string) string {
	return filepath.Join(append([]string{m.config.ProcRoot}, path...)...)
}

// self is what procfs tells of this process.
func (m *machine) self() (procfs.Proc, error) {
	fs, err := procfs.NewFS(m.config.ProcRoot)
	if err != nil {
		return procfs.Proc{}, err
	}
	return fs.Self()
}

// errNotThere says that a setting does not exist: the kernel was built, or runs, without what it sets.
var errNotThere = errors.New("not there")

// unknown is for what cannot be found out.
func (m *machine) unknown(err error, loss, remedy string) finding {
	if m.procfs() != nil { // nobody needs to be told again and again
		return finding{Degraded, "not known without a procfs", loss, "see proc-root"}
	}
	return finding{Degraded, "not known: " + err.Error(), loss, remedy}
}

// errHidden says that settings are not to be seen, on purpose: the procfs has processes only.
var errHidden = errors.New("not to be seen in a procfs with subset=pid")

// setting is a number of sysctl, by its name. errNotThere: it is the only one that is; errHidden: all are.
func (m *machine) setting(name string) (int, error) {
	path := m.proc("sys", strings.ReplaceAll(name, ".", "/"))
	text, err := readText(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, rootErr := os.Stat(m.proc("sys/kernel")); rootErr == nil {
			return 0, fmt.Errorf("%s is %w", name, errNotThere)
		}
	}
	if mount, mountErr := m.procMount(); err != nil && mountErr == nil && mount.SuperOptions["subset"] == "pid" {
		return 0, errHidden
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// readText is a short file of procfs or sysfs, without the newline at its end.
func readText(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// capabilities are those in effect, a bit for each.
type capabilities uint64

// ownCapabilities are those of the calling thread, and so of all: none of ours has others.
func ownCapabilities() capabilities {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // capabilities 0 to 31, 32 to 63
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return 0 // cannot fail with this version
	}
	return capabilities(sets[1].Effective)<<32 | capabilities(sets[0].Effective)
}

func (c capabilities) has(capability int) bool { return c&(1<<capability) != 0 }

// privileged says whether a capability is in effect, and counts for the whole machine.
func (m *machine) privileged(capability int) bool {
	initial, err := m.inInitialUserNamespace()
	return m.caps.has(capability) && (initial || err != nil)
}
