package deploy

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"correlator/internal/testenv"
)

// packageFiles are the files that both packages have where the host looks for them, beside
// documents.
var packageFiles = []string{
	"/etc/correlator/config.yaml",
	"/usr/bin/correlator",
	"/usr/lib/systemd/system/correlator.service",
	"/usr/share/bash-completion/completions/correlator",
	"/usr/share/doc/correlator/LICENSE",
	"/usr/share/doc/correlator/docs/operations.md",
	"/usr/share/fish/vendor_completions.d/correlator.fish",
	"/usr/share/man/man1/correlator-run.1.gz",
	"/usr/share/man/man1/correlator.1.gz",
}

// copyRoot makes the root of the host of enterHost a copy of this machine's, in memory, whose
// changes are in /mnt, and boots systemd there. The machine's units are known, but not started.
const copyRoot = `wd=$PWD
mkdir -p /run/copy/upper /run/copy/work /run/copy/root
mount -t overlay -o lowerdir=/,upperdir=/run/copy/upper,workdir=/run/copy/work root /run/copy/root
cd /run/copy/root
for dir in proc sys dev; do mount --rbind /$dir $dir; done
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p ".$1" ".$wd" run/old # which may be in other file systems
mount --bind "$1" ".$1"
mount --bind "$wd" ".$wd"
mount --bind /run/copy/upper mnt
mount --bind "$1/console" dev/console
pivot_root . run/old
cd /
umount -l /run/old
exec env -i container=test PATH="$PATH" SYSTEMD_UNIT_PATH="$1/units:/etc/systemd/system:/usr/lib/systemd/system" \
	SYSTEMD_GENERATOR_PATH="$1/none" SYSTEMD_ENVIRONMENT_GENERATOR_PATH="$1/none" \
	` + systemd + ` --system --unit=boot.target --show-status=no --log-target=console`

// enterCopy boots a host to install packages on, and has the calling goroutine enter it. dir is
// there, too, and must not belong to the same test, which could not remove it from there.
func enterCopy(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(systemd); err != nil {
		testenv.Missing(t, "needs systemd: "+err.Error())
	}
	for _, target := range []string{"boot", "sysinit", "basic", "shutdown", "multi-user"} {
		testenv.WriteFile(t, filepath.Join(dir, "units", target+".target"), "[Unit]\nDescription=nothing\n")
	}
	testenv.WriteFile(t, filepath.Join(dir, "console"), "")
	testenv.WriteFile(t, filepath.Join(dir, "none/README"), "")
	t.Setenv("SYSTEMD_UNIT_PATH", filepath.Join(dir, "units")+":/etc/systemd/system:/usr/lib/systemd/system")
	enterHost(t, copyRoot, "systemd", dir)
	t.Cleanup(func() {
		if console, err := os.ReadFile(filepath.Join(dir, "console")); t.Failed() {
			t.Logf("systemd printed:\n%s%v", console, err)
		}
	})
	testenv.Poll(t, deadline, "systemd", func() bool { return exec.Command("systemctl", "show").Run() == nil })
}

// policy is asked by deb-systemd-invoke(1p).
const policy = "/usr/sbin/policy-rc.d"

// command runs a program and returns what it prints.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// serviceState is what systemd says of a property of the service.
func serviceState(t *testing.T, property string) string {
	t.Helper()
	return command(t, "systemctl", "show", "--value", "-p", property, "correlator.service")
}

// A service that was installed does nothing before it is enabled; an upgrade restarts it and keeps
// its configuration; removed and purged, nothing is left.
func TestDeb(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedTool(t, "dpkg-deb")
	dir := t.TempDir()
	older, newer := filepath.Join(dir, "older.deb"), filepath.Join(dir, "newer.deb")
	made := filepath.Join(makeRelease(t), "correlator_"+releaseVersion+"_"+runtime.GOARCH+".deb")
	testenv.WriteFile(t, older, testenv.ReadFile(t, made))
	command(t, "dpkg-deb", "-R", made, filepath.Join(dir, "newer"))
	control := filepath.Join(dir, "newer/DEBIAN/control")
	text := string(testenv.ReadFile(t, control))
	testenv.WriteFile(t, control, strings.Replace(text, "Version: "+releaseVersion, "Version: 1.2.4", 1))
	command(t, "dpkg-deb", "-Znone", "-b", filepath.Join(dir, "newer"), newer)

	t.Run("host", func(t *testing.T) {
		enterCopy(t, dir)
		// Images of Debian forbid packages to start and stop services.
		testenv.WriteFile(t, policy, "#!/bin/sh\nexit 0\n")
		if err := os.Chmod(policy, 0o755); err != nil {
			t.Fatal(err)
		}
		verifyInstalled(t, older)
		const config, content = "/etc/correlator/config.yaml", "accept-partial-view: true\n"
		testenv.WriteFile(t, config, content)
		command(t, "systemctl", "enable", "--now", "correlator.service")
		before := serviceState(t, "MainPID")
		if state := serviceState(t, "ActiveState"); state != "active" {
			t.Fatalf("enabled, it is %s", state)
		}
		command(t, "dpkg", "-i", newer)
		if state, pid := serviceState(t, "ActiveState"), serviceState(t, "MainPID"); state != "active" ||
			pid == before {
			t.Errorf("after an upgrade it is %s, process %s, before %s", state, pid, before)
		}
		if got := string(testenv.ReadFile(t, config)); got != content {
			t.Errorf("after an upgrade the configuration is %q", got)
		}
		command(t, "dpkg", "-r", "correlator")
		if state, loaded := serviceState(t, "ActiveState"), serviceState(t, "LoadState"); state != "inactive" ||
			loaded != "not-found" {
			t.Errorf("removed, it is %s, %s", state, loaded)
		}
		if got := string(testenv.ReadFile(t, config)); got != content {
			t.Errorf("removed, the configuration is %q", got)
		}
		command(t, "dpkg", "-P", "correlator")
		verifyPurged(t)
	})
}

