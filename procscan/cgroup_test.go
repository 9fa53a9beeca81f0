package procscan

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan/internal/child"
)

const (
	someID    = "5ebf11e02dbde102cda4b76bc0e3849a65f9edac7a12bdabfd34db01b9556101"
	anotherID = "cbdfa0f1f08763b1963c30d98e11e1f052cb67f1e9b7c0ab8a6ca6c70cbcad69"
)

func TestContainerID(t *testing.T) {
	const pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod90d81341_92de_11e7_8cf2_507b9d4141fa.slice"
	for path, want := range map[string]string{
		// Engines by themselves, and by systemd.
		"/docker/" + someID:                                        someID,
		"/k8s.io/" + someID:                                        someID,
		"/libpod_parent/libpod-" + someID:                          someID,
		"/kubepods/besteffort/poda7/crio-" + someID:                someID,
		"/kubepods/burstable/pod90d81341-92de-11e7/" + someID:      someID,
		"/system.slice/docker-" + someID + ".scope":                someID,
		pod + "/docker-" + someID + ".scope":                       someID,
		pod + "/cri-containerd-" + someID + ".scope":               someID,
		pod + "/crio-" + someID + ".scope":                         someID,
		"/machine.slice/libpod-" + someID + ".scope":               someID,
		"/user.slice/user-1.slice/libpod-" + someID + ".scope":     someID,
		"/system.slice/nerdctl-" + someID + ".scope":               someID,
		"/kubepods-burstable-poda7.slice:cri-containerd:" + someID: someID,
		"/system.slice/containerd.service/kubepods-burstable-podff49d0be_16b7_4a49_bb9e_8ec1f1f4e27f.slice:cri-containerd:" +
			someID: someID,

		// Elsewhere.
		"/ecs/task-arn/" + someID: someID,
		"/ecs/03752a671e744971a862edcee6195646/03752a671e744971a862edcee6195646-4015103728": "03752a671e744971a862edcee6195646-4015103728",
		"/system.slice/garden.service/garden/70eb4ce5-a065-4401-6990-88ed":                  "70eb4ce5-a065-4401-6990-88ed",
		"/kubepods/besteffort/pode9b90526/15aa6e53-b09a-40c7-8558-c6c31e36c88a":             "15aa6e53-b09a-40c7-8558-c6c31e36c88a",

		"/mesos/3b1cf944-1d97-40a6-ac73-b156ac2f2bfe": "3b1cf944-1d97-40a6-ac73-b156ac2f2bfe",

		// Below a container, and nested containers.
		"/machine.slice/libpod-" + someID + ".scope/container":                                            someID,
		"/docker/" + someID + "/system.slice/tomcat.service":                                              someID,
		"/system.slice/docker-" + someID + ".scope/init.scope":                                            someID,
		"/docker/" + anotherID + "/docker/" + someID:                                                      someID,
		"/docker/" + someID + "/docker/buildkit/ks2m5yfg7v0sunlqy3ucbyjbh":                                someID,
		"/mesos/3b1cf944-1d97-40a6-ac73-b156ac2f2bfe/kubepods/besteffort/poda7/" + someID:                 someID,
		"/machine.slice/libpod-" + anotherID + ".scope/container/kubelet.slice/crio-" + someID + ".scope": someID,

		// As seen from another cgroup namespace.
		"/../cri-containerd-" + someID + ".scope": someID,
		"/../../poda7/" + someID + "/..":          someID,
		"/..":                                     "",
		"/../../..":                               "",

		// No containers.
		"":                             "",
		"/":                            "",
		"/system.slice/docker.service": "",
		"/user.slice/user-1000.slice/session-2.scope":                                                 "",
		"/machine.slice/libpod-conmon-" + someID + ".scope":                                           "",
		pod + "/crio-conmon-" + someID + ".scope":                                                     "",
		"/machine.slice/machine-libpod_pod_" + someID + ".slice":                                      "",
		"/libpod_parent/libpod_pod_" + someID:                                                         "",
		"/system.slice/" + someID + ".service":                                                        "",
		"/system.slice/var-lib-docker-overlay2-" + someID + "-merged.mount":                           "",
		"/user.slice/user-1000.slice/apps.slice/vte-spawn-75bc72bd-6642-4cf5-b62c-0674e11bfc84.scope": "",
		"/kubepods/burstable/pod90d81341-92de-11e7-8cf2-507b9d4141fa":                                 "",
		"/process_api/22e48c7c96e0c215e5a7ff5738f005d6":                                               "",
		"/docker/" + someID[1:]:                                                                       "",
		"/docker/0" + someID:                                                                          "",
		"/docker/" + strings.ToUpper(someID):                                                          "",
		"/docker/g" + someID[1:]:                                                                      "",
		"/docker/" + someID + " ":                                                                     "",
		"/docker/docker-.scope":                                                                       "",
		"/ecs/03752a671e744971a862edcee6195646-":                                                      "",
		"/ecs/03752a671e744971a862edcee6195646-1x":                                                    "",
		"/ecs/3752a671e744971a862edcee6195646-1":                                                      "",
		"/ecs/03752a671e744971a862edcee6195646-12345678901":                                           "",
		"/garden/70eb4ce5-a065-4401-6990-88e":                                                         "",
		"/garden/70eb4ce5-a065-4401-6990-88ed0123456789":                                              "",
		"/garden/70eb4ce5-a065-44010-6990-88ed":                                                       "",
		"/garden/70eb4ce5-a065-4401-6990":                                                             "",
		"/garden/70eb4ce5-a065-4401-6990-":                                                            "",
		"/garden/70eb4ce-5a065-4401-6990-88ed":                                                        "",
	} {
		got := containerID(path)
		assert.Check(t, got == want, "%s: %q, want %q", path, got, want)
	}
}

