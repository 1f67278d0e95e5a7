package grpc_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/connections"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/grpc/message"
	"github.com/nereid-serving/nereid/server/servertest"
)

// writeCertificate writes a self-signed certificate for 127.0.0.1 and returns its files.
func writeCertificate(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	at := filepath.Join(t.TempDir(), name)
	testkit.WriteCertificate(t, at+".crt", at+".key")
	return at + ".crt", at + ".key"
}

func TestEncryptionAndClientCertificatesAreWanted(t *testing.T) {
	certFile, keyFile := writeCertificate(t, "server")
	clientCert, clientKey := writeCertificate(t, "client")
	pair, err := tls.LoadX509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.ReadFile(certFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)
	plain := grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots}))
	known := grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}))
	for _, mutual := range []bool{false, true} {
		s := start(t, grpcserver.Config{TLS: grpcserver.TLS{Enabled: true, Mutual: mutual, CertFile: certFile, KeyFile: keyFile, RootFile: clientCert}}, nil)
		if _, err := s.client.ServerLive(rpcContext(t), &kserve.ServerLiveRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("mutual %v, not encrypted: got %v", mutual, err)
		}
		_, client := s.dial(t, plain)
		if _, err := client.ModelInfer(rpcContext(t), int32s("id_int32", 50000)); (err != nil) != mutual {
			t.Errorf("mutual %v, without a certificate: got %v", mutual, err)
		}
		_, client = s.dial(t, known)
		if _, err := client.ModelInfer(rpcContext(t), int32s("id_int32", 50000)); err != nil {
			t.Errorf("mutual %v, with a certificate: got %v", mutual, err)
		}
	}
	for _, files := range []grpcserver.TLS{{CertFile: "none", KeyFile: keyFile}, {CertFile: certFile, KeyFile: clientKey},
		{CertFile: certFile, KeyFile: keyFile, Mutual: true, RootFile: "none"}, {CertFile: certFile, KeyFile: keyFile, Mutual: true, RootFile: keyFile}} {
		files.Enabled = true
		g, err := grpcserver.New(grpcserver.Config{TLS: files}, server.Parts{Core: servertest.NewCore(), Logging: &servertest.Log[server.LogSettings]{}}, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Listen(); err == nil {
			t.Errorf("%+v: got no error", files)
		}
	}
}

// packed is a stats.Handler that counts compressed messages.
type packed struct{ compressed, plain atomic.Int64 }

func (*packed) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*packed) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*packed) HandleConn(context.Context, stats.ConnStats)                       {}
func (p *packed) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok {
		if in.CompressedLength < in.Length/2 {
			p.compressed.Add(1)
		} else {
			p.plain.Add(1)
		}
	}
}

// TestCompressionLevelAppliesToInferences checks that a compression level other than none
// compresses the replies to inferences, whatever the compression of the requests, and no other
// replies.
func TestCompressionLevelAppliesToInferences(t *testing.T) {
	for _, level := range message.CompressionLevels {
		for _, method := range []string{"identity", "gzip", "deflate"} {
			p := &packed{}
			s := start(t, grpcserver.Config{Compression: level}, nil, grpc.WithStatsHandler(p))
			if _, err := s.client.ModelInfer(rpcContext(t), rawRequest("id_uint8", "UINT8", []int64{50000}, make([]byte, 50000)), grpc.UseCompressor(method)); err != nil {
				t.Errorf("level %s, request in %s: %v", level, method, err)
			}
			if got := p.compressed.Load() == 1; got != (level != message.CompressionNone) {
				t.Errorf("level %s, request in %s: answer is compressed: %v", level, method, got)
			}
			if _, err := s.client.ServerMetadata(rpcContext(t), &kserve.ServerMetadataRequest{}, grpc.UseCompressor(method)); err != nil {
				t.Error(err)
			}
			if p.compressed.Load()+p.plain.Load() != 2 || p.plain.Load() < 1 {
				t.Errorf("level %s, request in %s: the metadata is compressed", level, method)
			}
		}
	}
}

// stuckConn is a client's connection that blocks after writing a given number of bytes, until the
// server has closed it.
type stuckConn struct {
	net.Conn
	left   atomic.Int64
	once   sync.Once
	closed chan struct{}
}

