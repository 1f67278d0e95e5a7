package server

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"google.golang.org/grpc"
	grpcencoding "google.golang.org/grpc/encoding"
)

// The compression levels of the command line. As in the C library of gRPC a
// level stands for a method, the more thorough the higher: gzip, then deflate.
const (
	grpcCompressionNone   = "none"
	grpcCompressionLow    = "low"
	grpcCompressionMedium = "medium"
	grpcCompressionHigh   = "high"
)

var grpcCompressionLevels = []string{grpcCompressionNone, grpcCompressionLow, grpcCompressionMedium, grpcCompressionHigh}

// The library keeps its compressors in one table for the whole process, which
// it wants filled before anything runs.
func init() {
	grpcencoding.RegisterCompressor(&grpcCompressor{
		name:   "gzip",
		writer: func() grpcResetWriter { return gzip.NewWriter(io.Discard) },
		reader: func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	})
	grpcencoding.RegisterCompressor(&grpcCompressor{
		name:   "deflate",
		writer: func() grpcResetWriter { return zlib.NewWriter(io.Discard) },
		reader: func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) },
	})
}

// grpcCompressor is one of gRPC's methods of compression.
type grpcCompressor struct {
	name    string
	writer  func() grpcResetWriter
	reader  func(io.Reader) (io.Reader, error)
	writers sync.Pool // of *grpcCompressWriter
}

type grpcResetWriter interface {
	io.WriteCloser
	Reset(io.Writer)
}

func (c *grpcCompressor) Name() string { return c.name }

func (c *grpcCompressor) Compress(w io.Writer) (io.WriteCloser, error) {
	z, ok := c.writers.Get().(*grpcCompressWriter)
	if !ok {
		z = &grpcCompressWriter{grpcResetWriter: c.writer(), home: &c.writers}
	}
	z.Reset(w)
	return z, nil
}

func (c *grpcCompressor) Decompress(r io.Reader) (io.Reader, error) { return c.reader(r) }

// grpcCompressWriter goes back to its pool when it is closed.
type grpcCompressWriter struct {
	grpcResetWriter
	home *sync.Pool
}

func (w *grpcCompressWriter) Close() error {
	defer w.home.Put(w)
	return w.grpcResetWriter.Close()
}

// grpcCompression chooses how the answers of one call are compressed. Without
// it the library would answer in the method of the request.
func grpcCompression(ctx context.Context, level, received string) error {
	if level == grpcCompressionNone {
		if received == "" || received == grpcencoding.Identity {
			return nil
		}
		return grpc.SetSendCompressor(ctx, grpcencoding.Identity)
	}
	accepted, err := grpc.ClientSupportedCompressors(ctx)
	if err != nil {
		return err
	}
	methods := slices.DeleteFunc([]string{"gzip", "deflate"}, func(name string) bool {
		return !slices.Contains(accepted, name)
	})
	if len(methods) == 0 {
		return grpc.SetSendCompressor(ctx, grpcencoding.Identity)
	}
	switch level {
	case grpcCompressionLow:
		return grpc.SetSendCompressor(ctx, methods[0])
	case grpcCompressionMedium:
		return grpc.SetSendCompressor(ctx, methods[len(methods)/2])
	}
	return grpc.SetSendCompressor(ctx, methods[len(methods)-1])
}
