package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sumsName is the file beside the pictures that says of each what it is, and what its page was made of.
const sumsName = "SOURCES"

// names is what the names of functions are made by.
const names = "internal/names/symbols/demangle.go"

// pictures are those that are taken, with the sources of what is in them.
var pictures = []struct {
	name    string
	sources []string // patterns
}{
	{"flame-graph.png", []string{"internal/out/flamegraph/*.css", "internal/out/flamegraph/*.html",
		"internal/out/flamegraph/*.js", names}},
	{"live-view.png", []string{"internal/out/flamegraph/colors.css", "internal/out/flamegraph/flame.js",
		"internal/out/flamegraph/timeline.css", "internal/out/flamegraph/timeline.js", "internal/out/live/page/*.css",
		"internal/out/live/page/*.html", "internal/out/live/page/*.js", names}},
}

// sum returns a line for each picture in a directory: its name, its hash, and that of its sources in a tree.
func sum(root, dir string) (string, error) {
	var b strings.Builder
	for _, p := range pictures {
		image, err := os.ReadFile(filepath.Join(dir, p.name))
		if err != nil {
			return "", err
		}
		var files []string
		for _, pattern := range p.sources {
			found, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil {
				return "", err
			}
			if len(found) == 0 {
				return "", fmt.Errorf("no source is %s", pattern)
			}
			files = append(files, found...)
		}
		slices.Sort(files)
		of := sha256.New()
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(of, "%s %d\n%s", name, len(content), content)
		}
		hash := sha256.Sum256(image)
		fmt.Fprintf(&b, "%s %s %s\n", p.name, hex.EncodeToString(hash[:]), hex.EncodeToString(of.Sum(nil)))
	}
	return b.String(), nil
}
