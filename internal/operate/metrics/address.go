package metrics

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// CheckAddress returns an error unless address is empty or Open accepts it, without resolving
// names. Names of ports are refused: they depend on /etc/services, which an image may not have. The
// text of an error continues a sentence that begins with the address.
func CheckAddress(address string) error {
	if address == "" {
		return nil
	}
	if _, err := strconv.ParseUint(address, 10, 64); err == nil {
		return fmt.Errorf("is a port without host: 127.0.0.1:%[1]s is this host only, :%[1]s every interface", address)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		if ip := net.ParseIP(address); ip != nil {
			return fmt.Errorf("has no port: %s, perhaps", net.JoinHostPort(address, "9464"))
		}
		return errors.New("is not host:port, as in 127.0.0.1:9464, [::1]:9464 or :9464")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("has no port between 0 (any that is free) and 65535")
	}
	return nil
}
