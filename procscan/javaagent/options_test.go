package javaagent

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

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
		options := jvmOptions(strings.Fields(c.line), c.environment)
		got, _ := property(options, "q")
		assert.Check(t, got == c.want, "%s %v: %q, want %q", c.line, c.environment, got, c.want)
	}
	child := "java -cp a Launcher java -javaagent:/x/elastic-apm-agent-1.55.0.jar Main"
	agent := asked(jvmOptions(strings.Fields(child), nil))
	assert.Check(t, agent == nil, "an agent for a child: %s", agent)
}
