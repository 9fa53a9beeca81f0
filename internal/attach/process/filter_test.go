package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/worker/access/accesstest"
	"correlator/procscan"
)

func patterns(t *testing.T, lines ...string) Patterns {
	t.Helper()
	p, err := ParsePatterns(strings.Join(lines, "\n"))
	assert.NilError(t, err)
	return p
}

func TestFilterService(t *testing.T) {
	for _, c := range []struct {
		include, exclude []string
		name             string
		want             bool
	}{
		{nil, nil, "shop", true},
		{nil, nil, "", true},
		{[]string{"shop"}, nil, "shop", true},
		{[]string{"shop"}, nil, "shop-test", false},
		{[]string{"shop"}, nil, "my shop", false},
		{[]string{"shop"}, nil, "Shop", false},
		{[]string{"(?i)shop"}, nil, "Shop", true},
		{[]string{"shop.*"}, nil, "shop-test", true},
		{[]string{".*"}, nil, "a\nb", true},
		{[]string{".*"}, nil, "", true},
		{[]string{".+"}, nil, "", false},
		{[]string{"a|b"}, nil, "b", true},
		{[]string{"a|b"}, nil, "ab", false},
		{[]string{"(?m)a$"}, nil, "a\nb", false},
		{[]string{`\Qa.b`}, nil, "a.b", true},
		{[]string{`\Qa.b`}, nil, "axb", false},
		{[]string{`\Qa)|(b`}, nil, "a)|(b", true},
		{[]string{"a", "b,c"}, nil, "b,c", true},
		{nil, []string{"shop"}, "shop", false},
		{nil, []string{"shop"}, "shop-test", true},
		{nil, []string{"x", "shop.*"}, "shop-test", false},
		{[]string{"shop.*"}, []string{".*-test"}, "shop-test", false},
		{[]string{"shop.*"}, []string{".*-test"}, "shop", true},
		{[]string{"shop.*"}, []string{".*-test"}, "other", false},
	} {
		f := Filter{IncludeServices: patterns(t, c.include...), ExcludeServices: patterns(t, c.exclude...)}
		got := f.matchesService(c.name)
		assert.Check(t, got == c.want, "include %q, exclude %q: %q passes: %v", c.include, c.exclude, c.name, got)
		if f.ByContainer() || !f.matchesContainer(procscan.Cgroup{Path: "/" + c.name, ContainerID: c.name}) {
			t.Errorf("include %q, exclude %q: a container is filtered", c.include, c.exclude)
		}
	}
}

