package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

const root = "../../.."

// The pictures in docs are of today's pages.
func TestPicturesAreCurrent(t *testing.T) {
	dir := filepath.Join(root, "docs/images")
	got, err := sum(root, dir)
	assert.NilError(t, err)
	want := string(testenv.ReadFile(t, filepath.Join(dir, sumsName)))
	assert.Check(t, got == want, "docs/images is of other pages: run make screenshots\nnow:\n%swas:\n%s", got, want)
}

// Another byte of a source, or of a picture, is another sum; so is a file more.
func TestSum(t *testing.T) {
	tree := t.TempDir()
	dir := filepath.Join(tree, "images")
	for _, p := range pictures {
		testenv.WriteFile(t, filepath.Join(dir, p.name), []byte(p.name))
		for _, pattern := range p.sources {
			testenv.WriteFile(t, filepath.Join(tree, strings.Replace(pattern, "*", "a", 1)), []byte(pattern))
		}
	}
	now := func() string {
		t.Helper()
		s, err := sum(tree, dir)
		assert.NilError(t, err)
		return s
	}
	before := now()
	assert.Check(t, before == now() && strings.Count(before, "\n") == len(pictures), before)
	for _, name := range []string{
		"internal/out/live/page/b.js", "internal/out/flamegraph/a.html", "images/live-view.png",
	} {
		testenv.WriteFile(t, filepath.Join(tree, name), []byte("other"))
		after := now()
		assert.Check(t, after != before, "%s changes nothing", name)
		before = after
	}
	assert.NilError(t, os.Remove(filepath.Join(dir, "live-view.png")))
	_, err := sum(tree, dir)
	assert.Check(t, err != nil, "a picture is missing")
}