func (c *stuckConn) Write(p []byte) (int, error) {
	if c.left.Add(-int64(len(p))) < 0 {
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// Read detects that the server has closed the connection. Otherwise the client would try for 5 s to
// write its GOAWAY.
func (c *stuckConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(func() { close(c.closed) })
	}
	return n, err
}

func (c *stuckConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestReadTimeoutEndsUnfinishedRequests checks that a request that its client does not complete
// fails after ReadTimeout, whether the server reads it whole or in pieces.
func TestReadTimeoutEndsUnfinishedRequests(t *testing.T) {
	for _, size := range []int{10000, 1 << 20} {
		s := start(t, grpcserver.Config{ReadTimeout: 50 * time.Millisecond}, nil)
		_, client := s.dial(t, grpc.WithWriteBufferSize(0), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			c := &stuckConn{Conn: raw, closed: make(chan struct{})}
			c.left.Store(int64(size * 2))
			return c, err
		}))
		if _, err := client.ModelInfer(rpcContext(t), int32s("id_int32", size)); status.Code(err) != codes.Unavailable {
			t.Errorf("a request of %d bytes of which half comes: %v", 4*size, err)
		}
		s.settled(t)
	}
	// A stream may be idle for longer. If a busy machine reads messages too slowly for the shortest
	// timeout, the test retries with a longer one.
	for timeout := time.Millisecond; ; timeout *= 10 {
		err := idleStream(t, timeout)
		if err == nil {
			break
		}
		if timeout >= time.Second {
			t.Fatalf("a stream that was idle for longer than %v: %v", timeout, err)
		}
	}
}

// idleStream keeps a stream idle for longer than the read timeout between two messages.
func idleStream(t *testing.T, timeout time.Duration) error {
	s := start(t, grpcserver.Config{ReadTimeout: timeout}, nil)
	stream := s.open(t, rpcContext(t))
	for i, n := range []int{1, 100} {
		if i > 0 {
			select {
			case <-stream.Context().Done():
			case <-time.After(timeout + 20*time.Millisecond):
			}
		}
		if err := stream.Send(int32s("id_int32", n)); err != nil && err != io.EOF { // Recv returns the reason
			return err
		}
		a, err := stream.Recv()
		if err != nil {
			return err
		}
		if got, want := brief(a), fmt.Sprintf("id_int32/1  true %d", 4*n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	return nil
}

// TestAConnectionWithACallIsNotIdle checks that a connection is not evicted while a call remains on
// it, even if only its status has not been read yet.
func TestAConnectionWithACallIsNotIdle(t *testing.T) {
	s := start(t, grpcserver.Config{}, nil)
	client := s.raw(t)
	client.settled()
	client.read()
	testkit.Eventually(t, servertest.Patience, func() bool { return len(s.Connections()) == 1 })
	conn := s.Connections()[0]
	if err := conn.Take(grpcserver.CallCost); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, servertest.Patience, conn.Waiting)
	if conn.CloseIdle() {
		t.Error("a connection was closed between the headers of a call and its handler")
	}
	conn.Left(grpcserver.CallCost)
	if conn.CloseIdle() {
		t.Error("a connection was closed before the end of a call was written")
	}
	conn.Flushed()
	testkit.Eventually(t, servertest.Patience, conn.CloseIdle)
}

// TestAnEvictedClientKnowsThatItsCallWasNotExecuted checks that a client whose connection is
// evicted while it sends a call either retries by itself or learns that the connection was
// draining.
func TestAnEvictedClientKnowsThatItsCallWasNotExecuted(t *testing.T) {
	soon := grpc.ConnectParams{MinConnectTimeout: servertest.Patience, Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond}}
	s := start(t, grpcserver.Config{MaxConnections: 1, Connections: &connections.Budget{Settle: 1}}, nil,
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(soon))
	answered := 0
	for n := range 500 {
		var other sync.WaitGroup
		other.Go(func() {
			c, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = c.Read(make([]byte, 1)) // until it is rejected, or evicted itself
			_ = c.Close()
		})
		switch _, err := s.client.ModelInfer(rpcContext(t), int32s("id_int32", 2)); {
		case err == nil:
			answered++
		case status.Convert(err).Message() != "the connection is draining": // the library retries only once
			t.Fatalf("call %d: %v", n, err)
		}
		other.Wait()
	}
	if answered == 0 {
		t.Error("no call was answered")
	}
}
