package config

import (
	"encoding"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/stacks/sampling"
	"correlator/otlp"
)

// This file has the types of single settings, and how they are read from text: bool, int, int64,
// string, time.Duration, what implements encoding.TextUnmarshaler, and lists.

// list is implemented by pointers to settings with several values.
type list interface {
	split(text string) []string // the values in a flag or variable
	add(text string) error
	texts() []string
}

// settable returns a pointer to a setting, with the methods that types of other packages have here.
func settable(v reflect.Value) any {
	switch p := v.Addr().Interface().(type) {
	case *[]otlp.Signal:
		return (*signals)(p)
	case *fs.FileMode:
		return (*fileMode)(p)
	default:
		return p
	}
}

// Patterns are regular expressions that match a whole text. In a flag or variable each line is one.
type Patterns []string

func (*Patterns) split(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(line, "\r\n"))
	}
	return lines
}

func (p *Patterns) add(text string) error {
	parsed, err := process.ParsePatterns(text)
	if err == nil && len(parsed) > 0 {
		*p = append(*p, text)
	}
	return err
}

func (p *Patterns) texts() []string { return *p }

// Compile cannot fail: add has parsed every pattern.
func (p Patterns) Compile() process.Patterns {
	patterns, err := process.ParsePatterns(strings.Join(p, "\n"))
	if err != nil {
		panic(err)
	}
	return patterns
}

// beginningOfID is the form in which container engines print ids.
var beginningOfID = regexp.MustCompile("^[0-9a-f]{8,63}$")

// CompileContainers is Compile for containers: the beginning of an id stands for all of it.
func (p Patterns) CompileContainers() process.Patterns {
	p = slices.Clone(p)
	for i, text := range p {
		if beginningOfID.MatchString(text) {
			p[i] += "[^/]*"
		}
	}
	return p.Compile()
}

// endpoints are URLs of OTLP receivers, in a flag or variable separated by commas or line ends. Any
// text is accepted at first: an error about the value of a flag would show an endpoint with a
// password in it.
type endpoints []string

func (*endpoints) split(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",\r\n", r) })
}

func (e *endpoints) add(text string) error {
	if text = strings.TrimSpace(text); text != "" {
		*e = append(*e, text)
	}
	return nil
}

func (e *endpoints) texts() []string { return *e }

// Texts are any texts, in a flag or variable separated by spaces.
type Texts []string

func (*Texts) split(text string) []string { return strings.Fields(text) }

func (t *Texts) add(text string) error {
	*t = append(*t, text)
	return nil
}

func (t *Texts) texts() []string { return *t }

// AttributeKeys are keys of attributes of thread contexts, in a flag or variable separated by commas.
type AttributeKeys []string

// DefaultAttributeKeys returns those that are read unless others are named: what Datadog's agents call
// the first span of a trace in a process, and the route of a request.
func DefaultAttributeKeys() AttributeKeys {
	return AttributeKeys{"datadog.local_root_span_id", "http.route"}
}

func (*AttributeKeys) split(text string) []string { return strings.Split(text, ",") }

func (k *AttributeKeys) add(text string) error {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
	case slices.Contains(*k, text):
		return fmt.Errorf("%s stands there twice", text)
	case len(*k) == sampling.MaxAttributes:
		return fmt.Errorf("more than %d keys", sampling.MaxAttributes)
	case !utf8.ValidString(text):
		return fmt.Errorf("%q is not UTF-8", text)
	default:
		*k = append(*k, text)
	}
	return nil
}

func (k *AttributeKeys) texts() []string { return *k }

// LabelKeys are which labels of goroutines say what: ROLE=KEY, in a flag or variable separated by commas.
type LabelKeys []string

// labelRoles are the roles of labels by name.
var labelRoles = map[string]bpf.LabelRole{
	"trace-id": bpf.TraceIDLabel, "span-id": bpf.SpanIDLabel, "span-id-decimal": bpf.SpanDecimalLabel,
	"root-id": bpf.RootIDLabel, "root-id-decimal": bpf.RootDecimalLabel, "name": bpf.NameLabel,
}

// DefaultLabelKeys returns those of Grafana's spanprofiler and of Datadog.
func DefaultLabelKeys() LabelKeys {
	return LabelKeys{"trace-id=trace_id", "span-id=span_id", "name=span_name", "span-id-decimal=span id",
		"root-id-decimal=local root span id"}
}

func (*LabelKeys) split(text string) []string { return strings.Split(text, ",") }

