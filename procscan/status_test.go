package procscan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan/internal/child"
)

const statusText = "Name:\tjava\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4242\nNgid:\t0\nPid:\t4242\nPPid:\t1\n" +
	"TracerPid:\t0\nUid:\t1000\t1001\t1002\t1003\nGid:\t2000\t2001\t2002\t2003\nFDSize:\t256\n" +
	"Groups:\t4 24 4294967295 \nNStgid:\t4242\nThreads:\t31\n"

func TestParseCredentials(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Credentials
	}{
		{"all", statusText, Credentials{1003, 2003, []uint32{4, 24, 1<<32 - 1}}},
		{"no groups", strings.Replace(statusText, "4 24 4294967295 ", " ", 1), Credentials{1003, 2003, nil}},
		{"most groups", strings.Replace(statusText, "4 24 4294967295 ", strings.Repeat("4294967295 ", maxGroups), 1),
			Credentials{1003, 2003, slices.Repeat([]uint32{1<<32 - 1}, maxGroups)}},
		{"name that looks like a line", strings.Replace(statusText, "java", `a\nUid:`+"\t0\t0\t0\t0", 1),
			Credentials{1003, 2003, []uint32{4, 24, 1<<32 - 1}}},
	} {
		got, err := parseCredentials([]byte(c.text))
		assert.Check(t, err == nil && reflect.DeepEqual(got, c.want), "%s: got %+v, %v", c.name, got, err)
		assert.Check(t, len(c.text) <= maxStatusBytes, "%s: %d bytes, of which not all are read", c.name, len(c.text))
	}
}

func TestParseCredentialsErrors(t *testing.T) {
	for name, text := range map[string]string{
		"empty":           "",
		"no Uid":          strings.Replace(statusText, "Uid:", "Xid:", 1),
		"no Gid":          strings.Replace(statusText, "Gid:", "Xid:", 1),
		"no Groups":       strings.Replace(statusText, "Groups:", "Xroups:", 1),
		"Groups cut off":  statusText[:strings.Index(statusText, "67295")],
		"three numbers":   strings.Replace(statusText, "\t1003", "", 1),
		"five numbers":    strings.Replace(statusText, "\t1003", "\t1003\t1004", 1),
		"33 bits":         strings.Replace(statusText, "1003", "4294967296", 1),
		"negative":        strings.Replace(statusText, "2003", "-1", 1),
		"no number":       strings.Replace(statusText, " 24 ", " x ", 1),
		"too many groups": strings.Replace(statusText, "4 24 ", strings.Repeat("7 ", maxGroups), 1),
	} {
		got, err := parseCredentials([]byte(text))
		assert.Check(t, err != nil, "%s: got %d groups, uid %d, gid %d", name, len(got.Groups), got.UID, got.GID)
	}
}

func FuzzParseCredentials(f *testing.F) {
	f.Add([]byte(statusText))
	f.Add([]byte("Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseCredentials(text)
		if err != nil {
			return
		}
		groups := strings.Trim(fmt.Sprint(got.Groups), "[]")
		again := fmt.Sprintf("Uid:\t0\t0\t0\t%d\nGid:\t0\t0\t0\t%d\nGroups:\t%s \n", got.UID, got.GID, groups)
		if got2, err := parseCredentials([]byte(again)); err != nil || !reflect.DeepEqual(got, got2) {
			t.Errorf("%q is %+v; written again it is %+v, %v", text, got, got2, err)
		}
	})
}

func TestCredentials(t *testing.T) {
	testenv.NeedRoot(t)
	for _, want := range []Credentials{
		{0, 0, nil},
		{child.Nobody, 1234, []uint32{5, 20, 4000000000}},
	} {
		cmd := child.Command(t, "host")
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: want.UID, Gid: want.GID, Groups: want.Groups}
		p := child.StartReady(t, cmd, child.HostSpec{Comm: "Uid:\t9\t9\t9\t9\nG"})
		h := openPID(t, p.PID)
		got, err := h.Credentials()
		assert.Check(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v, want %+v", got, err, want)
	}
}

// A file is read for a process if its mode lets the process read it.
func TestMayRead(t *testing.T) {
	creds := Credentials{UID: 1, GID: 2, Groups: []uint32{3}}
	for _, c := range []struct {
		uid, gid, mode uint32
		want           bool
	}{
		{1, 9, 0o400, true}, {1, 2, 0o044, false}, {9, 2, 0o040, true}, {9, 3, 0o040, true}, {9, 3, 0o404, false},
		{9, 9, 0o004, true}, {9, 9, 0o640, false}, {0, 0, 0o600, false},
	} {
		file := unix.Stat_t{Uid: c.uid, Gid: c.gid, Mode: unix.S_IFREG | c.mode}
		assert.Check(t, creds.mayRead(&file) == c.want, "%+v", c)
		root := Credentials{}
		assert.Check(t, root.mayRead(&file), "root: %+v", c)
	}
}
