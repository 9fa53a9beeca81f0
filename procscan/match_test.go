package procscan

import (
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// specExpression is the expression of correlation.md, anchored at both ends; a dot stands for any
// byte.
var specExpression = regexp.MustCompile(`(?s)^.*/elastic-jvmti-linux-([\w-]*)\.so$`)

const realName = "elastic-jvmti-linux-x64-0f3c9b6d2a4e48d19b7c5a1e6f803d24-7d5e1c9a8b2f46038e4d6c0b1a9f2e53.so"

var matchCases = []struct {
	path string
	want bool
}{
	{"/tmp/" + realName, true},
	{"/tmp/" + realName + " (deleted)", true},
	{"/tmp/elastic-jvmti-linux-musl-arm64.so", true},
	{"/elastic-jvmti-linux-.so", true},
	{"/a b/c\\012d/elastic-jvmti-linux-_-_.so", true},
	{"/a\nb/elastic-jvmti-linux-x64.so", true},
	{"/a\xff\xfe/elastic-jvmti-linux-x64.so", true},
	{"relative/elastic-jvmti-linux-x64.so", true},
	{"/elastic-jvmti-linux-a.so/elastic-jvmti-linux-b.so", true},
	{"/memfd:a/elastic-jvmti-linux-b.so (deleted)", true},

	{"", false},
	{".so", false},
	{"/.so", false},
	{" (deleted)", false},
	{"elastic-jvmti-linux-x64.so", false},
	{"/tmp/elastic-jvmti-linux-x64.so.1", false},
	{"/tmp/elastic-jvmti-linux-x64.so/", false},
	{"/tmp/elastic-jvmti-linux-x64.sox", false},
	{"/tmp/elastic-jvmti-linux-x64so", false},
	{"/tmp/elastic-jvmti-linux-x.64.so", false},
	{"/tmp/elastic-jvmti-linux-x 64.so", false},
	{"/tmp/elastic-jvmti-linux-x64\n.so", false},
	{"/tmp/elastic-jvmti-linux-ü.so", false},
	{"/tmp/elastic-jvmti-linux.so", false},
	{"/tmp/elastic-jvmti-linux-x64.SO", false},
	{"/tmp/Elastic-jvmti-linux-x64.so", false},
	{"/tmp/xelastic-jvmti-linux-x64.so", false},
	{"/tmp/x-elastic-jvmti-linux-x64.so", false},
	{"/tmp/elastic-jvmti-darwin-x64.so", false},
	{"/tmp/elastic-jvmti-linux-x64/lib.so", false},
	{"/tmp/elastic-jvmti-linux-x64.so (deleted) (deleted)", false},
	{"/tmp/elastic-jvmti-linux-x64.so (deleted) ", false},
	{"/tmp/elastic-jvmti-linux-x64.so(deleted)", false},
}

func TestMatchLibrary(t *testing.T) {
	for _, c := range matchCases {
		got := MatchLibrary(c.path)
		assert.Check(t, got == c.want, "MatchLibrary(%q) = %v", c.path, got)
		assert.Check(t, specExpression.MatchString(strings.TrimSuffix(c.path, " (deleted)")) == c.want,
			"the case %q contradicts the expression", c.path)
	}
}

func FuzzMatchLibrary(f *testing.F) {
	for _, c := range matchCases {
		f.Add(c.path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		want := specExpression.MatchString(strings.TrimSuffix(path, " (deleted)"))
		got := MatchLibrary(path)
		assert.Check(t, got == want, "MatchLibrary(%q) = %v, the expression says %v", path, got, want)
	})
}