func (k *LabelKeys) add(text string) error {
	text = strings.TrimSpace(text)
	role, key, _ := strings.Cut(text, "=")
	switch {
	case text == "":
		return nil
	case labelRoles[role] == 0:
		return fmt.Errorf("%q is none of %s", role, strings.Join(slices.Sorted(maps.Keys(labelRoles)), ", "))
	case len(*k) == bpf.MaxLabelKeys:
		return fmt.Errorf("more than %d labels", bpf.MaxLabelKeys)
	case len(key) == 0 || len(key) > bpf.MaxLabelKeyBytes:
		return fmt.Errorf("%q has not 1 to %d bytes", key, bpf.MaxLabelKeyBytes)
	case slices.ContainsFunc(*k, func(other string) bool { return strings.HasSuffix(other, "="+key) }):
		return fmt.Errorf("%s stands there twice", key)
	}
	*k = append(*k, text)
	return nil
}

func (k *LabelKeys) texts() []string { return *k }

// Keys returns them for a sampler.
func (k LabelKeys) Keys() (keys []bpf.LabelKey) {
	for _, text := range k {
		role, key, _ := strings.Cut(text, "=")
		keys = append(keys, bpf.LabelKey{Key: key, Role: labelRoles[role]})
	}
	return keys
}

// signals are signals of OTLP, each once; none: all.
type signals []otlp.Signal

func (*signals) split(text string) []string { return strings.Split(text, ",") }

func (s *signals) add(text string) error {
	for signal := range otlp.NumSignals {
		if signal.String() == text {
			if slices.Contains(*s, signal) {
				return fmt.Errorf("%s stands there twice", text)
			}
			*s = append(*s, signal)
			return nil
		}
	}
	return fmt.Errorf("%q is none of traces, metrics, profiles", text)
}

func (s *signals) texts() (names []string) {
	for _, signal := range *s {
		names = append(names, signal.String())
	}
	return names
}

// fileMode is permissions in octal. It is a text, with quotes in YAML, where 0660 is 660 to some
// parsers and 432 to others.
type fileMode fs.FileMode

func (m *fileMode) UnmarshalText(text []byte) error {
	bits, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || fs.FileMode(bits)&^fs.ModePerm != 0 {
		return fmt.Errorf(`%q is no mode of a file, as "0660" is`, text)
	}
	*m = fileMode(bits)
	return nil
}

// String returns four octal digits.
func (m fileMode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// mismatch is why a text is not a value of a setting's type. "TEXT is ..." goes before it.
type mismatch string

func (m mismatch) Error() string { return string(m) }

const durations = ", as in 300ms, 30s or 1m"

// setText sets a setting to the value of a flag or variable. A list gets all of the values in the
// text.
func setText(f *field, text string) error {
	if l, ok := settable(f.value).(list); ok {
		f.value.SetZero()
		return addTexts(l, l.split(text))
	}
	return setScalar(f, text)
}

func addTexts(l list, texts []string) error {
	for _, text := range texts {
		if err := l.add(text); err != nil {
			return err
		}
	}
	return nil
}

func setScalar(f *field, text string) error {
	switch target := settable(f.value).(type) {
	case encoding.TextUnmarshaler:
		return target.UnmarshalText([]byte(text))
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return durationMismatch(text)
		}
		*target = d
		return nil
	}
	switch f.value.Kind() {
	case reflect.Bool:
		value, err := strconv.ParseBool(text)
		if err != nil {
			return mismatch("neither true nor false")
		}
		f.value.SetBool(value)
	case reflect.Int, reflect.Int64:
		value, err := strconv.ParseInt(text, 0, f.value.Type().Bits())
		if err != nil {
			return f.intMismatch(err)
		}
		f.value.SetInt(value)
	default:
		f.value.SetString(text)
	}
	return nil
}

func durationMismatch(text string) mismatch {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return "a duration without unit" + durations
	}
	return "not a duration" + durations
}

// intMismatch has the value that the setting had, usually the default, as an example.
func (f *field) intMismatch(err error) mismatch {
	if errors.Is(err, strconv.ErrRange) {
		return "too large a number"
	}
	what := "not a whole number"
	if unit := f.tag.Get("unit"); unit != "" {
		what += " of " + unit
	}
	if example := f.value.Int(); example != 0 {
		what += fmt.Sprintf(", as in %d", example)
	}
	return mismatch(what)
}

// text returns a single value in the form in which it is read.
func text(v reflect.Value) string {
	if mode, ok := v.Interface().(fs.FileMode); ok {
		return fileMode(mode).String()
	}
	return fmt.Sprint(v.Interface())
}
