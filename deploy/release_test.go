//go:build release

package deploy

import (
	"archive/tar"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A release for all architectures, which .ci/dist-check makes and tests: TestRelease… with the build tag
// release, so that `make test` makes none.
var (
	releaseDir     = flag.String("release", "../dist", "`directory` of a release")
	releaseVersion = flag.String("release-version", "", "`version` of that release")
	architectures  = []string{"amd64", "arm64"}
)

// What the documents in an archive link to is in the archive, where they say.
func TestReleaseArchive(t *testing.T) {
	dir := *releaseDir
	name := "correlator-" + *releaseVersion + "-linux-" + runtime.GOARCH
	files := unpack(t, filepath.Join(dir, name+".tar.gz"), name)
	for _, file := range []string{"correlator", "LICENSE", "README.md", "SECURITY.md", "docs/install.md",
		"man/correlator-run.1", "completions/bash", "deploy/systemd/correlator.service"} {
		_, ok := files[file]
		assert.Check(t, ok, "%s is missing", file)
	}
	links := 0
	for file, text := range files {
		if path.Ext(file) != ".md" {
			continue
		}
		for _, link := range linksOf(text) {
			links++
			target := path.Join(path.Dir(file), link)
			_, ok := files[target]
			assert.Check(t, ok, "%s links to %s", file, link)
		}
	}
	assert.Check(t, links >= 50, "only %d links found", links)
}

// unpack returns the files and directories of an archive, by their path below its one directory.
func unpack(t *testing.T, archive, dir string) map[string]string {
	t.Helper()
	file, err := os.Open(archive)
	assert.NilError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	assert.NilError(t, err)
	found := map[string]string{}
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		assert.NilError(t, err)
		name, ok := strings.CutPrefix(header.Name, dir+"/")
		assert.Check(t, ok && header.Uid == 0 && header.Gid == 0 && header.Mode&0o022 == 0,
			"%s has %s of %d:%d, mode %o", archive, header.Name, header.Uid, header.Gid, header.Mode)
		found[strings.TrimSuffix(name, "/")] = string(text)
	}
}

func linksOf(text string) (links []string) {
	code := regexp.MustCompile("(?ms)^```.*?^```|^    [^\n]*$|`[^`\n]*`")
	link := regexp.MustCompile(`\]\(([^)\s#]+)(#\S*)?\)`)
	for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		if !strings.Contains(found[1], "://") {
			links = append(links, found[1])
		}
	}
	return links
}

// The bill of materials names the modules that the binary contains, and Go.
func TestReleaseBillOfMaterials(t *testing.T) {
	dir := *releaseDir
	for _, arch := range architectures {
		binary := filepath.Join(dir, "correlator-linux-"+arch)
		build, err := buildinfo.ReadFile(binary)
		assert.NilError(t, err)
		var bill struct {
			Metadata struct {
				Component struct{ Name, Version string }
			}
			Components []struct{ Name, Version string }
		}
		assert.NilError(t, json.Unmarshal(testenv.ReadFile(t, binary+".cdx.json"), &bill))
		of := bill.Metadata.Component
		assert.Check(t, of.Name == "correlator" && of.Version == *releaseVersion, "it is of %+v", of)
		versions := map[string]string{}
		for _, component := range bill.Components {
			versions[component.Name] = component.Version
		}
		assert.Check(t, versions["std"] == build.GoVersion,
			"built with %s, listed is %s", build.GoVersion, versions["std"])
		for _, module := range build.Deps {
			assert.Check(t, versions[module.Path] == module.Version,
				"%s %s is listed as %q", module.Path, module.Version, versions[module.Path])
		}
		assert.Check(t, len(versions) == len(build.Deps)+1,
			"%d components listed, %d linked", len(versions), len(build.Deps)+1)
	}
}
