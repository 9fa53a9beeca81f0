package procscan

// The whole path of the library matches `.*/elastic-jvmti-linux-([\w-]*)\.so` (correlation.md,
// section 1). A dot of the expression stands for any byte.
const (
	libraryPrefix = "elastic-jvmti-linux-"
	librarySuffix = ".so"
	deletedSuffix = " (deleted)"
)

// MatchLibrary reports whether a path, as the kernel shows it for a mapping, is that of an agent's
// library. A trailing " (deleted)" is added by the kernel and ignored.
func MatchLibrary[P string | []byte](path P) bool {
	path, _ = cutDeleted(path)
	return matchPath(path)
}

// matchPath implements the regular expression. All of the prefix's characters are in [\w-], so the
// longest run of such characters before ".so" must begin after a slash, and with the prefix.
func matchPath[P string | []byte](path P) bool {
	stem, ok := cutSuffix(path, librarySuffix)
	if !ok {
		return false
	}
	start := len(stem)
	for start > 0 && isWordOrDash(stem[start-1]) {
		start--
	}
	return start > 0 && stem[start-1] == '/' &&
		len(stem)-start >= len(libraryPrefix) && string(stem[start:start+len(libraryPrefix)]) == libraryPrefix
}

// The names of a mapping with a process context begin with one of these (OTEP 4719): where both
// memfd_create and naming by prctl have worked, only naming, only memfd_create (naming needs Linux
// 5.17 with CONFIG_ANON_VMA_NAME).
const (
	contextNamedFile   = "[anon_shmem:OTEL_CTX]"
	contextNamedMemory = "[anon:OTEL_CTX]"
	contextFile        = "/memfd:OTEL_CTX"
)

// matchContext reports whether a name, as the kernel shows it for a mapping, is that of a process
// context.
func matchContext(name []byte) bool {
	return hasPrefix(name, contextFile) || hasPrefix(name, contextNamedFile) || hasPrefix(name, contextNamedMemory)
}

func hasPrefix(name []byte, prefix string) bool {
	return len(name) >= len(prefix) && string(name[:len(prefix)]) == prefix
}

func isWordOrDash(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

func cutDeleted[P string | []byte](path P) (P, bool) { return cutSuffix(path, deletedSuffix) }

// cutSuffix is strings.CutSuffix and bytes.CutSuffix.
func cutSuffix[P string | []byte](s P, suffix string) (P, bool) {
	if len(s) < len(suffix) || string(s[len(s)-len(suffix):]) != suffix {
		return s, false
	}
	return s[:len(s)-len(suffix)], true
}
