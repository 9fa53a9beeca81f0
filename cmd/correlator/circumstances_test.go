package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A circumstance is an environment in which `run` works or does not, and `check` must agree.
type circumstance struct {
	name      string
	by        []string                 // command that runs others in them
	refuse    map[uint32]syscall.Errno // what a seccomp filter answers, by system call
	flags     []string                 // DIR is a directory of the test's own
	prepare   func(t *testing.T, dir string)
	engine    bool // start the unwinding engine, too, which takes long
	unsampled bool // take no samples, which take time, where nothing depends on them
	works     bool
	since     [2]int   // of Linux: before, the sampler is missing
	lacks     []string // names of what is missing, not all
	limited   []string // of what is degraded, not all
}

// circumstances are those in which kernels may differ.
var circumstances = []circumstance{
	{name: "root", works: true},
	{name: "the capabilities that are needed", by: privileges(needed...), works: true, engine: true},
	{name: "another user", by: []string{"setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups",
		"--inh-caps", capabilitySet(needed), "--ambient-caps", capabilitySet(needed)}, works: true},
	{name: "another user without any", by: []string{"setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"},
		lacks: []string{"CAP_SYS_PTRACE", "CAP_BPF", "sampler", "live-events"}},
	{name: "no CAP_SYS_PTRACE", by: privileges(without("sys_ptrace")...), works: true, unsampled: true,
		lacks: []string{"CAP_SYS_PTRACE"}},
	{name: "no CAP_BPF", by: privileges(without("bpf")...),
		lacks: []string{"CAP_BPF", "task-iterator", "ring-buffer", "sampler"}},
	{name: "no CAP_PERFMON", by: privileges(without("perfmon")...),
		lacks: []string{"CAP_PERFMON", "task-iterator", "perf-cpu-clock", "live-events"}},
	{name: "no CAP_CHECKPOINT_RESTORE", by: privileges(without("checkpoint_restore")...), works: true, unsampled: true,
		lacks: []string{"CAP_CHECKPOINT_RESTORE"}},
	{name: "no CAP_DAC_READ_SEARCH", by: privileges(without("dac_read_search")...), works: true, unsampled: true,
		lacks: []string{"CAP_DAC_READ_SEARCH"}},
	{name: "no CAP_SETUID", by: privileges(without("setuid")...), works: true, unsampled: true,
		lacks: []string{"CAP_SETUID"}},
	{name: "no CAP_SETGID", by: privileges(without("setgid")...), works: true, unsampled: true,
		lacks: []string{"CAP_SETGID"}},
	{name: "CAP_SYS_ADMIN instead", by: privileges("sys_ptrace", "sys_admin", "dac_read_search", "setuid",
		"setgid"), works: true},
	{name: "no CAP_SYSLOG", by: privileges(needed...), flags: []string{"--kernel-stacks"}, works: true},
	{name: "fed, no CAP_BPF", by: privileges(without("bpf")...), flags: fed, works: true,
		lacks: []string{"CAP_BPF", "task-iterator"}},
	{name: "fed, no capability", by: privileges(), flags: fed, works: true,
		lacks: []string{"CAP_PERFMON", "live-events"}},

	{name: "pid namespace", by: []string{"unshare", "--pid", "--fork", "--kill-child"},
		lacks: []string{"pid-namespace"}},
	{name: "pid namespace with its procfs", by: []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"},
		works: true, limited: []string{"pid-namespace"}},
	{name: "user namespace", by: []string{"unshare", "--user", "--map-root-user"},
		lacks: []string{"user-namespace", "sampler"}},
	{name: "fed, user namespace", by: []string{"unshare", "--user", "--map-root-user"}, flags: fed, works: true,
		lacks: []string{"user-namespace"}},
	{name: "mount and cgroup namespace", by: []string{"unshare", "--mount", "--cgroup"}, works: true},
	{name: "cgroup namespace, filtered", by: []string{"unshare", "--cgroup"},
		flags: []string{"--exclude-container", "/a"}, unsampled: true, works: true},
	{name: "cgroup namespace, filtered, without the right to leave it", by: append([]string{"unshare", "--cgroup"},
		privileges(needed...)...),
		flags: []string{"--exclude-container", "/a"}, unsampled: true, lacks: []string{"cgroup-namespace"}},
	{name: "cgroup namespace, filtered by ids", by: append([]string{"unshare", "--cgroup"},
		privileges(needed...)...),
		flags: []string{"--exclude-container", "[^/]+"}, unsampled: true, works: true},

	{name: "no BTF", by: mounting("mount -t tmpfs none /sys/kernel/btf"),
		lacks: []string{"btf", "task-iterator", "sampler"}},
	{name: "fed, no BTF", by: mounting("mount -t tmpfs none /sys/kernel/btf"), flags: fed, works: true,
		lacks: []string{"btf"}},
	{name: "no sysfs", by: mounting("mount -t tmpfs none /sys"), lacks: []string{"btf", "perf-cpu-clock", "sampler"}},
	{name: "no procfs", by: mounting("mount -t tmpfs none /proc"), lacks: []string{"proc-root", "pid-namespace"}},
	{name: "procfs elsewhere", by: mounting("mkdir -p DIR/proc && mount --bind /proc DIR/proc && mount -t tmpfs " +
		"none /proc"),
		flags: []string{"--proc-root", "DIR/proc"}, lacks: []string{"sampler"}},
	{name: "procfs elsewhere and here", by: mounting("mkdir -p DIR/proc && mount --bind /proc DIR/proc"),
		flags: []string{"--proc-root", "DIR/proc"}, works: true, lacks: []string{"proc-root-path"}},
	{name: "procfs elsewhere, far below", by: mounting("mkdir -p DIR/" + far + " && mount --bind /proc DIR/" + far),
		flags: []string{"--proc-root", "DIR/" + far}, works: true, unsampled: true, lacks: []string{"proc-root-path"}},
	{name: "proc root that does not exist", flags: []string{"--proc-root", "/nonexistent"},
		unsampled: true, lacks: []string{"proc-root"}},
	{name: "proc root without procfs", flags: []string{"--proc-root", "."}, unsampled: true,
		lacks: []string{"proc-root"}},
	{name: "settings hidden", by: mounting("mkdir -p DIR/proc && mount -t proc -o subset=pid proc DIR/proc"),
		flags: []string{"--proc-root", "DIR/proc"}, works: true, limited: nil},

	{name: "bpf refused", refuse: map[uint32]syscall.Errno{unix.SYS_BPF: unix.EPERM},
		lacks: []string{"task-iterator", "ring-buffer", "sampler"}},
	{name: "no bpf", refuse: map[uint32]syscall.Errno{unix.SYS_BPF: unix.ENOSYS},
		lacks: []string{"task-iterator", "ring-buffer", "sampler"}},
	{name: "fed, bpf refused", refuse: map[uint32]syscall.Errno{unix.SYS_BPF: unix.EPERM}, flags: fed, works: true,
		lacks: []string{"task-iterator"}},
	{name: "perf refused", refuse: map[uint32]syscall.Errno{unix.SYS_PERF_EVENT_OPEN: unix.EPERM},
		lacks: []string{"perf-cpu-clock", "sampler", "live-events"}},
	{name: "fed, no perf", refuse: map[uint32]syscall.Errno{unix.SYS_PERF_EVENT_OPEN: unix.ENOSYS}, flags: fed,
		works: true, lacks: []string{"live-events"}},
	{name: "openat2 refused", refuse: map[uint32]syscall.Errno{unix.SYS_OPENAT2: unix.EPERM}, unsampled: true,
		lacks: []string{"openat2"}},
	{name: "no pidfd_open", refuse: map[uint32]syscall.Errno{unix.SYS_PIDFD_OPEN: unix.ENOSYS}, unsampled: true,
		lacks: []string{"pidfd"}},
	{name: "process_vm_readv refused", refuse: map[uint32]syscall.Errno{unix.SYS_PROCESS_VM_READV: unix.EPERM},
		works: true, unsampled: true, limited: []string{"process_vm_readv"}},

	{name: "20 descriptors", by: limited("-n 20"), lacks: []string{"RLIMIT_NOFILE", "sampler"}},
	{name: "100 descriptors", by: limited("-n 100"), works: true, limited: []string{"RLIMIT_NOFILE"}},
	{name: "fed, 15 descriptors", by: limited("-n 15"), flags: fed, lacks: []string{"RLIMIT_NOFILE"}},
	{name: "fed, 32 descriptors", by: limited("-n 32"), flags: fed, works: true, limited: []string{"RLIMIT_NOFILE"}},
	{name: "no locked memory", by: slices.Concat(limited("-l 0"), privileges(needed...)), works: true,
		since: [2]int{5, 11}}, // when eBPF's memory no longer counts for it

	{name: "pins elsewhere", flags: []string{"--pin-maps", "DIR/pins"}, unsampled: true, lacks: []string{"pin-maps"}},
	{name: "pins", by: mounting("mkdir -p DIR/bpf && mount -t bpf bpf DIR/bpf"),
		flags: []string{"--pin-maps", "DIR/bpf/correlator"}, works: true},
	{name: "pins alone", by: mounting("mkdir -p DIR/bpf && mount -t bpf bpf DIR/bpf"),
		flags: []string{"--pin-maps", "DIR/bpf/correlator", "--samples-per-second", "0"}, works: true},
	{name: "pins read-only", by: mounting("mkdir -p DIR/bpf && mount -t bpf -o ro bpf DIR/bpf"),
		flags: []string{"--pin-maps", "DIR/bpf/correlator"}, unsampled: true, lacks: []string{"pin-maps"}},
	{name: "pins in use", by: mounting("mkdir -p DIR/bpf && mount -t bpf bpf DIR/bpf && mkdir -m 0700 DIR/bpf/c && exec " +
		"9<DIR/bpf/c && flock 9"),
		flags: []string{"--pin-maps", "DIR/bpf/c"}, unsampled: true, lacks: []string{"pin-maps"}},
}

