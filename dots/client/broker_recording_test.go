package client

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/internal/demo"
	"correlator/dots/internal/recordings"
	"correlator/dots/system"
	"correlator/dots/value"
)

// notReplayed says why this client does not send what the clients of these recordings sent. What
// their brokers sent is played to it by TestRecordedBrokers.
var notReplayed = map[string]string{
	"15": "a script without descriptors and attributes, by which rules get to a broker",
	"19": "a script: its messages have neither removeObj nor DotsClient",
	"20": "a script that sends properties it does not select, and claims to be another guest",
	"21": "a script: its messages have neither removeObj nor DotsClient",
	"22": "a script whose echo has a text, which Ping does not send",
	"23": "a script that joins twice and leaves groups that it is not in",
	"24": "a script that publishes without a description",
	"25": "a script that publishes without a description",
	"26": "a script that does not connect",
	"27": "a script that connects without saying whether it wants a preload",
	"28": "a script that publishes without a key, which Publish refuses",
	"29": "a script that removes an object of an uncached type, which Remove refuses",
	"30": "a script that connects twice",
	"31": "a script that sends an enumerator that does not exist",
	"32": "a script that reports an error",
	"33": "a script that describes a type with a property of an unknown type",
	"34": "a script that sends no frame",
	"35": "a Rust client, whose headers have its id, and which does not say goodbye",
	"36": "a Rust client, which sends the values of enumerators instead of their tags",
	"37": "a Rust client, which sends the values of enumerators instead of their tags",
}

// elsewhere are recordings that are replayed in websocket_test.go.
var elsewhere = []string{"40", "41"}

// TestRecordingsComplete: each recording is replayed to this client, or there is a reason.
func TestRecordingsComplete(t *testing.T) {
	for _, r := range recordings.All(t) {
		number := r.Name[:2]
		replayed := slices.Contains(elsewhere, number) ||
			slices.ContainsFunc(recorded(), func(p program) bool { return p.number == number })
		played := slices.ContainsFunc(brokers, func(b recordedBroker) bool { return b.number == number })
		if _, excused := notReplayed[number]; excused == replayed || excused != played {
			t.Errorf("%s: replayed %v, excused %v, broker played %v", r.Name, replayed, excused, played)
		}
	}
}

// recordedBroker is what a client makes of the broker's side of a recording.
type recordedBroker struct {
	number string
	events []string // of the types that the recorded client joined
	err    error    // of the connection
}

var brokers = []recordedBroker{
	{"15", nil, io.ErrUnexpectedEOF},
	{"19", []string{`create own {"id":7,"name":"seven"}`}, io.ErrUnexpectedEOF},
	{"20", []string{
		`create own {"id":3,"name":"full"}`, `update own {"id":3,"name":"full"}`, `update own {"id":3}`,
		`create own {"id":4,"name":"spoof"}`, `remove own {"id":3}`, `remove own {"id":4,"name":"spoof"}`,
	}, io.ErrUnexpectedEOF},
	{"21", []string{
		`create own {"id":1,"name":"a"}`, `create own {"id":2,"name":"b"}`,
		`remove 1 {"id":1,"name":"a"}`, `remove 1 {"id":2,"name":"b"}`, `create own {"typeNames":["DemoThing"]}`,
	}, io.ErrUnexpectedEOF},
	{"22", nil, io.ErrUnexpectedEOF},
	{"23", nil, io.ErrUnexpectedEOF},
	{"24", nil, brokerError(1)},
	{"25", nil, io.ErrUnexpectedEOF},
	{"26", nil, io.ErrUnexpectedEOF},
	{"27", nil, io.ErrUnexpectedEOF},
	{"28", nil, brokerError(1)},
	{"29", nil, brokerError(1)},
	{"30", nil, brokerError(1)},
	{"31", nil, brokerError(1)},
	{"32", nil, brokerError(1)},
	{"33", nil, brokerError(1)},
	{"34", nil, brokerError(1)},
	{"35", []string{
		`create own {"id":0,"message":"hello from dots-demo-client","sequence":1}`,
		`update own {"id":0,"message":"hello from dots-demo-client","sequence":2}`,
		`update own {"id":0,"message":"hello from dots-demo-client","sequence":3}`,
	}, brokerError(1)},
	{"36", []string{`create own {"id":1,"plain":2,"note":"a"}`}, brokerError(1)},
	// The Rust broker forwards an enumerator that does not exist.
	{"37", []string{`create own {"id":1,"plain":2,"note":"a"}`}, ErrProtocol},
}

