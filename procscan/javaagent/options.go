package javaagent

import (
	"path"
	"slices"
	"strings"
)

// optionVariables are those from which JVMs take options: JAVA_TOOL_OPTIONS and _JAVA_OPTIONS by
// HotSpot, JDK_JAVA_OPTIONS by the launcher java of JDK 9 and later.
var optionVariables = []string{"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"}

// jvmOptions returns the options of a JVM in the order in which they take effect, that of
// Arguments::parse in HotSpot's arguments.cpp: of a property that is set twice, the last value holds.
func jvmOptions(arguments []string, environment map[string]string) []string {
	all := variableOptions(environment["JAVA_TOOL_OPTIONS"])
	if len(arguments) > 0 && path.Base(arguments[0]) == "java" {
		all = append(all, variableOptions(environment["JDK_JAVA_OPTIONS"])...)
		arguments = launcherOptions(arguments[1:])
	} // else another launcher, as jsvc: which of its arguments are for the JVM is not known
	all = append(all, arguments...)
	return append(all, variableOptions(environment["_JAVA_OPTIONS"])...)
}

func variableOptions(value string) []string {
	options := strings.Fields(value)
	for i := range options {
		options[i] = strings.Trim(options[i], `"'`)
	}
	return options
}

// valueFollows are the options of the launcher java whose value is an argument of its own:
// IsClassPathOption, IsModuleOption and IsLauncherOption of its java.c.
var valueFollows = []string{
	"-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules",
	"--limit-modules", "--enable-native-access", "--add-exports", "--add-opens", "--add-reads", "--patch-module",
	"-d", "--describe-module", "--source",
}

// launcherOptions returns the arguments of the launcher java that are options, without values that
// are arguments of their own: those before the main class, the module (-m), or the file of -jar,
// which need not follow it at once. An argument "@file" has options in a file, which is not read.
func launcherOptions(arguments []string) (options []string) {
	for i := 0; i < len(arguments); i++ {
		argument := arguments[i]
		switch {
		case argument == "-m", argument == "--module", strings.HasPrefix(argument, "--module="),
			!strings.HasPrefix(argument, "-") && !strings.HasPrefix(argument, "@"):
			return options
		case slices.Contains(valueFollows, argument):
			i++
		}
		options = append(options, argument)
	}
	return options
}
