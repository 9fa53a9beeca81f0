package procscan

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string][]int{
		"0":           {0},
		"0-3":         {0, 1, 2, 3},
		"0,2-3,8191":  {0, 2, 3, 8191},
		"":            nil,
		"1-0":         nil,
		"0-8192":      nil,
		"-1":          nil,
		"0-":          nil,
		"x":           nil,
		"0-1-2":       nil,
		"99999999999": nil,
	} {
		cpus, err := parseCPUs(list)
		assert.Check(t, slices.Equal(cpus, want) && (err == nil) == (want != nil), "%q: %v, %v", list, cpus, err)
	}
}

func TestReadCPUs(t *testing.T) {
	cpus, err := ReadCPUs(OnlineCPUs)
	assert.Check(t, err == nil && len(cpus) != 0 && slices.IsSorted(cpus), "CPUs %v, %v", cpus, err)
}
