package client

import (
	"fmt"
	"slices"

	"correlator/dots/auth"
	"correlator/dots/system"
)

// protocolHandler returns what handles a type that means something to the client itself, nil for
// others. Those types may be subscribed to like others.
func protocolHandler(name []byte) func(c *Client, instance []byte) error {
	switch string(name) {
	case "DotsMsgHello":
		return onHello
	case "DotsMsgConnectResponse":
		return onResponse
	case "DotsMsgError":
		return onError
	case "DotsCacheInfo":
		return onCacheInfo
	case "DotsEcho":
		return onEcho
	case "EnumDescriptorData":
		return onEnum
	case "StructDescriptorData":
		return onStruct
	}
	return nil
}

// enter changes the state, if it is the one expected.
func (c *Client) enter(expected, next state, what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != expected {
		return fmt.Errorf("%w: unexpected %s", ErrProtocol, what)
	}
	c.state = next
	return nil
}

func onHello(c *Client, instance []byte) error {
	if err := c.enter(waitHello, waitResponse, "DotsMsgHello"); err != nil {
		return err
	}
	var hello system.DotsMsgHello
	if err := decodeMessage(&hello, instance); err != nil {
		return err
	}
	c.capabilities = hello.Capabilities.Value()
	c.serverName = hello.ServerName.Value()
	var connect system.DotsMsgConnect
	connect.ClientName.Set(c.options.Name)
	connect.PreloadCache.Set(!c.options.NoPreload)
	if hello.AuthenticationRequired.Value() {
		if c.options.Secret == "" {
			return ErrSecretNeeded
		}
		cnonce := c.cnonce()
		connect.AuthChallengeResponse.Set(
			auth.Response(c.options.Name, c.options.Secret, hello.AuthChallenge.Value(), cnonce))
		connect.Cnonce.Set(cnonce)
	}
	return c.send(&connect)
}

func onResponse(c *Client, instance []byte) error {
	var response system.DotsMsgConnectResponse
	if err := decodeMessage(&response, instance); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == waitResponse:
		return c.onAccepted(&response)
	case c.state == early && response.PreloadFinished.Value():
		return c.onConnected()
	case c.err != nil:
		return nil // being closed
	}
	return fmt.Errorf("%w: unexpected DotsMsgConnectResponse", ErrProtocol)
}

// onAccepted handles the broker's decision. The caller holds mu.
func (c *Client) onAccepted(response *system.DotsMsgConnectResponse) error {
	if !response.Accepted.Value() {
		return ErrRefused
	}
	id := response.ClientID.Value()
	if id < 2 {
		return fmt.Errorf("%w: client id %d", ErrProtocol, id)
	}
	c.id.Store(id)
	c.state = early
	if c.discover != nil {
		if err := c.joinDescriptors(); err != nil {
			return err
		}
	}
	if err := c.describeAll(c.types); err != nil {
		return err
	}
	for _, s := range c.subs {
		if s.filter != nil && !c.filtersKnown() {
			return ErrUnsupported
		}
		if err := c.join(s); err != nil {
			return err
		}
		s.preloaded = response.Preload.Value()
		if s.filter != nil || !s.preloaded && !s.started.Load() {
			if err := c.startAfterPing(s); err != nil {
				return err
			}
		}
	}
	if !response.Preload.Value() {
		return c.onConnected()
	}
	var finished system.DotsMsgConnect
	finished.PreloadClientFinished.Set(true)
	return c.send(&finished)
}

// onConnected handles the end of the preload. The caller holds mu.
func (c *Client) onConnected() error {
	c.state = connected
	for _, s := range slices.Clone(c.subs) {
		if s.preloaded { // later joins, of handlers, are answered later
			c.setFilled(s)
		}
	}
	var self system.DotsClient
	self.ID.Set(c.id.Load())
	self.Running.Set(true)
	if err := c.send(&self); err != nil {
		return err
	}
	if c.discover != nil {
		if err := c.send(&system.DotsDescriptorRequest{}); err != nil {
			return err
		}
	}
	close(c.ready)
	return nil
}

func onError(c *Client, instance []byte) error {
	var e system.DotsMsgError
	if err := decodeMessage(&e, instance); err != nil {
		return err
	}
	if code := e.ErrorCode.Value(); code != 0 {
		return &BrokerError{Code: code, Text: e.ErrorText.Value()}
	}
	return ErrGoodbye
}

func onEnum(c *Client, instance []byte) error {
	e, err := system.LearnEnum(c.registry, instance)
	if e != nil {
		c.markDescribed(e.Name)
	}
	c.countType(err)
	return nil
}

func onStruct(c *Client, instance []byte) error {
	s, err := system.LearnStruct(c.registry, instance)
	if s != nil {
		c.markDescribed(s.Name)
		c.discovered(s)
	}
	c.countType(err)
	return nil
}
