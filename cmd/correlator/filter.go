package main

import (
	"github.com/spf13/pflag"

	"correlator/internal/target"
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
func filterFlags(flags *pflag.FlagSet, filter *target.Filter) {
	flags.Var((*patternsValue)(&filter.IncludeServices), "include-service", "only services with such a name (default: all)")
	flags.Var((*patternsValue)(&filter.ExcludeServices), "exclude-service", "no services with such a name (default: none)")
	flags.Var((*patternsValue)(&filter.IncludeContainers), "include-container",
		"only processes in such a container or cgroup (default: all)")
	flags.Var((*patternsValue)(&filter.ExcludeContainers), "exclude-container",
		"no processes in such a container or cgroup: their memory is not read, no file or socket opened (default: none)")
}

// patternsValue is the value of a flag that may be given several times, or several lines at once.
type patternsValue target.Patterns

func (p *patternsValue) Set(lines string) error {
	patterns, err := target.ParsePatterns(lines)
	*p = append(*p, patterns...)
	return err
}

func (p *patternsValue) Type() string { return "regexp" }

// String is empty: the help texts tell the defaults.
func (p *patternsValue) String() string { return "" }