func TestFilterContainer(t *testing.T) {
	const id = "5ebf11e02dbde102cda4b76bc0e3849a65f9edac7a12bdabfd34db01b9556101"
	contained := procscan.Cgroup{Path: "/system.slice/docker-" + id + ".scope", ContainerID: id}
	const within = "cbdfa0f1f08763b1963c30d98e11e1f052cb67f1e9b7c0ab8a6ca6c70cbcad69"
	nested := procscan.Cgroup{Path: contained.Path + "/init.scope/" + within + "/payload", ContainerID: within}
	root := procscan.Cgroup{Path: "/"}
	service := procscan.Cgroup{Path: "/system.slice/tomcat.service"}
	escaped := procscan.Cgroup{Path: `/system.slice/system-my\x2dapp.slice/my\x2dapp@1.service`}
	const pod = "1234abcd-12ab-34cd-56ef-1234567890ab"
	pods := procscan.Cgroup{ContainerID: id, Path: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" +
		strings.ReplaceAll(pod, "-", "_") + ".slice/cri-containerd-" + id + ".scope"}
	nowhere := procscan.Cgroup{}
	for _, c := range []struct {
		include, exclude []string
		cgroup           procscan.Cgroup
		want             bool
	}{
		{nil, nil, contained, true},
		{nil, nil, nowhere, true},
		{[]string{id}, nil, contained, true},
		{[]string{id}, nil, service, false},
		{[]string{id[:12]}, nil, contained, false},
		{[]string{id[:12] + ".*"}, nil, contained, true},
		{[]string{`/system\.slice/.*`}, nil, contained, true},
		{[]string{`/system\.slice/.*`}, nil, service, true},
		{[]string{`/system\.slice/.*`}, nil, nowhere, false},
		{[]string{`system\.slice`}, nil, service, false},
		{[]string{"[^/]+"}, nil, contained, true}, // all that have a container
		{[]string{"[^/]+"}, nil, service, false},
		{[]string{"[^/]+"}, nil, nowhere, false},
		{nil, []string{"[^/]+"}, contained, false},
		{nil, []string{"[^/]+"}, service, true},
		{nil, []string{id}, contained, false},
		{nil, []string{".*"}, nowhere, false},
		{[]string{`/system\.slice/.*`}, []string{id}, contained, false},
		{[]string{id}, []string{`/system\.slice/.*`}, contained, false},
		{[]string{`/system\.slice/.*`}, []string{id}, service, true},

		// Of nested ones, all count to exclude, and the innermost to include.
		{nil, []string{within}, nested, false},
		{nil, []string{id}, nested, false},
		{[]string{within}, []string{id}, nested, false},
		{nil, []string{contained.Path}, nested, false},
		{nil, []string{contained.Path + "/init.scope"}, nested, false},
		{nil, []string{`/system\.slice`}, nested, false},
		{nil, []string{`/system\.slice`}, service, false},
		{nil, []string{`/system\.sl`, `/system\.slice/`, "system.*", `/init\.scope`, id[:12]}, nested, true},
		{[]string{within}, nil, nested, true},
		{[]string{nested.Path}, nil, nested, true},
		{[]string{id}, nil, nested, false},
		{[]string{contained.Path}, nil, nested, false},
		{[]string{contained.Path + "/.*"}, nil, nested, true},

		// As systemd shows a path, and as Kubernetes shows a pod.
		{nil, []string{escaped.Path}, escaped, false},
		{nil, []string{`/system.slice/system-my\x2dapp.slice`}, escaped, false},
		{nil, []string{`/system\.slice/system-my\\x2dapp\.slice`}, escaped, false},
		{[]string{`/system.slice/system-my-app.slice/.*`}, nil, escaped, true},
		{nil, []string{`/system.slice/system-my\x2eapp.slice`}, escaped, true},
		{nil, []string{pod}, pods, false},
		{[]string{pod}, nil, pods, true},
		{[]string{pod}, nil, contained, false},

		// Everything lies below the root.
		{nil, []string{"/"}, root, false},
		{nil, []string{"/"}, service, true},
		{[]string{"/"}, nil, root, true},
	} {
		f := Filter{IncludeContainers: patterns(t, c.include...), ExcludeContainers: patterns(t, c.exclude...)}
		got := f.matchesContainer(c.cgroup)
		assert.Check(t, got == c.want, "include %q, exclude %q: %+v passes: %v", c.include, c.exclude, c.cgroup, got)
		assert.Check(t, f.ByContainer() == (len(c.include)+len(c.exclude) > 0) && f.matchesService("any"),
			"include %q, exclude %q: filters by service, or does not by container", c.include, c.exclude)
	}
}

// A container is included that both lists include.
func TestOnlyContainers(t *testing.T) {
	f := Filter{IncludeContainers: patterns(t, "a", "b"), OnlyContainers: patterns(t, "b", "c")}
	for id, want := range map[string]bool{"a": false, "b": true, "c": false, "d": false} {
		assert.Check(t, f.matchesContainer(procscan.Cgroup{Path: "/" + id, ContainerID: id}) == want, id)
	}
	assert.Check(t, f.ByContainer() && !f.IsZero() && Filter{}.IsZero() && Filter{All: true}.IsZero())
	assert.Check(t, !Filter{IncludeCommands: patterns(t, "x")}.IsZero())
}

