package config

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"strings"
)

// Settings are the fields of a command's options, with the source of each value.
//
// A field with the tag key is a setting: a flag, an environment variable, and, if Config has it, a
// key of the file. A struct without a key is a group, whose fields are settings of their own; the
// tag group is its title. A struct with a key, a list of structs and a map are sections of the
// file, which have no flag. Further tags: short is the flag's shorthand, type the name of a value
// in the help text, unit what a number counts; env:"-" is a setting without a variable; secret
// values are never shown.
type Settings struct {
	fields  []field
	sources map[string]source // by path; missing: the default
}

type field struct {
	key, group string
	tag        reflect.StructTag
	value      reflect.Value // addressable
}

// NewSettings returns the settings of the struct that options points to, whose values are the
// defaults.
func NewSettings(options any) *Settings {
	return &Settings{fields: fieldsOf(reflect.ValueOf(options).Elem(), ""), sources: make(map[string]source)}
}

func fieldsOf(v reflect.Value, group string) (fields []field) {
	for i := range v.NumField() {
		of := v.Type().Field(i)
		switch key := of.Tag.Get("key"); {
		case key == "-":
		case key != "":
			fields = append(fields, field{key, group, of.Tag, v.Field(i)})
		case of.Type.Kind() == reflect.Struct:
			fields = append(fields, fieldsOf(v.Field(i), cmp.Or(of.Tag.Get("group"), group))...)
		}
	}
	return fields
}

// section reports whether a field is a key of the file alone: what has keys of its own is too much
// for a flag.
func (f *field) section() bool {
	_, isList := settable(f.value).(list)
	kind := f.value.Kind()
	return kind == reflect.Struct || kind == reflect.Map || kind == reflect.Slice && !isList
}

// variable returns the name of a setting's environment variable, without the prefix. What makes a
// command do something else has none: it must not be left behind in an environment.
func (f *field) variable() (name string, ok bool) {
	name = strings.ToUpper(strings.ReplaceAll(f.key, "-", "_"))
	return name, !f.section() && f.tag.Get("env") != "-"
}

// lookup returns the field with a key, which must exist.
func (s *Settings) lookup(key string) *field {
	for i := range s.fields {
		if s.fields[i].key == key {
			return &s.fields[i]
		}
	}
	panic("no setting has the key " + key)
}

// source is where a value comes from.
type source struct {
	kind   sourceKind
	detail string // FILE:LINE, a variable's name, PREFIX* for several, or how a default was derived

	commented bool // Print writes the value as a comment
}

type sourceKind uint8

const (
	fromDefault sourceKind = iota
	fromFile
	fromEnvironment
	fromFlag
)

func variableSource(name string) source { return source{kind: fromEnvironment, detail: name} }

func (s source) String() string {
	switch {
	case s.kind == fromFile:
		return s.detail
	case s.kind == fromEnvironment && strings.HasSuffix(s.detail, "*"):
		return "environment variables " + s.detail
	case s.kind == fromEnvironment:
		return "environment variable " + s.detail
	case s.kind == fromFlag:
		return "flag"
	case s.detail != "":
		return "default: " + s.detail
	}
	return "default"
}

// Given reports whether a setting has been given a value.
func (s *Settings) Given(path string) bool { return s.sources[path].kind != fromDefault }

// derived records that a default was derived from other settings or from the host. Print writes it
// as a comment, because elsewhere it would be different.
func (s *Settings) derived(path, how string) {
	s.sources[path] = source{detail: how, commented: true}
}

// comment has Print write a value as a comment.
func (s *Settings) comment(path string) {
	from := s.sources[path]
	from.commented = true
	s.sources[path] = from
}

// Name returns how a message refers to a setting: by its flag, or by its key and where the value
// comes from.
func (s *Settings) Name(key string) string { return s.name(key, "") }

// Label is Name with the value, for settings with a single one.
func (s *Settings) Label(key string) string { return s.name(key, " "+text(s.lookup(key).value)) }

