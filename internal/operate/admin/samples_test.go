package admin

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/out/keep"
	"correlator/internal/stacks/sampling"
)

type asked struct {
	query *keep.Query
	err   error
	slow  *keep.SlowStats
}

func (k asked) Answer(_ context.Context, q keep.Query, use func(*keep.Answer) error) error {
	*k.query = q
	if k.err != nil {
		return k.err
	}
	return use(&keep.Answer{Host: "host"})
}

func (k asked) Slow() *keep.SlowStats { return k.slow }

// A query reaches the agent unchanged, and the reason of a refusal comes back.
func TestSamples(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	var got keep.Query
	of := &source{keep: asked{query: &got}}
	of.status.Waits = &sampling.WaitsStatus{Error: "the kernel is old"}
	serve(t, path, of)
	want := keep.Query{ID: "abcd", Service: "a b&c", Since: time.Unix(1, 5).UTC(), Order: keep.Slowest, Most: 3}
	answer, err := NewClient(path).Samples(t.Context(), want)
	if err != nil || answer.Host != "host" || got != want ||
		answer.UnknownWaits != "waits of transactions are not known: the kernel is old" {
		t.Errorf("%+v, %+v, %v", answer, got, err)
	}

	off := filepath.Join(t.TempDir(), "admin.sock")
	serve(t, off, &source{keep: asked{query: &got}})
	answer, err = NewClient(off).Samples(t.Context(), want)
	assert.Check(t, err == nil && strings.HasSuffix(answer.UnknownWaits, "(--waits off)"), "%+v, %v", answer, err)

	for text, keeper := range map[string]Keeper{
		"refused": asked{query: &got, err: errors.New("refused")}, "ask again": asked{query: &got, err: keep.ErrBusy},
		"start it with --keep 10m": nil,
	} {
		path := filepath.Join(t.TempDir(), "admin.sock")
		serve(t, path, &source{keep: keeper})
		_, err := NewClient(path).Samples(t.Context(), want)
		assert.Check(t, err != nil && strings.Contains(err.Error(), text), "%v, want %q", err, text)
	}
}
