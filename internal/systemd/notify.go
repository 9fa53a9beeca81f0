// Package systemd tells the service manager that started us whether we are ready and alive, as
// sd_notify(3) describes it.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

const (
	// startInterval is the pause between two questions whether we are ready: what was ordered after us
	// waits that long for nothing.
	startInterval = 100 * time.Millisecond

	// statusInterval is the pause between two looks at our health where no watchdog sets one: it is for the
	// line that `systemctl status` shows.
	statusInterval = 10 * time.Second
)

// Source is what is told of. Its methods must not block: a watchdog that is not fed restarts the service.
type Source interface {
	Ready() error  // nil once the service does its work; asked until then
	Health() error // nil while it does; asked from then on
}

// Notify says READY=1 once the source is ready, feeds the watchdog twice in each of its intervals while the
// source is healthy, and has `systemctl status` show what is wrong. It blocks until ctx ends, says STOPPING=1,
// and returns: nil without a service manager that wants to be told ($NOTIFY_SOCKET), else the first error of
// telling it. Until then it goes on after errors, since a manager that is replaced by a new one misses a
// word or two. Only one may run in a process.
func Notify(ctx context.Context, source Source) error {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		<-ctx.Done()
		return nil
	}
	interval := statusInterval
	watchdog, failed := daemon.SdWatchdogEnabled(false)
	if failed != nil {
		failed = fmt.Errorf("reading the watchdog's interval: %w", failed)
	}
	if watchdog > 0 {
		interval = watchdog / 2
	}
	n := notifier{source: source, interval: interval, watchdog: watchdog > 0, failed: failed}
	for n.look(ctx) {
	}
	n.say(daemon.SdNotifyStopping, "stopping")
	return n.failed
}

// notifier is what the manager knows of us.
type notifier struct {
	source   Source
	interval time.Duration // between two looks once we are ready
	watchdog bool          // wants to be fed
	ready    bool
	status   string // as last said
	failed   error  // the first error
}

// look tells what there is to tell and waits until it is time for the next look; false: ctx has ended.
func (n *notifier) look(ctx context.Context) bool {
	state, status := "", "serving"
	wait := n.interval
	if !n.ready {
		if err := n.source.Ready(); err != nil {
			status, wait = "starting: "+err.Error(), startInterval
		} else {
			state, n.ready = daemon.SdNotifyReady, true
		}
	} else if err := n.source.Health(); err != nil {
		status = "not healthy: " + err.Error()
	} else if n.watchdog {
		state = daemon.SdNotifyWatchdog
	}
	sent := n.say(state, status)
	if !sent && state == daemon.SdNotifyReady {
		n.ready, wait = false, startInterval // the one word that is waited for
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

// say sends a state, which may be none, and the status if it is another than was said last. It tells
// whether the manager knows both now.
func (n *notifier) say(state, status string) bool {
	// A line each, so that nothing that an error quotes is taken for a state.
	status = strings.ToValidUTF8(strings.ReplaceAll(status, "\n", " "), "?")
	var lines []string
	if state != "" {
		lines = append(lines, state)
	}
	if status != n.status {
		lines = append(lines, "STATUS="+status)
	}
	if len(lines) == 0 {
		return true
	}
	sent, err := daemon.SdNotify(false, strings.Join(lines, "\n"))
	if err == nil && !sent {
		err = errors.New("$NOTIFY_SOCKET is not set any more")
	}
	if err != nil {
		if n.failed == nil {
			n.failed = fmt.Errorf("telling the service manager %q: %w", lines, err)
		}
		return false
	}
	n.status = status
	return true
}
