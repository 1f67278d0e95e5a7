package grpc

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/nereid-serving/nereid/server/grpc/message"
)

// serverOptions turns the config into the library's.
//
// The windows are fixed. The library's own estimate sends a ping with nearly
// every small message, and begins with 64 KiB.
func (g *FrontEnd) serverOptions() ([]grpc.ServerOption, error) {
	c := &g.cfg
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(message.Codec{}),
		grpc.UnknownServiceHandler(g.handler("", errUnknown, func(grpc.ServerStream) error { return errUnknown })),
		grpc.MaxRecvMsgSize(c.MaxMessageBytes),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(uint32(c.MaxCalls)),
		grpc.MaxHeaderListSize(uint32(c.MaxHeaderBytes)),
		grpc.ConnectionTimeout(c.HandshakeTimeout),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.ReadBufferSize(bufferBytes),
		grpc.WriteBufferSize(bufferBytes),
		experimental.BufferPool(&g.pool),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:                  c.KeepaliveTime,
			Timeout:               c.KeepaliveTimeout,
			MaxConnectionAge:      c.MaxConnectionAge,
			MaxConnectionAgeGrace: c.MaxConnectionAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             c.MinPingInterval,
			PermitWithoutStream: c.PermitPingsWithoutCalls,
		}),
	}
	if c.TLS.Enabled {
		config, err := c.TLS.config()
		if err != nil {
			return nil, fmt.Errorf("encrypt gRPC: %w", err)
		}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	return options, nil
}

func (t *TLS) config() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if !t.Mutual {
		return config, nil
	}
	pem, err := os.ReadFile(t.RootFile)
	if err != nil {
		return nil, fmt.Errorf("load root certificate: %w", err)
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("load root certificate: no certificate in %s", t.RootFile)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	return config, nil
}
