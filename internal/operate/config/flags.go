package config

import (
	"fmt"
	"reflect"

	"github.com/spf13/pflag"
)

// groupAnnotation of a flag is the title that it is shown under in the help text; missing: none.
const groupAnnotation = "group"

// Group returns the title that a flag is shown under in the help text; empty: none.
func Group(flag *pflag.Flag) string {
	if titles := flag.Annotations[groupAnnotation]; len(titles) > 0 {
		return titles[0]
	}
	return ""
}

// AddFlags adds a flag for each setting, in the order of the fields, with the help text that usage
// has for it. It panics when there is none. Sections are hidden flags, whose error says where they
// belong.
func (s *Settings) AddFlags(flags *pflag.FlagSet, usage map[string]string) {
	flags.SortFlags = false
	for i := range s.fields {
		f := &s.fields[i]
		help, ok := usage[f.key]
		if !ok && !f.section() {
			panic("no help text for --" + f.key)
		}
		added := flags.VarPF(&flagValue{s, f}, f.key, f.tag.Get("short"), help)
		added.Hidden = f.section()
		if f.value.Kind() == reflect.Bool {
			added.NoOptDefVal = "true"
		}
		if f.group != "" {
			added.Annotations = map[string][]string{groupAnnotation: {f.group}}
		}
	}
}

type flagValue struct {
	settings *Settings
	*field
}

// Set is called for each time that the flag is given. The values of a list add up.
func (v *flagValue) Set(text string) error {
	if v.section() {
		return fmt.Errorf("it is a key of the file that --%s names, and no flag", fileKey)
	}
	again := v.settings.sources[v.key].kind == fromFlag
	v.settings.sources[v.key] = source{kind: fromFlag}
	if l, ok := settable(v.value).(list); ok && again {
		return addTexts(l, l.split(text))
	}
	return setText(v.field, text)
}

// String is empty for what is no single value: the help text says the default.
func (v *flagValue) String() string {
	switch {
	case v.field == nil: // of pflag, to find out what zero is
		return ""
	case v.value.Kind() == reflect.Struct || v.value.Kind() == reflect.Slice:
		return ""
	}
	return text(v.value)
}

// Type is the name of a value in the help text.
func (v *flagValue) Type() string {
	if name := v.tag.Get("type"); name != "" {
		return name
	}
	if v.value.Type().PkgPath() == "time" {
		return "duration"
	}
	return v.value.Kind().String()
}
