package javaagent

import (
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func noFile(string) (string, error) { return "", os.ErrNotExist }

// Options in files count as if they were where the file is named.
func TestOptionFiles(t *testing.T) {
	files := map[string]string{
		"args": "# a comment -Dq=no\n-Dp=1 " +
			"\"-Dq=a \\\"b\\\" \\\n# c\" -cp 'x y'\t@nested\r\n", "main": "-Dq=main Main -Dq=after",
		"vm": "-Dq=vm '-Dr=a b'\n-XX:VMOptionsFile=vm", "cp": "-cp",
	}
	for _, c := range []struct {
		line   string
		want   string
		unread bool
	}{
		{"java @args Main", `-Dp=1|-Dq=a "b" # c|-cp|`, false}, // "@nested" is the main class
		{"java -Da=1 @main -Db=2 Main", "-Da=1|-Dq=main|", false},
		{"java @cp Main Other -Dq=1", "-cp|", false},
		{"java @none -Dq=1 Main", "-Dq=1|", true},
		{"java --disable-@files @args Main", "--disable-@files|", false},
		{"java -cp @args -Dq=1 Main", "-cp|-Dq=1|", false},
		{"java @@args -Dq=1", "", false},
		{"java -XX:VMOptionsFile=vm -Dq=2 Main", "-XX:VMOptionsFile=vm|-Dq=vm|-Dr=a b|-XX:VMOptionsFile=vm|-Dq=2|", false},
		{"java -XX:VMOptionsFile=none Main", "-XX:VMOptionsFile=none|", true},
		{"jsvc @args", "jsvc|@args|", false},
	} {
		r := optionReader{file: func(name string) (string, error) {
			if text, is := files[name]; is {
				return text, nil
			}
			return noFile(name)
		}}
		got := ""
		for _, option := range r.jvmOptions(strings.Fields(c.line), nil) {
			got += option + "|"
		}
		assert.Check(t, got == c.want && r.unread == c.unread, "%s: %q, unread %t", c.line, got, r.unread)
	}
	many := optionReader{file: func(string) (string, error) { return "-Dq=1", nil }}
	options := many.jvmOptions(strings.Fields("java "+strings.Repeat("@a ", 256<<10/3)), nil)
	assert.Check(t, len(options) == maxOptionFiles && many.unread, "%q", options)
	r := optionReader{file: many.file}
	options = r.jvmOptions([]string{"java", "Main"}, map[string]string{"JDK_JAVA_OPTIONS": `'-Dp=a b' @file`})
	assert.Check(t, len(options) == 2 && options[0] == "-Dp=a b" && options[1] == "-Dq=1", "%q", options)
}

// Options count in the order in which a JVM takes them, and what follows the main class is none.
func TestJVMOptions(t *testing.T) {
	all := map[string]string{
		"JAVA_TOOL_OPTIONS": "-Dq=tool", "JDK_JAVA_OPTIONS": "'-Dq=jdk'", "_JAVA_OPTIONS": "-Dq=last",
	}
	tool := map[string]string{"JAVA_TOOL_OPTIONS": "-Dq=tool"}
	jdk := map[string]string{"JAVA_TOOL_OPTIONS": "-Dq=tool", "JDK_JAVA_OPTIONS": "'-Dq=jdk'"}
	for _, c := range []struct {
		line        string
		environment map[string]string
		want        string
	}{
		{"java -Dq=cmd Main", tool, "cmd"},
		{"java -Dq=cmd Main", jdk, "cmd"},
		{"java -Dq=cmd Main", all, "last"},
		{"java Main", jdk, "jdk"},
		{"java Main", tool, "tool"},
		{"/usr/bin/jsvc Main", jdk, "tool"}, // no launcher java
		{"/usr/bin/jsvc -user nobody -Dq=cmd Main", nil, "cmd"},
		{"/usr/bin/java -Dq=cmd Main -Dq=after", nil, "cmd"},
		{"java Main -Dq=after", nil, ""},
		{"java -Dq=cmd -jar a.jar -Dq=after", nil, "cmd"},
		{"java -jar -Dq=cmd a.jar -Dq=after", nil, "cmd"},
		{"java -cp a.jar -Dq=cmd Main -Dq=after", nil, "cmd"},
		{"java -cp -Dq=path Main", nil, ""},
		{"java -p mods --add-opens java.base/java.lang=ALL-UNNAMED -Dq=cmd -m a/b -Dq=after", nil, "cmd"},
		{"java -Dq=cmd --module=a/b -Dq=after", nil, "cmd"},
		{"java @file -Dq=cmd Main", nil, "cmd"},
		{"java -cp", nil, ""},
		{"", nil, ""},
	} {
		options := (&optionReader{file: noFile}).jvmOptions(strings.Fields(c.line), c.environment)
		got, _ := property(options, "q")
		assert.Check(t, got == c.want, "%s %v: %q, want %q", c.line, c.environment, got, c.want)
	}
	child := "java -cp a Launcher java -javaagent:/x/elastic-apm-agent-1.55.0.jar Main"
	agent := asked((&optionReader{file: noFile}).jvmOptions(strings.Fields(child), nil))
	assert.Check(t, agent == nil, "an agent for a child: %s", agent)
}
