package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/backend"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// systemd is where Debian and others have the service manager.
const systemd = "/lib/systemd/systemd"

// manager is a systemd that runs the unit of the agent, as it is in the repository.
type manager struct {
	t   *testing.T
	log string // file of the agent's log
}

// bootSystemd starts it as process 1 of a host, with nothing else to do, and has the calling
// goroutine enter that. dropIns are settings beside those of the unit.
func bootSystemd(t *testing.T, config string, dropIns ...string) *manager {
	t.Helper()
	if _, err := os.Stat(systemd); err != nil {
		testenv.Missing(t, "needs systemd: "+err.Error())
	}
	testenv.NeedTool(t, "systemctl")
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	unit := testenv.ReadFile(t, service)
	testenv.WriteFile(t, filepath.Join(dir, "units/correlator.service"), unit)
	testenv.WriteFile(t, filepath.Join(dir, "units/boot.target"), "[Unit]\nWants=correlator.service\n")
	for _, target := range []string{"sysinit", "basic", "shutdown"} { // what services depend on by default
		testenv.WriteFile(t, filepath.Join(dir, "units/"+target+".target"), "[Unit]\nDescription=nothing\n")
	}
	for i, settings := range append(dropIns, "[Service]\nStandardError=append:"+log+"\n") {
		testenv.WriteFile(t, filepath.Join(dir, fmt.Sprintf("units/correlator.service.d/%d.conf", i)), settings)
	}
	testenv.WriteFile(t, filepath.Join(dir, "etc/correlator/config.yaml"), config)
	testenv.WriteFile(t, filepath.Join(dir, "console"), "")
	testenv.WriteFile(t, filepath.Join(dir, "none/README"), "")

	// Its files go over those of /etc and /usr/local/bin, in this mount namespace.
	boot := `mount -t overlay -o "lowerdir=$1/etc:/etc" etc /etc
mount -t overlay -o "lowerdir=$2:/usr/local/bin" bin /usr/local/bin
mount --bind "$1/console" /dev/console
exec env -i container=test PATH="$PATH" SYSTEMD_UNIT_PATH="$1/units" SYSTEMD_GENERATOR_PATH="$1/none" \
	SYSTEMD_ENVIRONMENT_GENERATOR_PATH="$1/none" ` + systemd + ` --system --unit=boot.target --show-status=no \
	--log-target=console`
	boot = strings.ReplaceAll(boot, "$2", filepath.Dir(demo.Agent(t, t.TempDir())))
	enterHost(t, boot, "systemd", dir)
	m := &manager{t, log}
	t.Cleanup(func() {
		if t.Failed() {
			console, _ := os.ReadFile(filepath.Join(dir, "console"))
			t.Logf("systemd printed:\n%s\nthe agent:\n%s", console, m.logged())
		}
	})
	return m
}

func (m *manager) systemctl(args ...string) string {
	m.t.Helper()
	out, err := exec.Command("systemctl", append(args, "correlator.service")...).CombinedOutput()
	assert.NilError(m.t, err, "systemctl %v: %v\n%s", args, err, out)
	return strings.TrimSpace(string(out))
}

func (m *manager) property(name string) string {
	m.t.Helper()
	return m.systemctl("show", "--value", "-p", name)
}

// restarts is how often systemd has started the service again.
func (m *manager) restarts() int {
	m.t.Helper()
	n, err := strconv.Atoi(m.property("NRestarts"))
	assert.NilError(m.t, err)
	return n
}

// started waits until the agent has said that it is ready, and no earlier end of it.
func (m *manager) started() {
	m.t.Helper()
	testenv.Poll(m.t, deadline, "systemd", func() bool { return exec.Command("systemctl", "show").Run() == nil })
	testenv.Poll(m.t, deadline, "the service to be active", func() bool {
		if restarts := m.restarts(); restarts != 0 {
			m.t.Fatalf("restarted %d times:\n%s", restarts,
				m.systemctl("show", "-p", "ExecStartPre", "-p", "ExecStart"))
		}
		return m.property("ActiveState") == "active"
	})
}

func (m *manager) logged() string {
	text, _ := os.ReadFile(m.log)
	return string(text)
}

// problems returns the log entries above level info that are not about one process, nor about lost live events, as
// when many programs start on the machine.
func (m *manager) problems() (lines []string) {
	for line := range strings.Lines(m.logged()) {
		var entry struct {
			Level, Reason string
			PID           int
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil ||
			entry.Level != "info" && entry.PID == 0 && entry.Reason != "events_lost" {
			lines = append(lines, line)
		}
	}
	return lines
}

func (m *manager) status() map[string]string {
	m.t.Helper()
	text := testenv.ReadFile(m.t, "/proc/"+m.property("MainPID")+"/status")
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(value)
	}
	return fields
}

const plain = "log-format: json\nsamples-per-second: 97\nmetrics-address: :9464\n"

