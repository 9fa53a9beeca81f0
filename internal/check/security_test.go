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
		"none integrity [confidentiality]\n": {status: Missing, detail: "confidentiality: ", remedy: "lockdown=integrity"},
		"none\n":                             {status: Degraded, detail: "not known", remedy: "securityfs"},
	} {
		m := inventedMachine(t, map[string]string{file: text})
		m.sampler = func() error { return errRefused }
		found(t, m, "lockdown").verify(t, want.status, want.detail, want.remedy)
	}
	m := inventedMachine(t, nil) // without securityfs
	found(t, m, "lockdown").verify(t, OK, "does not hinder", "")
	m.sampler = func() error { return errRefused }
	found(t, m, "lockdown").verify(t, Degraded, "not known", "mount -t securityfs")
	m.sampler = func() error { return &bpf.MissingError{Feature: "CAP_BPF"} }
	found(t, m, "lockdown").verify(t, OK, "something else", "")
}

func TestSecurityModules(t *testing.T) {
	m := inventedMachine(t, map[string]string{
		"sys/kernel/security/lsm": "lockdown,yama,apparmor",
		"proc/7/attr/current":     "docker-default (enforce)\n",
	})
	const detail = "lockdown,yama,apparmor; we run as docker-default (enforce)"
	found(t, m, "lsm").verify(t, OK, detail, "")
	m.memory = func() (access, error) { return access{denied: 8, first: 1}, nil }
	found(t, m, "lsm").verify(t, Degraded, detail+"; something refuses us", "dmesg")
	m.caps &^= 1 << unix.CAP_SYS_PTRACE // which is reason enough
	found(t, m, "lsm").verify(t, OK, detail, "")
	m.sampler = func() error { return os.NewSyscallError("bpf", unix.EPERM) }
	found(t, m, "lsm").verify(t, Degraded, detail+"; something refuses us", "dmesg")
	found(t, inventedMachine(t, nil), "lsm").verify(t, OK, "securityfs is not mounted", "")
}

func TestProcessMemory(t *testing.T) {
	m := inventedMachine(t, nil)
	found(t, m, "process-memory").verify(t, OK, "all 10 other", "")
	m.memory = func() (access, error) { return access{allowed: 9, denied: 1, first: 1}, nil }
	found(t, m, "process-memory").verify(t, Degraded, "9 of 10 other processes may be read, not that of process 1", "lsm")
	m.memory = func() (access, error) { return access{denied: 10, first: 1}, nil }
	found(t, m, "process-memory").verify(t, Missing, "none of 10", "kernel.yama.ptrace_scope")
	m.caps = 0
	found(t, m, "process-memory").verify(t, Missing, "none of 10", "CAP_SYS_PTRACE")
	m.memory = func() (access, error) { return access{}, errHangs }
	found(t, m, "process-memory").verify(t, Degraded, "hangs", "end the process")
}