// When the cgroup cannot be read, and it matters, nothing is opened.
func TestLoadUnknownCgroup(t *testing.T) {
	// Stands in for a procfs, and says of this process what the test likes.
	procRoot, self := t.TempDir(), procscan.ProcessID{PID: os.Getpid(), StartTime: 1234}
	dir := filepath.Join(procRoot, strconv.Itoa(self.PID))
	assert.NilError(t, os.Mkdir(dir, 0o700))
	write := func(name, text string) {
		t.Helper()
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("stat", fmt.Sprintf("%d (x) S%s %d%s\n", self.PID, strings.Repeat(" 0", 18), self.StartTime,
		strings.Repeat(" 0", 30)))
	client := accesstest.Open(t)
	load := func(cgroup string, filter Filter) error {
		t.Helper()
		write("cgroup", cgroup)
		target, err := Open(client, procRoot, procscan.Found{ProcessID: self}, filter)
		assert.NilError(t, err)
		defer target.Close()
		return target.Load()
	}
	known, unknown := "0::/other\n", "cut off"
	for name, filter := range map[string]Filter{
		"include": {IncludeContainers: patterns(t, "/other")},
		"exclude": {ExcludeContainers: patterns(t, "/some")},
		"neither": {},
	} {
		if err := load(known, filter); err != ErrNotTarget { // but for the filter, it has no library
			t.Errorf("%s: %v", name, err)
		}
		err := load(unknown, filter)
		assert.Check(t, (err == ErrNotTarget) == (name == "neither") && !errors.Is(err, ErrContainerFiltered),
			"%s, without a cgroup: %v", name, err)
	}
}

// ownProcess returns the test's process, which publishes nothing.
func ownProcess(t *testing.T) procscan.Found {
	t.Helper()
	scanner, err := procscan.NewScanner("/proc")
	assert.NilError(t, err)
	scanner.All = true
	self, err := scanner.Process(os.Getpid())
	assert.NilError(t, err)
	return self
}

// A process is left out by the names of its first thread and of its program, unless either matches.
func TestFilterCommand(t *testing.T) {
	self := ownProcess(t)
	client := accesstest.Open(t)
	executable, err := os.Executable()
	assert.NilError(t, err)
	name := testenv.ReadFile(t, "/proc/self/comm")
	for expression, want := range map[string]error{
		regexp.QuoteMeta(strings.TrimSuffix(string(name), "\n")): nil, regexp.QuoteMeta(filepath.Base(executable)): nil,
		"other|.*/.*": ErrCommandFiltered, filepath.Base(executable) + ".": ErrCommandFiltered,
	} {
		target, err := Open(client, "/proc", self,
			Filter{All: true, IncludeCommands: patterns(t, expression)})
		assert.NilError(t, err)
		err = target.Load()
		assert.Check(t, errors.Is(err, want) && target.IsUsable() == (want == nil), "%q: %v", expression, err)
		target.Close()
	}
}

// Commands are left out that are excluded, by either name, also if they are included; and so are users, by their ids.
func TestFilterExcluded(t *testing.T) {
	self := ownProcess(t)
	client := accesstest.Open(t)
	executable, err := os.Executable()
	assert.NilError(t, err)
	program := patterns(t, regexp.QuoteMeta(filepath.Base(executable)))
	user, other := patterns(t, strconv.Itoa(os.Geteuid())), patterns(t, strconv.Itoa(os.Geteuid())+"1")
	for what, c := range map[string]struct {
		filter Filter
		want   error
	}{
		"excluded command":   {Filter{ExcludeCommands: program, IncludeCommands: program}, ErrCommandFiltered},
		"another command":    {Filter{ExcludeCommands: other}, nil},
		"included user":      {Filter{IncludeUsers: user}, nil},
		"another's included": {Filter{IncludeUsers: other}, ErrUserFiltered},
		"excluded user":      {Filter{IncludeUsers: user, ExcludeUsers: user}, ErrUserFiltered},
		"another's excluded": {Filter{ExcludeUsers: other}, nil},
	} {
		c.filter.All = true
		target, err := Open(client, "/proc", self, c.filter)
		assert.NilError(t, err)
		err = target.Load()
		assert.Check(t, errors.Is(err, c.want) && target.IsUsable() == (c.want == nil) && !c.filter.IsZero(), "%s: %v",
			what, err)
		target.Close()
	}
}

// A process that publishes nothing takes part where all do, under the name of its program.
func TestFilterAll(t *testing.T) {
	self := ownProcess(t)
	executable, err := os.Executable()
	assert.NilError(t, err)
	for all, want := range map[bool]error{true: nil, false: ErrUnmapped} {
		target, err := Open(accesstest.Open(t), "/proc", self, Filter{All: all})
		assert.NilError(t, err)
		err = target.Load()
		assert.Check(t, (err == nil) == all && target.IsUsable() == all && target.NeedsNothing() == all, err)
		_, err = target.Probe()
		assert.Check(t, (err == nil) == all && (target.Service().Name == filepath.Base(executable)) == all, "%+v, %v",
			target.Service(), err)
		still, err := target.StillPublishing()
		assert.Check(t, err == nil && still == all, err)
		target.Replace()
		remapped, err := target.Remap()
		assert.Check(t, errors.Is(err, want) && !remapped, "%v, %v", remapped, err)
		target.Close()
	}
}

func TestParsePatterns(t *testing.T) {
	for lines, want := range map[string]int{"": 0, "\n\r\n": 0, "a": 1, "a\nb\n": 2, "\na\r\n\nb,c": 2, " ": 1} {
		p, err := ParsePatterns(lines)
		assert.Check(t, err == nil && len(p) == want, "%q: %d patterns, %v", lines, len(p), err)
	}
	for _, lines := range []string{"(", "a)|(b", "a\n[", `\8`, "a{1001}",
		strings.Repeat("(", 1001) + strings.Repeat(")", 1001)} {
		p, err := ParsePatterns(lines)
		assert.Check(t, err != nil && p == nil, "%.20q: %d patterns, %v", lines, len(p), err)
	}
}

// What is filtered is no trouble.
func TestStateOfFiltered(t *testing.T) {
	for _, err := range []error{ErrContainerFiltered, ErrServiceFiltered, ErrCommandFiltered, ErrUserFiltered} {
		state, reason := StateOf(fmt.Errorf("looking: %w", err))
		assert.Check(t, state == StateFiltered && reason == "", "%v: %s (%s)", err, state, reason)
	}
}

// Expressions that can match a path of a cgroup, or anything that there is, are told from others.
func TestMayMatch(t *testing.T) {
	const id = "5ebf11e02dbde102cda4b76bc0e3849a65f9edac7a12bdabfd34db01b9556101"
	for _, c := range []struct {
		texts      string
		can, never []string
	}{
		{paths, []string{"/a", ".*kubepods.*", ".+besteffort.+", `\W.*x`, "a*/b", "a?(x|/y)", "[^a]b", "(x{0,2})/", "/..*",
			`^/a$`, "x|.", "/", "/...", "/.a/..b", "(?i)/KUBE", `/a\b.*`, "[^/]*/x",
			"/a b", "/a.b/c-d@1:e", `/a\\x2cb`},
			[]string{"8d3f.*", "[^/]+", "[0-9a-f]{64}", "a|b", "(?i)ABC", "a.*/b", `\bx`, "/../kubepods.*", `/\.\./a`,
				`/\.{2}/x`, `/\.\.`, `(/\.\.)+/a`, "/a/", "//a", "/a//b", `/a/\./b`, "/sys/fs/cgroup/a", "kubepods/.*", "",
				"/docker.*,/kubepods.*", "/docker.* ", " /docker.*", "/a /b", "/a, /b"}},
		{ids, []string{id, "8d3f.*", "[^/]+", "(?i)8D3F.*", id[:32] + "-1", ".*-0123456789ab", "x|.*"},
			[]string{id[:12], strings.ToUpper(id), "docker://.*", "mine", id[:63], id + "0", "cri-.*"}},
		{users, []string{"0", "1000", "1[0-9]+", "^33$", "www-data|33", "[^0].*"},
			[]string{"www-data", "033", "-1", "1000:1000", "0x0", "01.*", "1[^0-9]", "12345678901"}},
		{commands,
			[]string{"java", "java.*", "kworker/0:1", "a very long name of a file that is a program", "(?i)JAVA",
				"(sd-pam)", "CPU 0/KVM", "VM Thread", ".*", "a{2,3}", "x"},
			[]string{"/usr/bin/python3", "[^/]+/[^/]{15}", "/usr/sbin/.*", "nginx,java", " nginx", "nginx ",
				"nginx, java"}},
	} {
		for _, expression := range slices.Concat(c.can, c.never) {
			whole := "^(?:" + expression + ")$" // as ParsePatterns makes it
			got, want := mayMatch(regexp.MustCompile(whole), c.texts), slices.Contains(c.can, expression)
			assert.Check(t, got == want, "%q of %s: %t", expression, c.texts, got)
		}
	}
}

// An expression that leaves out nobody, or everybody, is refused.
func TestFilterNever(t *testing.T) {
	never := patterns(t, "other", "www-data/x/y/z/w/v/u/t")
	for what, filter := range map[string]Filter{
		"no container's id": {ExcludeContainers: never}, "no path": {OnlyContainers: never},
		"no user's id": {IncludeUsers: never}, "no name of a thread": {ExcludeCommands: never[1:]},
	} {
		_, err := filter.Resolve("/proc")
		assert.ErrorContains(t, err, what)
	}
	_, err := Filter{ExcludeServices: never}.Resolve("/proc")
	assert.NilError(t, err)
}

// What is excluded in one hierarchy of cgroups is, whatever the others say.
func TestFilterHierarchies(t *testing.T) {
	f := Filter{ExcludeContainers: patterns(t, "/secret"), IncludeContainers: patterns(t, "/longer.*")}
	longer := procscan.Cgroup{Path: "/longer/path"}
	assert.Check(t, f.matchesContainer(longer) && f.matchesContainer(longer, procscan.Cgroup{Path: "/a"}))
	assert.Check(t, !f.matchesContainer(longer, procscan.Cgroup{Path: "/a"}, procscan.Cgroup{Path: "/secret/b"}))
	// In a hierarchy that it does not use, an engine leaves the processes of a container in its own cgroup. A user who
	// names one like a container is no engine.
	f = Filter{ExcludeContainers: patterns(t, "/secret")}
	secret, id := procscan.Cgroup{Path: "/secret"}, strings.Repeat("a", 64)
	for path, want := range map[string]bool{"/docker/": true, "/user.slice/user-1000.slice/": false} {
		container := procscan.Cgroup{Path: path + id, ContainerID: id}
		assert.Check(t, f.matchesContainer(container) && f.matchesContainer(container, secret) == want, path)
		secret := procscan.Cgroup{Path: "/secret/" + id, ContainerID: id}
		assert.Check(t, !f.matchesContainer(container, secret), path)
	}
}

// A process that becomes one that is left out is no longer served, and is again when it is that no more.
func TestFilterFollows(t *testing.T) {
	self := ownProcess(t)
	target, err := Open(accesstest.Open(t), "/proc", self, Filter{All: true, ExcludeCommands: patterns(t, "excluded")})
	assert.NilError(t, err)
	defer target.Close()
	comm := fmt.Sprintf("/proc/self/task/%d/comm", self.PID)
	before := testenv.ReadFile(t, comm)
	rename := func(name string) { assert.NilError(t, os.WriteFile(comm, []byte(name), 0)) }
	defer rename(string(before))
	assert.NilError(t, target.Load())
	for _, want := range []error{ErrCommandFiltered, nil, ErrCommandFiltered} {
		rename(map[bool]string{true: "excluded", false: "another"}[want != nil])
		assert.Check(t, target.LoadDue() && !target.IsUsable(), want)
		err := target.Load()
		assert.Check(t, errors.Is(err, want) && target.IsUsable() == (want == nil), err)
	}
}
