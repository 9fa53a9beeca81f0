package demo

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// SilentJVM says how a JVM starts that has an agent of Elastic's by name, and nothing of its library.
type SilentJVM struct {
	Jar         string   // name of the agent's file
	Loaded      bool     // the file is on the class path; else -javaagent asks for it
	Flags       []string // of the JVM
	Environment []string
	NoExec      bool // its temporary directory is a tmpfs that is mounted noexec, in its own mount namespace
}

// silentSource is an agent that does nothing, and a program that waits for the end of its input.
const silentSource = `
public class Silent {
	public static void premain(String arguments) {}
	public static void main(String[] arguments) throws Exception {
		System.out.println("ready");
		System.in.read();
	}
}
`

// Start starts the JVM and returns its pid when its main method runs. It ends with the test.
func (o SilentJVM) Start(t testing.TB) (pid int) {
	t.Helper()
	java := testenv.NeedTool(t, "java")
	built := buildSilent(t)
	dir := t.TempDir()
	file := filepath.Join(dir, o.Jar)
	testenv.WriteFile(t, filepath.Join(dir, "Silent.class"), built.class)
	testenv.WriteFile(t, file, built.jar)
	argv := []string{java, "-XX:+UseSerialGC", "-Xmx32m", "-XX:-UsePerfData"}
	if o.Loaded {
		argv = append(argv, "-cp", file)
	} else {
		argv = append(argv, "-cp", dir, "-javaagent:"+file)
	}
	argv = append(argv, o.Flags...)
	if o.NoExec {
		argv = append([]string{testenv.NeedTool(t, "unshare"), "--mount", "sh", "-c",
			`mount -t tmpfs -o noexec,size=64k none /mnt && exec "$@"`, "sh"}, append(argv, "-Djava.io.tmpdir=/mnt")...)
	}
	cmd := exec.Command(argv[0], append(argv[1:], "Silent")...)
	cmd.Env = append(os.Environ(), o.Environment...)
	cmd.Stderr = os.Stderr
	stdin, stdout := testenv.Start(t, cmd)
	t.Cleanup(func() { stdin.Close() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	assert.Assert(t, err == nil && strings.TrimSpace(line) == "ready", "the JVM wrote %q: %v", line, err)
	return cmd.Process.Pid
}

type silentFiles struct{ class, jar []byte }

// builtSilent are the files that buildSilent has made.
var builtSilent struct {
	sync.Mutex
	files *silentFiles
}

// buildSilent compiles the agent, once per test binary.
func buildSilent(t testing.TB) *silentFiles {
	t.Helper()
	javac, jar := testenv.NeedTool(t, "javac"), testenv.NeedTool(t, "jar")
	builtSilent.Lock()
	defer builtSilent.Unlock()
	if builtSilent.files != nil {
		return builtSilent.files
	}
	dir := t.TempDir()
	testenv.WriteFile(t, filepath.Join(dir, "Silent.java"), silentSource)
	testenv.WriteFile(t, filepath.Join(dir, "manifest"), "Premain-Class: Silent\n")
	for _, command := range [][]string{
		{javac, "Silent.java"}, {jar, "cfm", "agent.jar", "manifest", "Silent.class"},
	} {
		build := exec.Command(command[0], command[1:]...)
		build.Dir = dir
		output, err := build.CombinedOutput()
		assert.NilError(t, err, "%v: %v\n%s", command, err, output)
	}
	builtSilent.files = &silentFiles{
		class: testenv.ReadFile(t, filepath.Join(dir, "Silent.class")),
		jar:   testenv.ReadFile(t, filepath.Join(dir, "agent.jar")),
	}
	return builtSilent.files
}
