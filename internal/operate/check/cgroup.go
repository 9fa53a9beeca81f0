package check

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// This file reads the limits of the control groups of this process. See cgroups(7), and
// cgroup-v2.rst and cgroup-v1/memory.rst in Documentation/admin-guide of the kernel.
//
//	limit    version 2                  version 1
//	memory   memory.max                 memory.limit_in_bytes
//	cpu      cpu.max "quota period"     cpu.cfs_quota_us, cpu.cfs_period_us
//	pids     pids.max                   pids.max
//
// Without a limit the value is "max" (version 2), -1, or more memory than any machine has.

// cgroupDirs returns the directories of a controller whose limits apply: that of the cgroup of this
// process, and the visible ones above it. There are none if the controller is not mounted.
func (m *machine) cgroupDirs(controller string) ([]string, error) {
	self, err := m.self()
	if err != nil {
		return nil, err
	}
	groups, err := self.Cgroups()
	if err != nil {
		return nil, err
	}
	mounts, err := self.MountInfo()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, group := range groups {
		unified := group.HierarchyID == 0
		if !unified && !slices.Contains(group.Controllers, controller) {
			continue
		}
		for _, mount := range mounts {
			if mount.FSType == "cgroup2" == unified && (unified || hasOption(mount, controller)) &&
				strings.HasPrefix(mount.FSType, "cgroup") {
				dirs = append(dirs, upwards(mount, group.Path)...)
			}
		}
	}
	return dirs, nil
}

func hasOption(mount *procfs.MountInfo, name string) bool {
	_, has := mount.SuperOptions[name]
	return has
}

// upwards returns the directories from that of a cgroup up to the mount point, none if another part
// of the hierarchy is mounted there.
func upwards(mount *procfs.MountInfo, path string) (dirs []string) {
	below, err := filepath.Rel(mount.Root, path)
	if err != nil || below == ".." || strings.HasPrefix(below, "../") {
		return nil
	}
	for dir := filepath.Join(mount.MountPoint, below); ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if dir == mount.MountPoint || dir == "/" {
			return dirs
		}
	}
}

// unlimited is the value of an absent limit.
const unlimited = math.MaxInt64

// lowestLimit returns the lowest limit in the files with one of the names.
func lowestLimit(dirs []string, names ...string) (int64, error) {
	lowest := int64(unlimited)
	for _, dir := range dirs {
		for _, name := range names {
			text, err := readText(filepath.Join(dir, name))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return 0, err
			}
			limit, err := parseLimit(text)
			if err != nil {
				return 0, fmt.Errorf("parsing %s: %w", name, err)
			}
			lowest = min(lowest, limit)
		}
	}
	return lowest, nil
}

func parseLimit(text string) (int64, error) {
	if text == "max" {
		return unlimited, nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if limit < 0 && err == nil {
		return unlimited, nil
	}
	return limit, err
}

// lowestCPU returns the lowest limit in CPUs, +Inf without one.
func lowestCPU(dirs []string) (float64, error) {
	lowest := math.Inf(1)
	for _, dir := range dirs {
		text, err := readText(filepath.Join(dir, "cpu.max"))
		if errors.Is(err, os.ErrNotExist) {
			var quota, period string
			if quota, err = readText(filepath.Join(dir, "cpu.cfs_quota_us")); err == nil {
				period, err = readText(filepath.Join(dir, "cpu.cfs_period_us"))
			}
			text = quota + " " + period
		}
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		first, second, _ := strings.Cut(text, " ")
		quota, err := parseLimit(first)
		if err != nil || quota == unlimited {
			continue
		}
		period, err := strconv.ParseInt(second, 10, 64)
		if err != nil || period <= 0 {
			return 0, fmt.Errorf("parsing CPU limit %q: %w", text, err)
		}
		lowest = min(lowest, float64(quota)/float64(period))
	}
	return lowest, nil
}
