package procscan

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxCgroupBytes holds 32 hierarchies, twice as many as there are controllers, with paths of
// PATH_MAX. Kernels truncate longer ones, or return an error.
const maxCgroupBytes = 32 * (unix.PathMax + 64)

// Cgroup is the control group of a process. The kernel reports it, not the process; but any process
// that may write to a cgroup can choose the names of those below it.
type Cgroup struct {
	// Path begins with a slash, as process 1 sees it if the CgroupRoots are known, else as seen from
	// our own cgroup namespace: in one that is not the host's, a path outside begins with "/..", and
	// the part that it shares with our own cgroup is left out. The bytes are any but zero and newline.
	Path string
	// ContainerID is the last container id in Path, empty when there is none.
	ContainerID string
}

// Parent returns the cgroup above this one, with the container that it belongs to. It reports false
// when that is the root, or unknown.
func (c Cgroup) Parent() (Cgroup, bool) {
	slash := strings.LastIndexByte(c.Path, '/')
	if slash <= 0 {
		return Cgroup{}, false
	}
	if containerIDOf(c.Path[slash+1:]) != "" {
		c.ContainerID = containerID(c.Path[:slash])
	}
	c.Path = c.Path[:slash]
	return c, true
}

// Cgroup reads the process's cgroup. It is the zero value where there are no hierarchies, or the
// kernel has no cgroups. others are those in hierarchies that it is in elsewhere. roots may be nil.
func (h *Handle) Cgroup(roots CgroupRoots) (cgroup Cgroup, others []Cgroup, err error) {
	text, err := h.read("cgroup", maxCgroupBytes+1)
	if errors.Is(err, unix.ENOENT) && h.Alive() {
		return Cgroup{}, nil, nil
	}
	if err != nil {
		return Cgroup{}, nil, err
	}
	if cgroup, others, err = parseCgroup(text, roots); err != nil {
		return Cgroup{}, nil, fmt.Errorf("reading cgroup: %w", err)
	}
	return cgroup, others, nil
}

var errCgroup = errors.New("unexpected text")

// parseCgroup parses /proc/PID/cgroup, one line for each hierarchy (cgroups(7)):
//
//	field         text        example
//	hierarchy     digits      0          0 for cgroup v2, of which there is one
//	controllers   : names     :cpu,cpuacct or :name=systemd, none with v2
//	path          : / ...     :/system.slice/docker.service
//
// The kernel escapes nothing in a path, and refuses a newline in the name of a cgroup.
//
// With v1, or some hierarchies of each version, a process can have another cgroup in each: a
// runtime leaves the processes of a container in its own cgroup, or in the root, of a hierarchy
// that it does not use. A path with a container id is preferred, then the longest, which is the
// most specific, then the first that the kernel lists. The others are all that differ but the root.
func parseCgroup(text []byte, roots CgroupRoots) (best Cgroup, others []Cgroup, err error) {
	if len(text) > maxCgroupBytes {
		return Cgroup{}, nil, fmt.Errorf("%w: more than %d bytes", errCgroup, maxCgroupBytes)
	}
	for line := range bytes.Lines(text) {
		fields := bytes.SplitN(line, []byte(":"), 3)
		path, whole := bytes.CutSuffix(fields[len(fields)-1], []byte("\n"))
		if len(fields) != 3 || !whole || len(path) == 0 || path[0] != '/' {
			return Cgroup{}, nil, fmt.Errorf("%w: %.100q", errCgroup, line)
		}
		absolute, err := roots.absolute(string(fields[0]), string(path))
		if err != nil {
			return Cgroup{}, nil, err
		}
		cgroup := Cgroup{Path: absolute, ContainerID: containerID(absolute)}
		if cgroup.moreSpecific(best) {
			best = cgroup
		}
		others = append(others, cgroup)
	}
	return best, slices.DeleteFunc(others, func(c Cgroup) bool {
		return c == best || c.Path == "/"
	}), nil
}

func (c Cgroup) moreSpecific(than Cgroup) bool {
	if contained := c.ContainerID != ""; contained != (than.ContainerID != "") {
		return contained
	}
	return len(c.Path) > len(than.Path)
}

// containerID returns the id of the container that a cgroup belongs to: the last part of its path
// that names one. So of nested containers the innermost counts, and cgroups that systemd or a
// runtime makes below that of a container belong to it.
//
//	part of the path                  made by
//	ID                                docker, containerd and podman with the cgroupfs driver
//	ENGINE-ID                         cri-o with the cgroupfs driver
//	ENGINE-ID.scope                   all of them with the systemd driver: docker-, cri-containerd-, crio-, libpod-
//	SLICE:ENGINE:ID                   containerd with the cgroupfs driver, configured with systemd's names
//	8-4-4-4-4 to 8-4-4-4-12 digits    Cloud Foundry's garden, mesos
//	32 digits-number                  ECS on Fargate
//
// ID is 64 lower-case hexadecimal digits. The Elastic APM agents, which put the same id into their
// metadata, use the same patterns (specs/agents/metadata.md of elastic/apm), but match only the
// last part of the path. ENGINE-conmon-ID is not in the container: it is that of its monitor.
func containerID(path string) string {
	for path != "" {
		slash := strings.LastIndexByte(path, '/')
		if id := containerIDOf(path[slash+1:]); id != "" {
			return id
		}
		path = path[:max(slash, 0)]
	}
	return ""
}

const containerIDLen = 64

func containerIDOf(part string) string {
	if isGardenID(part) || isFargateID(part) {
		return part
	}
	part = strings.TrimSuffix(part, ".scope")
	if len(part) < containerIDLen {
		return ""
	}
	prefix, id := part[:len(part)-containerIDLen], part[len(part)-containerIDLen:]
	if !isHex(id) || strings.HasSuffix(prefix, "conmon-") {
		return ""
	}
	if prefix != "" && !strings.HasSuffix(prefix, "-") && !strings.HasSuffix(prefix, ":") {
		return ""
	}
	return id
}

// isGardenID reports whether s is five groups of digits, the last of which can be as short as the
// others in garden.
func isGardenID(s string) bool {
	for _, length := range [...]int{8, 4, 4, 4} {
		if len(s) <= length || s[length] != '-' || !isHex(s[:length]) {
			return false
		}
		s = s[length+1:]
	}
	return len(s) >= 4 && len(s) <= 12 && isHex(s)
}

func isFargateID(s string) bool {
	task, number, ok := strings.Cut(s, "-")
	return ok && len(task) == 32 && isHex(task) &&
		number != "" && len(number) <= 10 && strings.Trim(number, "0123456789") == ""
}

// PodUID returns the uid of the Kubernetes pod that the cgroup belongs to, as the API has it; empty: none is known.
// Below one that is named kubepods, the kubelet names the cgroup of a pod "podUID", with the systemd driver
// "kubepods-CLASS-podUID.slice", in which the uid has underscores. A static pod's uid is 32 digits.
func (c Cgroup) PodUID() string {
	_, below, found := strings.Cut(c.Path, "kubepods")
	if !found {
		return ""
	}
	for part := range strings.FieldsFuncSeq(below, func(r rune) bool { return r == '/' || r == ':' }) {
		part = strings.TrimSuffix(part, ".slice")
		uid, found := strings.CutPrefix(part[strings.LastIndexByte(part, '-')+1:], "pod")
		if !found {
			uid, found = strings.CutPrefix(part, "pod")
		}
		uid = strings.ReplaceAll(uid, "_", "-")
		if found && (len(uid) == 36 && isGardenID(uid) || len(uid) == 32 && isHex(uid)) {
			return uid
		}
	}
	return ""
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
