package process

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"correlator/procscan"
)

var (
	// ErrContainerFiltered: the filter leaves out the process's container. Nothing was opened.
	ErrContainerFiltered = errors.New("left out by its container")
	// ErrServiceFiltered: the filter leaves out the service that the process publishes.
	ErrServiceFiltered = errors.New("left out by its service name")
	// ErrCommandFiltered: the filter leaves out the name of the process's first thread, and of its program.
	ErrCommandFiltered = errors.New("left out by its command's name")
	// ErrUserFiltered: the filter leaves out the user that the process runs as.
	ErrUserFiltered = errors.New("left out by its user")
)

// IsFiltered reports whether an error says that the filter leaves out a process.
func IsFiltered(err error) bool {
	return errors.Is(err, ErrContainerFiltered) || errors.Is(err, ErrCommandFiltered) ||
		errors.Is(err, ErrUserFiltered) || errors.Is(err, ErrServiceFiltered)
}

// Filter selects the processes that take part. The zero value leaves out none. What is excluded
// stays out even if it is included as well; when nothing is included everything is.
//
// The container is the kernel's word (see procscan.Cgroup); the service name is the process's own,
// so to filter by it is a convenience and keeps nobody out who wants in.
type Filter struct {
	IncludeServices, ExcludeServices     Patterns
	IncludeContainers, ExcludeContainers Patterns

	// OnlyContainers is like IncludeContainers; a container is included if both do.
	OnlyContainers Patterns

	// All: processes that publish nothing take part, too. Of them, the name of the service is that of their program,
	// unless their environment has one.
	All bool
	// Commands are names of the first thread, which the process chooses, and of the program's file.
	IncludeCommands, ExcludeCommands Patterns
	// Users are ids, in decimal digits.
	IncludeUsers, ExcludeUsers Patterns

	roots procscan.CgroupRoots // see Resolve
}

// Resolve returns the filter for the cgroup namespace that we are in. The error says why paths of
// cgroups are not known, if the filter depends on them: it would leave out nothing, or all.
func (f Filter) Resolve(procRoot string) (Filter, error) {
	for _, r := range slices.Concat(f.IncludeContainers, f.ExcludeContainers, f.OnlyContainers) {
		if isRelative(r) {
			return f, fmt.Errorf("%s matches no path of a cgroup: as process 1 sees them, none has /.. in it", r)
		}
	}
	roots, err := procscan.ReadCgroupRoots(procRoot)
	if err != nil && slices.ContainsFunc([]Patterns{f.IncludeContainers, f.ExcludeContainers, f.OnlyContainers},
		Patterns.mayMatchPaths) {
		return f, fmt.Errorf("finding the paths of cgroups for --include-container and --exclude-container: %w", err)
	}
	f.roots = roots
	return f, nil
}

// ByContainer reports whether the result of Container depends on its argument.
func (f Filter) ByContainer() bool {
	return len(f.IncludeContainers)+len(f.ExcludeContainers)+len(f.OnlyContainers) > 0
}

// IsZero reports whether the filter leaves out no process.
func (f Filter) IsZero() bool {
	return !f.ByContainer() && len(f.IncludeServices)+len(f.ExcludeServices)+len(f.IncludeCommands)+
		len(f.ExcludeCommands)+len(f.IncludeUsers)+len(f.ExcludeUsers) == 0
}

// matchesContainer reports whether processes of a cgroup take part: a pattern may match the
// container's id, if there is one, or the cgroup's path. An id has no slash, and a path begins with
// one.
//
// Whoever may create cgroups below its own names them, and so chooses the innermost id and the end
// of the path. That does not escape what is excluded, which holds for all below it. It may get into
// what is included.
func (f Filter) matchesContainer(cgroup procscan.Cgroup) bool {
	for _, include := range []Patterns{f.IncludeContainers, f.OnlyContainers} {
		if len(include) > 0 && !include.matchCgroup(cgroup) {
			return false
		}
	}
	if len(f.ExcludeContainers) > 0 {
		for above, ok := cgroup, true; ok; above, ok = above.Parent() {
			if f.ExcludeContainers.matchCgroup(above) {
				return false
			}
		}
	}
	return true
}

// matchesService reports whether processes that publish a service name take part.
func (f Filter) matchesService(name string) bool {
	return !f.ExcludeServices.match(name) && (len(f.IncludeServices) == 0 || f.IncludeServices.match(name))
}

// Patterns are regular expressions, any of which may match, and each only a text as a whole.
type Patterns []*regexp.Regexp

func (p Patterns) match(text string) bool {
	return slices.ContainsFunc(p, func(r *regexp.Regexp) bool { return r.MatchString(text) })
}

// mayMatchPaths reports whether any can match a path of a cgroup, which begins with a slash, as ids of
// containers do not.
func (p Patterns) mayMatchPaths() bool {
	return slices.ContainsFunc(p, func(r *regexp.Regexp) bool {
		parsed, err := syntax.Parse(r.String(), syntax.Perl)
		if err != nil {
			return true
		}
		slash, _ := beginsWithSlash(parsed)
		return slash
	})
}

