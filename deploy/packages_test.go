//go:build release

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

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
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

// serviceState is what systemd says of a property of the service.
func serviceState(t *testing.T, property string) string {
	t.Helper()
	return command(t, "systemctl", "show", "--value", "-p", property, "correlator.service")
}

// A service that was installed does nothing before it is enabled; an upgrade restarts it and keeps
// its configuration, and succeeds if the service does not start; removed and purged, nothing is left.
func TestReleaseDeb(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedTool(t, "dpkg-deb")
	dir := t.TempDir()
	older, newer := filepath.Join(dir, "older.deb"), filepath.Join(dir, "newer.deb")
	made := filepath.Join(*releaseDir, "correlator_"+*releaseVersion+"_"+runtime.GOARCH+".deb")
	testenv.WriteFile(t, older, testenv.ReadFile(t, made))
	command(t, "dpkg-deb", "-R", made, filepath.Join(dir, "newer"))
	control := filepath.Join(dir, "newer/DEBIAN/control")
	text := string(testenv.ReadFile(t, control))
	testenv.WriteFile(t, control, strings.Replace(text, "Version: "+*releaseVersion, "Version: 1.2.4", 1))
	command(t, "dpkg-deb", "-Znone", "-b", filepath.Join(dir, "newer"), newer)

	t.Run("host", func(t *testing.T) {
		enterCopy(t, dir)
		// Images of Debian forbid packages to start and stop services.
		testenv.WriteFile(t, policy, "#!/bin/sh\nexit 0\n")
		assert.NilError(t, os.Chmod(policy, 0o755))
		verifyInstalled(t, older)
		const config, content = "/etc/correlator/config.yaml", "accept-partial-view: true\n"
		testenv.WriteFile(t, config, content)
		command(t, "systemctl", "enable", "--now", "correlator.service")
		before := serviceState(t, "MainPID")
		state := serviceState(t, "ActiveState")
		assert.Assert(t, state == "active", "enabled, it is %s", state)
		command(t, "dpkg", "-i", newer)
		state, pid := serviceState(t, "ActiveState"), serviceState(t, "MainPID")
		assert.Check(t, state == "active" && pid != before,
			"after an upgrade it is %s, process %s, before %s", state, pid, before)
		got := string(testenv.ReadFile(t, config))
		assert.Check(t, got == content, "after an upgrade the configuration is %q", got)
		// A version that does not start is for the administrator; a broken package would stop all upgrades.
		testenv.WriteFile(t, config, "no-such-key: true\n")
		command(t, "dpkg", "-i", newer)
		assert.Check(t, serviceState(t, "ActiveState") != "active", "with a configuration that is refused, it runs")
		status := command(t, "dpkg-query", "-W", "-f", "${db:Status-Abbrev}", "correlator")
		assert.Check(t, status == "ii", "upgraded with a configuration that is refused, the package is %s", status)
		testenv.WriteFile(t, config, content)
		command(t, "dpkg", "-r", "correlator")
		state, loaded := serviceState(t, "ActiveState"), serviceState(t, "LoadState")
		assert.Check(t, state == "inactive" && loaded == "not-found", "removed, it is %s, %s", state, loaded)
		got = string(testenv.ReadFile(t, config))
		assert.Check(t, got == content, "removed, the configuration is %q", got)
		command(t, "dpkg", "-P", "correlator")
		verifyPurged(t)
	})
}

func verifyInstalled(t *testing.T, deb string) {
	t.Helper()
	command(t, "dpkg", "-i", deb)
	verifyIdle(t, "/usr/share/zsh/vendor-completions/_correlator")
	out := command(t, "dpkg", "--verify", "correlator")
	assert.Check(t, out == "", "dpkg --verify: %s", out)
}

// verifyIdle checks the files of a package that was installed, beside them those of one format, and
// that the service does nothing yet.
func verifyIdle(t *testing.T, others ...string) {
	t.Helper()
	for _, file := range slices.Concat(packageFiles, others) {
		want := fs.FileMode(0o644)
		if file == "/usr/bin/correlator" {
			want = 0o755
		}
		info, err := os.Stat(file)
		assert.Check(t, err == nil && info.Mode() == want, "%s is not a file of mode %o: %v", file, want, err)
	}
	out := command(t, "correlator", "version")
	assert.Check(t, strings.HasPrefix(out, *releaseVersion+"\n"), "its version is %s", out)
	out = command(t, "systemd-analyze", "verify", "--man=no", "correlator.service")
	assert.Check(t, out == "", "systemd-analyze verify: %s", out)
	for property, want := range map[string]string{"LoadState": "loaded", "ActiveState": "inactive",
		"UnitFileState": "disabled"} {
		got := serviceState(t, property)
		assert.Check(t, got == want, "installed, its %s is %s", property, got)
	}
	command(t, "bash", "-n", "/usr/share/bash-completion/completions/correlator")
}

// verifyPurged checks that nothing of a package remains. /mnt has what was changed on the host.
func verifyPurged(t *testing.T) {
	t.Helper()
	// Of dpkg, its triggers, rpm and systemd.
	others := regexp.MustCompile(`^/mnt/(var/(lib/dpkg|lib/rpm|lib/systemd|log|cache)/|etc/(machine-id|mtab|\.pwd\.lock)$)`)
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
		assert.Check(t, err)
	}
}
