package spans

import (
	"archive/zip"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// The names of zones are those of Go's time zone database, and each is found. After a new version
// of Go, zones.txt is made anew from what this test lists.
func TestZoneNames(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	assert.NilError(t, err)
	database, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib/time/zoneinfo.zip"))
	assert.NilError(t, err)
	defer database.Close()
	var want []string
	for _, file := range database.File {
		if !strings.HasSuffix(file.Name, "/") {
			want = append(want, file.Name)
		}
	}
	slices.Sort(want)
	lines := map[string]string{}
	for _, name := range want {
		directory, base := path.Split(name)
		lines[directory] += " " + base
	}
	var text string
	for _, directory := range slices.Sorted(maps.Keys(lines)) {
		text += directory + lines[directory] + "\n"
	}
	if zoneNames != text {
		t.Errorf("zones.txt should have\n%s", text)
	}
	var z zones
	for _, name := range want {
		assert.Check(t, z.named([]byte(name)) != nil, "there is no %s", name)
	}
	// UTC is none that is loaded
	assert.Check(t, len(z.loaded) == len(want)-1, "%d zones loaded of %d", len(z.loaded), len(want))
	before, _, _ := strings.Cut(zoneNames, "\nEurope/ ")
	for _, name := range []string{
		before + "\nEurope/Berlin", "Europe/Nowhere", "Europe/", "",
		"Berlin", "Europe/ Berlin", "Europe/Berlin ", "Europe/Ber", "/Berlin",
		"posix/Europe/Berlin", "../Europe/Berlin", "Europe/Berlin\nAsia/", "CET Cuba",
	} {
		z.named([]byte(name))
	}
	assert.Check(t, len(z.loaded) == len(want)-1, "a name that is none takes memory")
}