// capturedCgroups are files from bug reports and tests of other projects, except the last: that of
// our own process, read in a cgroup namespace below its cgroup in one hierarchy.
var capturedCgroups = map[string]Cgroup{
	"docker-hybrid": { // docker/for-linux issue 1293
		"/docker/a2ffe0e97ac22657a2a023ad628e9df837c38a03b1ebc904d3f6d644eb1a1a81",
		"a2ffe0e97ac22657a2a023ad628e9df837c38a03b1ebc904d3f6d644eb1a1a81"},
	"docker-in-docker": { // kubernetes/kubernetes issue 18202
		"/docker/81950eac55062e5d8e7b5567d1036e4b146dfe212bdc9263c97347e6ce86b904",
		"81950eac55062e5d8e7b5567d1036e4b146dfe212bdc9263c97347e6ce86b904"},
	"fargate": { // EKS on Fargate: a test of DataDog/dd-trace-java
		"/ecs/545b896a072744d186c7fb09a45ec172/545b896a072744d186c7fb09a45ec172-3057940393/kubepods/burstable/" +
			"poddefa568d-ff14-43d9-9a63-9e39ee9b39b4/cf1241bbf80ea91eebdd28bf719057380997ca4b0cea16869393b905fb6d52bc",
		"cf1241bbf80ea91eebdd28bf719057380997ca4b0cea16869393b905fb6d52bc"},
	"garden": { // ditto
		"/system.slice/garden.service/garden/6f265890-5165-7fab-6b52-18d1", "6f265890-5165-7fab-6b52-18d1"},
	"session":   {"/user.slice/user-1000.slice/session-2.scope", ""}, // a test of elastic/apm-agent-go
	"namespace": {"/../..", ""},
}

func TestParseCgroup(t *testing.T) {
	for name, want := range capturedCgroups {
		text, err := os.ReadFile(filepath.Join("testdata/cgroup", name+".txt"))
		assert.NilError(t, err)
		got, _, err := parseCgroup(text, nil)
		assert.Check(t, err == nil && got == want, "%s: got %+v, %v", name, got, err)
	}
	longest := "/" + strings.Repeat("d", unix.PathMax-2)
	for text, want := range map[string]Cgroup{
		"":                       {},
		"0::/\n":                 {"/", ""},
		"0::/init.scope\n":       {"/init.scope", ""},
		"1:net_cls:/\n0::/a\n":   {"/a", ""},
		"1:net_cls:/b\n0::/a\n":  {"/b", ""},
		"0::/a:b::c\n":           {"/a:b::c", ""},
		"0::/a\xff\x1b[31m \r\n": {"/a\xff\x1b[31m \r", ""},
		"2:cpu:/docker/" + someID + "\n1:name=systemd:/much/longer/than/" + someID + "/is-if-no-container\n": {
			"/much/longer/than/" + someID + "/is-if-no-container", someID},
		strings.Repeat("7:name=x:"+longest+"\n", 31) + "0::/docker/" + someID + "\n": {"/docker/" + someID, someID},
	} {
		got, _, err := parseCgroup([]byte(text), nil)
		assert.Check(t, err == nil && got == want, "%.100q: got %+v, %v", text, got, err)
	}
}

