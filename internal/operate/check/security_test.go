package check

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"correlator/bpf"
)

func TestLockdown(t *testing.T) {
	const file = "sys/kernel/security/lockdown"
	for text, want := range map[string]finding{
		"[none] integrity confidentiality\n": {status: OK, detail: "none: "},
		"none [integrity] confidentiality\n": {status: OK, detail: "integrity: "},
		"none integrity [confidentiality]\n": {status: Missing, detail: "confidentiality: ",
			remedy: "lockdown=integrity"},
		"none\n": {status: Degraded, detail: "unknown", remedy: "securityfs"},
	} {
		m := fakeMachine(t, map[string]string{file: text})
		m.sampler = func() error { return errRefused }
		found(t, m, "lockdown").verify(t, want.status, want.detail, want.remedy)
	}
	m := fakeMachine(t, nil) // without securityfs
	found(t, m, "lockdown").verify(t, OK, "does not hinder", "")
	m.sampler = func() error { return bpf.ErrChainOnly }
	found(t, m, "lockdown").verify(t, OK, "does not hinder", "")
	m.sampler = func() error { return errRefused }
	found(t, m, "lockdown").verify(t, Degraded, "unknown", "mount -t securityfs")
	m.sampler = func() error { return &bpf.MissingError{Feature: "reads", Err: bpf.ErrLockedDown} }
	found(t, m, "lockdown").verify(t, Missing, "confidentiality: ", "lockdown=integrity")
	m.sampler = func() error { return &bpf.MissingError{Feature: "CAP_BPF"} }
	found(t, m, "lockdown").verify(t, OK, "something else", "")
}

func TestSecurityModules(t *testing.T) {
	m := fakeMachine(t, map[string]string{
		"sys/kernel/security/lsm": "lockdown,yama,apparmor",
		"proc/7/attr/current":     "docker-default (enforce)\n",
	})
	const detail = "lockdown,yama,apparmor; this process is docker-default (enforce)"
	found(t, m, "lsm").verify(t, OK, detail, "")
	m.memory = func() (access, error) { return access{denied: 8, first: 1}, nil }
	found(t, m, "lsm").verify(t, Degraded, detail+"; something refuses access", "dmesg")
	m.caps &^= 1 << unix.CAP_SYS_PTRACE // explains the denial
	found(t, m, "lsm").verify(t, OK, detail, "")
	m.sampler = func() error { return os.NewSyscallError("bpf", unix.EPERM) }
	found(t, m, "lsm").verify(t, Degraded, detail+"; something refuses access", "dmesg")
	found(t, fakeMachine(t, nil), "lsm").verify(t, OK, "securityfs is not mounted", "")
}
