package fusefs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

func state(t *testing.T, pid int) string {
	t.Helper()
	stat := string(testenv.ReadFile(t, fmt.Sprintf("/proc/%d/stat", pid)))
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])[0]
}

// Root accesses a file whose server answers, then not; it cannot be killed until the server ends.
func TestHang(t *testing.T) {
	for name, c := range map[string]struct {
		mode    Mode
		op      Op
		hangs   string   // pattern
		command []string // of file, or what that is replaced by
		file    string
	}{
		"lookup":  {UserNamespace, Lookup, "/dir/other", []string{"stat"}, "dir/other"}, // the kernel knows the other
		"getattr": {UserNamespace, Getattr, "/dir/file", []string{"stat"}, "dir/file"},
		"open":    {UserNamespace, Open, "/dir/file", []string{"cat"}, "dir/file"},
		"read":    {UserNamespace, Read, "/dir/f*", []string{"cat"}, "dir/file"},
		"flush":   {UserNamespace, Flush, "/dir/file", []string{"cat"}, "dir/file"},
		"statfs":  {AllowOther, Statfs, "/dir/file", []string{"stat", "--file-system"}, "dir/file"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := Mount(t, c.mode)
			content := bytes.Repeat([]byte("content\n"), 10_000)
			fs.Write("dir/file", content)
			target := fs.Path("")
			if c.mode == UserNamespace {
				target = "/mnt"
				fs.Overlay(target, "")
			}
			root := fmt.Sprintf("/proc/%d/root%s", fs.server.Process.Pid, target)
			got := testenv.ReadFile(t, root+"/dir/file")
			assert.Assert(t, bytes.Equal(got, content), "read %d bytes of %d", len(got), len(content))
			fs.Hang(c.op, c.hangs)
			cmd := exec.Command(c.command[0], append(c.command[1:], filepath.Join(root, c.file))...)
			assert.NilError(t, cmd.Start())
			t.Cleanup(func() { cmd.Wait() })
			fs.AnswerFirst()
			pid := cmd.Process.Pid
			request := fs.Taken(name, func(r Request) bool { return r.TID == pid })
			assert.Check(t, request.Op == c.op, "taken was %+v", request)
			assert.NilError(t, cmd.Process.Kill())
			testenv.Poll(t, deadline, "a process that cannot be killed", func() bool { return state(t, pid) == "D" })
			fs.Kill()
			assert.Check(t, cmd.Wait() != nil, "it was not killed")
		})
	}
}

// A request that was taken can be answered after all.
func TestAnswer(t *testing.T) {
	fs := Mount(t, UserNamespace)
	fs.Write("file", []byte("content"))
	fs.Overlay("/mnt", "")
	fs.Hang(Read, "/file")
	argv := append(fs.By, "cat", "/mnt/file")
	cat := exec.Command(argv[0], argv[1:]...)
	var stdout bytes.Buffer
	cat.Stdout = &stdout
	assert.NilError(t, cat.Start())
	t.Cleanup(func() { cat.Wait() })
	fs.AnswerFirst()
	fs.Taken("read", func(r Request) bool { return r.Op == Read && r.Path == "/file" })
	fs.Answer()
	err := cat.Wait()
	assert.Check(t, err == nil && stdout.String() == "content", "read %q: %v", &stdout, err)
	fs.Run("cat", "/mnt/file")
}

// Without allow_other, the user that serves the file system can access it, and root cannot.
func TestFusermount(t *testing.T) {
	fs := Mount(t, Fusermount)
	fs.Write("file", []byte("content"))
	fs.Run("test", "-r", fs.Path("file"))
	process := fmt.Sprintf("/proc/%d", fs.server.Process.Pid)
	_, err := os.ReadFile(process + "/root" + fs.Path("file"))
	assert.Check(t, os.IsPermission(err), "root reads the file: %v", err)
	status := string(testenv.ReadFile(t, process+"/status"))
	assert.Check(t, strings.Contains(status, fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", UID)),
		"the server runs as\n%s", status)
}