// Where hierarchies differ, the others are told, but the root.
func TestOtherCgroups(t *testing.T) {
	inA, inB := "/docker/"+someID, "/kube/"+anotherID+"/b"
	for text, want := range map[string][]Cgroup{
		"0::/a\n":                                nil,
		"1:cpu:/a\n0::/a\n":                      nil,
		"2:cpu:/a\n1:name=systemd:/long\n0::/\n": {{"/a", ""}},
		"2:cpu:/long\n1:x:/b\n0::/c\n":           {{"/b", ""}, {"/c", ""}},
		"1:cpu:" + inA + "\n0::/system.slice/containerd.service\n": {{"/system.slice/containerd.service", ""}},
		"1:cpu:" + inA + "\n0::" + inB + "\n":                      {{inB, anotherID}},
	} {
		_, got, err := parseCgroup([]byte(text), nil)
		assert.Check(t, err == nil && slices.Equal(got, want), "%q: %+v, %v", text, got, err)
	}
}

func TestParseCgroupErrors(t *testing.T) {
	for name, text := range map[string]string{
		"no fields":   "0\n",
		"two fields":  "0:/\n",
		"no path":     "0::\n",
		"relative":    "0::a\n",
		"colon":       "1:name=a:b:/\n",
		"cut off":     "0::/docker",
		"empty line":  "0::/\n\n",
		"too much":    strings.Repeat("0::/\n", maxCgroupBytes/5+1),
		"second line": "1:cpu:/\n0:",
	} {
		got, _, err := parseCgroup([]byte(text), nil)
		assert.Check(t, errors.Is(err, errCgroup), "%s: got %+v, %v", name, got, err)
	}
}

func TestCgroupParent(t *testing.T) {
	outer := "/docker/" + anotherID
	inner := outer + "/init.scope/libpod-" + someID + ".scope"
	for _, want := range [][]Cgroup{
		{{}},
		{{"/", ""}},
		{{"/init.scope", ""}},
		{{"/a/b", ""}, {"/a", ""}},
		{{"/../../a", ""}, {"/../..", ""}, {"/..", ""}},
		{
			{inner + "/payload/x", someID}, {inner + "/payload", someID}, {inner, someID},
			{outer + "/init.scope", anotherID}, {outer, anotherID}, {"/docker", ""},
		},
	} {
		got := want[:1:1]
		for c, ok := want[0].Parent(); ok; c, ok = c.Parent() {
			got = append(got, c)
		}
		assert.Check(t, slices.Equal(got, want), "got %+v, want %+v", got, want)
	}
}

func FuzzParseCgroup(f *testing.F) {
	for name := range capturedCgroups {
		text, err := os.ReadFile(filepath.Join("testdata/cgroup", name+".txt"))
		assert.NilError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, _, err := parseCgroup(text, nil)
		if err != nil {
			assert.Check(t, got == Cgroup{}, "%+v with %v", got, err)
			return
		}
		if len(text) == 0 {
			return
		}
		if !strings.Contains(got.Path, got.ContainerID) || !strings.Contains(string(text), ":"+got.Path+"\n") {
			t.Errorf("%+v is not in %q", got, text)
		}
		length := len(got.ContainerID)
		assert.Check(t, length == 0 || length >= 28 && length <= 64, "id %q", got.ContainerID)
		for c, ok := got, got.Path != "/"; ok; c, ok = c.Parent() {
			assert.Check(t, c.Path != "" && c.ContainerID == containerID(c.Path), "above %+v is %+v", got, c)
		}
	})
}

// ourCgroup returns a path that concurrent runs of the tests do not use.
func ourCgroup() string { return "/correlator-test-" + strconv.Itoa(os.Getpid()) }

func TestCgroupOfProcess(t *testing.T) {
	outer := testenv.Cgroup(t, ourCgroup())
	container := testenv.Cgroup(t, ourCgroup()+"/docker-"+someID+".scope")
	inner := testenv.Cgroup(t, ourCgroup()+"/docker-"+someID+".scope/payload")
	sibling := testenv.Cgroup(t, ourCgroup()+"/sibling")

	for fd, want := range map[int]Cgroup{
		outer:     {Path: "", ContainerID: ""},
		container: {Path: "/docker-" + someID + ".scope", ContainerID: someID},
		inner:     {Path: "/docker-" + someID + ".scope/payload", ContainerID: someID},
	} {
		p := startSleepIn(t, fd)
		h := openPID(t, p.PID)
		got, _, err := h.Cgroup(nil)
		assert.Check(t, err == nil && got.ContainerID == want.ContainerID && strings.HasPrefix(got.Path, "/") &&
			strings.HasSuffix(got.Path, want.Path),
			"got %+v, %v, want %+v", got, err, want)

		// In the namespace of another cgroup.
		reader := exec.Command(testenv.NeedTool(t, "unshare"), "--cgroup", "cat", h.path("cgroup"))
		reader.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: sibling}
		text, err := reader.Output()
		assert.NilError(t, err)
		// Only the cgroup v2 hierarchy.
		text = text[strings.Index(string(text), "0::"):]
		if got, _, err := parseCgroup(text, nil); err != nil || got != (Cgroup{"/.." + want.Path, want.ContainerID}) {
			t.Errorf("from a namespace: got %+v, %v, want %+v", got, err, want)
		}
		roots := CgroupRoots{"0": ourCgroup() + "/sibling"}
		whole := Cgroup{ourCgroup() + want.Path, want.ContainerID}
		if got, _, err := parseCgroup(text, roots); err != nil || got != whole {
			t.Errorf("from a namespace, resolved: got %+v, %v, want %+v", got, err, whole)
		}

		p.Kill()
		if got, _, err := h.Cgroup(nil); !errors.Is(err, ErrGone) {
			t.Errorf("after the exit: %+v, %v", got, err)
		}
	}
}