// The unit's restrictions are in force, and the agent does all its work under them: alone, and for kernel
// stacks and the pinned table by the drop-ins for that.
func TestService(t *testing.T) {
	for _, c := range []struct{ name, config, dropIn string }{
		{name: "kernel stacks", config: "kernel-stacks: true\n", dropIn: kernelStacks},
		{name: "pinned maps", config: "pin-maps: /sys/fs/bpf/correlator\n", dropIn: pinMaps},
		{name: "OTLP", config: "otlp-endpoint: http://127.0.0.1:4317\notlp-listen: unix:/run/correlator/otlp.sock\n" +
			"opencensus-socket: " + phpSocket + "\nopencensus: {socket-group: www-data}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var dropIns []string
			if c.dropIn != "" {
				text := testenv.ReadFile(t, c.dropIn)
				dropIns = []string{string(text)}
			}
			m := bootSystemd(t, plain+"accept-partial-view: true\n"+c.config, dropIns...) // it is in a pid namespace
			b, err := backend.Open("tcp", "127.0.0.1:4317")
			assert.NilError(t, err)
			t.Cleanup(b.Close)
			processes := startProcesses(t)
			m.started()
			status := m.property("StatusText")
			assert.Check(t, status == "serving", "status text %q", status)
			processes["that comes later"] = demo.Start(t, demo.Options{Busy: 1}) // found by live events
			served(t, processes)
			if problems := m.problems(); len(problems) > 0 {
				t.Errorf("logged %s", strings.Join(problems, ""))
			}
			verifyRestricted(t, m, c.dropIn == kernelStacks)
			// A process is in state error for as long as looking at it takes too long.
			var shown []byte
			defer func() {
				if t.Failed() {
					t.Logf("correlator status: %s", shown)
				}
			}()
			testenv.Poll(t, deadline, "correlator status to show all processes as registered", func() bool {
				shown, err = exec.Command("correlator", "status").CombinedOutput()
				return err == nil && bytes.Count(shown, []byte(" registered ")) >= len(processes)
			})
			if c.dropIn == pinMaps {
				pinned, err := filepath.Glob("/sys/fs/bpf/correlator/*")
				assert.Check(t, err == nil && len(pinned) != 0, "nothing is pinned")
			}

			exported := strings.HasPrefix(c.config, "otlp")
			if exported {
				verifyPHP(t)
			}

			m.systemctl("stop")
			if result := m.property("Result"); result != "success" || m.property("ExecMainStatus") != "0" {
				t.Errorf("stopped with %s, code %s", result, m.property("ExecMainStatus"))
			}
			assert.Check(t, strings.Contains(m.logged(), `"correlator ends"`), "it did not end by itself")
			if samples, metrics := b.Profiles().Samples, b.Metrics(); exported != (len(samples) > 0) ||
				exported != (len(metrics) > 0) || exported != (len(b.Spans()) == 2) || b.Err() != nil {
				t.Errorf("%d different samples, %d metrics and %d spans are exported: %v", len(samples), len(metrics),
					len(b.Spans()), b.Err())
			}
		})
	}
}

// phpSocket is where PHP's OpenCensus clients connect.
const phpSocket = "/run/correlator/opencensus.sock"

// verifyPHP checks who may use the socket for PHP, and sends two spans to it.
func verifyPHP(t *testing.T) {
	t.Helper()
	group, err := user.LookupGroup("www-data")
	assert.NilError(t, err)
	var stat unix.Stat_t
	err = unix.Lstat(phpSocket, &stat)
	if err != nil || stat.Mode != unix.S_IFSOCK|0o660 || stat.Uid != 0 || strconv.Itoa(int(stat.Gid)) != group.Gid {
		t.Errorf("the socket for PHP: mode %o of %d:%d, %v", stat.Mode, stat.Uid, stat.Gid, err)
	}
	php := exec.Command(testenv.NeedTool(t, "php"), "../testdata/php/shop.php", phpSocket)
	out, err := php.CombinedOutput()
	assert.Check(t, err, "PHP: %v\n%s", err, out)
}

// verifyRestricted checks that systemd did what the unit asks for: where something is missing it
// only warns.
func verifyRestricted(t *testing.T, m *manager, syslog bool) {
	t.Helper()
	capabilities, forKernelStacks := documented(t)
	if syslog {
		capabilities = append(capabilities, forKernelStacks...)
	}
	var mask uint64
	for _, name := range capabilities {
		mask |= 1 << capabilityBits[name]
	}
	status := m.status()
	for _, set := range []string{"CapBnd", "CapPrm", "CapEff"} {
		got, err := strconv.ParseUint(status[set], 16, 64)
		assert.Check(t, err == nil && got == mask, "%s is %s, not %x", set, status[set], mask)
	}
	if status["CapAmb"] != strings.Repeat("0", 16) || status["NoNewPrivs"] != "1" || status["Seccomp"] != "2" {
		t.Errorf("ambient capabilities %s, no new privileges %s, seccomp %s", status["CapAmb"], status["NoNewPrivs"],
			status["Seccomp"])
	}
	root := "/proc/" + m.property("MainPID") + "/root"
	for _, dir := range []string{"/", "/etc", "/usr", "/sys", "/proc/sys"} {
		var stat unix.Statfs_t
		hidden := dir == "/proc/sys" && errors.Is(unix.Access(root+dir, unix.F_OK), unix.ENOENT)
		err := unix.Statfs(root+dir, &stat)
		assert.Check(t, hidden || err == nil && stat.Flags&unix.ST_RDONLY != 0, "%s is not read-only: %v", dir, err)
	}
	entries, err := os.ReadDir(root + "/root")
	assert.Check(t, err == nil && len(entries) == 0, "/root has %v: %v", entries, err)
}

// An agent that hangs is ended by the watchdog, logs its goroutines, and serves again after its
// restart.
func TestServiceWatchdog(t *testing.T) {
	m := bootSystemd(t, plain, "[Service]\nWatchdogSec=10s\nRestartSec=100ms\n")
	p := demo.Start(t, demo.Options{Idle: 1})
	m.started()
	p.Registration(1)
	m.systemctl("kill", "--signal", "STOP")
	p.Registration(2)
	restarts := m.restarts()
	assert.Check(t, restarts == 1, "restarted %d times", restarts)
	if log := m.logged(); !strings.Contains(log, "SIGABRT: abort") || !strings.Contains(log, "goroutine 1 ") {
		t.Error("the log has no goroutines")
	}
}
