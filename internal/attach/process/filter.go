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
	"unicode"

	"correlator/procscan"
)

var (
	// ErrContainerFiltered: the filter leaves out the process's container. Nothing was opened.
	ErrContainerFiltered = errors.New("left out by its container")
	// errReceiving is an ErrContainerFiltered.
	errReceiving error = receiving{}
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
	// Nothing: no process takes part, as there are no samples.
	Nothing bool

	roots procscan.CgroupRoots // see Resolve
}

func (f Filter) containers() Patterns {
	return slices.Concat(f.IncludeContainers, f.ExcludeContainers, f.OnlyContainers)
}

// Check returns an error that says which expression can match nothing: it would leave out nothing, or all.
func (f Filter) Check() error {
	const (
		noContainer = "no container's id, which has 64 hexadecimal digits, and no path of a cgroup as process 1 sees it: " +
			"/A/B; two expressions are two values"
		noUser    = "no user's id, which is a number"
		noCommand = "no name of a thread, which has at most 15 bytes, and none of a file, which has no slash; " +
			"two expressions are two values"
	)
	for _, d := range []struct {
		flag          string
		patterns      Patterns
		texts, advice string
	}{
		{"include-container", f.IncludeContainers, ids + "|" + paths, noContainer},
		{"exclude-container", f.ExcludeContainers, ids + "|" + paths, noContainer},
		{"container", f.OnlyContainers, ids + "|" + paths, noContainer},
		{"include-user", f.IncludeUsers, users, noUser},
		{"exclude-user", f.ExcludeUsers, users, noUser},
		{"include-command", f.IncludeCommands, commands, noCommand},
		{"exclude-command", f.ExcludeCommands, commands, noCommand},
	} {
		if i := slices.IndexFunc(d.patterns, func(r *regexp.Regexp) bool { return !mayMatch(r, d.texts) }); i >= 0 {
			text := strings.TrimSuffix(strings.TrimPrefix(d.patterns[i].String(), "^(?:"), ")$")
			if dotAll, ok := strings.CutPrefix(text, "(?s:"); ok { // which parsing adds
				text = strings.TrimSuffix(dotAll, ")")
			}
			return fmt.Errorf("--%s: %q matches %s", d.flag, text, d.advice)
		}
	}
	return nil
}

// Resolve returns the filter for the cgroup namespace that we are in. The error is Check's, or says why paths of
// cgroups are not known, if the filter depends on them.
func (f Filter) Resolve(procRoot string) (Filter, error) {
	if err := f.Check(); err != nil {
		return f, err
	}
	roots, err := procscan.ReadCgroupRoots(procRoot)
	if err != nil && slices.ContainsFunc(f.containers(), func(r *regexp.Regexp) bool { return mayMatch(r, paths) }) {
		return f, fmt.Errorf("finding the paths of cgroups for --include-container and --exclude-container: %w", err)
	}
	f.roots = roots
	return f, nil
}

// What there is to match. No cgroup is named "." or "..". Names with commas, and those that begin or end with a blank,
// are left to expressions that say less: an expression that has them is a list, or has one too many.
const (
	ids      = "[0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{4,12}|[0-9a-f]{32}-[0-9]{1,10}"
	inner    = `([^/,]*[^/,\s])?`
	paths    = `/|(/([^./,\s]` + inner + `|\.[^./,\s]` + inner + `|\.\.[^/,\s]` + inner + `))+`
	users    = "0|[1-9][0-9]{0,9}"
	commands = `[^/,\s]` + inner + `|[^/,\s]([^,]{0,13}[^,\s])?`
)

// ByContainer reports whether the result of Container depends on its argument.
func (f Filter) ByContainer() bool {
	return len(f.IncludeContainers)+len(f.ExcludeContainers)+len(f.OnlyContainers) > 0
}

// IsZero reports whether the filter leaves out no process.
func (f Filter) IsZero() bool {
	return !f.Nothing && !f.ByContainer() && len(f.IncludeServices)+len(f.ExcludeServices)+len(f.IncludeCommands)+
		len(f.ExcludeCommands)+len(f.IncludeUsers)+len(f.ExcludeUsers) == 0
}