// socketCircumstances are those in which no kernel differs from others, one of each kind: see TestSockets
// and TestPorts of internal/operate/check for the others.
var socketCircumstances = []circumstance{
	{name: "everything, left behind by a killed agent", flags: exporting("--feed-socket", "DIR/feed", "--admin-socket",
		"DIR/new/admin", "--metrics-address", "127.0.0.1:0", "--otlp-listen", "unix:DIR/otlp", "--opencensus-socket",
		"DIR/php", "--live-listen", "uds:DIR/live ws://"+newLoopback()+":11233"),
		prepare: leave("unixgram feed", "unix otlp", "unix php", "unix live"), works: true},
	{name: "in the admin socket's new directory", flags: exporting("--admin-socket", "DIR/new/admin", "--feed-socket",
		"DIR/new/feed", "--otlp-listen", "unix:DIR/new/otlp", "--opencensus-socket", "DIR/new/php"), works: true},
	{name: "OTLP port, OpenCensus of a group", flags: exporting("--otlp-listen", "127.0.0.1:0", "--opencensus-socket",
		"DIR/php", "--config", "DIR/config"), prepare: groupOf("1000"), works: true},

	{name: "feed socket in no directory", flags: []string{"--feed-socket", "DIR/missing/feed"},
		lacks: []string{"feed-socket"}},
	{name: "another user's feed socket", by: []string{"setpriv", "--reuid", "1000", "--regid", "1000",
		"--clear-groups"}, flags: fed,
		lacks: []string{"feed-socket"}},
	{name: "admin socket in no directory", flags: []string{"--admin-socket", "DIR/missing/directory/admin"},
		lacks: []string{"admin-socket"}},
	{name: "25 descriptors and an admin socket", by: limited("-n 25"),
		flags: []string{"--admin-socket", "DIR/admin"}, lacks: []string{"RLIMIT_NOFILE"}},
	{name: "metrics on an address of others", flags: []string{"--metrics-address", "192.0.2.1:9464"},
		lacks: []string{"metrics-address"}},
	{name: "OTLP socket in no directory", flags: exporting("--otlp-listen", "unix:DIR/missing/otlp"),
		lacks: []string{"otlp-listen"}},
	{name: "OTLP port in use", flags: exporting("--otlp-listen", taken+":4317"),
		prepare: listening("tcp", taken+":4317"), lacks: []string{"otlp-listen"}},
	{name: "OTLP certificate that is none", flags: []string{"--config", "DIR/config"}, prepare: writeBadCertificate,
		lacks: []string{"otlp-destination https://otel.invalid"}},
	{name: "OpenCensus of a group, no CAP_SETGID", by: privileges(without("setgid")...),
		flags:   exporting("--opencensus-socket", "DIR/php", "--config", "DIR/config"),
		prepare: groupOf("1000"), lacks: []string{"opencensus-socket"}},
	{name: "OpenCensus socket in no directory", flags: exporting("--opencensus-socket", "DIR/missing/php"),
		lacks: []string{"opencensus-socket"}},
	{name: "live view's port in use", flags: []string{"--live-listen", "ws://" + taken + ":11233"},
		prepare: listening("tcp", taken+":11233"), lacks: []string{"live-listen ws://" + taken + ":11233"}},
}

