package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// scan shows what run leaves out as filtered, by flags or by the environment.
func TestScanFiltered(t *testing.T) {
	testenv.NeedRoot(t)
	shop := demo.Start(t, demo.Options{Service: "shop", Idle: 1})
	test := demo.Start(t, demo.Options{Service: "shop-test", Idle: 1})
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	assert.NilError(t, err)
	for _, c := range []struct {
		flags       []string
		environment string
		shop, test  process.State
	}{
		{nil, "", process.StateReady, process.StateReady},
		{[]string{"--include-service", "shop"}, "", process.StateReady, process.StateFiltered},
		{[]string{"--include-service", "none", "--include-service", "shop.*", "--exclude-service", "shop"}, "",
			process.StateFiltered, process.StateReady},
		{nil, "CORRELATOR_INCLUDE_SERVICE=none\nshop-test\n", process.StateFiltered, process.StateReady},
		{[]string{"--include-service", "shop"}, "CORRELATOR_INCLUDE_SERVICE=shop-test", process.StateReady,
			process.StateFiltered},
		{[]string{"--exclude-container", "/.*"}, "", process.StateFiltered, process.StateFiltered},
		{nil, "CORRELATOR_INCLUDE_CONTAINER=/.*", process.StateReady, process.StateReady},
	} {
		if name, value, ok := strings.Cut(c.environment, "="); ok {
			t.Setenv(name, value)
		}
		processes := jsonOf[[]process.View](t, nil, append([]string{"scan"}, c.flags...)...)
		if name, _, ok := strings.Cut(c.environment, "="); ok {
			os.Unsetenv(name) // Setenv puts back what was there before
		}
		for p, want := range map[*demo.Process]process.State{shop: c.shop, test: c.test} {
			i := slices.IndexFunc(processes, func(v process.View) bool { return v.PID == p.PID })
			if i < 0 || processes[i].State != want ||
				!strings.Contains(string(cgroup), ":"+processes[i].CgroupPath+"\n") {
				t.Errorf("%v %q: process %d is not %s: %+v", c.flags, c.environment, p.PID, want, processes)
			}
		}
	}

	// The keys are there also when there is nothing to say.
	out := command(t, "", "scan", "-o", "json", "--exclude-service", "shop")
	for _, key := range []string{`"container_id": `, `"cgroup_path": `, `"state": "filtered"`} {
		assert.Check(t, strings.Contains(string(out), key), "no %s in\n%s", key, out)
	}
	report := test.Quit()
	assert.Check(t, report.Messages == 0, "scanning sent %d messages", report.Messages)
}

// --service is --include-service: on the command line it goes before the environment and the file.
func TestRecordService(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	assert.NilError(t, os.WriteFile(path, []byte("include-service: file\n"), 0o600))
	t.Setenv("CORRELATOR_CONFIG", path)
	for _, c := range []struct {
		args        []string
		environment string
		want        []string
	}{
		{[]string{"--service", "flag"}, "environment", []string{"flag"}},
		{[]string{"--service", "flag"}, "", []string{"flag"}},
		{[]string{"--service", "a", "--include-service", "b"}, "environment", []string{"a", "b"}},
		{nil, "environment", []string{"environment"}},
		{nil, "", []string{"file"}},
	} {
		if c.environment == "" {
			os.Unsetenv("CORRELATOR_INCLUDE_SERVICE")
		} else {
			t.Setenv("CORRELATOR_INCLUDE_SERVICE", c.environment)
		}
		a, options := newApp(), newRecordOptions()
		cmd := a.addRecord(options)
		assert.NilError(t, cmd.ParseFlags(c.args))
		assert.NilError(t, cmd.PreRunE(cmd, nil))
		if got := []string(options.Filter.IncludeServices); !slices.Equal(got, c.want) {
			t.Errorf("%v, environment %q: %q, want %q", c.args, c.environment, got, c.want)
		}
	}
}

// In a cgroup namespace of the agent's own, as pods have it, paths of cgroups are those of the host, and filters by
// them hold. Where they cannot, nothing starts.
func TestFilterInCgroupNamespace(t *testing.T) {
	testenv.NeedRoot(t)
	unshare := testenv.NeedTool(t, "unshare")
	p := demo.Start(t, demo.Options{Service: "shop", Idle: 1})
	all := jsonOf[[]process.View](t, nil, "scan")
	at := slices.IndexFunc(all, func(v process.View) bool { return v.PID == p.PID })
	assert.Assert(t, at >= 0)
	path := all[at].CgroupPath
	if path == "/" {
		testenv.Missing(t, "the tests run in the root of all cgroups")
	}
	scan := func(by []string, pattern string) (views []process.View, text string, err error) {
		args := append(slices.Clone(by[1:]), installed(t), "scan", "-o", "json", "--exclude-container", pattern)
		var stderr strings.Builder
		cmd := exec.Command(by[0], args...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err == nil {
			assert.NilError(t, json.Unmarshal(out, &views))
		}
		return views, stderr.String(), err
	}
	inside := []string{unshare, "--cgroup"}
	for pattern, want := range map[string]process.State{
		regexp.QuoteMeta(path): process.StateFiltered, "/other": process.StateReady,
	} {
		views, text, err := scan(inside, pattern)
		assert.NilError(t, err, text)
		i := slices.IndexFunc(views, func(v process.View) bool { return v.PID == p.PID })
		assert.Check(t, i >= 0 && views[i].State == want && views[i].CgroupPath == path, "%s: %+v", pattern, views)
	}
	_, text, err := scan(inside, `/\.\./a`)
	assert.Check(t, err != nil && strings.Contains(text, "no path of a cgroup"), "%v: %s", err, text)
	_, text, err = scan(append(inside, privileges(needed...)...), "/a")
	assert.Check(t, err != nil && strings.Contains(text, "finding the paths of cgroups for"), "%v: %s", err, text)
	_, text, err = scan(append(inside, privileges(needed...)...), "[^/]+")
	assert.NilError(t, err, text)
}
