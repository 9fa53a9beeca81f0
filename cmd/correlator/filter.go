package main

import (
	"strings"

	"github.com/spf13/pflag"

	"correlator/internal/process"
	"correlator/internal/settings"
)

// filterHelp is part of the help of the commands with filterFlags.
const filterHelp = `--include-service, --exclude-service, --include-container and --exclude-container choose
processes. Each takes a regular expression that must match as a whole ("shop" is one service,
"shop.*" are all that begin so), and may be given several times; what is excluded is so even
if it is included, and without any include everything is. A container's expression is matched
against its full id ("8d3f.*"), and against the path of the process's cgroup, which begins with
a slash ("/kubepods.*", "/system\.slice/tomcat\.service"): "[^/]+" is every process in a
container. What is excluded is so with all containers and cgroups below it. In an environment
variable each line is an expression. What a process is called is what it says itself, so filters
of services keep order, not secrets; its cgroup is what the kernel says.`

// filterFlags are the flags that choose processes.
func filterFlags(flags *pflag.FlagSet, filter *process.Filter) {
	settings.Group(flags, "Which processes", func(flags *pflag.FlagSet) {
		flags.Var(&patternsValue{patterns: &filter.IncludeServices}, "include-service", "only services with such a name (default: all)")
		flags.Var(&patternsValue{patterns: &filter.ExcludeServices}, "exclude-service", "no services with such a name (default: none)")
		flags.Var(&patternsValue{patterns: &filter.IncludeContainers}, "include-container",
			"only processes in such a container or cgroup (default: all)")
		flags.Var(&patternsValue{patterns: &filter.ExcludeContainers}, "exclude-container",
			"no processes in such a container or cgroup: their memory is not read, no file or socket opened (default: none)")
	})
}

// patternsValue is the value of a flag that may be given several times, or several lines at once. It
// is a pflag.SliceValue: a list, in a file.
type patternsValue struct {
	patterns *process.Patterns
	texts    []string // that they were made of
}

func (p *patternsValue) Set(lines string) error {
	for line := range strings.Lines(lines) {
		if err := p.Append(strings.TrimRight(line, "\r\n")); err != nil {
			return err
		}
	}
	return nil
}

func (p *patternsValue) Append(text string) error {
	patterns, err := process.ParsePatterns(text)
	if err != nil || len(patterns) == 0 {
		return err
	}
	*p.patterns = append(*p.patterns, patterns...)
	p.texts = append(p.texts, text)
	return nil
}

func (p *patternsValue) Replace(texts []string) error {
	*p.patterns, p.texts = nil, nil
	for _, text := range texts {
		if err := p.Append(text); err != nil {
			return err
		}
	}
	return nil
}

func (p *patternsValue) GetSlice() []string { return p.texts }

func (p *patternsValue) Type() string { return "regexp" }

// String is empty: the help texts tell the defaults.
func (p *patternsValue) String() string { return "" }
