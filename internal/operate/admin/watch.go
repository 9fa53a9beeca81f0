package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"correlator/internal/host/terminal"
)

// Watch updates the status until ctx ends: on a terminal in place, with the rates of samples since
// the last update, otherwise as one output after the other. When the agent stops responding it says
// so and retries, but the first request must succeed.
func Watch(ctx context.Context, w io.Writer, client *Client, interval time.Duration) error {
	return watch(ctx, client, interval, func() viewer { return &tables{screen: terminal.OpenScreen(w)} })
}

// WatchJSON is Watch with the status as one line of JSON for each update. It writes nothing while
// the agent does not respond, and calls trouble with the first error.
func WatchJSON(ctx context.Context, w io.Writer, client *Client, interval time.Duration, trouble func(error)) error {
	return watch(ctx, client, interval, func() viewer {
		return &objects{encoder: json.NewEncoder(w),
			trouble: trouble}
	})
}

type viewer interface {
	// show is called with the last status, again with the same one and an error while there is no
	// newer one, and after a signal from resized.
	show(last *Status, trouble error) error
	resized() <-chan os.Signal
	close()
}

func watch(ctx context.Context, client *Client, interval time.Duration, open func() viewer) error {
	status, err := client.Status(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	view := open()
	defer view.close()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for last := &status; ; {
		if err := view.show(last, err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-view.resized():
			continue
		case <-ticker.C:
		}
		var next Status
		if next, err = client.Status(ctx); err == nil {
			last = &next
		} else if ctx.Err() != nil {
			return nil
		}
	}
}

type objects struct {
	encoder *json.Encoder
	trouble func(error)
	silent  bool // an error has been reported
}

func (o *objects) show(last *Status, trouble error) error {
	if trouble == nil {
		o.silent = false
		return o.encoder.Encode(last)
	}
	if !o.silent {
		o.trouble(trouble)
	}
	o.silent = true
	return nil
}

func (o *objects) resized() <-chan os.Signal { return nil }
func (o *objects) close()                    {}

type tables struct {
	screen *terminal.Screen
	last   *Status
	rates  *rates // nil: unknown
}

func (t *tables) show(last *Status, trouble error) error {
	switch {
	case trouble != nil:
		t.rates = nil
	case last != t.last:
		t.rates = ratesBetween(t.last, last)
	}
	t.last = last
	head := []string{last.At.Local().Format(time.DateTime), "per second: " + t.rates.String()}
	if trouble != nil {
		head = append(head, "trying again: "+terminal.Escape(trouble.Error()))
	}
	columns, rows := t.screen.Size()
	return t.screen.Draw(newPage(head, last, columns).lines(rows))
}

func (t *tables) resized() <-chan os.Signal { return t.screen.Resized() }
func (t *tables) close()                    { t.screen.Close() }

type rates struct{ samples, sent float64 }

// ratesBetween returns nil, as unknown, unless both statuses are of the same agent.
func ratesBetween(before, now *Status) *rates {
	if before == nil || !now.StartedAt.Equal(before.StartedAt) {
		return nil
	}
	seconds := now.At.Sub(before.At).Seconds()
	if seconds <= 0 {
		return nil
	}
	then, since := newSums(before.Counters), newSums(now.Counters)
	return &rates{
		samples: (float64(since.samples) - float64(then.samples)) / seconds,
		sent:    (float64(since.sent) - float64(then.sent)) / seconds,
	}
}

func (r *rates) String() string {
	if r == nil {
		return "- samples, - sent"
	}
	return fmt.Sprintf("%.1f samples, %.1f sent", max(r.samples, 0), max(r.sent, 0))
}
