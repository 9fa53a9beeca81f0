package schema

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Sentinels of a Registry.
var (
	ErrMissing  = errors.New("missing type dependency")
	ErrConflict = errors.New("another type of this name is known")
	ErrFull     = errors.New("too many types")
)

// Bounds of a Registry, unless Limit sets others. Real buses have hundreds of types; a type of 31
// properties is counted as some 5 KB.
const (
	defaultTypes = 1 << 14
	defaultBytes = 32 << 20
)

// Registry knows types by their names. Types are never removed, and the first one of a name stays.
// All methods may be called concurrently.
type Registry struct {
	mu                 sync.RWMutex
	types              map[string]*Type // structs and enums
	bytes              int
	maxTypes, maxBytes int
}

// NewRegistry returns a Registry of the built-in types. One that knows the types of the protocol,
// too, is made by package system.
func NewRegistry() *Registry {
	return &Registry{types: make(map[string]*Type), maxTypes: defaultTypes, maxBytes: defaultBytes}
}

// Limit sets how many structs and enums are kept, and how many bytes of memory they may take.
func (r *Registry) Limit(types, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxTypes, r.maxBytes = types, bytes
}

// Struct returns the struct of a name, nil if there is none.
func (r *Registry) Struct(name string) *Struct {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if t := r.types[name]; t != nil {
		return t.Struct
	}
	return nil
}

// StructBytes is Struct for a name in bytes, for which it does not allocate.
func (r *Registry) StructBytes(name []byte) *Struct {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if t := r.types[string(name)]; t != nil {
		return t.Struct
	}
	return nil
}

// Enum returns the enum of a name, nil if there is none.
func (r *Registry) Enum(name string) *Enum {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if t := r.types[name]; t != nil {
		return t.Enum
	}
	return nil
}

// Types returns all structs and enums, sorted by name.
func (r *Registry) Types() []*Type {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.types), func(a, b *Type) int { return strings.Compare(a.Name, b.Name) })
}

// ResolveType returns the type that a description names: a built-in one, a known enum or struct, or
// a vector of those. The error for a name that is not known wraps ErrMissing.
func (r *Registry) ResolveType(name string) (*Type, error) {
	const prefix = "vector<"
	if len(name) > len(prefix)+MaxName+1 {
		return nil, fmt.Errorf("%w: the name of a type has %d bytes", ErrInvalid, len(name))
	}
	if elem, is := strings.CutPrefix(name, prefix); is && strings.HasSuffix(elem, ">") {
		t, err := r.ResolveType(elem[:len(elem)-1])
		if err != nil {
			return nil, err
		}
		return VectorOf(t)
	}
	if t := builtin(name); t != nil {
		return t, nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if t := r.types[name]; t != nil {
		return t, nil
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }) {
		name = strconv.Quote(name) // it may be printed on a terminal
	}
	return nil, fmt.Errorf("%w: %s", ErrMissing, name)
}

// AddStruct adds a struct, and before it the types that it depends on. It returns the struct that
// is known by this name from now on: the first one that was added. The error wraps ErrConflict if that
// differs, or if a dependency does; then nothing is returned. It wraps ErrFull if the bounds do not
// allow another type.
func (r *Registry) AddStruct(s *Struct) (*Struct, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.types[s.Name]; known != nil {
		if known.Struct != nil && equalStructs(known.Struct, s) {
			return known.Struct, nil
		}
		return known.Struct, fmt.Errorf("struct %s: %w", s.Name, ErrConflict)
	}
	for _, t := range Dependencies(s) {
		if _, err := r.add(t); err != nil {
			return nil, fmt.Errorf("struct %s: %w", s.Name, err)
		}
	}
	t, err := r.add(OfStruct(s))
	if err != nil {
		return nil, err
	}
	return t.Struct, nil
}

// AddEnum adds an enum. It returns what AddStruct does.
func (r *Registry) AddEnum(e *Enum) (*Enum, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, err := r.add(OfEnum(e))
	if t == nil {
		return nil, err
	}
	return t.Enum, err
}

// add adds a type unless one of its name is known, which it returns.
func (r *Registry) add(t *Type) (*Type, error) {
	if known := r.types[t.Name]; known != nil {
		if t.Struct != nil && known.Struct != nil && equalStructs(known.Struct, t.Struct) ||
			t.Enum != nil && known.Enum != nil && equalEnums(known.Enum, t.Enum) {
			return known, nil
		}
		return known, fmt.Errorf("type %s: %w", t.Name, ErrConflict)
	}
	bytes := size(t)
	if len(r.types) >= r.maxTypes || bytes > r.maxBytes-r.bytes {
		return nil, fmt.Errorf("type %s: %w: %d of %d bytes are known", t.Name, ErrFull, len(r.types), r.bytes)
	}
	r.bytes += bytes
	r.types[t.Name] = t
	return t, nil
}

// size estimates the memory that a type takes, dependencies excluded.
func size(t *Type) int {
	const entry, property, element = 400, 128, 64 // with what it costs to index them
	n := entry + len(t.Name)
	if t.Struct != nil {
		n += len(t.Struct.Doc)
		for _, p := range t.Struct.Properties {
			n += property + len(p.Name) + len(p.Type.Name) + len(p.Doc)
		}
	}
	if t.Enum != nil {
		n += len(t.Enum.Doc)
		for _, e := range t.Enum.Elements {
			n += element + len(e.Name) + len(e.Doc)
		}
	}
	return n
}

// Dependencies returns the structs and enums that a struct depends on, each once and behind its own
// dependencies: the order in which they must be described to a peer.
func Dependencies(s *Struct) []*Type {
	var types []*Type
	seen := make(map[string]bool)
	var visit func(s *Struct)
	visit = func(s *Struct) {
		for _, p := range s.Properties {
			t := p.Type.base()
			if t.Kind < EnumKind || seen[t.Name] {
				continue
			}
			seen[t.Name] = true
			if t.Struct != nil {
				visit(t.Struct)
			}
			types = append(types, t)
		}
	}
	visit(s)
	return types
}

// equalStructs reports whether two structs say the same, documentation aside.
func equalStructs(a, b *Struct) bool {
	return a == b || a.Name == b.Name && a.Flags == b.Flags &&
		slices.EqualFunc(a.Properties, b.Properties, func(p, q Property) bool {
			return p.Name == q.Name && p.Tag == q.Tag && p.Key == q.Key && p.Type.Name == q.Type.Name
		})
}

// equalEnums reports whether two enums have the same enumerators. Their values do not matter: they
// differ with the language that a peer is written in.
func equalEnums(a, b *Enum) bool {
	return a == b || a.Name == b.Name && slices.EqualFunc(a.Elements, b.Elements, func(e, f Element) bool {
		return e.Name == f.Name && e.Tag == f.Tag
	})
}
