package broker

import (
	"context"
	"errors"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/system"
	"correlator/dots/value"
)

// A change that cannot be published does not keep those behind it from being published.
func TestApply(t *testing.T) {
	b := New(Options{})
	client := func(id uint32, name string) *system.DotsClient {
		return &system.DotsClient{ID: value.Some(id), Name: value.Some(name)}
	}
	changes := []Change{
		{Object: client(7, "a"), Properties: system.DotsClientName},
		{Object: &system.DotsClient{Name: value.Some("without a key")}, Properties: system.DotsClientName},
		{Object: &system.DotsMember{GroupName: value.Some("x")}, Remove: true}, // uncached
		{Object: client(8, "b"), Properties: system.DotsClientName},
		{Object: client(7, ""), Remove: true},
	}
	assert.NilError(t, b.Apply(changes))
	for i, want := range []bool{true, false, false, true, true} {
		assert.Check(t, (changes[i].Err == nil) == want, "change %d: %v", i, changes[i].Err)
	}
	assert.NilError(t, b.Shutdown(context.Background()))
	err := b.Apply(changes)
	assert.Check(t, errors.Is(err, ErrClosed), "after the shutdown: %v", err)
}
