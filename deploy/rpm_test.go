//go:build release

package deploy

import (
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// The rpm package has the files of the deb package, and a configuration that upgrades keep.
func TestReleaseRPM(t *testing.T) {
	testenv.NeedRoot(t)
	rpm := testenv.NeedTool(t, "rpm")
	for _, arch := range architectures {
		name := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch] // as rpm calls it
		file := filepath.Join(*releaseDir, "correlator-"+*releaseVersion+"-1."+name+".rpm")
		command(t, rpm, "-K", file)
		debFiles := regexp.MustCompile(`(?m) \.(/\S*[^/\s])$`).FindAllStringSubmatch(command(t, "dpkg-deb", "-c",
			filepath.Join(*releaseDir, "correlator_"+*releaseVersion+"_"+arch+".deb")), -1)
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
		assert.Check(t, slices.Equal(got, want), "%s has the files\n%s\nand not\n%s", file, got, want)
		flags := command(t, rpm, "-qp", "--qf", "[%{FILENAMES} %{FILEFLAGS:fflags}\n]", file)
		assert.Check(t, regexp.MustCompile(`(?m)^/etc/correlator/config\.yaml cn$`).MatchString(flags),
			"in %s the configuration is not %%config(noreplace):\n%s", file, flags)
		if arch == runtime.GOARCH {
			root := t.TempDir()
			command(t, rpm, "--root", root, "--nodeps", "--noscripts", "-i", file)
			for _, file := range packageFiles {
				testenv.ReadFile(t, root+file)
			}
			out := command(t, root+"/usr/bin/correlator", "version")
			assert.Check(t, strings.HasPrefix(out, *releaseVersion+"\n"), "its version is %s", out)
		}
	}
}

// On a host with systemd, as with TestReleaseDeb. rpm keeps a configuration that was changed when the package
// is removed, by another name.
func TestReleaseRPMOnHost(t *testing.T) {
	testenv.NeedRoot(t)
	rpm := testenv.NeedTool(t, "rpm")
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	dir := t.TempDir()
	file := filepath.Join(dir, "correlator.rpm")
	testenv.WriteFile(t, file, testenv.ReadFile(t,
		filepath.Join(*releaseDir, "correlator-"+*releaseVersion+"-1."+arch+".rpm")))

	t.Run("host", func(t *testing.T) {
		enterCopy(t, dir)
		command(t, rpm, "-i", "--nodeps", file) // of the distribution's packages, rpm knows none here
		verifyIdle(t, "/usr/share/zsh/site-functions/_correlator")
		out := command(t, rpm, "-V", "--nodeps", "correlator")
		assert.Check(t, out == "", "rpm -V: %s", out)
		const config, content = "/etc/correlator/config.yaml", "accept-partial-view: true\n"
		testenv.WriteFile(t, config, content)
		command(t, "systemctl", "enable", "--now", "correlator.service")
		before := serviceState(t, "MainPID")
		command(t, rpm, "-U", "--force", "--nodeps", file) // the scripts are those of an upgrade
		state, pid := serviceState(t, "ActiveState"), serviceState(t, "MainPID")
		assert.Check(t, state == "active" && pid != before,
			"after an upgrade it is %s, process %s, before %s", state, pid, before)
		got := string(testenv.ReadFile(t, config))
		assert.Check(t, got == content, "after an upgrade the configuration is %q", got)
		command(t, rpm, "-e", "correlator")
		state, loaded := serviceState(t, "ActiveState"), serviceState(t, "LoadState")
		assert.Check(t, state == "inactive" && loaded == "not-found", "removed, it is %s, %s", state, loaded)
		got = string(testenv.ReadFile(t, config+".rpmsave"))
		assert.Check(t, got == content, "removed, the configuration is %q", got)
		command(t, "rm", "-r", "/etc/correlator")
		verifyPurged(t)
	})
}
