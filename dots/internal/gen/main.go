// Gen writes the Go code for .dots files beside them, for go generate: gen -package NAME FILE.dots ...
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"correlator/dots/generate"
)

func main() {
	pkg := flag.String("package", "", "package of the code")
	flag.Parse()
	for _, name := range flag.Args() {
		if err := run(*pkg, name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func run(pkg, name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	code, err := generate.FromSource(generate.Options{Package: pkg, Source: name}, text, nil)
	if err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(name, ".dots")+"_types.go", code, 0o644)
}
