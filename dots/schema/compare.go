package schema

import "fmt"

// Change is a difference between two versions of a type.
type Change struct {
	Property   string // or enumerator: its new name, the old one if it is gone, "" for the type itself
	Text       string // what is different
	Compatible bool   // programs with either version understand each other
}

// String returns the change as a line of text.
func (c Change) String() string {
	what := "incompatible"
	if c.Compatible {
		what = "compatible"
	}
	if c.Property == "" {
		return fmt.Sprintf("%s: %s", what, c.Text)
	}
	return fmt.Sprintf("%s: %s: %s", what, c.Property, c.Text)
}

// Compare returns the differences between two versions of a struct or an enum, in the order of the
// old version's declaration, then what is new. Structs and enums that a struct depends on are
// compared by name only: their versions are to be compared, too.
func Compare(old, changed *Type) []Change {
	switch {
	case old.Kind != changed.Kind || old.base().Kind < EnumKind:
		if old.Name == changed.Name && old.Kind == changed.Kind {
			return nil
		}
		return []Change{{Text: fmt.Sprintf("%s instead of %s", changed.describe(), old.describe())}}
	case old.Kind == EnumKind:
		return compareEnums(old.Enum, changed.Enum)
	case old.Kind == StructKind:
		return compareStructs(old.Struct, changed.Struct)
	}
	return Compare(old.Elem, changed.Elem)
}

func (t *Type) describe() string {
	switch t.Kind {
	case EnumKind:
		return "enum " + t.Name
	case StructKind:
		return "struct " + t.Name
	}
	return t.Name
}

func compareStructs(old, changed *Struct) []Change {
	changes := compareNames(old.Name, changed.Name)
	changes = append(changes, compareFlags(old.Flags, changed.Flags)...)
	for i := range old.Properties {
		p := &old.Properties[i]
		if q := changed.ByTag(p.Tag); q != nil {
			changes = append(changes, compareProperties(p, q)...)
			continue
		}
		// What old programs send is skipped.
		changes = append(changes, Change{p.Name, fmt.Sprintf("tag %d removed", p.Tag), !p.Key})
	}
	for _, q := range changed.Properties {
		if old.ByTag(q.Tag) == nil {
			text := fmt.Sprintf("tag %d added", q.Tag)
			if q.Key {
				text += ", a key"
			}
			changes = append(changes, Change{q.Name, text, !q.Key})
		}
	}
	return changes
}

func compareNames(old, changed string) []Change {
	if old == changed {
		return nil
	}
	return []Change{{Text: fmt.Sprintf("%s is another type than %s", changed, old)}}
}

// compareFlags compares flags. Brokers treat objects of types with other flags differently, but
// what is transmitted is the same; only what may not be published at all is incompatible.
func compareFlags(old, changed Flags) []Change {
	var changes []Change
	compatible := Flags{Persistent: true, Cleanup: true, Local: true} // objects of uncached types cannot be removed
	for i, flag := range changed.fields() {
		if *flag != *old.fields()[i] {
			text := fmt.Sprintf("%s=%t", flagNames[i], *flag)
			changes = append(changes, Change{"", text, *compatible.fields()[i]})
		}
	}
	return changes
}

func compareProperties(old, changed *Property) []Change {
	var changes []Change
	if old.Name != changed.Name {
		changes = append(changes, Change{changed.Name, "renamed from " + old.Name, true})
	}
	if old.Type.Name != changed.Type.Name {
		text := fmt.Sprintf("%s instead of %s", changed.Type.Name, old.Type.Name)
		changes = append(changes, Change{changed.Name, text, false})
	}
	if old.Key != changed.Key {
		text := "no key any more"
		if changed.Key {
			text = "a key now"
		}
		changes = append(changes, Change{changed.Name, text, false})
	}
	return changes
}

// compareEnums compares enums. A program refuses instances with tags that it does not know, so that
// new enumerators are incompatible with old programs.
func compareEnums(old, changed *Enum) []Change {
	changes := compareNames(old.Name, changed.Name)
	for _, e := range old.Elements {
		switch f := changed.ByTag(e.Tag); {
		case f == nil:
			changes = append(changes, Change{e.Name, fmt.Sprintf("tag %d removed", e.Tag), false})
		case f.Name != e.Name:
			changes = append(changes, Change{f.Name, "renamed from " + e.Name, true})
		}
	}
	for _, f := range changed.Elements {
		if old.ByTag(f.Tag) == nil {
			changes = append(changes, Change{f.Name, fmt.Sprintf("tag %d added", f.Tag), false})
		}
	}
	return changes
}
