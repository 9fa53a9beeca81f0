package check

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"correlator/bpf"
	"correlator/internal/host/self"
	"correlator/internal/operate/admin"
	"correlator/internal/operate/inspect"
	"correlator/memread"
	"correlator/procscan"
	"correlator/procscan/watch"
	"correlator/profile"
)

// machine is what checks probe. It is not safe for concurrent use.
type machine struct {
	config  Config
	sysRoot string            // where sysfs is mounted
	cpus    int               // online
	caps    self.Capabilities // all threads have the same

	// Probes that several checks use. Each runs once, when the first check calls it.
	procfs, sampler, unwinder, waits, liveEvents, kernelSymbols, readv func() error
	memory                                                             func() (access, error)
	admin, readsInKernel                                               func() error
	// by name of the destination
	connect  func() map[string]error
	runtimes func() ([]inspect.Process, error)
}

func newMachine(config Config) *machine {
	m := &machine{config: config, sysRoot: "/sys", cpus: runtime.NumCPU()}
	m.caps, _ = self.Effective() // what cannot be told does not count
	if cpus, err := procscan.ReadCPUs(procscan.OnlineCPUs); err == nil {
		m.cpus = len(cpus)
	}
	m.procfs = sync.OnceValue(func() error { return procscan.ProbeProcRoot(config.ProcRoot) })
	m.sampler = sync.OnceValue(m.probeSampler)
	m.readsInKernel = bpf.ReadsInKernel
	m.unwinder = sync.OnceValue(m.probeUnwinder)
	m.waits = sync.OnceValue(m.probeWaits)
	m.liveEvents = sync.OnceValue(func() error { return watch.ProbeEvents(config.ProcRoot) })
	m.kernelSymbols = sync.OnceValue(func() error {
		_, err := profile.NewKernel(config.ProcRoot, m.sysRoot, profile.Pace{}, time.Time{})
		return err
	})
	m.readv = sync.OnceValue(memread.ProbeReadv)
	m.memory = sync.OnceValues(func() (access, error) { return probeMemory(config.ProcRoot) })
	m.admin = sync.OnceValue(func() error { return admin.Probe(config.AdminSocket) })
	m.runtimes = m.probeRuntimes
	m.connect = sync.OnceValue(m.connectAll)
	return m
}

func (m *machine) proc(path ...string) string {
	return filepath.Join(append([]string{m.config.ProcRoot}, path...)...)
}

// unknown returns the finding of a check that failed itself.
func (m *machine) unknown(err error, loss, remedy string) finding {
	if m.procfs() != nil { // reported once, by proc-root
		return finding{Degraded, "unknown without a procfs", loss, "see proc-root"}
	}
	return finding{Degraded, "unknown: " + err.Error(), loss, remedy}
}

// readText returns the text of a short file of procfs or sysfs, without the newline at its end.
func readText(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}