// verifyInstalled installs a package, and checks what is there then, and that it does nothing yet.
func verifyInstalled(t *testing.T, deb string) {
	t.Helper()
	command(t, "dpkg", "-i", deb)
	for _, file := range append(slices.Clone(packageFiles), "/usr/share/zsh/vendor-completions/_correlator") {
		want := fs.FileMode(0o644)
		if file == "/usr/bin/correlator" {
			want = 0o755
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != want {
			t.Errorf("%s is not a file of mode %o: %v", file, want, err)
		}
	}
	if out := command(t, "correlator", "version"); !strings.HasPrefix(out, releaseVersion+"\n") {
		t.Errorf("its version is %s", out)
	}
	if out := command(t, "systemd-analyze", "verify", "--man=no", "correlator.service"); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	for property, want := range map[string]string{"LoadState": "loaded", "ActiveState": "inactive",
		"UnitFileState": "disabled"} {
		if got := serviceState(t, property); got != want {
			t.Errorf("installed, its %s is %s", property, got)
		}
	}
	command(t, "bash", "-n", "/usr/share/bash-completion/completions/correlator")
	if out := command(t, "dpkg", "--verify", "correlator"); out != "" {
		t.Errorf("dpkg --verify: %s", out)
	}
}

// verifyPurged checks that nothing of a package remains. /mnt has what was changed on the host.
func verifyPurged(t *testing.T) {
	t.Helper()
	// Of dpkg, its triggers and systemd.
	others := regexp.MustCompile(`^/mnt/(var/(lib/dpkg|lib/systemd|log|cache)/|etc/machine-id$|etc/\.pwd\.lock$)`)
	for _, dir := range []string{"/mnt/etc", "/mnt/usr", "/mnt/var"} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			switch path {
			case "/mnt/var/tmp":
				return fs.SkipDir
			case "/mnt" + policy:
				return nil
			}
			if err == nil && (strings.Contains(path, "correlator") || !entry.IsDir() && !others.MatchString(path)) {
				t.Errorf("purged, there is still %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// The rpm package has the files of the deb package, a configuration that upgrades keep, and scripts
// that enable and start nothing.
func TestRPM(t *testing.T) {
	testenv.NeedRoot(t)
	rpm := testenv.NeedTool(t, "rpm")
	dist := makeRelease(t)
	for arch, name := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		file := filepath.Join(dist, "correlator-"+releaseVersion+"-1."+name+".rpm")
		command(t, rpm, "-K", file)
		debFiles := regexp.MustCompile(`(?m) \.(/\S*[^/\s])$`).FindAllStringSubmatch(command(t, "dpkg-deb", "-c",
			filepath.Join(dist, "correlator_"+releaseVersion+"_"+arch+".deb")), -1)
		want := []string{"/etc/correlator", "/usr/share/doc/correlator", "/usr/share/zsh/site-functions/_correlator"}
		for _, found := range debFiles {
			if !strings.HasSuffix(found[1], "/copyright") && !strings.Contains(found[1], "vendor-completions") {
				want = append(want, found[1])
			}
		}
		got := strings.Fields(command(t, rpm, "-qpl", file))
		got = slices.DeleteFunc(got, func(path string) bool {
			return strings.HasPrefix(path, "/usr/share/doc/correlator/") && filepath.Ext(path) == ""
		})
		want = slices.DeleteFunc(want, func(path string) bool {
			return strings.HasPrefix(path, "/usr/share/doc/correlator/") && filepath.Ext(path) == ""
		})
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has the files\n%s\nand not\n%s", file, got, want)
		}
		if config := command(t, rpm, "-qp", "--configfiles", file); config != "/etc/correlator/config.yaml" {
			t.Errorf("%s has the configuration %s", file, config)
		}
		scripts := command(t, rpm, "-qp", "--scripts", file)
		if strings.Contains(scripts, "enable --now") || strings.Contains(scripts, " start ") ||
			!strings.Contains(scripts, "try-restart") {
			t.Errorf("%s has the scripts\n%s", file, scripts)
		}
		if arch == runtime.GOARCH {
			root := t.TempDir()
			command(t, rpm, "--root", root, "--nodeps", "--noscripts", "-i", file)
			for _, file := range packageFiles {
				testenv.ReadFile(t, root+file)
			}
			if out := command(t, root+"/usr/bin/correlator", "version"); !strings.HasPrefix(out, releaseVersion+"\n") {
				t.Errorf("its version is %s", out)
			}
		}
	}
}
