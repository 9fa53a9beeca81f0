package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"correlator/internal/operate/config"
	"correlator/internal/operate/dotstool"
)

// This file declares the flags of the commands of DOTS.

// guestOptions say how to connect to a broker. Their variables are those of all DOTS programs.
type guestOptions struct {
	Endpoint string `key:"dots-endpoint" env:"-"`
	Secret   string `key:"dots-auth-secret" env:"-" secret:"true"`
}

func (o *guestOptions) guest(name string) dotstool.Guest {
	return dotstool.Guest{Endpoint: o.Endpoint, Secret: o.Secret, Name: name}
}

func (o *guestOptions) validate(*config.Settings) error {
	g := o.guest("")
	return g.Check()
}

type serveOptions struct {
	Endpoints config.Texts `key:"dots-endpoint" env:"-"`
	Secret    string       `key:"dots-auth-secret" env:"-" secret:"true"`
	Name      string       `key:"name"`
	MaxGuests int          `key:"max-guests"`
	MaxMemory int          `key:"max-memory"`
	LogLevel  string       `key:"log-level"`
	LogFormat string       `key:"log-format"`
}

func newServeOptions() *serveOptions {
	return &serveOptions{Name: "dotsd", MaxGuests: 10_000, MaxMemory: 1024, LogLevel: "info", LogFormat: "console"}
}

func (o *serveOptions) broker() *dotstool.ServeOptions {
	return &dotstool.ServeOptions{
		Endpoints: o.Endpoints, Secret: o.Secret, Name: o.Name, Guests: o.MaxGuests, MemoryMiB: o.MaxMemory,
	}
}

// maxMemoryMiB is 1 TiB: more than that is a mistake.
const maxMemoryMiB = 1 << 20

func (o *serveOptions) validate(s *config.Settings) error {
	switch {
	case o.Name == "" || len(o.Name) > 255:
		return fmt.Errorf("%s is not between 1 and 255 bytes long", s.Name("name"))
	case o.MaxGuests < 1 || o.MaxGuests > 1_000_000:
		return fmt.Errorf("%s is not between 1 and 1000000", s.Label("max-guests"))
	case o.MaxMemory < 1 || o.MaxMemory > maxMemoryMiB:
		return fmt.Errorf("%s is not between 1 and %d", s.Label("max-memory"), maxMemoryMiB)
	case o.LogFormat != "console" && o.LogFormat != "json":
		return fmt.Errorf("%s is neither console nor json", s.Label("log-format"))
	}
	if err := dotstool.CheckLogLevel(o.LogLevel); err != nil {
		return fmt.Errorf("%s: %w", s.Label("log-level"), err)
	}
	return o.broker().Check()
}

func adaptServeFlags(flags *pflag.FlagSet) {
	flags.Lookup("dots-endpoint").Usage = "`URI` to listen at, any number of times: tcp://HOST[:PORT], uds:///PATH, " +
		"ws://HOST:PORT; tcp-v1 and uds-v1 for guests of the older format; goes before the variable DOTS_ENDPOINT, " +
		"which may have several with spaces between them (default: tcp://127.0.0.1:11235)"
	flags.Lookup("dots-auth-secret").Usage = "`secret` that every guest must know, but those of Unix sockets; other " +
		"users can read it in the list of processes, but not in the variable DOTS_AUTH_SECRET (default: none)"
}

// endOptions say when a command that follows the bus ends.
type endOptions struct {
	Count int           `key:"count" short:"n"`
	For   time.Duration `key:"for"`
}

func (o *endOptions) validate(s *config.Settings) error {
	switch {
	case o.Count < 0:
		return fmt.Errorf("%s is below 0", s.Label("count"))
	case o.For < 0:
		return fmt.Errorf("%s is below 0", s.Label("for"))
	}
	return nil
}

type watchOptions struct {
	guestOptions
	endOptions
	output
}

func (o *watchOptions) validate(s *config.Settings) error {
	return cmp.Or(o.endOptions.validate(s), o.output.validate(s), o.guestOptions.validate(s))
}

type publishOptions struct {
	guestOptions
	Types  config.Texts `key:"types"`
	Remove bool         `key:"remove" env:"-"`
}

type describeOptions struct {
	guestOptions
	output
}

func (o *describeOptions) validate(s *config.Settings) error {
	return cmp.Or(o.output.validate(s), o.guestOptions.validate(s))
}

type generateOptions struct {
	Package string `key:"package"`
	Output  string `key:"output" short:"o"`
}

func (o *generateOptions) validate(s *config.Settings) error {
	if o.Output == "" {
		return fmt.Errorf("%s is empty", s.Name("output"))
	}
	return nil
}

func adaptGenerateFlags(flags *pflag.FlagSet) { flags.Lookup("output").Usage = usage["directory"] }

type dotsRecordOptions struct {
	guestOptions
	endOptions
}

func (o *dotsRecordOptions) validate(s *config.Settings) error {
	return cmp.Or(o.endOptions.validate(s), o.guestOptions.validate(s))
}

type replayOptions struct {
	guestOptions
	Speed speed `key:"speed"`
}

// speed is the factor of a recording's pace; infinite: without pauses.
type speed float64

// UnmarshalText parses a positive number, or max.
func (s *speed) UnmarshalText(text []byte) error {
	if string(text) == "max" {
		*s = speed(math.Inf(1))
		return nil
	}
	factor, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(factor >= 0.001 && factor <= 1e6) {
		return errors.New("it is neither max nor a number between 0.001 and 1000000")
	}
	*s = speed(factor)
	return nil
}

func (s speed) MarshalText() ([]byte, error) {
	if math.IsInf(float64(s), 1) {
		return []byte("max"), nil
	}
	return strconv.AppendFloat(nil, float64(s), 'g', -1, 64), nil
}

func (*speed) Type() string { return "factor" }

// objects are the argument, or, if that is "-", the lines of standard input.
func objects(argument string, stdin io.Reader) dotstool.Objects {
	if argument == "-" {
		return dotstool.Lines(stdin)
	}
	return dotstool.One(argument)
}
