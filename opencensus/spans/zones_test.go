package spans

import (
	"archive/zip"
	"os/exec"
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
	if got := strings.Split(strings.TrimSuffix(zoneNames, "\n"), "\n"); !slices.Equal(got, want) {
		t.Errorf("zones.txt should have\n%s", strings.Join(want, "\n"))
	}
	var z zones
	for _, name := range want {
		assert.Check(t, z.named([]byte(name)) != nil, "there is no %s", name)
	}
	// UTC is none that is loaded
	assert.Check(t, len(z.loaded) == len(want)-1, "%d zones loaded of %d", len(z.loaded), len(want))
	z.named([]byte("Europe/Nowhere"))
	assert.Check(t, len(z.loaded) == len(want)-1, "a name that is none takes memory")
}
