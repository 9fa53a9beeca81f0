//go:build guest

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"correlator/internal/demo"
	"correlator/internal/process"
	"correlator/internal/testenv"
)

// hierarchies are those of cgroups version 1, as systemd mounts them in its modes "hybrid" and
// "legacy" (systemd.unified_cgroup_hierarchy=0).
var hierarchies = []struct {
	name, options string
	file, limit   string // in a cgroup there
	row, says     string // of check, about the limit
}{
	{name: "systemd", options: "none,name=systemd"},
	{name: "pids", options: "pids", file: "pids.max", limit: "500", row: "pids", says: "^500 threads"},
	{name: "cpu", options: "cpu,cpuacct", file: "cpu.cfs_quota_us", limit: "150000", row: "cpu", says: `^1\.50 CPUs`},
	// Not with kernels built without CONFIG_MEMCG_V1, which exists since Linux 6.11.
	{name: "memory", options: "memory", file: "memory.limit_in_bytes", limit: "134217728", row: "memory",
		says: "^128 MiB"},
}

// With hierarchies of version 1 beside that of version 2 (hybrid), and alone, check sees their
// limits, and a process is known by the container that its cgroup names there.
func TestCgroupV1(t *testing.T) {
	needSampler(t)
	container := strings.Repeat("0123456789abcdef", 4)
	said := make(map[string]string) // by check, as regular expressions
	var enter []string
	for _, h := range hierarchies {
		root := filepath.Join("/run/cgroup-v1", h.name)
		if !mountHierarchy(t, root, h.options) {
			continue
		}
		group := filepath.Join(root, "docker", container)
		if err := os.MkdirAll(group, 0o755); err != nil {
			t.Fatal(err)
		}
		if h.file != "" {
			testenv.WriteFile(t, filepath.Join(group, h.file), h.limit)
			said[h.row] = h.says
		}
		enter = append(enter, "echo $$ > "+filepath.Join(group, "cgroup.procs"))
	}
	inside := []string{"sh", "-c", strings.Join(append(enter, `exec "$@"`), " && "), "sh"}
	p := demo.Start(t, demo.Options{Busy: 1, Manual: true, Placement: demo.Placement{By: inside}})
	context := p.Begin(1)
	for _, c := range []circumstance{
		{name: "hybrid", by: inside},
		{name: "version 1 alone", by: append(mounting("umount /sys/fs/cgroup"), inside...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			results, works := checked(t, c.by, nil)
			if !works {
				t.Errorf("check says that it does not work: %+v", results)
			}
			for name, want := range said {
				if got := row(results, name); !regexp.MustCompile(want).MatchString(got) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			var views []process.View
			if err := json.Unmarshal(command(t, "", "scan", "-o", "json"), &views); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(views, func(v process.View) bool {
				return v.PID == p.PID && v.ContainerID == container && v.CgroupPath == "/docker/"+container
			}) {
				t.Errorf("process %d is not in its container: %+v", p.PID, views)
			}
			new(kernelOption).serves(t, p, context, startAgent(t, c.by), "")
		})
	}
}

// mountHierarchy mounts a hierarchy, and reports whether the kernel has its controller.
func mountHierarchy(t *testing.T, path, options string) bool {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("cgroup", path, "cgroup", 0, options)
	if options == "memory" && errors.Is(err, unix.EINVAL) {
		t.Log("the kernel has no memory controller of version 1")
		return false
	}
	if err != nil {
		t.Fatalf("mounting %s: %v", options, err)
	}
	return true
}
