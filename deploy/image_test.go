//go:build release

package deploy

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// images builds images and keeps them in a storage of their own.
type images struct {
	t       *testing.T
	buildah []string // the command, with its storage
	release string   // directory
}

func newImages(t *testing.T) *images {
	t.Helper()
	testenv.NeedRoot(t)
	i := &images{t: t, release: *releaseDir}
	storage := t.TempDir()
	i.buildah = []string{testenv.NeedTool(t, "buildah"), "--storage-driver", "vfs", "--root", storage + "/root",
		"--runroot", storage + "/run"}
	return i
}

func (i *images) run(args ...string) string {
	i.t.Helper()
	argv := slices.Concat(i.buildah, args)
	var stderr strings.Builder
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	assert.NilError(i.t, err, "buildah %v: %v\n%s", args, err, &stderr)
	return strings.TrimSpace(string(out))
}

// build builds the image for an architecture and returns the directory of a container made from it.
func (i *images) build(arch string) (root string) {
	i.t.Helper()
	i.run("build", "--isolation", "chroot", "--platform", "linux/"+arch, "--tag", arch, "--timestamp", "1700000000",
		i.release)
	return i.run("mount", i.run("from", "--pull-never", "--platform", "linux/"+arch, arch))
}

// The image contains the agent for its architecture and licenses, nothing else, and the agent works
// in it.
func TestReleaseImage(t *testing.T) {
	images := newImages(t)
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, arch := range architectures {
		root := images.build(arch)
		verifyFiles(t, root, machines[arch])
		verifyVersion(t, root, arch)
		images.verifyConfig(arch)
		if arch != runtime.GOARCH {
			continue
		}
		digest := images.digest(arch)
		images.run("rmi", "--force", arch)
		root = images.build(arch)
		again := images.digest(arch)
		assert.Check(t, again == digest, "built twice it is %s and %s", digest, again)
		config := testenv.ReadFile(t, "kubernetes/config.yaml")
		volumes := t.TempDir()
		testenv.WriteFile(t, filepath.Join(volumes, "config.yaml"), string(config)+"samples-per-second: 97\n")
		log := filepath.Join(t.TempDir(), "log")
		// In a goroutine of its own, whose mounts are not visible to the removal of the
		// directories.
		t.Run("container", func(t *testing.T) { testContainer(t, root, volumes, log) })
	}
}

// digest is that of an image, and with it of all that it consists of.
func (i *images) digest(name string) string {
	i.t.Helper()
	return i.run("inspect", "--type", "image", "--format", "{{.FromImageDigest}}", name)
}

func verifyFiles(t *testing.T, root string, machine elf.Machine) {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, strings.TrimPrefix(path, root))
		}
		return err
	})
	if want := []string{"/correlator", "/correlator.cdx.json", "/licenses/LICENSE",
		"/licenses/LICENSES-third-party.txt"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("the image has %v: %v", found, err)
	}
	binary, err := elf.Open(filepath.Join(root, "correlator"))
	assert.NilError(t, err)
	defer binary.Close()
	dynamic := slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	assert.Check(t, binary.Machine == machine && !dynamic,
		"the agent is for %v; linked dynamically: %v", binary.Machine, dynamic)
}

// verifyVersion runs the agent, which prints what it was built from.
func verifyVersion(t *testing.T, root, arch string) {
	t.Helper()
	argv := []string{filepath.Join(root, "correlator"), "version"}
	if arch == "arm64" && runtime.GOARCH != arch {
		argv = append([]string{testenv.NeedTool(t, "qemu-aarch64-static")}, argv...)
	}
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	want := *releaseVersion + "\ncommit c0ffee\n" + runtime.Version() + " linux/" + arch + "\n"
	assert.Check(t, err == nil && string(out) == want, "its version is %q: %v", out, err)
}

