package schema

import (
	"fmt"
	"strings"
)

// AppendDots appends a struct or an enum in the language of .dots files, as package language reads
// it. Options are in a fixed order, and those that are not needed are left out.
func AppendDots(dst []byte, t *Type) []byte {
	switch t.Kind {
	case EnumKind:
		return appendEnum(dst, t.Enum)
	case StructKind:
		return appendStruct(dst, t.Struct)
	}
	return append(dst, t.Name...)
}

func appendStruct(dst []byte, s *Struct) []byte {
	dst = appendDoc(dst, "", s.Doc)
	dst = append(append(dst, "struct "...), s.Name...)
	var options []string
	if s.Flags.Internal {
		options = append(options, "internal")
	}
	if !s.Flags.Cached {
		options = append(options, "cached=false")
	}
	rest := s.Flags
	rest.Cached, rest.Internal = false, false
	options = append(options, rest.Names()...)
	if len(options) > 0 {
		dst = fmt.Appendf(dst, " [%s]", strings.Join(options, ", "))
	}
	dst = append(dst, " {\n"...)
	for _, p := range s.Properties {
		dst = appendDoc(dst, "    ", p.Doc)
		dst = fmt.Appendf(dst, "    %d: ", p.Tag)
		switch {
		case p.Key && p.Deprecated:
			dst = append(dst, "[key, deprecated] "...)
		case p.Key:
			dst = append(dst, "[key] "...)
		case p.Deprecated:
			dst = append(dst, "[deprecated] "...)
		}
		dst = fmt.Appendf(dst, "%s %s;\n", p.Type.Name, p.Name)
	}
	return append(dst, "}\n"...)
}

// appendEnum gives values where they are not what they are by default, one less than the tag.
func appendEnum(dst []byte, e *Enum) []byte {
	dst = appendDoc(dst, "", e.Doc)
	dst = fmt.Appendf(dst, "enum %s {\n", e.Name)
	for i, element := range e.Elements {
		dst = appendDoc(dst, "    ", element.Doc)
		dst = fmt.Appendf(dst, "    %d: %s", element.Tag, element.Name)
		if element.Value != int32(element.Tag-1) {
			dst = fmt.Appendf(dst, " = %d", element.Value)
		}
		if i < len(e.Elements)-1 {
			dst = append(dst, ',')
		}
		dst = append(dst, '\n')
	}
	return append(dst, "}\n"...)
}

func appendDoc(dst []byte, indent, doc string) []byte {
	for line := range strings.Lines(doc) {
		dst = fmt.Appendf(dst, "%s/// %s\n", indent, strings.TrimSpace(line))
	}
	return dst
}
