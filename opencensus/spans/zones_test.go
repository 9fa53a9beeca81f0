package spans

import (
	"archive/zip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The names of zones are those of Go's time zone database, and each is found. After a new version
// of Go, zones.txt is made anew from what this test lists.
func TestZoneNames(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	database, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib/time/zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
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
	var of zones
	for _, name := range want {
		if of.named([]byte(name)) == nil {
			t.Errorf("there is no %s", name)
		}
	}
	if len(of.loaded) != len(want)-1 { // UTC is none that is loaded
		t.Errorf("%d zones loaded of %d", len(of.loaded), len(want))
	}
	of.named([]byte("Europe/Nowhere"))
	if len(of.loaded) != len(want)-1 {
		t.Error("a name that is none takes memory")
	}
}
