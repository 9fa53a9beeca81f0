package bpf

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestFreezes(t *testing.T) {
	for version, want := range map[[3]int]bool{
		{5, 15, 0}: false, {5, 18, 19}: false, {5, 19, 0}: true, {6, 0, 19}: true, {6, 1, 35}: true, {6, 1, 36}: false,
		{6, 2, 16}: true, {6, 3, 9}: true, {6, 3, 10}: false, {6, 4, 0}: false, {6, 18, 1}: false, {7, 0, 0}: false,
	} {
		got := freezes(version[0], version[1], version[2])
		assert.Check(t, got == want, "%v: %v", version, got)
	}
}

// The versions are those that machines print.
func TestStableVersion(t *testing.T) {
	for _, c := range []struct {
		release, build string
		want           [3]int
	}{
		{"6.1.0-50-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-07-02)", [3]int{6, 1, 176}},
		{"6.12.117+deb13-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1 (2026-11-12)", [3]int{6, 12, 117}},
		{"6.8.0-45-generic", "#45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024", [3]int{6, 8, 0}},
		{"6.18.44-fc-v669", "#1 SMP PREEMPT_DYNAMIC @0", [3]int{6, 18, 44}},
		{"6.1.0-rpi7-rpi-v8", "#1 SMP PREEMPT Debian 1:6.1.63-1+rpt1 (2023-11-24)", [3]int{6, 1, 63}},
		{"7.0-rc3", "#1 SMP", [3]int{7, 0, 0}},
	} {
		got, err := stableVersion(c.release, c.build)
		assert.Check(t, err == nil && got == c.want, "%s, %s: %v, %v, want %v", c.release, c.build, got, err, c.want)
	}
	version, err := stableVersion("six", "#1 SMP")
	assert.Check(t, err != nil, "no version: %v", version)
}
