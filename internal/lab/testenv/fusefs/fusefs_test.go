package fusefs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"correlator/internal/lab/testenv"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// state returns the letter that ps shows of a process.
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
			if got := testenv.ReadFile(t, root+"/dir/file"); !bytes.Equal(got, content) {
				t.Fatalf("read %d bytes of %d", len(got), len(content))
			}
			fs.Hang(c.op, c.hangs)
			cmd := exec.Command(c.command[0], append(c.command[1:], filepath.Join(root, c.file))...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Wait() })
			fs.AnswerFirst()
			pid := cmd.Process.Pid
			request := fs.Taken(name, func(r Request) bool { return r.TID == pid })
			if request.Op != c.op {
				t.Errorf("taken was %+v", request)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			testenv.Poll(t, deadline, "a process that cannot be killed", func() bool { return state(t, pid) == "D" })
			fs.Kill()
			if err := cmd.Wait(); err == nil {
				t.Error("it was not killed")
			}
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
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cat.Wait() })
	fs.AnswerFirst()
	fs.Taken("read", func(r Request) bool { return r.Op == Read && r.Path == "/file" })
	fs.Answer()
	if err := cat.Wait(); err != nil || stdout.String() != "content" {
		t.Errorf("read %q: %v", &stdout, err)
	}
	fs.Run("cat", "/mnt/file")
}

// Without allow_other, the user that serves the file system can access it, and root cannot.
func TestFusermount(t *testing.T) {
	fs := Mount(t, Fusermount)
	fs.Write("file", []byte("content"))
	fs.Run("test", "-r", fs.Path("file"))
	process := fmt.Sprintf("/proc/%d", fs.server.Process.Pid)
	if _, err := os.ReadFile(process + "/root" + fs.Path("file")); !os.IsPermission(err) {
		t.Errorf("root reads the file: %v", err)
	}
	status := string(testenv.ReadFile(t, process+"/status"))
	if !strings.Contains(status, fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", UID)) {
		t.Errorf("the server runs as\n%s", status)
	}
}
