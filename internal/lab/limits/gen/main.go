// Gen writes the table of limits. Run it by go generate ./internal/lab/limits/...
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"correlator/internal/lab/limits"
)

func main() {
	all, err := limits.Find(os.Args[1])
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], "internal/lab/limits/README.md"), []byte(limits.Page(all)), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
