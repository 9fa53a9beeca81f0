package broker

import (
	"io/fs"
	"net/http"
	"net/netip"
	"time"

	"correlator/dots/frame"
	"correlator/internal/host/label"
)

// Options configure a Broker. The zero value of each field stands for its default.
type Options struct {
	// Name is what guests are told as the server's name. Default: "dotsd".
	Name string
	// ReadOnly refuses objects of guests: only the embedding program publishes. Guests still join
	// groups, describe types, use the services, and publish the DotsClient of their own id.
	ReadOnly bool
	Limits   Limits
	Auth     Auth
	// SocketMode are the permissions of Unix sockets. Default: sockfile.DefaultMode, the own user.
	SocketMode fs.FileMode
	// Page answers requests to WebSocket listeners that are no upgrades. Default: 426.
	Page http.Handler
	// Origins are patterns of hosts, as of path.Match, whose pages may open WebSockets, besides
	// the host that they connect to.
	Origins []string
	// Events is told what happens; nil if nobody wants to know.
	Events Events
}

// Limits bound what guests can make the broker use.
type Limits struct {
	Frame     int           // longest frame, in bytes. Default: frame.DefaultLimit
	Queue     int           // bytes that wait for one guest; more disconnect it. Default: 64 MiB
	Memory    int           // bytes that guests use, and the cache. Default: 1 GiB
	Cache     int           // bytes of cached objects, a quarter by one guest. Default: 512 MiB
	Guests    int           // that have been accepted. Default: 10,000
	Reserve   int           // of Guests, those that only Unix sockets have. Default: none
	Types     int           // types that guests describe, a quarter by one. Default: 10,000
	TypeBytes int           // memory of these types. Default: 64 MiB
	Groups    int           // groups that one guest joins, filtered subscriptions included. Default: 4096
	Handshake time.Duration // from accepting to DotsMsgConnect. Default: 10 s
}

func (l *Limits) setDefaults() {
	setDefault(&l.Frame, frame.DefaultLimit)
	setDefault(&l.Queue, 64<<20) // the older implementations disconnect at 10 and at 1 MiB
	setDefault(&l.Memory, 1<<30)
	setDefault(&l.Cache, 512<<20)
	setDefault(&l.Guests, 10_000)
	setDefault(&l.Types, 10_000)
	setDefault(&l.TypeBytes, 64<<20)
	setDefault(&l.Groups, 4096)
	setDefault(&l.Handshake, 10*time.Second)
}

func setDefault[T comparable](field *T, v T) {
	var zero T
	if *field == zero {
		*field = v
	}
}

// Auth is the static configuration of authentication, which guests can neither read nor change.
// While it is empty the objects DotsAuthentication and DotsAuthenticationPolicy that guests publish
// are the rules; otherwise these have no effect. Guests of Unix sockets are always accepted.
type Auth struct {
	// Secret is what every guest must know, unless Rules say otherwise.
	Secret string
	// Rules are tried by ascending priority.
	Rules []Rule
	// Accept decides about guests for whom no rule does. It is ignored if there are no rules.
	Accept bool
}

// Rule is one rule of authentication.
type Rule struct {
	Network    netip.Prefix // the invalid one has all addresses
	ClientName string       // "" is every name
	Priority   uint16
	Secret     string // "" demands none
	Accept     bool
}

// Events is told what happens in a Broker. Its methods are called by several goroutines, some of
// them while the broker is locked: they must return at once and must not call the Broker.
type Events interface {
	// Connected: a guest has completed its handshake.
	Connected(id uint32, name, address string)
	// Closed: a connection has ended, also one that was refused. The error is nil if the guest
	// said goodbye.
	Closed(id uint32, name, address string, reason Reason, err error)
	// TypeConflict: a guest described a type other than it is known, which was ignored.
	TypeConflict(id uint32, typeName string)
	// Members: a group has another number of members.
	Members(typeName string, members int)
	// AcceptFailed: a listener could not accept a connection, or a WebSocket listener could not
	// serve a request, and will try again.
	AcceptFailed(address string, err error)
}

// Reason is why a connection ended.
type Reason uint8

// The reasons of connections that ended.
const (
	Goodbye           Reason = iota // the guest said so
	EndOfStream                     // the guest just closed
	StreamError                     // reading or writing failed
	GuestError                      // the guest reported an error
	Shutdown                        // of this broker
	TooManyGuests                   // refused
	TooManyHandshakes               // refused, or closed for another connection
	HandshakeTimeout
	HandshakeViolation // another message than the handshake wants
	AuthRefused
	BadFrame
	UnknownType
	BadInstance
	MissingKey
	RemoveUncached
	BadDescriptor
	TooManyTypes
	TooManyGroups
	ReadOnly
	SlowConsumer // its queue was full
	MemoryFull   // all queues, unfinished frames, replays, groups and filters together
	CacheFull
	numReasons
)

var reasonNames = [numReasons]string{
	"goodbye", "end of stream", "stream error", "error of the guest", "shutdown", "too many guests",
	"too many handshakes", "handshake timeout", "handshake violation", "authentication refused",
	"bad frame", "unknown type",
	"bad instance", "missing key", "remove of an uncached type", "bad descriptor", "too many types",
	"too many groups", "read-only", "slow consumer", "memory full", "cache full",
}

// String returns the reason in words.
func (r Reason) String() string { return label.Of(reasonNames[:], r) }

// Reasons returns all reasons.
func Reasons() []Reason {
	all := make([]Reason, numReasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}
