package live

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/client"
	"correlator/dots/system"
	"correlator/dots/value"
	"correlator/internal/out/live/types"
)

// What is wanted of another broker is what it says that guests have joined; all, if it does not say.
func TestDemand(t *testing.T) {
	host, thread := (*types.CorrelatorHost)(nil).Descriptor(), (*types.CorrelatorThread)(nil).Descriptor()
	changes := 0
	d := &demand{changed: func() { changes++ }}
	check := func(what string, wantsHost, wantsThread bool) {
		t.Helper()
		if d.wants(host) != wantsHost || d.wants(thread) != wantsThread {
			t.Errorf("%s: host %v, thread %v", what, d.wants(host), d.wants(thread))
		}
	}
	note := func(op client.Operation, id uint32, state system.DotsConnectionState, groups ...string) {
		x := &system.DotsClient{ID: value.Some(id), ConnectionState: value.Some(state)}
		if groups != nil {
			x.SubscribedTypes = value.Some(groups)
		}
		d.note(&client.Event[*system.DotsClient]{Operation: op, Updated: x})
	}
	check("nothing is known", true, true)
	note(client.Create, 2, system.DotsConnectionStateConnected)
	check("a broker that does not list groups", true, true)
	note(client.Update, 2, system.DotsConnectionStateConnected, []string{"DotsClient"}...)
	check("nobody has joined", false, false)
	note(client.Create, 3, system.DotsConnectionStateConnected, host.Name, "Other")
	check("one has joined", true, false)
	note(client.Create, 4, system.DotsConnectionStateEarlySubscribe, thread.Name)
	check("two have joined", true, true)
	note(client.Update, 4, system.DotsConnectionStateConnected, []string{}...)
	check("one has left the group", true, false)
	note(client.Update, 3, system.DotsConnectionStateClosed, host.Name)
	check("the other has gone", false, false)
	assert.Check(t, changes == 6, "%d changes", changes)
}
