package main

import (
	"fmt"
	"os/exec"
	"strings"
)

// script is a program in a language whose runtime is looked for in PATH.
type script struct {
	language string
	// commands are those that run it, the first that is in PATH and prints the version when it is given versionFlags.
	commands     []string
	version      string // how the version that is wanted begins
	versionFlags []string
	flags        []string // of the runtime
	file         string   // of testdata
	// nativeOnly: its functions have no names. It is compared whether the native stacks are whole.
	nativeOnly bool
}

// scripts returns the programs of all runtimes with an interpreter, in each version.
func scripts() (all []subject) {
	for _, version := range []string{"18", "20", "22", "24", "26"} {
		node := script{
			language: "Node.js", commands: []string{"node" + version, "node"}, version: version + ".",
			versionFlags: []string{"-p", "process.versions.node"}, file: "truth.js",
		}
		compilers := [][]string{{}, {"--no-opt"}, {"--no-opt", "--always-sparkplug"}}
		if version != "18" {
			compilers = append(compilers, []string{"--maglev", "--no-turbofan"})
		}
		for _, flags := range compilers {
			node.flags = flags
			all = append(all, node.subject())
		}
	}
	for minor := 9; minor <= 14; minor++ {
		version := fmt.Sprint("3.", minor)
		python := script{
			language: "CPython", commands: []string{"python" + version, "python3"}, version: version + ".",
			versionFlags: []string{"-c", "import platform; print(platform.python_version())"}, file: "truth.py",
		}
		all = append(all, python.subject())
		if minor >= 12 {
			python.flags = []string{"-X", "perf"}
			all = append(all, python.subject())
		}
	}
	for _, s := range []struct {
		language, command, file string
		versions                []string
		versionFlags            []string
		nativeOnly              bool
	}{
		{"PHP", "php", "truth.php", []string{"7.4", "8.2", "8.4"}, []string{"-r", "echo PHP_VERSION;"}, false},
		{"Ruby", "ruby", "truth.rb", []string{"3.1", "3.3"}, []string{"-e", "print RUBY_VERSION"}, true},
		{"Perl", "perl", "truth.pl", []string{"5.36", "5.40", "5.42"}, []string{"-e", `printf "%vd", $^V`}, true},
	} {
		for _, version := range s.versions {
			of := script{
				language: s.language, commands: []string{s.command + version, s.command}, version: version + ".",
				versionFlags: s.versionFlags, file: s.file, nativeOnly: s.nativeOnly,
			}
			all = append(all, of.subject())
			if s.language == "PHP" {
				for _, compiler := range []string{"tracing", "function"} {
					of.flags = []string{"-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=64M", "-d",
						"opcache.jit=" + compiler}
					all = append(all, of.subject())
				}
			}
		}
	}
	return all
}

// subject returns the program: it is not run where its runtime is missing.
func (s script) subject() subject {
	command, version, err := s.find()
	name := strings.TrimSpace(strings.Join(append([]string{s.language, version}, s.flags...), " "))
	if s.nativeOnly {
		name += " (native frames only)"
	}
	return subject{name: name, build: func(dir string) ([]string, error) {
		if err != nil {
			return nil, err
		}
		return taking(dir, append(append([]string{command}, s.flags...), "testdata/"+s.file)...)
	}}
}

// find returns the command that runs it, and its version.
func (s *script) find() (command, version string, err error) {
	for _, command := range s.commands {
		output, err := exec.Command(command, s.versionFlags...).Output()
		if version := strings.TrimSpace(string(output)); err == nil && strings.HasPrefix(version, s.version) {
			return command, version, nil
		}
	}
	version = strings.TrimSuffix(s.version, ".")
	reason := fmt.Sprintf("no %s in PATH is of %s %s", strings.Join(s.commands, " or "), s.language, version)
	return "", version, notRunError{strings.TrimSpace(reason)}
}
