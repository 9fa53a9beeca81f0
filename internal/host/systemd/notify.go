// Package systemd notifies the service manager of readiness and health, as in sd_notify(3).
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
	// startInterval is the interval in which the start is polled: units that are ordered after us
	// wait up to that long for nothing.
	startInterval = 100 * time.Millisecond

	// statusInterval is the interval in which health is polled without a watchdog: it is for the
	// line that `systemctl status` shows.
	statusInterval = 10 * time.Second
)

// Source reports the state of the service. Its methods must not block: a watchdog that gets no
// keep-alive restarts the service.
type Source interface {
	Started() error // nil once the service works; called until then
	Health() error  // nil while it should not be restarted; called after that
	Ready() error   // nil while it does all that it should
}

// Notify sends READY=1 once the source has started, keep-alives twice in each interval of the
// watchdog while the source is healthy, and a status with what is wrong for `systemctl status`. It
// blocks until ctx ends, and then sends STOPPING=1. It returns nil without a service manager
// ($NOTIFY_SOCKET), otherwise the first error. Errors do not end it, because a manager that
// re-executes itself may miss a message. Only one may run in a process.
//
// A source that has started and is not ready shows in the status alone: it does a part of its work,
// and a manager that waited for READY=1 would end and restart it, again and again.
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
	for n.poll(ctx) {
	}
	n.send(daemon.SdNotifyStopping, "stopping")
	return n.failed
}

// notifier has what the manager was last sent.
type notifier struct {
	source   Source
	interval time.Duration // between two looks once we are ready
	watchdog bool          // expects keep-alives
	ready    bool
	status   string // as last sent
	failed   error  // the first error
}

// poll sends what has changed and waits until the next poll is due. It returns false when ctx has
// ended.
func (n *notifier) poll(ctx context.Context) bool {
	state, status := "", "serving"
	wait := n.interval
	if !n.ready {
		if err := n.source.Started(); err != nil {
			status, wait = "starting: "+err.Error(), startInterval
		} else {
			state, n.ready = daemon.SdNotifyReady, true
		}
	} else if err := n.source.Health(); err != nil {
		status = "not healthy: " + err.Error()
	} else if n.watchdog {
		state = daemon.SdNotifyWatchdog
	}
	if status == "serving" {
		if err := n.source.Ready(); err != nil {
			status = "not ready: " + err.Error()
		}
	}
	sent := n.send(state, status)
	if !sent && state == daemon.SdNotifyReady {
		n.ready, wait = false, startInterval // other units wait for it
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

// send sends a state, which may be empty, and the status if that has changed. It reports whether
// the manager has got both.
func (n *notifier) send(state, status string) bool {
	// One line each, so that no text in an error is taken for a state.
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
			n.failed = fmt.Errorf("notifying the service manager of %q: %w", lines, err)
		}
		return false
	}
	n.status = status
	return true
}
