package config

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/bpf"
)

// Labels of goroutines are named with their roles, each once and so many as can be read; those by default can.
func TestLabelKeys(t *testing.T) {
	var keys LabelKeys
	for _, text := range keys.split("trace-id=a, span-id-decimal=b c,,name=d=e") {
		assert.NilError(t, keys.add(text))
	}
	want := []bpf.LabelKey{{Key: "a", Role: bpf.TraceIDLabel}, {Key: "b c", Role: bpf.SpanDecimalLabel},
		{Key: "d=e", Role: bpf.NameLabel}}
	assert.Check(t, slices.Equal(keys.Keys(), want), "%v", keys.Keys())
	for _, text := range []string{"b", "trace=b", "=b", "trace-id", "trace-id=", "span-id=a",
		"span-id=" + strings.Repeat("k", bpf.MaxLabelKeyBytes+1)} {
		assert.Check(t, keys.add(text) != nil, text)
	}
	assert.Check(t, slices.Equal(keys.Keys(), want), "%v", keys.Keys())
	for _, key := range "123456"[:bpf.MaxLabelKeys-len(keys)] {
		assert.NilError(t, keys.add("root-id="+string(key)))
	}
	assert.Check(t, keys.add("root-id=x") != nil && len(keys) == bpf.MaxLabelKeys)
	var defaults LabelKeys
	for _, text := range DefaultLabelKeys() {
		assert.NilError(t, defaults.add(text))
	}
	assert.Check(t, slices.Equal(defaults, DefaultLabelKeys()))
}