// beginsWithSlash reports whether what an expression matches can begin with a slash, and whether it can
// be empty, so that what follows the expression comes first.
func beginsWithSlash(r *syntax.Regexp) (slash, empty bool) {
	switch r.Op {
	case syntax.OpNoMatch:
		return false, false
	case syntax.OpLiteral:
		return len(r.Rune) > 0 && r.Rune[0] == '/', len(r.Rune) == 0
	case syntax.OpCharClass:
		for i := 0; i < len(r.Rune); i += 2 {
			slash = slash || r.Rune[i] <= '/' && '/' <= r.Rune[i+1]
		}
		return slash, false
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true, false
	case syntax.OpConcat:
		for _, part := range r.Sub {
			begins, skipped := beginsWithSlash(part)
			if slash = slash || begins; !skipped {
				return slash, false
			}
		}
		return slash, true
	case syntax.OpAlternate, syntax.OpCapture, syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		empty = r.Op == syntax.OpStar || r.Op == syntax.OpQuest || r.Op == syntax.OpRepeat && r.Min == 0
		for _, part := range r.Sub {
			begins, skipped := beginsWithSlash(part)
			slash, empty = slash || begins, empty || skipped
		}
		return slash, empty
	default: // matches no character
		return false, true
	}
}

// isRelative reports whether an expression is one for paths as they are seen in a cgroup namespace: all
// that it matches, or its text, begins with "/..".
func isRelative(r *regexp.Regexp) bool {
	parsed, err := syntax.Parse(r.String(), syntax.Perl|syntax.DotNL)
	if err != nil {
		return false
	}
	text := strings.TrimSuffix(strings.TrimPrefix(r.String(), "^(?:"), ")$")
	program, err := syntax.Compile(withoutEdges(parsed).Simplify())
	if err != nil {
		return false
	}
	prefix, _ := program.Prefix()
	return strings.HasPrefix(prefix, "/..") || strings.Contains(text, "/../")
}

// withoutEdges returns an expression without ^ at its beginning and $ at its end.
func withoutEdges(r *syntax.Regexp) *syntax.Regexp {
	if n := len(r.Sub); r.Op == syntax.OpConcat && n > 2 {
		inner := *r
		inner.Sub = r.Sub[1 : n-1]
		return &inner
	}
	return r
}

func (p Patterns) matchCgroup(c procscan.Cgroup) bool {
	return p.match(c.Path) || c.ContainerID != "" && p.match(c.ContainerID)
}

// ParsePatterns parses one pattern per line, so that several fit into an environment variable: any
// other separator may be part of one. Empty lines are none.
func ParsePatterns(lines string) (Patterns, error) {
	var patterns Patterns
	for line := range strings.Lines(lines) {
		expression := strings.TrimRight(line, "\r\n")
		if expression == "" {
			continue
		}
		parsed, err := syntax.Parse(expression, syntax.Perl|syntax.DotNL) // by itself: "a)|(b" is none
		if err != nil {
			return nil, err
		}
		whole, err := regexp.Compile("^(?:" + parsed.String() + ")$") // in which every \Q has its \E
		if err != nil {
			return nil, fmt.Errorf("%w, as a whole match", err) // at the limit of what is accepted
		}
		patterns = append(patterns, whole)
	}
	return patterns, nil
}

// admit reads the cgroup of the process, and applies the filter to its container. Without a filter
// an unknown cgroup is no reason not to serve the process.
func (t *Target) admit() (err error) {
	t.cgroup, err = t.handle.Cgroup(t.filter.roots)
	if err != nil && (t.filter.ByContainer() || errors.Is(err, procscan.ErrGone)) {
		return err
	}
	if !t.filter.matchesContainer(t.cgroup) {
		return ErrContainerFiltered
	}
	if err := t.admitUser(); err != nil {
		return err
	}
	return t.admitCommand()
}

// admitUser applies the filter to the user that the process runs as.
func (t *Target) admitUser() error {
	include, exclude := t.filter.IncludeUsers, t.filter.ExcludeUsers
	if len(include)+len(exclude) == 0 {
		return nil
	}
	credentials, err := t.handle.Credentials()
	if err != nil {
		return err
	}
	user := strconv.FormatUint(uint64(credentials.UID), 10)
	if exclude.match(user) || len(include) > 0 && !include.match(user) {
		return ErrUserFiltered
	}
	return nil
}

// admitCommand applies the filter to the names of the process.
func (t *Target) admitCommand() error {
	include, exclude := t.filter.IncludeCommands, t.filter.ExcludeCommands
	if len(include)+len(exclude) == 0 {
		return nil
	}
	var names []string
	name, err := t.handle.ThreadName(t.handle.Identity().PID)
	if errors.Is(err, procscan.ErrGone) && !t.handle.Alive() {
		return err
	}
	if err == nil {
		names = append(names, name)
	}
	if executable, err := t.handle.Executable(); err == nil {
		names = append(names, path.Base(executable))
	}
	if slices.ContainsFunc(names, exclude.match) || len(include) > 0 && !slices.ContainsFunc(names, include.match) {
		return ErrCommandFiltered
	}
	return nil
}
