package check

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/worker"
)

const securityfsRemedy = "mount -t securityfs securityfs /sys/kernel/security, to see the mode"

func (m *machine) securityfs(name string) (string, error) {
	return readText(filepath.Join(m.sysRoot, "kernel/security", name))
}

func lockedDown() finding {
	return finding{Missing, "confidentiality: eBPF may not read the kernel's memory", lossSampler,
		"boot with lockdown=integrity, or none"}
}

// lockdown checks the mode of kernel_lockdown(7). The file has all modes, the current one in
// brackets:
//
//	none [integrity] confidentiality
func lockdown(m *machine) finding {
	modes, err := m.securityfs("lockdown")
	var missing *bpf.MissingError
	switch _, after, found := strings.Cut(modes, "["); {
	case err != nil && (m.sampler() == nil || errors.Is(m.sampler(), bpf.ErrChainOnly)):
		return ok("unknown; does not hinder the sampler")
	case err != nil && errors.Is(m.sampler(), bpf.ErrLockedDown):
		return lockedDown()
	case err != nil && errors.As(m.sampler(), &missing):
		return ok("unknown; the sampler needs something else")
	case errors.Is(err, os.ErrNotExist):
		return m.unknown(err, lossUnproved, securityfsRemedy)
	case err != nil || !found:
		return m.unknown(fmt.Errorf("reading lockdown: %q: %w", modes, err), lossUnproved, securityfsRemedy)
	default:
		mode, _, _ := strings.Cut(after, "]")
		if mode == "confidentiality" {
			return lockedDown()
		}
		return ok(mode + ": eBPF may read the kernel's memory")
	}
}

// securityModules reports the active security modules and the label of this process. What they
// allow is what the other checks try.
func securityModules(m *machine) finding {
	refused := m.refused() || m.config.sampler() && m.privileged(unix.CAP_SYS_ADMIN) &&
		errors.Is(m.sampler(), unix.EPERM)
	names, err := m.securityfs("lsm")
	detail := names
	switch {
	case errors.Is(err, os.ErrNotExist):
		detail = "unknown: securityfs is not mounted"
	case err != nil:
		detail = "unknown: " + err.Error()
	}
	if label, err := readText(m.proc("self/attr/current")); err == nil && label != "" {
		detail += "; this process is " + strings.TrimRight(label, "\x00")
	}
	if refused {
		return finding{Degraded, detail + "; something refuses access", lossUnproved,
			"look for denials (dmesg, ausearch) and allow them in the profile; or run unconfined"}
	}
	return ok(detail)
}

func seccomp(*machine) finding {
	if err := worker.ProbeFilters(); err != nil {
		return finding{Degraded, err.Error(), "who takes over a worker can use all of its rights",
			"allow seccomp in the seccomp profile, or boot a kernel built with CONFIG_SECCOMP_FILTER"}
	}
	if mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err == nil && mode != 0 {
		return ok("each worker has a filter; another one is installed, and what it refuses shows above")
	}
	return ok("each worker has a filter; no other is installed")
}