func (i *images) verifyConfig(arch string) {
	i.t.Helper()
	var image struct {
		OCIv1 struct {
			Architecture, OS string
			Config           struct {
				User            string
				Entrypoint, Cmd []string
				Labels          map[string]string
			}
		}
	}
	assert.NilError(i.t, json.Unmarshal([]byte(i.run("inspect", "--type", "image", arch)), &image))
	config := image.OCIv1.Config
	assert.Check(i.t, image.OCIv1.Architecture == arch && image.OCIv1.OS == "linux" && config.User == "0:0" &&
		slices.Equal(config.Entrypoint, []string{"/correlator"}) && slices.Equal(config.Cmd, []string{"run"}),
		"the image is %+v", image)
	for label, want := range map[string]string{"title": "correlator", "licenses": "Apache-2.0",
		"version": *releaseVersion, "revision": "c0ffee"} {
		got := config.Labels["org.opencontainers.image."+label]
		assert.Check(i.t, got == want, "label %s is %q", label, got)
	}
}

// mounts does what a container runtime does for the container in directory $2: mounts the
// DaemonSet's volumes from $1, and hides paths (containerd's defaults).
const mounts = `
mount --bind "$2" "$2"
cd "$2"
mkdir -p proc sys etc/correlator dev/shm
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
for dir in proc/bus proc/fs proc/irq proc/sys; do mount --bind $dir $dir; mount -o remount,bind,ro $dir; done
for file in proc/kcore proc/keys proc/timer_list; do [ ! -e $file ] || mount --bind /dev/null $file; done
for dir in proc/acpi sys/firmware; do [ ! -e $dir ] || mount -t tmpfs -o ro none $dir; done
mount --bind "$1" etc/correlator
mount -t tmpfs -o mode=1777 shm dev/shm
mount -o remount,bind,ro .
exec sleep infinity
`

// testContainer runs the image with the privileges of the DaemonSet and only /proc, /sys and its
// volumes: no other file, and of /dev only shm.
func testContainer(t *testing.T, root, volumes, log string) {
	enterHost(t, strings.ReplaceAll(mounts, "$2", root), "sleep", volumes)
	processes := startProcesses(t)
	stderr, err := os.Create(log)
	assert.NilError(t, err)
	defer stderr.Close()
	t.Cleanup(func() {
		if text, err := os.ReadFile(log); t.Failed() {
			t.Logf("the agent said:\n%s%v", text, err)
		}
	})

	spec := readDaemonSet(t).Spec.Template.Spec.Containers[0]
	confine(t, spec.capabilities())
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command("/correlator", args...)
		cmd.Dir = "/"
		for _, variable := range spec.Env {
			cmd.Env = append(cmd.Env, variable.Name+"="+variable.Value)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root,
			Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP}
		cmd.Stderr = stderr
		return cmd
	}
	agent := command(spec.Args...)
	assert.NilError(t, agent.Start())
	t.Cleanup(func() {
		agent.Process.Kill()
		agent.Wait()
	})
	served(t, processes)
	out, err := command("status").Output()
	assert.Check(t, err == nil && bytes.Count(out, []byte(" registered ")) == len(processes),
		"correlator status: %v\n%s", err, out)
	assert.NilError(t, agent.Process.Signal(syscall.SIGTERM))
	assert.Check(t, agent.Wait())
	text, err := os.ReadFile(log)
	assert.Check(t, err == nil && !bytes.Contains(text, []byte("no live events")), "the agent said %s%v", text, err)
}

// confine removes all other capabilities from the programs that the calling goroutine's thread
// executes, and forbids new privileges. The thread ends with the goroutine.
func confine(t *testing.T, capabilities []string) {
	t.Helper()
	runtime.LockOSThread()
	for bit := range uint64(unix.CAP_LAST_CAP + 1) {
		if slices.ContainsFunc(capabilities, func(name string) bool { return capabilityBits[name] == bit }) {
			continue
		}
		assert.NilError(t, unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(bit), 0, 0, 0))
	}
	assert.NilError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}