// TestRecordedBrokers plays the broker's side of recordings whose clients did what this one does
// not, to a client that has subscribed to the same types.
func TestRecordedBrokers(t *testing.T) {
	for _, b := range brokers {
		t.Run(b.number, func(t *testing.T) {
			t.Parallel()
			rec := recordings.Load(t, b.number)
			mine, theirs := streams(t)
			c := New(Options{Name: "test"})
			var events []string
			var sent []byte
			for _, f := range rec.Frames {
				if f.From == recordings.Broker {
					sent = append(sent, f.Data...)
				} else {
					joinAsRecorded(t, c, rec.Format, f.Data, &events)
				}
			}
			if _, err := theirs.Write(sent); err != nil {
				t.Fatal(err)
			}
			must(t, theirs.CloseWrite())
			_ = c.ConnectConn(t.Context(), mine, rec.Format) // its error is that of the connection
			<-c.Done()
			err := c.Err()
			if reported := (*BrokerError)(nil); errors.As(err, &reported) {
				err = brokerError(reported.Code)
			}
			assert.Check(t, errors.Is(err, b.err), "the connection ended with %v instead of %v", err, b.err)
			equal(t, events, b.events...)
		})
	}
}

// joinAsRecorded takes descriptions and joins from what the recorded client sent.
func joinAsRecorded(t *testing.T, c *Client, f frame.Format, data []byte, events *[]string) {
	t.Helper()
	var h frame.Header
	instance, n, err := frame.Next(f, data, frame.DefaultLimit, &h)
	if err != nil || n == 0 {
		return // what is wrong on purpose
	}
	var m system.DotsMember
	switch string(h.TypeName) {
	case "EnumDescriptorData":
		_, _ = system.LearnEnum(c.registry, instance)
	case "StructDescriptorData":
		_, _ = system.LearnStruct(c.registry, instance)
	case "DotsMember":
		if decodeMessage(&m, instance) != nil || m.Event.Value() != system.DotsMemberEventJoin {
			return
		}
		name := m.GroupName.Value()
		if name == "DotsCacheInfo" || c.hasUnfiltered(name) {
			return // of the former, the answers to joins would be seen, and of the latter two events
		}
		if c.registry.Struct(name) == nil { // another recorded client described it
			_, err := c.registry.AddStruct((&demo.DemoThing{}).Descriptor())
			must(t, err)
		}
		_, err := c.SubscribeType(name, func(e *Event[*Raw]) {
			json, err := dynamic.AppendJSON(nil, e.Updated.Type, e.Updated.Instance)
			must(t, err)
			who := fmt.Sprint(e.Header.Sender)
			if e.Own {
				who = "own"
			}
			*events = append(*events, fmt.Sprint(e.Operation, " ", who, " ", string(json)))
		})
		must(t, err)
	}
}

// TestNoRemoveObj: a header without removeObj removes nothing, also behind one that does. Rust
// brokers send it only if it is true.
func TestNoRemoveObj(t *testing.T) {
	c := New(Options{})
	s, err := Subscribe[*demo.DemoThing](c, nil)
	must(t, err)
	p := &peer{t: t, conn: accepted(t, c)}
	thing := func(id uint32, h frame.Header) {
		p.sendHeader(&demo.DemoThing{ID: value.Some(id)}, h)
	}
	thing(1, frame.Header{})
	thing(2, frame.Header{})
	thing(1, frame.Header{RemoveObj: true, Set: frame.RemoveObj})
	thing(2, frame.Header{})
	thing(3, frame.Header{})
	must(t, p.conn.Close())
	<-c.Done()
	n := s.Len()
	assert.Check(t, n == 2, "%d objects", n)
}
