package check

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

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

// proc is a path below the proc root.
func (m *machine) proc(path ...string) string {
	return filepath.Join(append([]string{m.config.ProcRoot}, path...)...)
}

// unknown is for what cannot be found out.
func (m *machine) unknown(err error, loss, remedy string) finding {
	if m.procfs() != nil { // nobody needs to be told again and again
		return finding{Degraded, "not known without a procfs", loss, "see proc-root"}
	}
	return finding{Degraded, "not known: " + err.Error(), loss, remedy}
}

// readText is a short file of procfs or sysfs, without the newline at its end.
func readText(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}