func (s *Settings) name(key, value string) string {
	switch from := s.sources[key]; from.kind {
	case fromFile, fromEnvironment:
		return key + value + " (" + from.String() + ")"
	}
	return "--" + key + value
}

// at puts where the value at a path of the file comes from before an error.
func (s *Settings) at(path string, err error) error {
	if !s.Given(path) {
		return err
	}
	return fmt.Errorf("%v: %w", s.sources[path], err)
}

// Load gives the settings without a flag on the command line their values from the environment,
// then from the file that the setting "config" names, if there is one. The file is checked against
// all of Config.
func (s *Settings) Load() error {
	if err := s.loadEnvironment(); err != nil {
		return err
	}
	for _, f := range s.fields {
		if f.key == fileKey && f.value.String() != "" {
			return s.loadFile(f.value.String())
		}
	}
	return nil
}

func (s *Settings) loadFile(path string) error {
	content, err := readFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Label(fileKey), err)
	}
	defaults := Default()
	file := NewSettings(&defaults)
	if err := file.decode(path, content); err != nil {
		return err
	}
	s.takeFrom(file)
	return nil
}

// takeFrom copies the values that other settings were given and these were not.
func (s *Settings) takeFrom(other *Settings) {
	taken := make(map[string]bool)
	for _, f := range s.fields {
		for _, from := range other.fields {
			// Of two settings with one key, each is of its own command, as waits of record and of run.
			if from.key == f.key && from.value.Type() == f.value.Type() && !s.Given(f.key) && other.Given(f.key) {
				f.value.Set(from.value)
				taken[f.key] = true
			}
		}
	}
	for path, from := range other.sources {
		if end := strings.IndexAny(path+".", ".["); taken[path[:end]] {
			s.sources[path] = from
		}
	}
}

// prefix begins the names of all variables.
const prefix = "CORRELATOR_"

// loadEnvironment reads the variables. An empty one counts: --host-id may be empty.
func (s *Settings) loadEnvironment() error {
	for i := range s.fields {
		f := &s.fields[i]
		variable, ok := f.variable()
		if !ok || s.Given(f.key) {
			continue
		}
		value, found := os.LookupEnv(prefix + variable)
		if !found {
			continue
		}
		from := variableSource(prefix + variable)
		if err := setText(f, value); err != nil {
			return fmt.Errorf("%v: invalid value %q: %w", from, value, err)
		}
		s.sources[f.key] = from
	}
	return nil
}

// UnknownVariable is an environment variable with our prefix that is no setting.
type UnknownVariable struct {
	Name    string
	Nearest string // the variable that was probably meant; may be empty
}

// UnknownVariables returns the variables of environ (see os.Environ) that are settings of no
// command. They are no errors: a later version may know them, and Kubernetes makes variables with
// our prefix when a service in the pod's namespace is called correlator, or correlator-metrics. The
// latter are left out.
func UnknownVariables(environ []string, commands ...*Settings) []UnknownVariable {
	known := make(map[string]bool) // without the prefix, which would make all names similar
	var names []string
	for _, s := range commands {
		for i := range s.fields {
			if variable, ok := s.fields[i].variable(); ok && !known[variable] {
				known[variable] = true
				names = append(names, variable)
			}
		}
	}
	var unknown []UnknownVariable
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours || fromKubernetes(name, value) || known[rest] {
			continue
		}
		v := UnknownVariable{Name: name}
		if near := Nearest(rest, names); near != "" {
			v.Nearest = prefix + near
		}
		unknown = append(unknown, v)
	}
	return unknown
}

// fromKubernetes reports whether a variable describes a Kubernetes service: X_SERVICE_HOST,
// X_SERVICE_PORT, X_SERVICE_PORT_name, X_PORT=tcp://..., X_PORT_number_protocol and longer ones.
func fromKubernetes(name, value string) bool {
	return strings.HasSuffix(name, "_SERVICE_HOST") || strings.HasSuffix(name, "_SERVICE_PORT") ||
		strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://") ||
		strings.Contains(name, "_SERVICE_PORT_") || strings.Contains(name, "_PORT_")
}
