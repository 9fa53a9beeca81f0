package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// exampleConfig is installed by packages.
const exampleConfig = "../../deploy/correlator.yaml"

var (
	keyLine = regexp.MustCompile(`(?m)^#?([a-z-]+):`)
	// nestedLine is one of a key below another: comments have one space after the #.
	nestedLine = regexp.MustCompile(`(?m)^#(  +(?:- )?[a-z-]+:.*)$`)
)

type setting struct{ key, value, source string }

// settingLine matches a setting that is not below another.
var settingLine = regexp.MustCompile(`(?m)^(?:# )?([a-z-]+):(?: (.*?) +# (.*))?$`)

// nestedKeys have keys below them, at least so many.
var nestedKeys = map[string]int{"otlp": 20, "opencensus": 13}

// The example has every setting, in order and with its default. As it is, it changes nothing.
func TestExampleConfig(t *testing.T) {
	t.Setenv("CORRELATOR_ADMIN_SOCKET", "")
	os.Unsetenv("CORRELATOR_ADMIN_SOCKET") // until the end of the test
	text, err := os.ReadFile(exampleConfig)
	assert.NilError(t, err)
	enabled := filepath.Join(t.TempDir(), "enabled.yaml")
	uncommented := nestedLine.ReplaceAll(keyLine.ReplaceAll(text, []byte("$1:")), []byte("$1"))
	assert.NilError(t, os.WriteFile(enabled, uncommented, 0o600))
	printed := func(args ...string) (output string, settings []setting) {
		output = string(command(t, "", append([]string{"run", "--print-config"}, args...)...))
		for _, match := range settingLine.FindAllStringSubmatch(output, -1) {
			settings = append(settings, setting{match[1], match[2], match[3]})
		}
		return output, settings
	}
	_, defaults := printed()
	if _, installed := printed("--config", exampleConfig); !slices.Equal(installed, defaults) {
		t.Errorf("%s changes something:\n%q\nis by default\n%q", exampleConfig, installed, defaults)
	}
	out, example := printed("--config", enabled)
	var keys []string
	for i, s := range example {
		keys = append(keys, s.key)
		if nestedKeys[s.key] > 0 {
			continue
		}
		assert.Check(t, strings.HasPrefix(s.source, enabled+":"), "%s does not have %s", exampleConfig, s.key)
		assert.Check(t, s.value == defaults[i].value || s.key == "host-id",
			"%s says that the default of %s is %s; it is %s", exampleConfig, s.key, s.value, defaults[i].value)
	}
	var order []string
	for _, match := range keyLine.FindAllSubmatch(text, -1) {
		order = append(order, string(match[1]))
	}
	assert.Check(t, slices.Equal(order, keys) && len(keys) >= 20,
		"%s has the keys\n%q\nin another order than run --print-config:\n%q", exampleConfig, order, keys)
	verifyNestedExample(t, string(uncommented), out)
}