// matchesContainer reports whether processes of a cgroup take part: a pattern may match the
// container's id, if there is one, or the cgroup's path. An id has no slash, and a path begins with
// one.
//
// Whoever may create cgroups below its own names them, and so chooses the innermost id and the end
// of the path. That does not escape what is excluded, which holds for all below it. It may get into
// what is included. In hierarchies that it does not use, the engine of a container may leave its processes in its own
// cgroup: that does not count, unless users may have named the container themselves.
func (f Filter) matchesContainer(cgroup procscan.Cgroup, others ...procscan.Cgroup) bool {
	for _, include := range []Patterns{f.IncludeContainers, f.OnlyContainers} {
		if len(include) > 0 && !include.matchCgroup(cgroup) {
			return false
		}
	}
	if len(f.ExcludeContainers) > 0 {
		isEngines := containerOf(cgroup) != ""
		for _, one := range append(others, cgroup) {
			for above, ok := one, !isEngines || one.ContainerID != ""; ok; above, ok = above.Parent() {
				if f.ExcludeContainers.matchCgroup(above) {
					return false
				}
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

// mayMatch reports whether an expression can match any of the texts that another describes. A path with
// "/../" in it, or that of a file, is never meant to be one that has other characters there.
func mayMatch(r *regexp.Regexp, texts string) bool {
	if text := r.String(); strings.Contains(text, "/../") || strings.Contains(text, "/sys/fs/cgroup/") {
		return false
	}
	var programs [2]*syntax.Prog
	for i, text := range []string{r.String(), texts} {
		parsed, err := syntax.Parse(text, syntax.Perl)
		if err == nil {
			programs[i], err = syntax.Compile(parsed.Simplify())
		}
		if err != nil {
			return true
		}
	}
	return intersect(programs[0], programs[1])
}

// intersect reports whether there can be a text that both programs match as a whole. Conditions, such as
// \b, are taken for met.
func intersect(a, b *syntax.Prog) bool {
	type place struct{ a, b uint32 }
	next := []place{{uint32(a.Start), uint32(b.Start)}}
	seen := make(map[place]bool)
	for len(next) > 0 {
		p := next[len(next)-1]
		next = next[:len(next)-1]
		if seen[p] {
			continue
		}
		seen[p] = true
		x, y := &a.Inst[p.a], &b.Inst[p.b]
		switch {
		case x.Op == syntax.InstMatch && y.Op == syntax.InstMatch:
			return true
		case skips(x):
			next = append(next, place{x.Out, p.b})
			if x.Op == syntax.InstAlt || x.Op == syntax.InstAltMatch {
				next = append(next, place{x.Arg, p.b})
			}
		case skips(y):
			next = append(next, place{p.a, y.Out})
			if y.Op == syntax.InstAlt || y.Op == syntax.InstAltMatch {
				next = append(next, place{p.a, y.Arg})
			}
		case haveCommon(x, y):
			next = append(next, place{x.Out, y.Out})
		}
	}
	return false
}

// skips reports whether an instruction goes on without a character.
func skips(i *syntax.Inst) bool {
	return i.Op <= syntax.InstEmptyWidth || i.Op == syntax.InstNop
}

// haveCommon reports whether there is a character that two instructions take: the first of a range of one
// of them, in another case perhaps.
func haveCommon(x, y *syntax.Inst) bool {
	for _, ranges := range [][]rune{x.Rune, y.Rune} {
		for i := 0; i < len(ranges); i += 2 {
			for r, begun := ranges[i], false; !begun || r != ranges[i]; r, begun = unicode.SimpleFold(r), true {
				if x.MatchRune(r) && y.MatchRune(r) {
					return true
				}
			}
		}
	}
	return false
}

// matchCgroup reports whether one matches a path, a container's id, or a pod's uid. A path in which systemd has written
// "-" as "\x2d" matches both itself as an expression, in which that is a "-", and one that matches these characters.
func (p Patterns) matchCgroup(c procscan.Cgroup) bool {
	pod := c.PodUID()
	return p.match(c.Path) || c.ContainerID != "" && p.match(c.ContainerID) || pod != "" && p.match(pod) ||
		strings.Contains(c.Path, `\x`) && p.match(escape.ReplaceAllStringFunc(c.Path, unescaped))
}

var escape = regexp.MustCompile(`\\x[0-9a-f]{2}`)

func unescaped(escape string) string {
	code, _ := strconv.ParseUint(escape[2:], 16, 8)
	return string(rune(code)) // as it is in an expression
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

// receiving is why no process is served by an agent without samples.
type receiving struct{}

func (receiving) Error() string        { return "left out, as all are: there are no samples" }
func (receiving) Is(target error) bool { return target == ErrContainerFiltered }

// admit reads the cgroup of the process, and applies the filter to its container. Without a filter
// an unknown cgroup is no reason not to serve the process.
func (t *Target) admit() (err error) {
	if t.filter.Nothing {
		return errReceiving
	}
	var others []procscan.Cgroup
	t.cgroup, others, err = t.handle.Cgroup(t.filter.roots)
	if err != nil && (t.filter.ByContainer() || errors.Is(err, procscan.ErrGone)) {
		return err
	}
	if !t.filter.matchesContainer(t.cgroup, others...) {
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
