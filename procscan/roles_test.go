package procscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"correlator/procscan/internal/child"
)

// scanResult is what the role "scan" prints.
type scanResult struct {
	Found  []int
	Denied []ProcessID // of the first sweep
	Again  int         // how many another sweep reported, after one that skipped all
	Other  []string    // errors other than ErrDenied
}

// runScan sweeps the proc root of its argument twice, and skips all of it in between; with a second argument, it
// first mounts a procfs there with these options, and becomes nobody.
func runScan() error {
	if len(os.Args) > 2 {
		if err := unix.Mount("proc", os.Args[1], "proc", 0, os.Args[2]); err != nil {
			return err
		}
		err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(child.Nobody), syscall.Setuid(child.Nobody))
		if err != nil {
			return err
		}
	}
	s, err := NewScanner(os.Args[1])
	if err != nil {
		return err
	}
	var result scanResult
	report, err := s.Sweep(nil, func(f Found) { result.Found = append(result.Found, f.PID) })
	if err != nil {
		return err
	}
	for _, u := range report.Unreadable {
		if errors.Is(u.Err, ErrDenied) {
			result.Denied = append(result.Denied, u.ProcessID)
		} else {
			result.Other = append(result.Other, u.Err.Error())
		}
	}
	if _, err := s.Sweep(func(int) bool { return true }, func(Found) {}); err != nil {
		return err
	}
	again, err := s.Sweep(nil, func(Found) {})
	if err != nil {
		return err
	}
	// Processes that started in between are new.
	for _, u := range again.Unreadable {
		if slices.Contains(result.Denied, u.ProcessID) {
			result.Again++
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// runRead opens the library of the process in its argument and prints its contents.
func runRead() error {
	pid, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	s, err := NewScanner("/proc")
	if err != nil {
		return err
	}
	found, err := s.Process(pid)
	if err != nil {
		return err
	}
	h, err := OpenProcess("/proc", found.ProcessID)
	if err != nil {
		return err
	}
	if fd, err := h.locateMapped(found.Libraries[0]); !errors.Is(err, ErrDenied) {
		return fmt.Errorf("opening from map_files without capabilities: %d, %v", fd, err)
	}
	if mapped, err := h.Maps(found.Libraries[0]); !mapped {
		return fmt.Errorf("Maps without capabilities: %v, %v", mapped, err)
	}
	f, err := h.OpenMapped(found.Libraries[0])
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.ReadFrom(f)
	fmt.Println(b.String())
	return nil
}
