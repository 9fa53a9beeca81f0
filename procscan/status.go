package procscan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// maxGroups is the kernel's own limit of supplementary groups (NGROUPS_MAX).
	maxGroups = 65536
	// maxStatusBytes holds the status of a process with maxGroups groups of ten digits.
	maxStatusBytes = 1 << 20
	// statusBytes holds that of most, so that it is read at once.
	statusBytes = 3 << 10
)

// Credentials are what file permissions are checked against: the filesystem ids, which follow the
// effective ones unless a process sets them separately, and the supplementary groups. They are ids
// of our user namespace; one that is not mapped there shows as the overflow id (65534), whose
// rights are those of nobody.
type Credentials struct {
	UID, GID uint32
	Groups   []uint32
}

// Credentials reads the credentials of the process's main thread; other threads can differ if they
// make the system calls without their C library.
func (h *Handle) Credentials() (Credentials, error) {
	text, err := h.status()
	if err != nil {
		return Credentials{}, err
	}
	creds, err := parseCredentials(text)
	if err != nil {
		return Credentials{}, fmt.Errorf("reading status: %w", err)
	}
	return creds, nil
}

// mayRead reports whether the mode of a file lets a process with these credentials read it. Access
// control lists and capabilities do not count.
func (c *Credentials) mayRead(file *unix.Stat_t) bool {
	switch {
	case c.UID == 0:
		return true
	case c.UID == file.Uid:
		return file.Mode&0o400 != 0
	case c.GID == file.Gid || slices.Contains(c.Groups, file.Gid):
		return file.Mode&0o040 != 0
	}
	return file.Mode&0o004 != 0
}

// status reads /proc/PID/status.
func (h *Handle) status() ([]byte, error) {
	fd, err := h.open("status", unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("opening status: %w", err)
	}
	defer unix.Close(fd)
	text := bytes.NewBuffer(make([]byte, 0, statusBytes))
	if _, err := text.ReadFrom(io.LimitReader(fdReader(fd), maxStatusBytes)); err != nil {
		return nil, fmt.Errorf("reading status: %w", classify(err))
	}
	return text.Bytes(), nil
}

// unknownUser is the user of a process that has ended or is hidden: -1, which no process can have.
const unknownUser = math.MaxUint32

// userOf returns the user of what has a pid now. Other than reading mappings, it does not wait for the
// process.
func userOf(procRoot string, pid int) uint32 {
	text, err := os.ReadFile(path.Join(procRoot, strconv.Itoa(pid), "status"))
	if err != nil {
		return unknownUser
	}
	creds, err := parseCredentials(text)
	if err != nil {
		return unknownUser
	}
	return creds.UID
}

var errStatus = errors.New("unexpected text")

// parseCredentials parses three lines of /proc/PID/status:
//
//	Uid:	real	effective	saved	filesystem
//	Gid:	real	effective	saved	filesystem
//	Groups:	1 2 3
//
// Package procfs has no Groups, and fails on unexpected contents of any of the sixty other lines.
// The name that the process chose comes first, with its newlines escaped, so it cannot forge a
// line.
func parseCredentials(status []byte) (Credentials, error) {
	var creds Credentials
	var haveUID, haveGID, haveGroups bool
	for line := range bytes.Lines(status) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		var err error
		switch string(key) {
		case "Uid":
			creds.UID, err = parseFilesystemID(value)
			haveUID = true
		case "Gid":
			creds.GID, err = parseFilesystemID(value)
			haveGID = true
		case "Groups":
			creds.Groups, err = parseIDs(value, maxGroups)
			haveGroups = bytes.HasSuffix(line, []byte("\n")) // else it is truncated
		}
		if err != nil {
			return Credentials{}, fmt.Errorf("parsing %s: %w", key, err)
		}
	}
	if !haveUID || !haveGID || !haveGroups {
		return Credentials{}, fmt.Errorf("finding Uid, Gid and Groups: %w", errStatus)
	}
	return creds, nil
}

func parseFilesystemID(value []byte) (uint32, error) {
	ids, err := parseIDs(value, 4)
	if err != nil {
		return 0, err
	}
	if len(ids) != 4 {
		return 0, errStatus
	}
	return ids[3], nil
}

func parseIDs(value []byte, limit int) ([]uint32, error) {
	var ids []uint32
	for field := range bytes.FieldsSeq(value) {
		id, err := strconv.ParseUint(string(field), 10, 32)
		if err != nil {
			return nil, err
		}
		if len(ids) == limit {
			return nil, errStatus
		}
		ids = append(ids, uint32(id))
	}
	return ids, nil
}
