//go:build guest

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
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
	{name: "memory", options: "memory", file: "memory.limit_in_bytes", limit: "134217728", row: "memory",
		says: "^128 MiB"},
}

// With hierarchies of version 1 alone, and beside that of version 2 (hybrid), check sees their
// limits, and a process is known by the container that its cgroup names there.
func TestCgroupV1(t *testing.T) {
	needSampler(t)
	assert.Assert(t, !unified(t, "self"), "a hierarchy of version 2 has been mounted since the machine was booted")
	container := strings.Repeat("0123456789abcdef", 4)
	limited := make(map[string]bool) // by row of check
	var enter []string
	for _, h := range hierarchies {
		group := mountHierarchy(t, h.name, h.options, "docker/"+container)
		if group == "" {
			continue
		}
		if h.file != "" {
			testenv.WriteFile(t, filepath.Join(group, h.file), h.limit)
			limited[h.row] = true
		}
		enter = append(enter, "echo $$ > "+filepath.Join(group, "cgroup.procs"))
	}
	inside := []string{"sh", "-c", strings.Join(append(enter, `exec "$@"`), " && "), "sh"}
	p := demo.Start(t, demo.Options{Busy: 1, Manual: true, Placement: demo.Placement{By: inside}})
	context := p.Begin(1)
	served := func(t *testing.T) {
		results, works := checked(t, installed(t), inside, nil)
		assert.Check(t, works, "check says that it does not work: %+v", results)
		for _, h := range hierarchies {
			if h.row == "" {
				continue
			}
			t.Run("limit of "+h.row, func(t *testing.T) {
				if !limited[h.row] {
					testenv.Missing(t, "the kernel has no "+h.name+" controller of cgroups version 1")
				}
				got := row(results, h.row)
				assert.Check(t, regexp.MustCompile(h.says).MatchString(got), "%q, want %q", got, h.says)
			})
		}
		var views []process.View
		assert.NilError(t, json.Unmarshal(command(t, "", "scan", "-o", "json"), &views))
		if !slices.ContainsFunc(views, func(v process.View) bool {
			return v.PID == p.PID && v.ContainerID == container && v.CgroupPath == "/docker/"+container
		}) {
			t.Errorf("process %d is not in its container: %+v", p.PID, views)
		}
		new(kernelOption).serves(t, p, context, startAgent(t, inside), "")
	}
	t.Run("version 1 alone", func(t *testing.T) {
		served(t)
		assert.Check(t, !unified(t, strconv.Itoa(p.PID)), "the process is in a cgroup of version 2")
	})
	t.Run("hybrid", func(t *testing.T) {
		assert.NilError(t, mount(t, "cgroup2", "/sys/fs/cgroup", ""))
		served(t)
		assert.Check(t, unified(t, strconv.Itoa(p.PID)), "the process is in no cgroup of version 2")
	})
}

// unified reports whether a process is in a cgroup of version 2. Each is, as soon as that hierarchy was
// mounted anywhere: cgrp_dfl_visible in kernel/cgroup/cgroup.c.
func unified(t *testing.T, pid string) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/cgroup")
	assert.NilError(t, err)
	return slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "0::")
	})
}

func mount(t *testing.T, kind, path, options string) error {
	t.Helper()
	if err := unix.Mount(kind, path, kind, 0, options); err != nil {
		return fmt.Errorf("mounting %s with %q: %w", kind, options, err)
	}
	t.Cleanup(func() {
		assert.Check(t, unix.Unmount(path, 0), "unmounting %s", path)
	})
	return nil
}

// mountHierarchy mounts a hierarchy of version 1 with a cgroup, until the end of the test, and returns
// the directory of that. It is empty where the kernel does not have the controller.
func mountHierarchy(t *testing.T, name, options, group string) string {
	t.Helper()
	root := filepath.Join("/run/cgroup-v1", name)
	assert.NilError(t, os.MkdirAll(root, 0o755))
	err := mount(t, "cgroup", root, options)
	// CONFIG_MEMCG_V1 is an option since Linux 6.11.
	if options == "memory" && errors.Is(err, unix.EINVAL) && !testenv.KernelBefore(t, [2]int{6, 11}) {
		return ""
	}
	assert.NilError(t, err)
	dir := filepath.Join(root, group)
	assert.NilError(t, os.MkdirAll(dir, 0o755))
	t.Cleanup(func() {
		for dir := dir; dir != root; dir = filepath.Dir(dir) {
			// Processes leave it some time after they have ended.
			testenv.Poll(t, deadline, "removal of "+dir, func() bool { return unix.Rmdir(dir) == nil })
		}
	})
	return dir
}
