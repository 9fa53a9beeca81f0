package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

func main() {
	only := flag.String("run", "", "only subjects whose names match")
	duration := flag.Duration("d", 10*time.Second, "how long each is recorded")
	jdks := flag.String("jdks", "/usr/lib/jvm", "directories in which JDKs are, with colons between them")
	flag.Parse()
	if err := tables(regexp.MustCompile(*only), *duration, filepath.SplitList(*jdks)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tables prints the table of each subject, and then one of all.
func tables(only *regexp.Regexp, duration time.Duration, jdks []string) error {
	if err := os.Chdir("internal/lab/truth"); err != nil {
		return fmt.Errorf("from the root of the repository: %w", err)
	}
	dir, err := os.MkdirTemp("", "truth")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	agent, err := buildAgent(dir)
	if err != nil {
		return err
	}
	var all []*comparison
	var failed error
	for _, s := range subjects(jdks) {
		if !only.MatchString(s.name) {
			continue
		}
		unwinders := []string{"full"}
		if s.pointers {
			unwinders = append(unwinders, "frame-pointers")
		}
		for _, unwinder := range unwinders {
			c, err := compare(agent, &s, unwinder, duration)
			var missing notRunError
			if errors.As(err, &missing) {
				all = append(all, &comparison{name: s.name, notRun: missing.reason})
				break
			}
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name, err))
				continue
			}
			c.write(os.Stdout)
			all = append(all, c)
		}
	}
	summarize(os.Stdout, all)
	if len(all) == 0 && failed == nil {
		return fmt.Errorf("no subject matches %v", only)
	}
	return failed
}

func buildAgent(dir string) (path string, err error) {
	path = filepath.Join(dir, "correlator")
	return path, run(exec.Command("go", "build", "-o", path, "correlator/cmd/correlator"))
}