// The kernel truncates a path longer than PATH_MAX, or returns an error.
func TestCgroupTooDeep(t *testing.T) {
	deep := strings.Repeat("/"+strings.Repeat("d", 250), unix.PathMax/250+1)
	fd := testenv.Cgroup(t, ourCgroup()+"/docker-"+someID+".scope"+deep)
	p := startSleepIn(t, fd)
	h := openPID(t, p.PID)
	got, _, err := h.Cgroup(nil)
	if err == nil && len(got.Path) == unix.PathMax-1 && got.ContainerID == someID {
		return
	}
	assert.Check(t, errors.Is(err, unix.ENAMETOOLONG) && !errors.Is(err, ErrGone),
		"got %d bytes, container %q, %v", len(got.Path), got.ContainerID, err)
}

func startSleepIn(t *testing.T, cgroup int) *child.Process {
	t.Helper()
	cmd := exec.Command(testenv.NeedTool(t, "sleep"), "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: cgroup}
	return child.Start(t, cmd)
}

// What is relative to the root of a namespace is as process 1 sees it, and what cannot be is an error.
func TestCgroupRoots(t *testing.T) {
	roots := CgroupRoots{"0": "/a/b/c", "1": ""}
	for _, c := range []struct{ hierarchy, relative, want string }{
		{"0", "/", "/a/b/c"}, {"0", "/d", "/a/b/c/d"}, {"0", "/..", "/a/b"}, {"0", "/../x/y", "/a/b/x/y"},
		{"0", "/../..", "/a"}, {"0", "/../../..", "/"}, {"0", "/../../../x", "/x"}, {"0", "/..x", "/a/b/c/..x"},
		{"0", "/../../../..", ""}, {"0", "/../../../../x", ""}, {"1", "/", "/"}, {"1", "/x", "/x"}, {"1", "/../x", ""},
		{"2", "/../x", "/../x"},
	} {
		got, err := roots.absolute(c.hierarchy, c.relative)
		assert.Check(t, got == c.want && (err != nil) == (c.want == ""), "%s: %q, %v", c.relative, got, err)
	}
	roots, err := ReadCgroupRoots("/proc")
	assert.Check(t, err == nil && roots == nil, "in the namespace of process 1: %v, %v", roots, err)
	_, err = ReadCgroupRoots(t.TempDir())
	assert.NilError(t, err) // a kernel without
}

func TestPodUID(t *testing.T) {
	const uid = "90d81341-92de-11e7-8cf2-507b9d4141fa"
	underscores := strings.ReplaceAll(uid, "-", "_")
	static := strings.ReplaceAll(uid, "-", "")
	for path, want := range map[string]string{
		"/kubepods/burstable/pod" + uid + "/" + someID: uid,
		"/kubepods/pod" + uid:                          uid,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscores + ".slice/x":      uid,
		"/kubepods.slice/kubepods-pod" + underscores + ".slice/cri-containerd-" + someID + ".scope":       uid,
		"/system.slice/containerd.service/kubepods-pod" + underscores + ".slice:cri-containerd:" + someID: uid,
		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + static + ".slice":                  static,
		"/kubepods/besteffort/poda7/" + someID:                                                            "", "/docker/" + someID: "",
		"/a/pod" + uid: "", "": "",
		"/kubepods/pod" + uid + "0/x": "", "/kubepods/xpod" + uid: "",
	} {
		got := Cgroup{Path: path}.PodUID()
		assert.Check(t, got == want, "%s: %q, want %q", path, got, want)
	}
}
