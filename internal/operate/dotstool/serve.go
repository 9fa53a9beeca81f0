package dotstool

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/dots/broker"
	"correlator/dots/endpoint"
	"correlator/internal/host/asynclog"
)

// goodbyeTimeout is how long guests may take for what is queued for them, when the broker ends.
const goodbyeTimeout = 5 * time.Second

// ServeOptions configure a broker.
type ServeOptions struct {
	Endpoints []string // none: DOTS_ENDPOINT, else endpoint.Default
	Secret    string   // that guests must know, those of Unix sockets excepted; empty: DOTS_AUTH_SECRET, else none
	Name      string   // that guests are told
	Guests    int      // connections at most
	MemoryMiB int      // for everything that waits, and the cache, which gets half of it
	Log       *zap.Logger
}

func (o *ServeOptions) endpoints() ([]endpoint.Endpoint, error) {
	if len(o.Endpoints) == 0 {
		if list := os.Getenv(endpoint.EnvironmentEndpoint); strings.TrimSpace(list) != "" {
			return endpoint.ParseList(list)
		}
		return endpoint.ParseList(endpoint.Default)
	}
	return endpoint.ParseList(strings.Join(o.Endpoints, " "))
}

// Check returns what is wrong with the options, before anything is opened.
func (o *ServeOptions) Check() error {
	all, err := o.endpoints()
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.User != "" || e.Secret != "" {
			return fmt.Errorf("%v: a broker's endpoint has no user and no secret", e)
		}
	}
	return nil
}

// Serve runs a broker until the context ends, and then says goodbye to its guests.
func Serve(ctx context.Context, o *ServeOptions) error {
	all, err := o.endpoints()
	if err != nil {
		return err
	}
	log := asynclog.New(o.Log)
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), settleTime)
		defer cancel()
		log.Close(end)
	}()
	b := broker.New(broker.Options{
		Name:   o.Name,
		Limits: broker.Limits{Guests: o.Guests, Memory: o.MemoryMiB << 20, Cache: o.MemoryMiB << 19},
		Auth:   broker.Auth{Secret: cmp.Or(o.Secret, os.Getenv(endpoint.EnvironmentSecret))},
		Events: &events{log: log.Logger, conflicts: make(map[string]uint32)},
	})
	for _, e := range all {
		var address net.Addr
		if address, err = b.ListenURI(e.String()); err != nil {
			break
		}
		log.Info("listening", zap.Stringer("endpoint", bound(e, address)))
	}
	if err == nil {
		<-ctx.Done()
		log.Info("ending")
	}
	end, cancel := context.WithTimeout(context.Background(), goodbyeTimeout)
	defer cancel()
	if slow := b.Shutdown(end); slow != nil {
		log.Warn("guests did not take what was queued for them", zap.Error(slow))
	}
	return err
}

// bound returns an endpoint with the port that the kernel has chosen.
func bound(e endpoint.Endpoint, address net.Addr) endpoint.Endpoint {
	if tcp, ok := address.(*net.TCPAddr); ok {
		e.Port = tcp.AddrPort().Port()
	}
	return e
}

// events logs what happens in a broker. Names are a guest's choice: the logger escapes them. It does
// not wait for the log, nor need it limit what is repeated.
type events struct {
	log *zap.Logger

	mu        sync.Mutex
	conflicts map[string]uint32 // by type, of which a broker knows so many: who conflicted last
}

func (e *events) Connected(id uint32, name, address string) {
	e.log.Info("guest connected", zap.Uint32("id", id), zap.String("name", name), zap.String("address", address))
}

func (e *events) Closed(id uint32, name, address string, reason broker.Reason, err error) {
	log := e.log.Warn
	if reason == broker.Goodbye || reason == broker.EndOfStream || reason == broker.Shutdown {
		log = e.log.Info
	}
	log("guest disconnected", zap.Uint32("id", id), zap.String("name", name), zap.String("address", address),
		zap.Stringer("reason", reason), zap.Error(err))
}

func (e *events) TypeConflict(id uint32, typeName string) {
	e.mu.Lock()
	logged := e.conflicts[typeName] == id
	e.conflicts[typeName] = id
	e.mu.Unlock()
	if logged {
		return
	}
	e.log.Warn("type is known differently; the first description counts", zap.Uint32("id", id),
		zap.String("type", typeName))
}

func (e *events) Members(typeName string, members int) {
	e.log.Debug("group changed", zap.String("type", typeName), zap.Int("members", members))
}

func (e *events) AcceptFailed(address string, err error) {
	e.log.Warn("accepting a connection", zap.String("address", address), zap.Error(err))
}

// CheckLogLevel returns an error about a level that there is not.
func CheckLogLevel(level string) error {
	_, err := zapcore.ParseLevel(level)
	return err
}
