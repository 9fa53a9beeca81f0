package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"correlator/internal/process"
)

func TestNamespaces(t *testing.T) {
	for _, test := range []struct {
		name, link, to string
		status         Status
		detail, remedy string
	}{
		{"user-namespace", "user", "user:[4026531837]", OK, "the host's", ""},
		{"user-namespace", "user", "user:[4026532000]", Missing, "not the host's", "outside of user namespaces"},
		{"cgroup-namespace", "cgroup", "cgroup:[4026531835]", OK, "the host's", ""},
		{"cgroup-namespace", "cgroup", "cgroup:[4026532000]", OK, "no filter depends", ""},
		{"mount-namespace", "mnt", "mnt:[4026531841]", OK, "their own roots", ""},
		{"mount-namespace", "", "", Degraded, "not known", "proc-root"},
	} {
		m := inventedMachine(t, map[string]string{"proc/7/ns/other": ""})
		if test.link != "" {
			if err := os.Symlink(test.to, m.proc("7/ns", test.link)); err != nil {
				t.Fatal(err)
			}
		}
		found(t, m, test.name).verify(t, test.status, test.detail, test.remedy)
		if test.link == "cgroup" && !strings.HasSuffix(test.to, "35]") {
			m.config.Filter.ExcludeContainers = make(process.Patterns, 1)
			found(t, m, test.name).verify(t, Degraded, "not the host's", "--cgroupns=host")
		}
	}
}

func TestHidepid(t *testing.T) {
	for options, want := range map[string]finding{
		"rw":                   {status: OK, detail: "not hidden"},
		"rw,hidepid=0":         {status: OK, detail: "not hidden"},
		"rw,gid=7,hidepid=2":   {status: Degraded, detail: "hidepid=2", remedy: "CAP_SYS_PTRACE"},
		"rw,hidepid=invisible": {status: Degraded, detail: "hidepid=invisible", remedy: "CAP_SYS_PTRACE"},
		"rw,subset=pid":        {status: OK, detail: "not hidden"},
		"rw,hidepid=4\n" + strings.TrimSpace(other("rw")): {status: OK, detail: "not hidden"}, // what is mounted on top
	} {
		m := inventedMachine(t, map[string]string{
			"proc/7/mountinfo": "20 1 0:5 / / rw - ext4 /dev/vda rw\n" + other(options) + "22 20 0:7 / /proc rw - proc proc rw,hidepid=2\n",
		})
		m.caps = 0
		found(t, m, "hidepid").verify(t, want.status, want.detail, want.remedy)
		if strings.Contains(options, "hidepid=2") {
			m.caps = 1 << unix.CAP_SYS_PTRACE
			found(t, m, "hidepid").verify(t, OK, "does not apply", "")
		}
	}
}

// other is a line of mountinfo for the procfs of a test.
func other(options string) string {
	return "21 20 0:6 / DIR/proc rw,nosuid - proc proc " + options + "\n"
}

func TestProcRootPath(t *testing.T) {
	m := inventedMachine(t, nil)
	dir, err := os.MkdirTemp("", "check-") // which others can enter once it may be
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m.config.ProcRoot = filepath.Join(dir, "proc")
	if err := os.Mkdir(m.config.ProcRoot, 0o755); err != nil {
		t.Fatal(err)
	}
	found(t, m, "proc-root-path").verify(t, Missing, "not every user can enter "+dir, "chmod o+x "+dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	found(t, m, "proc-root-path").verify(t, OK, "of at most 88 bytes", "")
	m.config.ProcRoot = "/" + strings.Repeat("p", 88)
	found(t, m, "proc-root-path").verify(t, Missing, "89 bytes long", "shorter path")
	m.config.ProcRoot = "/nonexistent"
	m = newMachine(m.config)
	found(t, m, "proc-root-path").verify(t, Degraded, "not known", "proc-root")
	found(t, m, "proc-root").verify(t, Missing, "no such file", "--proc-root")
}
