package check

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/otlp"
)

// Mounts of cgroups of both versions, and the cgroups of the process.
const (
	unifiedMounts = "30 1 0:9 / DIR/cg rw - cgroup2 cgroup2 rw\n"
	mixedMounts   = "30 1 0:9 / DIR/unified rw - cgroup2 cgroup2 rw\n" +
		"31 1 0:10 / DIR/memory rw - cgroup cgroup rw,memory\n" +
		"32 1 0:11 /docker DIR/cpu rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"33 1 0:12 / DIR/pids rw - cgroup cgroup rw,pids\n"
	mixedGroups = "9:memory:/docker/c\n8:cpu,cpuacct:/docker/c\n7:pids:/elsewhere\n0::/\n"
)

func TestCgroupLimits(t *testing.T) {
	for _, test := range []struct {
		name           string
		files          map[string]string
		check          string
		status         Status
		detail, remedy string
	}{
		{"none", nil, "memory", OK, "no limit", ""},
		{"none", nil, "cpu", OK, "no limit of the cgroup; GOMAXPROCS", ""},
		{"none", nil, "pids", OK, "no limit", ""},
		{"ample", map[string]string{"cg/a/b/memory.max": "1073741824"}, "memory", OK, "1024 MiB", ""},
		{"low", map[string]string{"cg/a/b/memory.max": "33554432"}, "memory", Degraded, "32 MiB", "allow 65 MiB"},
		{"low above", map[string]string{"cg/a/b/memory.max": "max", "cg/a/memory.max": "33554432"}, "memory", Degraded,
			"32 MiB", "allow"},
		{"broken", map[string]string{"cg/a/b/memory.max": "much"}, "memory", Degraded, "unknown", "proc-root"},
		{"half", map[string]string{"cg/a/b/cpu.max": "50000 100000"}, "cpu", OK, "0.50 CPUs", ""},
		{"low", map[string]string{"cg/a/b/cpu.max": "max 100000", "cg/a/cpu.max": "5000 100000"}, "cpu", Degraded,
			"0.05 CPUs", "allow 0.1 CPUs"},
		{"low", map[string]string{"cg/a/b/pids.max": "100"}, "pids", Degraded, "100 threads", "allow 5496"},
		{"ample", map[string]string{"cg/a/b/pids.max": "5500"}, "pids", OK, "5500 threads", ""},
	} {
		t.Run(test.check+" "+test.name, func(t *testing.T) {
			files := map[string]string{"proc/7/cgroup": "0::/a/b\n", "proc/7/mountinfo": unifiedMounts}
			for name, text := range test.files {
				files[name] = text + "\n"
			}
			found(t, fakeMachine(t, files), test.check).verify(t, test.status, test.detail, test.remedy)
		})
	}
	m := fakeMachine(t, map[string]string{
		"proc/7/cgroup": mixedGroups, "proc/7/mountinfo": mixedMounts,
		"memory/docker/c/memory.limit_in_bytes": "9223372036854771712\n",
		"memory/docker/memory.limit_in_bytes":   "1048576\n",
		"cpu/c/cpu.cfs_quota_us":                "2000\n", "cpu/c/cpu.cfs_period_us": "100000\n",
		"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n",
		"pids/docker/c/pids.max": "1\n", // of another process
	})
	found(t, m, "memory").verify(t, Degraded, "1 MiB", "allow")
	found(t, m, "cpu").verify(t, Degraded, "0.02 CPUs", "allow")
	found(t, m, "pids").verify(t, OK, "no limit", "")
}

// The queues of the export take memory, and the receiver's socket a descriptor.
func TestLimitsWithExport(t *testing.T) {
	m := fakeMachine(t,
		map[string]string{"proc/7/cgroup": "0::/a/b\n", "proc/7/mountinfo": unifiedMounts,
			"cg/a/b/memory.max": "33554432\n"})
	m.config.Export.Destinations, m.config.Export.QueueBytes = make([]otlp.Destination, 1), 100<<20
	found(t, m, "memory").verify(t, Degraded, "32 MiB", "allow 173 MiB")

	without := m.config.startDescriptors(2)
	m.config.Export.Receiver.Listen = "127.0.0.1:0"
	with := m.config.startDescriptors(2)
	assert.Check(t, with == without+1, "listening takes %d descriptors", with-without)
}
