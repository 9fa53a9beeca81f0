package procscan

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// CgroupRoots is where the root of our own cgroup namespace is, as process 1 sees it, by the number
// of the hierarchy in /proc/PID/cgroup. The paths that the kernel shows us are relative to that: of a
// process in a container beside ours they begin with "/..". nil: both namespaces are the same.
type CgroupRoots map[string]string

// ReadCgroupRoots enters, for a moment and in a thread that ends, the cgroup namespace of process 1,
// which takes CAP_SYS_ADMIN.
func ReadCgroupRoots(procRoot string) (CgroupRoots, error) {
	own, err := os.Readlink(procRoot + "/self/ns/cgroup")
	if errors.Is(err, os.ErrNotExist) || own == InitialCgroupNamespace { // without one the kernel has none
		return nil, nil
	}
	first, firstErr := os.Readlink(procRoot + "/1/ns/cgroup")
	if err := errors.Join(err, firstErr); err != nil {
		return nil, fmt.Errorf("reading cgroup namespaces: %w", err)
	}
	if own == first {
		return nil, nil
	}
	relative, err := ownCgroups(procRoot)
	if err != nil {
		return nil, err
	}
	var absolute map[string]string
	err = inCgroupNamespace(procRoot+"/1/ns/cgroup", func() (err error) {
		absolute, err = ownCgroups(procRoot)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("entering the cgroup namespace of process 1: %w", err)
	}
	roots := make(CgroupRoots)
	for hierarchy, below := range relative {
		root, isBelow := strings.CutSuffix(absolute[hierarchy], strings.TrimSuffix(below, "/"))
		if !isBelow {
			return nil, fmt.Errorf("reading our own cgroup: %w: %.100q, and %.100q", errCgroup, below,
				absolute[hierarchy])
		}
		roots[hierarchy] = strings.TrimSuffix(root, "/")
	}
	return roots, nil
}

// ownCgroups returns the paths of our own cgroups by hierarchy.
func ownCgroups(procRoot string) (map[string]string, error) {
	text, err := os.ReadFile(procRoot + "/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("reading our own cgroup: %w", err)
	}
	all := make(map[string]string)
	for line := range bytes.Lines(text) {
		if fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3); len(fields) == 3 {
			all[fields[0]] = fields[2]
		}
	}
	return all, nil
}

// inCgroupNamespace calls do in a thread that has entered a cgroup namespace, and ends. That is not
// the first one: /proc/self shows its namespace.
func inCgroupNamespace(namespace string, do func() error) error {
	file, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer file.Close()
	done := make(chan error)
	var enter func()
	enter = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			other := make(chan struct{})
			go func() { defer close(other); enter() }()
			<-other
			return
		}
		err := unix.Setns(int(file.Fd()), unix.CLONE_NEWCGROUP)
		if err == nil {
			err = do()
		}
		done <- err
	}
	go enter()
	return <-done
}

// absolute returns a path of a hierarchy as process 1 sees it.
func (r CgroupRoots) absolute(hierarchy, relative string) (string, error) {
	root, known := r[hierarchy]
	if !known {
		return relative, nil
	}
	for relative == "/.." || strings.HasPrefix(relative, "/../") {
		if root == "" || root == "/" {
			return "", fmt.Errorf("%w: %.100q is above the root", errCgroup, relative)
		}
		root, relative = strings.TrimSuffix(path.Dir(root), "/"), relative[len("/.."):]
	}
	if relative = root + strings.TrimSuffix(relative, "/"); relative == "" {
		return "/", nil
	}
	return relative, nil
}