// verifyNestedExample checks that the example has every key below others, in order and with its
// default, by comparing it with the output of --print-config.
func verifyNestedExample(t *testing.T, example, printed string) {
	t.Helper()
	nested := func(key, text string) (lines []string) {
		_, text, _ = strings.Cut(text, "\n"+key+":\n")
		for line := range strings.Lines(text) {
			if line[0] != ' ' && line[0] != '#' {
				break
			}
			if line[0] == ' ' {
				lines = append(lines, strings.TrimRight(comment.ReplaceAllString(line, ""), " \n"))
			}
		}
		return lines
	}
	for key, least := range nestedKeys {
		if got, want := nested(key, example), nested(key, printed); len(want) < least || !slices.Equal(got, want) {
			t.Errorf("%s has below %s\n%s\nand not\n%s", exampleConfig, key, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
	}
	endpoint := regexp.MustCompile(`(?m)^    - endpoint: (\S+)`).FindStringSubmatch(example)[1]
	defaults := string(command(t, "", "run", "--print-config", "--otlp-endpoint", endpoint))
	for i, line := range nested("otlp", defaults) {
		name := strings.TrimSpace(line) == "name: default" // of the first --otlp-endpoint
		want := nested("otlp", example)[i]
		assert.Check(t, line == want || name, "%s says %q, the default is %q", exampleConfig, want, line)
	}
}

var otherEndpoint = regexp.MustCompile(`(?m)^# otlp-endpoint: .*$`)

var comment = regexp.MustCompile(`(?m) +# .*$`)

// The output of --print-config is a file that gives the same configuration.
func TestPrintConfigRoundTrip(t *testing.T) {
	t.Setenv("CORRELATOR_EXCLUDE_SERVICE", "a: b\n[^/]+\n\"'\\\\\n&x?#\n- y")
	t.Setenv("CORRELATOR_SAMPLES_DELAY", "250ms")
	first := command(t, "", "run", "--print-config", "--host-id", "12", "--include-container", `/system\.slice/.*`,
		"--unsampled",
		"--otlp-endpoint", "https://a", "--otlp-endpoint", "unix:/run/b c", "--otlp-listen", "unix:/run/o: "+
			"#", "--metrics-address", "[::1]:9464", "--feed-socket", " /run/a b\t# c")
	path := filepath.Join(t.TempDir(), "config.yaml")
	assert.NilError(t, os.WriteFile(path, first, 0o600))
	os.Unsetenv("CORRELATOR_EXCLUDE_SERVICE")
	os.Unsetenv("CORRELATOR_SAMPLES_DELAY")
	second := command(t, "", "run", "--print-config", "--config", path)
	// What destinations are made of is shown, but said by these alone.
	first, second = otherEndpoint.ReplaceAll(first, nil), otherEndpoint.ReplaceAll(second, nil)
	a, b := comment.ReplaceAllString(string(first), ""), comment.ReplaceAllString(string(second), "")
	assert.Check(t, a == b, "%s\nread and written again is\n%s", a, b)
	assert.Check(t, !regexp.MustCompile(`(?m)^ *[^# ].*# default`).Match(second),
		"not everything was read:\n%s", second)
}

// SIGTERM ends a service, SIGHUP does not. On a terminal that hangs up both do.
func TestHangup(t *testing.T) {
	testenv.NeedRoot(t)
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, syscall.SIGHUP) // or, where we run under nohup, it would be ignored there, too
	defer signal.Stop(taken)
	start := func(stdin *os.File) (*exec.Cmd, string) {
		dir := t.TempDir()
		log, err := os.Create(filepath.Join(dir, "log"))
		assert.NilError(t, err)
		defer log.Close()
		// A filter that leaves everybody out: this agent is not to disturb anybody.
		run := exec.Command(installed(t), "run", "--log-format", "json", "--samples-per-second", "0",
			"--feed-socket", filepath.Join(dir, "feed"),
			"--admin-socket", "", "--exclude-container", "/.*")
		run.Stdin, run.Stderr = stdin, log
		assert.NilError(t, run.Start())
		t.Cleanup(func() { run.Process.Kill() })
		testenv.Poll(t, deadline, "the feed socket", func() bool {
			_, err := os.Stat(filepath.Join(dir, "feed"))
			return err == nil
		})
		return run, log.Name()
	}

	service, log := start(nil)
	assert.NilError(t, service.Process.Signal(syscall.SIGHUP))
	testenv.Poll(t, deadline, "the log of SIGHUP", func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(text), "SIGHUP is ignored")
	})
	assert.NilError(t, service.Process.Signal(syscall.SIGTERM))
	assert.Check(t, service.Wait(), "SIGTERM after SIGHUP")

	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0) // is one, like its other end
	assert.NilError(t, err)
	defer terminal.Close()
	shell, _ := start(terminal)
	assert.NilError(t, shell.Process.Signal(syscall.SIGHUP))
	assert.Check(t, shell.Wait(), "SIGHUP on a terminal")
}

// No setting has a variable that Kubernetes sets for a service: CORRELATOR_X_PORT,
// CORRELATOR_X_SERVICE_HOST, CORRELATOR_PORT_80_TCP.
func TestVariablesOfKubernetes(t *testing.T) {
	made := regexp.MustCompile(`(^|-)(port|service-host|service-port)(-|$)`)
	for _, cmd := range newApp().root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if made.MatchString(f.Name) {
				t.Errorf("--%s of %s", f.Name, cmd.Name())
			}
		})
	}
}
