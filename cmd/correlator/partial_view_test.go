package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// An agent that does not see all processes of the host says so once in its log, is not ready, and
// tells the service manager; check and scan say the same before. It serves what it sees, so the service
// manager is told that it has started. Where a setting accepts that, it is ready.
func TestPartialView(t *testing.T) {
	testenv.NeedRoot(t)
	for _, tool := range []string{"unshare", "setpriv", "mount"} {
		testenv.NeedTool(t, tool)
	}
	const (
		reached  = `exec "$@"`
		hidden   = `mount -t proc -o remount,hidepid=2 proc /proc && exec "$@"`
		untraced = "-sys_ptrace"
	)
	namespace := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
	for name, test := range map[string]struct {
		by      []string
		remedy  string
		checked []string // what check says beside that
		accept  bool     // try the setting, too
	}{
		"pid namespace": {
			by:      append(namespace, "sh", "-c", reached, "sh"),
			remedy:  "hostPID: true of the pod",
			checked: []string{"pid-namespace", "run is not ready"},
			accept:  true,
		},
		"no CAP_SYS_PTRACE": {
			by: append(namespace, "setpriv", "--bounding-set", untraced,
				"--inh-caps", untraced),
			remedy:  "grant the process CAP_SYS_PTRACE",
			checked: []string{"run is not ready"},
		},
		"hidepid": {
			by: append(namespace, "sh", "-c", hidden, "sh", "setpriv", "--bounding-set", untraced,
				"--inh-caps", untraced),
			remedy:  "grant the process CAP_SYS_PTRACE",
			checked: []string{"hidepid=(2|invisible) hides processes", "run is not ready"},
		},
		"user namespace": {
			by: []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child",
				"--mount-proc"},
			remedy:  "run outside of user namespaces",
			checked: []string{"user-namespace", "run is not ready"},
			accept:  true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			flags := []string{"--samples-per-second", "0", "--host-id", "", "--feed-socket"}
			check := func(more ...string) []byte {
				argv := slices.Concat(test.by, []string{installed(t), "check"}, flags,
					[]string{filepath.Join(t.TempDir(), "feed")}, more)
				report, _ := exec.Command(argv[0], argv[1:]...).CombinedOutput() // fails where more is missing
				return report
			}
			report := check()
			for _, want := range append(test.checked, test.remedy) {
				assert.Check(t, regexp.MustCompile(want).Match(report), "check does not say %q:\n%s", want, report)
			}
			tries := 1
			if test.accept {
				tries = 2
				report = check("--accept-partial-view")
				if !bytes.Contains(report, []byte("are not served")) || bytes.Contains(report, []byte("not ready")) {
					t.Errorf("check --accept-partial-view says:\n%s", report)
				}
			}
			scan := exec.Command(test.by[0], slices.Concat(test.by[1:], []string{installed(t), "scan"})...)
			var said bytes.Buffer
			scan.Stderr = &said
			if _ = scan.Run(); !strings.Contains(said.String(), test.remedy) { // fails where a right is missing
				t.Errorf("scan does not say %q: %s", test.remedy, &said)
			}

			for _, accepted := range []bool{false, true}[:tries] {
				notified := filepath.Join(t.TempDir(), "notify")
				manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notified, Net: "unixgram"})
				assert.NilError(t, err)
				defer manager.Close()
				manager.SetReadDeadline(time.Now().Add(deadline))
				by := slices.Concat([]string{"env", "NOTIFY_SOCKET=" + notified}, test.by)
				a := startAgent(t, by, slices.Concat(flags, []string{
					filepath.Join(t.TempDir(), "feed"), "--metrics-address", "127.0.0.1:0",
					"--accept-partial-view=" + strconv.FormatBool(accepted),
				})...)
				told := ""
				for buf := make([]byte, 4096); !strings.Contains(told, "READY=1"); {
					n, err := manager.Read(buf)
					if err != nil {
						t.Fatalf("%v; told %q, logged %+v", err, told, a.entries())
					}
					told += string(buf[:n]) + "\n"
				}
				status, body := readyz(t, a)
				if wrong := "STATUS=not ready: only a part of the host's processes is served"; accepted {
					assert.Check(t, status == http.StatusOK && strings.Contains(told, "STATUS=serving"),
						"accepted, and not ready: %d %q, %q", status, body, told)
				} else if status != http.StatusServiceUnavailable || !strings.Contains(told, wrong) {
					t.Errorf("ready: %d %q, %q", status, body, told)
				}
				assert.Check(t, accepted || strings.Contains(body, test.remedy) && strings.Contains(told, test.remedy),
					"without the remedy %q: %q, %q", test.remedy, body, told)
				message := "not ready: only a part of the host's processes is served"
				if accepted {
					message = "only a part of the host's processes is served, which --accept-partial-view accepts"
				}
				if logged := a.logged(message); len(logged) != 1 || !strings.Contains(logged[0].Error, test.remedy) {
					t.Errorf("logged %+v", logged)
				}
			}
		})
	}
}

// readyz asks an agent that serves metrics whether it is ready.
func readyz(t *testing.T, a *agentProcess) (status int, body string) {
	t.Helper()
	serving := a.logged("serving metrics")
	if len(serving) != 1 {
		t.Fatalf("logged %+v", a.entries())
	}
	response, err := http.Get("http://" + serving[0].Address + "/readyz")
	assert.NilError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	assert.NilError(t, err)
	return response.StatusCode, string(text)
}
