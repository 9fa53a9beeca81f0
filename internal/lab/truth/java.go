package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var javaReleases = []string{"8", "11", "17", "21", "25"}

// notes make a JVM describe more places of compiled code.
const notes = "-XX:+UnlockDiagnosticVMOptions -XX:+DebugNonSafepoints"

// javaFlags are the ways in which each JDK runs the program. What is not said is C2, after the interpreter
// and C1, with G1.
var javaFlags = []struct{ name, flags string }{
	{"", "-XX:+UseG1GC"},
	{"notes", "-XX:+UseG1GC " + notes},
	{"not inlined", "-XX:+UseG1GC -XX:-Inline"},
	{"C1", "-XX:+UseG1GC -XX:TieredStopAtLevel=1"},
	{"C1, notes", "-XX:+UseG1GC -XX:TieredStopAtLevel=1 " + notes},
	{"interpreted", "-XX:+UseG1GC -Xint"},
	{"Serial", "-XX:+UseSerialGC"},
	{"Parallel, notes", "-XX:+UseParallelGC " + notes},
	{"ZGC, notes", "-XX:+UseZGC " + notes},
}

// javaVersion finds the version in what java -version prints: 1.8.0_504, 17.0.15, 21.
var javaVersion = regexp.MustCompile(`version "((?:1\.)?(\d+)[^"]*)"`)

type jdk struct{ java, version string }

// findJDKs returns the JDKs below directories by their release, of each the first.
func findJDKs(directories []string) map[string]jdk {
	found := make(map[string]jdk)
	for _, directory := range directories {
		homes, _ := filepath.Glob(filepath.Join(directory, "*/bin/java"))
		for _, path := range homes {
			out, err := exec.Command(path, "-version").CombinedOutput()
			version := javaVersion.FindSubmatch(out)
			if err != nil || version == nil {
				continue
			}
			release := string(version[2])
			found[release] = cmp.Or(found[release], jdk{path, string(version[1])})
		}
	}
	return found
}

func java(directories []string) (all []subject) {
	found := findJDKs(directories)
	for _, release := range javaReleases {
		of := found[release]
		for _, f := range javaFlags {
			if f.name == "ZGC, notes" && slices.Contains([]string{"8", "11"}, release) {
				continue // is not there, or an experiment
			}
			s := subject{name: strings.TrimSuffix("JDK "+cmp.Or(of.version, release)+", "+f.name, ", ")}
			s.build = func(dir string) ([]string, error) {
				if of.java == "" {
					return nil, notRunError{fmt.Sprintf("no JDK %s below %s", release, strings.Join(directories, ", "))}
				}
				return javaCommand(dir, of.java, strings.Fields(f.flags))
			}
			all = append(all, s)
		}
	}
	return all
}

// javaCommand builds the program in Java, unless it is in the directory already, and returns the command that runs it.
func javaCommand(dir, java string, flags []string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(dir, "Truth.class")); err != nil {
		if err := run(exec.Command("javac", "-source", "8", "-target", "8", "-nowarn", "-Xlint:-options", "-d", dir,
			"testdata/java/Truth.java")); err != nil {
			return nil, err
		}
	}
	command := append([]string{java, "-Xmx256m", "-XX:-UsePerfData"}, flags...)
	return taking(dir, append(command, "-cp", dir, "Truth")...)
}