var (
	fed = []string{"--samples-per-second", "0", "--feed-socket", "DIR/feed"}
	far = strings.Repeat("d", 88)

	taken = newLoopback() // has ports in use
)

// newLoopback returns an address of this host that nobody else uses: the tests may run twice at a time.
func newLoopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// exporting is more flags, for a destination that is down, which does not keep run from starting.
func exporting(flags ...string) []string {
	return append([]string{"--otlp-endpoint", "http://127.0.0.1:1"}, flags...)
}

// privileges returns a command that runs another one as root with some capabilities only.
func privileges(capabilities ...string) []string {
	set := strings.TrimSuffix("-all,+"+strings.Join(capabilities, ",+"), ",+")
	return []string{"setpriv", "--bounding-set", set, "--inh-caps", "-all"}
}

// mounting returns a command that runs another one after a shell command that mounts something.
func mounting(what string) []string {
	return []string{"unshare", "--mount", "sh", "-c", what + ` && exec "$@"`, "sh"}
}

func limited(limit string) []string {
	return []string{"sh", "-c", "ulimit " + limit + ` && exec "$@"`, "sh"}
}

func listening(network, address string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		l, err := net.Listen(network, strings.ReplaceAll(address, "DIR", dir))
		assert.NilError(t, err)
		t.Cleanup(func() { l.Close() })
	}
}

func writeBadCertificate(t *testing.T, dir string) {
	testenv.WriteFile(t, filepath.Join(dir, "file"), "")
	config := "otlp: {destinations: [{endpoint: https://otel.invalid, certificate: " + filepath.Join(dir, "file") +
		"}]}\n"
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600))
}

func groupOf(group string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		testenv.WriteFile(t, filepath.Join(dir, "config"), "opencensus: {socket-group: \""+group+"\"}\n")
	}
}

// leave leaves sockets behind, each with its network, as a killed agent does.
func leave(sockets ...string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		for _, socket := range sockets {
			network, name, _ := strings.Cut(socket, " ")
			kind := map[string]int{"unix": unix.SOCK_STREAM, "unixgram": unix.SOCK_DGRAM}[network]
			fd, err := unix.Socket(unix.AF_UNIX, kind, 0)
			assert.NilError(t, err)
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, name)})
			assert.NilError(t, errors.Join(err, unix.Close(fd)))
		}
	}
}
