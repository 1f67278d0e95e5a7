package grpc

import (
	"fmt"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/nereid-serving/nereid/server/certificates"
	"github.com/nereid-serving/nereid/server/grpc/message"
)

// headerSlack is how many times MaxHeaderBytes the library reads. A call with more metadata than
// MaxHeaderBytes fails alone; the library ends the whole connection if its own limit is exceeded.
const headerSlack = 2

// serverOptions returns the library's options for the config.
//
// The windows are static: the library's dynamic estimate sends a ping with nearly every small
// message and starts at 64 KiB.
func (g *FrontEnd) serverOptions() ([]grpc.ServerOption, error) {
	c := &g.cfg
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(message.Codec{}),
		grpc.UnknownServiceHandler(g.handler("", errUnknown, func(grpc.ServerStream) error { return errUnknown })),
		grpc.InTapHandle(g.tap),
		grpc.MaxRecvMsgSize(c.MaxMessageBytes),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(uint32(c.MaxCalls)),
		grpc.MaxHeaderListSize(uint32(min(headerSlack*c.MaxHeaderBytes, math.MaxInt32))),
		grpc.ConnectionTimeout(c.HandshakeTimeout),
		grpc.StaticStreamWindowSize(int32(c.StreamWindowBytes)),
		grpc.StaticConnWindowSize(int32(min(connectionWindow*c.StreamWindowBytes, math.MaxInt32))),
		grpc.ReadBufferSize(bufferBytes),
		grpc.WriteBufferSize(bufferBytes),
		experimental.BufferPool(&g.pool),
		grpc.KeepaliveParams(g.keepalive()),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             c.MinPingInterval,
			PermitWithoutStream: c.PermitPingsWithoutCalls,
		}),
	}
	if c.TLS.Enabled {
		shown, err := certificates.Load(c.TLS.files(), g.log, "h2")
		if err != nil {
			return nil, fmt.Errorf("encrypt gRPC: %w", err)
		}
		options = append(options, grpc.Creds(credentials.NewTLS(shown.Config())))
	}
	return options, nil
}

// keepalive returns the limits for idle and old connections.
func (g *FrontEnd) keepalive() keepalive.ServerParameters {
	return keepalive.ServerParameters{
		Time: g.cfg.KeepaliveTime, Timeout: g.cfg.KeepaliveTimeout,
		MaxConnectionAge: g.cfg.MaxConnectionAge, MaxConnectionAgeGrace: g.cfg.MaxConnectionAgeGrace,
	}
}

// files returns the files that t uses.
func (t *TLS) files() certificates.Files {
	files := certificates.Files{Cert: t.CertFile, Key: t.KeyFile}
	if t.Mutual {
		files.Root = t.RootFile
	}
	return files
}
