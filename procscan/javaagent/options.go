package javaagent

import (
	"path"
	"slices"
	"strings"
)

// optionVariables are those from which JVMs take options: JAVA_TOOL_OPTIONS and _JAVA_OPTIONS by
// HotSpot, JDK_JAVA_OPTIONS by the launcher java of JDK 9 and later.
var optionVariables = []string{"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"}

// maxOptionFiles bounds how many files of options are read of a JVM, the same one included. Launchers
// write one.
const maxOptionFiles = 16

// optionReader reads the options of a JVM, also those that are in files.
type optionReader struct {
	file   func(name string) (string, error) // contents of a file of the process
	files  int
	unread bool // one was not read: there may be more options
}

// jvmOptions returns the options of a JVM in the order in which they take effect, that of
// Arguments::parse in HotSpot's arguments.cpp: of a property that is set twice, the last value holds.
func (r *optionReader) jvmOptions(arguments []string, environment map[string]string) []string {
	all := splitOptions(environment["JAVA_TOOL_OPTIONS"], false)
	if len(arguments) > 0 && path.Base(arguments[0]) == "java" {
		inVariable := splitOptions(environment["JDK_JAVA_OPTIONS"], false)
		all = append(all, r.launcherOptions(inVariable)...)
		arguments = r.launcherOptions(arguments[1:])
	} // else another launcher, as jsvc: which of its arguments are for the JVM is not known
	all = append(all, arguments...)
	all = append(all, splitOptions(environment["_JAVA_OPTIONS"], false)...)
	var options []string
	for _, option := range all {
		options = append(options, option)
		if name, is := strings.CutPrefix(option, "-XX:VMOptionsFile="); is { // which has no such option again
			options = append(options, r.read(name, false)...)
		}
	}
	return options
}

// read returns the options in a file; none if it cannot be read.
func (r *optionReader) read(name string, escapes bool) []string {
	if r.files++; r.files > maxOptionFiles {
		r.unread = true
		return nil
	}
	text, err := r.file(name)
	r.unread = r.unread || err != nil
	return splitOptions(text, escapes)
}

// splitOptions returns the options in a text, between spaces that are not within quotes. With escapes
// it has those of the launcher's files: comments, and backslashes within quotes (args.c of the JDK).
func splitOptions(text string, escapes bool) (options []string) {
	var option strings.Builder
	begun, quote := false, byte(0)
	end := func() {
		if begun {
			options = append(options, option.String())
		}
		option.Reset()
		begun = false
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0 && escapes && c == '\\' && i+1 < len(text):
			i++
			if text[i] != '\n' { // else the line goes on
				option.WriteByte(text[i])
			}
		case quote != 0:
			option.WriteByte(c)
		case c == '"' || c == '\'':
			begun, quote = true, c
		case strings.IndexByte(" \t\r\n\f\v", c) >= 0:
			end()
		case escapes && c == '#':
			end()
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		default:
			begun = true
			option.WriteByte(c)
		}
	}
	end()
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
// which need not follow it at once. An argument "@file" has options in a file, none of which is such
// an argument again; "@@" is an argument that begins with "@".
func (r *optionReader) launcherOptions(arguments []string) (options []string) {
	files, value := true, false // "@" names a file; the value of an option follows
	take := func(argument string) bool {
		switch {
		case value:
			value = false
			return true
		case argument == "-m", argument == "--module", strings.HasPrefix(argument, "--module="),
			!strings.HasPrefix(argument, "-"):
			return false
		}
		files = files && argument != "--disable-@files"
		value = slices.Contains(valueFollows, argument)
		options = append(options, argument)
		return true
	}
	for _, argument := range arguments {
		some := []string{argument}
		if name, isFile := strings.CutPrefix(argument, "@"); isFile && files && !value && !strings.HasPrefix(name, "@") {
			some = r.read(name, true)
		}
		for _, one := range some {
			if !take(one) {
				return options
			}
		}
	}
	return options
}
