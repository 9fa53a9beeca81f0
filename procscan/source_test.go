package procscan

import (
	"testing"

	"correlator/internal/lab/testenv"
)

// forEachSource runs a test or a benchmark with each source of mappings that this kernel has.
func forEachSource[T interface {
	testing.TB
	Run(string, func(T)) bool
}](t T, run func(t T, source Source)) {
	for _, source := range []Source{SourceQuery, SourceText} {
		t.Run(source.String(), func(t T) {
			if source == SourceQuery {
				needQuery(t)
			}
			run(t, source)
		})
	}
}

// scannerOf returns a scanner that uses the given source.
func scannerOf(t testing.TB, source Source) *Scanner {
	t.Helper()
	s := newScanner(t)
	s.source = source
	return s
}

func needQuery(t testing.TB) {
	t.Helper()
	if newScanner(t).Source() != SourceQuery {
		testenv.Missing(t, "needs PROCMAP_QUERY (Linux 6.11)")
	}
}
