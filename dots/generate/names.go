package generate

import "strings"

// initialisms are words that Go writes in capitals.
var initialisms = func() map[string]bool {
	words := make(map[string]bool)
	for word := range strings.FieldsSeq("ACL API ASCII CPU CSS DNS EOF GUID HTML HTTP HTTPS ID IP JSON QPS RAM RPC SLA " +
		"SMTP SQL SSH TCP TLS TTL UDP UI UID URI URL UTF8 UUID VM XML XMPP XSRF XSS") {
		words[word] = true
	}
	return words
}()

// methods are the methods of generated structs, which no field may be named like.
var methods = map[string]bool{"Key": true, "Valid": true, "Descriptor": true, "AppendInstance": true,
	"DecodeInstance": true, "Merge": true}

// typeName returns the Go name of a type: the same one if that is exported and has no underscores.
func typeName(name string) string {
	if name[0] >= 'A' && name[0] <= 'Z' && !strings.Contains(name, "_") {
		return name
	}
	return goName(name)
}

// fieldName returns the Go name of a property.
func fieldName(name string) string {
	name = goName(name)
	if methods[name] {
		return name + "Property"
	}
	return name
}

// descriptorName returns the name of the variable that describes a type.
func descriptorName(name string) string { return "descriptor" + typeName(name) }

// goName returns a name in capitals and small letters, an exported identifier: MaxRowID for
// max_row_id, MaxRowId and maxRowID.
func goName(name string) string {
	var b strings.Builder
	for _, word := range words(name) {
		if upper := strings.ToUpper(word); initialisms[upper] {
			b.WriteString(upper)
		} else {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	if s := b.String(); s != "" && s[0] > '9' {
		return s
	}
	return "X" + b.String()
}

// words splits a name at underscores, and where capitals begin or end.
func words(name string) []string {
	var words []string
	for part := range strings.SplitSeq(name, "_") {
		start := 0
		for i := 1; i < len(part); i++ {
			begins := isUpper(part[i]) && !isUpper(part[i-1])
			ends := isUpper(part[i]) && i+1 < len(part) && isLower(part[i+1])
			if begins || ends {
				words = append(words, part[start:i])
				start = i
			}
		}
		if part != "" {
			words = append(words, part[start:])
		}
	}
	return words
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
