package deploy

import (
	"bufio"
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/out/agent"
	"correlator/internal/out/export"
)

const (
	service      = "systemd/correlator.service"
	kernelStacks = "systemd/kernel-stacks.conf"
	pinMaps      = "systemd/pin-maps.conf"
)

// maxExposure is what `systemd-analyze security` may give, in tenths; 100 is a service without
// restrictions. systemd 252 gives 29: what is left is what the agent needs, by the unit's comments.
// Others weigh a bit differently.
const maxExposure = "32"

// settings are those of a unit file: what is given several times has several values.
type settings map[string][]string

func readUnit(t *testing.T, path string) settings {
	t.Helper()
	text := testenv.ReadFile(t, path)
	found := settings{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(key, "#") {
			found[key] = append(found[key], value)
		}
	}
	return found
}

// words are those of all values of a setting, in order.
func (s settings) words(key string) []string {
	words := strings.Fields(strings.Join(s[key], " "))
	slices.Sort(words)
	return words
}

// number is the value of a setting that has one.
func (s settings) number(t *testing.T, key string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.Join(s[key], " "))
	assert.Check(t, err, key)
	return n
}

// capabilityBits are the numbers of capabilities.
var capabilityBits = map[string]uint64{
	"CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH, "CAP_SETGID": unix.CAP_SETGID, "CAP_SETUID": unix.CAP_SETUID,
	"CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_SYSLOG": unix.CAP_SYSLOG, "CAP_PERFMON": unix.CAP_PERFMON,
	"CAP_BPF": unix.CAP_BPF, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_CHECKPOINT_RESTORE": unix.CAP_CHECKPOINT_RESTORE,
}

// documented returns the capabilities in the table of docs/security.md, which cmd/correlator tests,
// and those of them that only kernel stacks need.
func documented(t *testing.T) (all, forKernelStacks []string) {
	t.Helper()
	text := testenv.ReadFile(t, "../docs/security.md")
	for _, row := range regexp.MustCompile(`(?m)^\| (CAP_[A-Z_]+)(, with .--kernel-stacks. only)? \|`).FindAllStringSubmatch(string(text), -1) {
		if row[2] != "" {
			forKernelStacks = append(forKernelStacks, row[1])
		} else {
			all = append(all, row[1])
		}
	}
	for _, name := range slices.Concat(all, forKernelStacks) {
		_, known := capabilityBits[name]
		assert.Assert(t, known, "%s has no number here", name)
	}
	assert.Assert(t, len(all) != 0 && len(forKernelStacks) != 0, "docs/security.md has no table of capabilities")
	slices.Sort(all)
	return all, forKernelStacks
}

// The unit grants what the documentation lists as needed, and nothing else.
func TestUnitCapabilities(t *testing.T) {
	all, forKernelStacks := documented(t)
	unit := readUnit(t, service)
	got := unit.words("CapabilityBoundingSet")
	assert.Check(t, slices.Equal(got, all), "the unit gives %v, documented are %v", got, all)
	got = readUnit(t, kernelStacks).words("CapabilityBoundingSet")
	assert.Check(t, slices.Equal(got, forKernelStacks), "kernel stacks get %v, documented are %v", got, forKernelStacks)
	assert.Check(t, len(unit["AmbientCapabilities"]) == 0 && len(unit["User"]) == 0,
		"the unit gives other rights than root's within the bounding set")
}

// The unit's limits suffice for as many processes as the agent serves by default (docs/security.md,
// resources that a process can consume).
func TestUnitLimits(t *testing.T) {
	unit := readUnit(t, service)
	if tasks := unit.number(t, "TasksMax"); tasks < agent.DefaultMaxProcesses+1400 {
		t.Errorf("TasksMax is %d: hostile processes can make the agent end", tasks)
	}
	const cpus = 1024
	files := unit.number(t, "LimitNOFILE")
	assert.Check(t, files >= 4*agent.DefaultMaxProcesses+3*cpus, "LimitNOFILE is %d", files)
	stop, err := time.ParseDuration(strings.Join(unit["TimeoutStopSec"], " "))
	if needed := export.DefaultShutdownTimeout + time.Second; err != nil || stop < 2*needed {
		t.Errorf("the agent is killed after %v (%v), and takes up to %v", stop, err, needed)
	}
	memory := strings.Join(unit["MemoryMax"], " ")
	limit, _ := strings.CutPrefix(strings.Join(unit["Environment"], " "), "GOMEMLIMIT=")
	of, is := bytesOf(t, memory), bytesOf(t, limit)
	assert.Check(t, is <= of*3/4 && is >= of/2, "GOMEMLIMIT is %s of %s", limit, memory)
}

// bytesOf is a size with a unit as systemd ("M"), Go ("MiB") or Kubernetes ("Mi") write it.
func bytesOf(t *testing.T, size string) int {
	t.Helper()
	digits, found := strings.CutSuffix(strings.TrimSuffix(strings.TrimSuffix(size, "B"), "i"), "M")
	n, err := strconv.Atoi(digits)
	assert.Check(t, err == nil && found, "size %q is not in MiB", size)
	return n << 20
}

// systemd knows every setting, and finds the unit restricted.
func TestUnitVerified(t *testing.T) {
	analyze := testenv.NeedTool(t, "systemd-analyze")
	dir := t.TempDir()
	text := testenv.ReadFile(t, service)
	// The programs that it executes must exist.
	text = bytes.ReplaceAll(text, []byte("/usr/local/bin/correlator"), []byte("/bin/true"))
	testenv.WriteFile(t, filepath.Join(dir, "correlator.service"), text)
	for _, conf := range []string{service, kernelStacks, pinMaps} { // the drop-ins one after the other
		t.Run(conf, func(t *testing.T) {
			if conf != service {
				text := testenv.ReadFile(t, conf)
				testenv.WriteFile(t, filepath.Join(dir, "correlator.service.d/local.conf"), text)
			}
			out, err := exec.Command(analyze, "verify", "--man=no", dir+"/correlator.service").CombinedOutput()
			assert.Check(t, err == nil && len(out) == 0, "systemd-analyze verify: %v\n%s", err, out)
		})
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--threshold="+maxExposure,
		service).CombinedOutput()
	assert.Check(t, err, "systemd-analyze security: %v\n%s", err, out)
}
