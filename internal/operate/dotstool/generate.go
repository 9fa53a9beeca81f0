package dotstool

import (
	"bytes"
	"errors"
	"fmt"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"correlator/dots/generate"
	"correlator/dots/schema"
	"correlator/dots/system"
)

// generated begins files that may be overwritten.
const generated = "// Code generated "

// Generate writes a file of Go code into a directory for each .dots file. Nothing is written unless
// all are correct. Without a package's name it is that of the directory.
func Generate(files []string, directory, pkg string) error {
	if pkg == "" {
		absolute, err := filepath.Abs(directory)
		if err != nil {
			return err
		}
		pkg = filepath.Base(absolute)
	}
	if !token.IsIdentifier(pkg) || pkg == "_" {
		return fmt.Errorf("%w: %q is no name of a package; see --package", ErrUsage, pkg)
	}
	parsed, err := parseFilesWith(files, resolveGenerated)
	if err != nil {
		return err
	}
	codes, err := generate.Go(pkg, parsed...)
	if err != nil {
		return err
	}
	paths := make([]string, len(files))
	for i, file := range parsed {
		name := filepath.Base(file.Name)
		paths[i] = filepath.Join(directory, strings.TrimSuffix(name, ".dots")+".dots.go")
		if err := mayWrite(paths[i], paths[:i]); err != nil {
			return err
		}
	}
	for i, path := range paths {
		if err := os.WriteFile(path, codes[i], 0o644); err != nil { //nolint:gosec // source code is for everybody
			return err
		}
	}
	return nil
}

// resolveGenerated resolves the types that code may use without defining them. Those of the protocol
// have no Go code in the same package.
func resolveGenerated(name string) (*schema.Type, error) {
	t, err := schema.NewRegistry().ResolveType(name)
	if err != nil {
		if _, known := system.NewRegistry().ResolveType(name); known == nil {
			return nil, fmt.Errorf("%s is a type of the protocol, which code cannot be generated for", name)
		}
	}
	return t, err
}

// mayWrite refuses a file that someone has written, and one of two with the same name.
func mayWrite(path string, others []string) error {
	if slices.Contains(others, path) {
		return fmt.Errorf("%w: two files make %s", ErrUsage, path)
	}
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !bytes.HasPrefix(content, []byte(generated)):
		return fmt.Errorf("%s is not overwritten: it was not generated", path)
	}
	return nil
}
