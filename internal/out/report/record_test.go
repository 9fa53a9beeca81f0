package report

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/out/record"
	"correlator/profile"
)

// The reasons why nothing was sampled are those that are known.
func TestNothingSampled(t *testing.T) {
	one := []*record.Process{{PID: 1}}
	for want, r := range map[string]*record.Recording{
		"all samples were lost": {Lost: map[string]uint64{"stale": 1}, Processes: one, Duration: time.Minute},
		"other samples: 2": {Unselected: 2, Lost: map[string]uint64{"stale": 1}, Processes: one,
			Duration: time.Minute},
		"processes that take part: 1; they ran at none of the 97 moments a second in 1m0s (--rate": {Processes: one,
			SamplesPerSecond: 97, Duration: time.Minute},
		"in 1s, and no wait in a transaction had a stack (--rate": {Processes: one, SamplesPerSecond: 97,
			Duration: time.Second, Waits: make(map[record.WaitKey]profile.StateTimes)},
		"ended before it began":                        {Processes: one, Lost: map[string]uint64{"stale": 1}},
		"100ms are too short to look at all processes": {Duration: 100 * time.Millisecond},
		"no process was found in 1m0s that takes part": {Duration: time.Minute},
	} {
		err := nothingSampled(summarize(r, nil), r, process.Filter{}, io.Discard)
		assert.Check(t, strings.Contains(err.Error(), want), "%v, want %s", err, want)
	}
	users, err := process.ParsePatterns("1000")
	assert.NilError(t, err)
	none := &record.Recording{Duration: time.Minute}
	err = nothingSampled(summarize(none, nil), none, process.Filter{IncludeUsers: users}, io.Discard)
	assert.ErrorContains(t, err, "that takes part and is selected")
}

// Each context takes one signal, and no more when it is stopped or over.
func TestUntilSignal(t *testing.T) {
	keep := make(chan os.Signal, 2) // or the second would end us
	signal.Notify(keep, syscall.SIGTERM)
	defer signal.Stop(keep)
	sampling, stopSampling := untilSignal(t.Context())
	reading, stop := untilSignal(t.Context())
	defer stop()
	stopSampling()
	assert.NilError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-reading.Done()
	<-sampling.Done()
	cause := context.Cause(sampling)
	assert.Check(t, cause == context.Canceled, "the recording was ended by a signal after it: %v", cause)
}

// Of a signal that comes while programs are loaded it is said that it came.
func TestSignalWhileOpening(t *testing.T) {
	r, w := io.Pipe()
	defer time.AfterFunc(time.Minute, func() { w.CloseWithError(errors.New("nothing was said")) }).Stop()
	ctx, end := context.WithCancel(t.Context())
	_, err := opening(ctx, w, func() (*record.Recorder, error) {
		end()
		line, err := bufio.NewReader(r).ReadString('\n')
		assert.Check(t, err == nil && strings.HasPrefix(line, "ending when programs are loaded"), "%q, %v", line, err)
		return nil, nil
	})
	assert.NilError(t, err)
}

func TestProgressText(t *testing.T) {
	began := time.Now()
	for _, test := range []struct {
		elapsed  time.Duration
		progress record.Progress
		want     string
	}{
		{time.Hour, record.Progress{}, "looking for processes"},
		{1900 * time.Millisecond, record.Progress{Start: began},
			"recording 1s of 30s: 0 samples, 0% in transactions, 0 processes (Ctrl-C ends it)"},
		{31 * time.Second, record.Progress{Start: began, Samples: 2000, WithTrace: 1500, Processes: 3},
			"recording 30s of 30s: 2000 samples, 75% in transactions, 3 processes (Ctrl-C ends it)"},
	} {
		got := progressText(began.Add(test.elapsed), 30*time.Second, test.progress)
		assert.Check(t, got == test.want, "%q, want %q", got, test.want)
	}
}

func TestShellQuoted(t *testing.T) {
	for word, want := range map[string]string{
		"out.pb.gz": "out.pb.gz", "/tmp/a b": "'/tmp/a b'", "it's": `'it'\''s'`, "": "''", "$HOME": "'$HOME'",
	} {
		got := shellQuoted(word)
		assert.Check(t, got == want, "%q: %s, want %s", word, got, want)
	}
}
