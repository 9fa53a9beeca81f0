package main

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestSelect(t *testing.T) {
	selected, err := selectKernels([]string{"arm64-6.1", "amd64-5.10"})
	assert.Check(t, err == nil && len(selected) == 2 && selected[0].id == "amd64-5.10" && selected[1].id == "arm64-6.1",
		"%v, %v", selected, err)
	all, err := selectKernels(nil)
	assert.Check(t, err == nil && len(all) == len(kernels), "%v, %v", all, err)
	none, err := selectKernels([]string{"2.6"})
	assert.Check(t, err != nil, "2.6: %v", none)
}

// The workflow runs all kernels.
func TestWorkflow(t *testing.T) {
	var workflow struct {
		Jobs struct {
			Kernels struct {
				Strategy struct{ Matrix struct{ Kernel []string } }
			}
		}
	}
	assert.NilError(t, yaml.Unmarshal(testenv.ReadFile(t, "../../../.github/workflows/kernels.yml"), &workflow))
	var ids []string
	for _, k := range kernels {
		ids = append(ids, k.id)
	}
	matrix := workflow.Jobs.Kernels.Strategy.Matrix.Kernel
	assert.Check(t, slices.Equal(matrix, ids), "it has %v, want %v", matrix, ids)
}

// Of what apt would install, the packages with the kernel's files are taken, if they are of the
// version that the id says.
func TestPackagesOf(t *testing.T) {
	for name, c := range map[string]struct {
		kernel      kernel
		names, want []string
		problem     string
	}{
		"one package": {kernel{"amd64-5.10", "amd64", "bullseye"},
			[]string{"linux-image-cloud-amd64", "linux-image-5.10.0-46-cloud-amd64", "kmod"},
			[]string{"linux-image-5.10.0-46-cloud-amd64"}, ""},
		"several": {kernel{"amd64-7.2", "amd64", "sid"},
			[]string{"linux-binary-7.2.13+deb14-cloud-amd64", "linux-modules-7.2.13+deb14-cloud-amd64"},
			[]string{"linux-binary-7.2.13+deb14-cloud-amd64", "linux-modules-7.2.13+deb14-cloud-amd64"}, ""},
		"newer": {kernel{"amd64-7.2", "amd64", "sid"}, []string{"linux-binary-7.3.1+deb14-cloud-amd64"}, nil,
			"the kernel of sid is 7.3.1+deb14-cloud-amd64 now: rename amd64-7.2 in internal/lab/kernels"},
		"of a version that begins alike": {kernel{"arm64-6.1", "arm64", "trixie"},
			[]string{"linux-image-6.12.117+deb13-cloud-arm64"}, nil, "rename arm64-6.1"},
		"none": {kernel{"arm64-6.1", "arm64", "bookworm"}, []string{"linux-image-cloud-arm64"}, nil,
			"no kernel in bookworm for arm64"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := packagesOf(c.kernel, c.names)
			assert.Check(t, slices.Equal(got, c.want) && (err == nil) == (c.problem == "") &&
				(err == nil || strings.Contains(err.Error(), c.problem)),
				"%q, %v", got, err)
		})
	}
}
