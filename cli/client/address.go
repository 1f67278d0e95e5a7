package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nereid-serving/nereid/server/connections"
)

// AddressHelp is the part of a flag's help that describes addresses.
const AddressHelp = "host:port, unix:<path>, or a URL; begin it with https:// for TLS"

// Schemes of addresses, besides http.
const (
	secure = "https"
	socket = "unix"
)

// Address is the address of an endpoint, also of gRPC. A Unix socket has the scheme unix, with its
// path in Opaque.
type Address struct{ url.URL }

// ParseAddress parses an address as AddressHelp describes it.
func ParseAddress(text string) (*Address, error) {
	if path, ok := connections.UnixPath(text); ok && path != "" {
		return &Address{url.URL{Scheme: socket, Opaque: path}}, nil
	}
	full, bare := text, !strings.Contains(text, "://")
	if bare {
		full = "http://" + text
	}
	u, err := url.Parse(full)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != secure || u.RawQuery != "" || bare && u.Port() == "" {
		return nil, fmt.Errorf("%q, want host:port, unix:<path>, or a URL such as https://host:8443", text)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return &Address{*u}, nil
}

// String returns the address without http://.
func (a *Address) String() string { return strings.TrimPrefix(a.URL.String(), "http://") }

// base returns the address as the beginning of a URL for package http.
func (a *Address) base() string {
	if a.Scheme == socket {
		return "http://localhost"
	}
	return a.URL.String()
}

// HostHeader returns the Host header of requests.
func (a *Address) HostHeader() string {
	if a.Scheme == socket {
		return "localhost"
	}
	return a.Host
}

// hostPort returns the address for package net.
func (a *Address) hostPort() string {
	port := a.Port()
	switch {
	case port != "":
	case a.Scheme == secure:
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(a.Hostname(), port)
}

// tls returns settings that verify the certificate with the system's roots, or with those in
// SSL_CERT_FILE.
func (a *Address) tls() *tls.Config {
	return &tls.Config{ServerName: a.Hostname(), MinVersion: tls.VersionTLS12}
}

// Dial connects, with TLS if the address has it.
func (a *Address) Dial(ctx context.Context) (net.Conn, error) {
	connection, err := a.dial(ctx, "tcp", a.hostPort())
	if err != nil || a.Scheme != secure {
		return connection, err
	}
	encrypted := tls.Client(connection, a.tls())
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = connection.Close()
		return nil, err
	}
	return encrypted, nil
}

// dial connects without TLS. It does not resolve localhost: an image from scratch has no
// /etc/hosts, and a health check should not wait for a name server.
func (a *Address) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	if a.Scheme == socket {
		return dialer.DialContext(ctx, socket, a.Opaque)
	}
	port, local := strings.CutPrefix(address, "localhost:")
	if !local {
		return dialer.DialContext(ctx, network, address)
	}
	connection, err := dialer.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		if six, err6 := dialer.DialContext(ctx, network, net.JoinHostPort("::1", port)); err6 == nil {
			return six, nil
		}
	}
	return connection, err
}

// GRPC returns a connection for replies of at most most bytes. It connects with the first call.
func (a *Address) GRPC(most int, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	target, transport := "passthrough:///"+a.hostPort(), insecure.NewCredentials()
	switch a.Scheme {
	case secure:
		transport = credentials.NewTLS(a.tls())
	case socket:
		target = "unix:" + a.Opaque
	}
	return grpc.NewClient(target, append(options, grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most), grpc.MaxCallSendMsgSize(math.MaxInt32)))...)
}
