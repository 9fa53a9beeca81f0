package deploy

import (
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"correlator/internal/testenv"
)

// The rpm package has the files of the deb package, and a configuration that upgrades keep.
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
		flags := command(t, rpm, "-qp", "--qf", "[%{FILENAMES} %{FILEFLAGS:fflags}\n]", file)
		if !regexp.MustCompile(`(?m)^/etc/correlator/config\.yaml cn$`).MatchString(flags) {
			t.Errorf("in %s the configuration is not %%config(noreplace):\n%s", file, flags)
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
