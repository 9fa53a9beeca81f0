package connlimit

import (
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Peer is who is at the other end of a connection, as far as the kernel vouches for it.
type Peer string

const (
	// loopback is every process of this network namespace: each of them may use any address of
	// 127.0.0.0/8.
	loopback Peer = "loopback"
	// unknown are connections of which the kernel does not tell.
	unknown Peer = "unknown"
)

// ipv6Bits is the part of an IPv6 address that a network assigns: whoever has one address has the
// others of its /64.
const ipv6Bits = 64

// PeerOf returns the user at the other end of a Unix socket, or the address of another connection.
func PeerOf(c net.Conn) Peer {
	if u, ok := c.(*net.UnixConn); ok {
		return userOf(u)
	}
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return unknown
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	switch {
	case addr.IsLoopback():
		return loopback
	case addr.Is6():
		return Peer(netip.PrefixFrom(addr, ipv6Bits).Masked().String())
	default:
		return Peer(addr.String())
	}
}

// userOf returns the user that connected, even if another has the socket by now.
func userOf(c *net.UnixConn) Peer {
	raw, err := c.SyscallConn()
	if err != nil {
		return unknown
	}
	peer := unknown
	_ = raw.Control(func(fd uintptr) { // without the descriptor, the connection is closed already
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			peer = Peer("uid " + strconv.FormatUint(uint64(cred.Uid), 10))
		}
	})
	return peer
}
