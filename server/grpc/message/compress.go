package message

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

// The compression levels of the command line. As in gRPC's C library a level selects a method: gzip
// for lower levels, deflate for higher ones.
const (
	CompressionNone   = "none"
	compressionLow    = "low"
	compressionMedium = "medium"
	compressionHigh   = "high"
)

// CompressionLevels lists them.
var CompressionLevels = []string{CompressionNone, compressionLow, compressionMedium, compressionHigh}

// The library has one table of compressors for the process, which must be filled during
// initialization.
func init() {
	grpcencoding.RegisterCompressor(&compressor{
		name:   "gzip",
		writer: func() resetWriter { return gzip.NewWriter(io.Discard) },
		reader: func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	})
	grpcencoding.RegisterCompressor(&compressor{
		name:   "deflate",
		writer: func() resetWriter { return zlib.NewWriter(io.Discard) },
		reader: func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) },
	})
}

// compressor is one of gRPC's methods of compression.
type compressor struct {
	name    string
	writer  func() resetWriter
	reader  func(io.Reader) (io.Reader, error)
	writers sync.Pool // of *compressWriter
}

type resetWriter interface {
	io.WriteCloser
	Reset(io.Writer)
}

func (c *compressor) Name() string { return c.name }

func (c *compressor) Compress(w io.Writer) (io.WriteCloser, error) {
	z, ok := c.writers.Get().(*compressWriter)
	if !ok {
		z = &compressWriter{resetWriter: c.writer(), home: &c.writers}
	}
	z.Reset(w)
	return z, nil
}

func (c *compressor) Decompress(r io.Reader) (io.Reader, error) { return c.reader(r) }

// compressWriter goes back to its pool when it is closed.
type compressWriter struct {
	resetWriter
	home *sync.Pool
}

func (w *compressWriter) Close() error {
	defer w.home.Put(w)
	return w.resetWriter.Close()
}

// ChooseCompression sets the compression of an RPC's replies. The library's default is the method
// of the request.
func ChooseCompression(ctx context.Context, level, received string) error {
	if level == CompressionNone {
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
	case compressionLow:
		return grpc.SetSendCompressor(ctx, methods[0])
	case compressionMedium:
		return grpc.SetSendCompressor(ctx, methods[len(methods)/2])
	}
	return grpc.SetSendCompressor(ctx, methods[len(methods)-1])
}
