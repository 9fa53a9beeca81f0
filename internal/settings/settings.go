// Package settings finds the values of a command's flags where they were not given on the command
// line: in environment variables, in a YAML file, in the defaults, in that order. It keeps no table of
// its own. A pflag.FlagSet has the name, type, default, help and value of every setting; where its
// value comes from, and the group it is shown in, are annotations of the flag.
//
// settings.go has flags and the environment, file.go the file, nested.go those of its keys that are too much for a
// flag. print.go writes such a file, usage.go the help; errors.go, explain.go and nearest.go are for messages.
package settings

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Names of annotations.
const (
	originAnnotation = "origin" // where the value comes from; missing: the command line, or a default
	groupAnnotation  = "group"  // title in help and file; missing: none
	foundAnnotation  = "found"  // the value is a default that was found out, or else not to be read again
	fileAnnotation   = "file"   // the value is of a file
)

// The flags that say where settings are or what to do with them; see isSetting.
const (
	Config      = "config"
	PrintConfig = "print-config"
)

// isSetting says whether a flag can be a key of a file: what names the file, and what makes the
// command do something else, cannot.
func isSetting(name string) bool { return name != Config && name != PrintConfig && name != "help" }

// Group adds the flags that define makes to flags, under a title. Flags are shown as they are defined
// from then on, not by their names.
func Group(flags *pflag.FlagSet, title string, define func(group *pflag.FlagSet)) {
	group := pflag.NewFlagSet(title, pflag.ContinueOnError)
	flags.SortFlags, group.SortFlags = false, false
	define(group)
	group.VisitAll(func(f *pflag.Flag) {
		annotate(f, groupAnnotation, title)
		flags.AddFlag(f)
	})
}

func annotate(f *pflag.Flag, name, value string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[name] = []string{value}
}

func annotation(f *pflag.Flag, name string) string { return strings.Join(f.Annotations[name], "") }

// set gives a flag a value that is not from the command line.
func set(f *pflag.Flag, value, origin string) error {
	if err := f.Value.Set(value); err != nil {
		return err
	}
	given(f, origin)
	return nil
}

// given says where the value that a flag has got comes from.
func given(f *pflag.Flag, origin string) {
	f.Changed = true
	annotate(f, originAnnotation, origin)
}

// SetFound makes a value that was found out the default of a flag that has none yet; how is what is
// shown as its origin. It panics when there is no such flag, or that does not take the value.
func SetFound(flags *pflag.FlagSet, name, value, how string) {
	f := flags.Lookup(name)
	if err := f.Value.Set(value); err != nil {
		panic(fmt.Sprintf("setting --%s to %q: %v", name, value, err))
	}
	annotate(f, originAnnotation, "default: "+how)
	annotate(f, foundAnnotation, "yes")
}

// Origin is where the value of a flag comes from, in a few words. file says that it is a file.
func Origin(flags *pflag.FlagSet, name string) (origin string, file bool) {
	f := flags.Lookup(name)
	return originOf(f), annotation(f, fileAnnotation) != ""
}

// SetOrigin says where the value came from that a flag was given in another way.
func SetOrigin(flags *pflag.FlagSet, name, origin string) {
	given(flags.Lookup(name), origin)
}

// AsComment has Print write a setting as a comment, because another one says the same, or cannot be beside it.
func AsComment(flags *pflag.FlagSet, name string) {
	annotate(flags.Lookup(name), foundAnnotation, "yes")
}

// originOf is where the value of a flag comes from, in a few words.
func originOf(f *pflag.Flag) string {
	switch origin := annotation(f, originAnnotation); {
	case origin != "":
		return origin
	case f.Changed:
		return "flag"
	default:
		return "default"
	}
}

const prefix = "CORRELATOR_"

// variable is the environment variable that stands for a flag: --feed-socket is
// CORRELATOR_FEED_SOCKET.
func variable(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// takesVariable: what makes a command do something else is not to be left behind in an environment.
func takesVariable(f *pflag.Flag) bool {
	_, isNested := f.Value.(nested)
	return !isNested && (isSetting(f.Name) || f.Name == Config)
}

// FromEnvironment sets every flag that was not given from its environment variable, if that is set.
// An empty variable counts: --host-id may be empty.
func FromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		value, found := os.LookupEnv(variable(f.Name))
		if f.Changed || !found || err != nil || !takesVariable(f) {
			return
		}
		origin := "environment variable " + variable(f.Name)
		if setErr := set(f, value, origin); setErr != nil {
			err = fmt.Errorf("%s: invalid value %q: %w", origin, value, setErr)
		}
	})
	return err
}

// UnknownVariable is an environment variable that looks like a setting and is none.
type UnknownVariable struct {
	Name    string
	Nearest string // the variable that was meant, perhaps; may be empty
}

// UnknownVariables finds those variables of environ (as of os.Environ) that stand for no flag of any
// of the sets. They are no errors: a name may come to stand for something in a later version, and
// Kubernetes makes variables with our prefix when a service in a pod's namespace is called correlator, or
// correlator-metrics. The latter are left out.
func UnknownVariables(environ []string, sets ...*pflag.FlagSet) []UnknownVariable {
	var known []string // without our prefix, which is no likeness
	for _, flags := range sets {
		flags.VisitAll(func(f *pflag.Flag) {
			if takesVariable(f) {
				known = append(known, strings.TrimPrefix(variable(f.Name), prefix))
			}
		})
	}
	var unknown []UnknownVariable
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours || ofKubernetes(name, value) || slices.Contains(known, rest) {
			continue
		}
		v := UnknownVariable{Name: name}
		if near := nearest(rest, known); near != "" {
			v.Nearest = prefix + near
		}
		unknown = append(unknown, v)
	}
	return unknown
}

// ofKubernetes says whether a variable is one by which Kubernetes tells of a service: X_SERVICE_HOST,
// X_SERVICE_PORT, X_SERVICE_PORT_name, X_PORT=tcp://..., X_PORT_number_protocol and more that begin so.
func ofKubernetes(name, value string) bool {
	return strings.HasSuffix(name, "_SERVICE_HOST") || strings.HasSuffix(name, "_SERVICE_PORT") ||
		strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://") ||
		strings.Contains(name, "_SERVICE_PORT_") || strings.Contains(name, "_PORT_")
}
