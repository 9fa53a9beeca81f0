package check

import (
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
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
		{"cgroup-namespace", "cgroup", "cgroup:[4026532000]", OK, "or no filter depends", ""},
		{"mount-namespace", "mnt", "mnt:[4026531841]", OK, "their own roots", ""},
		{"mount-namespace", "", "", Degraded, "unknown", "proc-root"},
	} {
		m := fakeMachine(t, map[string]string{"proc/7/ns/other": ""})
		if test.link != "" {
			assert.NilError(t, os.Symlink(test.to, m.proc("7/ns", test.link)))
		}
		found(t, m, test.name).verify(t, test.status, test.detail, test.remedy)
		if test.link == "cgroup" && !strings.HasSuffix(test.to, "35]") {
			m.config.Filter.ExcludeContainers, _ = process.ParsePatterns("8d3f.*\n[^/]+")
			found(t, m, test.name).verify(t, OK, "no filter depends", "")
			m.config.Filter.IncludeContainers, _ = process.ParsePatterns("/a")
			found(t, m, test.name).verify(t, Missing, "not the host's", "--cgroupns=host")
		}
	}
}
