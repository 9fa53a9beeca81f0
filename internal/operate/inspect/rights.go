package inspect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/host/self"
	"correlator/procscan"
)

// capabilities are those that reading processes of others takes, and connecting to their sockets;
// docs/security.md says what each is for.
var capabilities = []struct {
	name   string
	number int
}{
	{"CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE},
	{"CAP_CHECKPOINT_RESTORE", unix.CAP_CHECKPOINT_RESTORE},
	{"CAP_DAC_READ_SEARCH", unix.CAP_DAC_READ_SEARCH},
	{"CAP_SETUID", unix.CAP_SETUID},
	{"CAP_SETGID", unix.CAP_SETGID},
}

// missingRights returns a bpf.MissingError if we lack what reading processes of others takes.
func missingRights() error {
	if name, err := os.Readlink("/proc/self/ns/user"); err == nil && name != procscan.InitialUserNamespace {
		return &bpf.MissingError{Feature: "capabilities in the initial user namespace",
			Remedy: "run outside of user namespaces (rootless containers, user-namespaced pods)"}
	}
	own, err := self.Effective()
	if err != nil {
		return err
	}
	var names []string
	for _, c := range capabilities {
		included := c.number == unix.CAP_CHECKPOINT_RESTORE && own.Has(unix.CAP_SYS_ADMIN)
		if !own.Has(c.number) && !included {
			names = append(names, c.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	list := strings.Join(names, ", ")
	remedy := "grant the process " + list
	if os.Geteuid() != 0 {
		remedy = "run as root, or grant the process these capabilities"
	}
	return &bpf.MissingError{Feature: list, Remedy: remedy}
}

// checkHidden returns an error if procfs does not show us a process because it shows us fewer than
// there are (hidepid). The first process of a pid namespace is there as long as the namespace is.
func checkHidden(procRoot string, pid int) error {
	for _, pid := range []int{pid, 1} {
		if _, err := os.Lstat(filepath.Join(procRoot, strconv.Itoa(pid))); !errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	missing := missingRights()
	if missing == nil {
		return nil
	}
	return fmt.Errorf("procfs hides processes of others (hidepid): %w", missing)
}

// lacksRights reports whether a process is in this state because of what we may not do.
func lacksRights(view process.View) bool {
	return view.Reason == process.ReasonDenied.String() || view.Reason == process.ReasonHostUnsupported.String()
}
