package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestHidepid(t *testing.T) {
	for options, want := range map[string]finding{
		"rw":                   {status: OK, detail: "not hidden"},
		"rw,hidepid=0":         {status: OK, detail: "not hidden"},
		"rw,gid=7,hidepid=2":   {status: Degraded, detail: "hidepid=2", remedy: "CAP_SYS_PTRACE"},
		"rw,hidepid=invisible": {status: Degraded, detail: "hidepid=invisible", remedy: "CAP_SYS_PTRACE"},
		"rw,subset=pid":        {status: OK, detail: "not hidden"},
		"rw,hidepid=4\n" + strings.TrimSpace(other("rw")): {status: OK, detail: "not hidden"}, // the mount on top
	} {
		m := fakeMachine(t, map[string]string{
			"proc/7/mountinfo": "20 1 0:5 / / rw - ext4 /dev/vda rw\n" + other(options) +
				"22 20 0:7 / /proc rw - proc proc rw,hidepid=2\n",
		})
		m.caps = 0
		found(t, m, "hidepid").verify(t, want.status, want.detail, want.remedy)
		if strings.Contains(options, "hidepid=2") {
			m.caps = 1 << unix.CAP_SYS_PTRACE
			found(t, m, "hidepid").verify(t, OK, "does not apply", "")
		}
	}
}

func other(options string) string {
	return "21 20 0:6 / DIR/proc rw,nosuid - proc proc " + options + "\n"
}

func TestProcRootPath(t *testing.T) {
	m := fakeMachine(t, nil)
	dir, err := os.MkdirTemp("", "check-") // other users can enter once its mode allows
	assert.NilError(t, err)
	defer os.RemoveAll(dir)
	m.config.ProcRoot = filepath.Join(dir, "proc")
	assert.NilError(t, os.Mkdir(m.config.ProcRoot, 0o755))
	found(t, m, "proc-root-path").verify(t, Missing, "not every user can enter "+dir, "chmod o+x "+dir)
	assert.NilError(t, os.Chmod(dir, 0o711))
	found(t, m, "proc-root-path").verify(t, OK, "of at most 88 bytes", "")
	m.config.ProcRoot = "/" + strings.Repeat("p", 88)
	found(t, m, "proc-root-path").verify(t, Missing, "89 bytes long", "shorter path")
	m.config.ProcRoot = "/nonexistent"
	m = newMachine(m.config)
	found(t, m, "proc-root-path").verify(t, Degraded, "unknown", "proc-root")
	found(t, m, "proc-root").verify(t, Missing, "no such file", "--proc-root")
}
