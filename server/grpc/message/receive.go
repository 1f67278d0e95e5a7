package message

import (
	"encoding/binary"
	"io"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcencoding "google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/panics"
)

// transport has the methods of the library's stream beyond its public interface. They read a
// message in pieces as it arrives, so that most of it is never held twice.
type transport interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
}

var errNoMessage = status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
var errTwoMessages = status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")

// ReceiverConfig is the configuration of a front end's receivers.
type ReceiverConfig struct {
	// MaxBytes bounds a message, before and after decompression.
	MaxBytes int
	// Timeout is the time for the next 128 KiB of a message that has begun. After that the
	// connection is closed.
	Timeout time.Duration
	Pool    mem.BufferPool
	Log     zerolog.Logger
}

// Receiver reads the messages of one stream.
type Receiver struct {
	stream    grpc.ServerStream
	transport transport // nil if the library's stream is not as expected
	cfg       *ReceiverConfig
	header    [5]byte
	source    source

	// timer closes the connection of a client that stops within a message.
	conn  io.Closer // nil if unknown
	timer *time.Timer
}

// decompressorBytes is the memory of a decompressor of gzip or deflate.
const decompressorBytes = 64 << 10

// Init prepares r to read the messages of stream. conn is the stream's connection, or nil if it is
// unknown.
func (r *Receiver) Init(cfg *ReceiverConfig, stream grpc.ServerStream, conn io.Closer) {
	r.cfg, r.stream, r.conn = cfg, stream, conn
	r.transport, _ = grpc.ServerTransportStreamFromContext(stream.Context()).(transport)
	if r.transport != nil {
		r.source.read = r.read
	}
}

// read reads the next n bytes of a message and restarts the read timeout.
func (r *Receiver) read(n int) (mem.BufferSlice, error) {
	if r.source.asked += n; r.source.asked > stepBytes {
		r.Watch()
	}
	return r.transport.Read(n)
}

// Watch starts the read timeout; Rest stops it.
func (r *Receiver) Watch() {
	if r.timer != nil {
		r.timer.Reset(r.cfg.Timeout)
	} else if conn := r.conn; conn != nil {
		r.timer = panics.AfterFunc(r.cfg.Log, panics.Connection, r.cfg.Timeout, func() { _ = conn.Close() }, nil)
	}
}

// Rest stops the read timeout.
func (r *Receiver) Rest() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

// Close stops the read timeout and frees unread pieces.
func (r *Receiver) Close() {
	r.Rest()
	r.source.close()
}

// next starts to read a message of at most most bytes, before and after decompression, into
// r.source. It returns io.EOF after the last message.
func (r *Receiver) next(c *budget.Charge, most int) error {
	r.source.charge = c
	if r.transport == nil {
		var got received
		if err := r.stream.RecvMsg(&got); err != nil {
			return err
		}
		r.source.reset(got.buffers.Len(), got.buffers)
		return larger(c, r.source.left, most)
	}
	if err := r.transport.ReadMessageHeader(r.header[:]); err != nil {
		return err
	}
	r.Watch()
	n := int(binary.BigEndian.Uint32(r.header[1:]))
	if err := larger(c, n, most); err != nil {
		return err
	}
	r.source.reset(n, nil)
	switch r.header[0] {
	case 0:
		return nil
	case 1:
		return r.decompress(most)
	}
	return status.Errorf(codes.Internal, "grpc: received unexpected payload format %d", r.header[0])
}

// larger returns an error if n exceeds most. It names the flag if most is the limit of small
// messages.
func larger(c *budget.Charge, n, most int) error {
	if n <= most {
		return nil
	}
	if int64(most) == c.Limits().SmallBody {
		return status.Errorf(codes.ResourceExhausted,
			"Received message larger than max (%d vs. %d). Use --client-max-small-body-size to increase the limit.", n, most)
	}
	return status.Errorf(codes.ResourceExhausted, "Received message larger than max (%d vs. %d)", n, most)
}

// SkipRest skips the rest of the message.
func (r *Receiver) SkipRest() error {
	defer r.source.close()
	r.source.refund()
	r.source.charge = nil
	return r.source.skip(r.source.left)
}

// last checks that no further message follows.
func (r *Receiver) last() error {
	if r.transport == nil {
		return nil // the library has checked
	}
	switch err := r.transport.ReadMessageHeader(r.header[:]); err {
	case io.EOF:
		return nil
	case nil:
		return errTwoMessages
	default:
		return err
	}
}

// Bounds limits a unary message.
type Bounds struct {
	Bytes   int // of the message, before and after decompression
	Entries int // of the maps of one message
}

// One reads the only message of a unary RPC into v. plan is the plan of v's type.
func (r *Receiver) One(v proto.Message, plan *Plan, most Bounds, c *budget.Charge) error {
	if err := r.next(c, min(most.Bytes, r.cfg.MaxBytes)); err != nil {
		if err == io.EOF {
			err = errNoMessage
		}
		return err
	}
	b, _, err := r.source.take(r.source.left)
	if err != nil {
		return err
	}
	if err := plan.charge(c, b, most.Entries); err != nil {
		return err
	}
	if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, v) != nil { // bound: charged by the plan
		return errUnparsable
	}
	return r.last()
}

// decompress replaces the message in the source by its decompressed form, which is charged as it
// grows.
func (r *Receiver) decompress(most int) error {
	name := r.transport.RecvCompress()
	compressor := grpcencoding.GetCompressor(name)
	if compressor == nil {
		return status.Errorf(codes.Internal, "grpc: message is compressed, but the encoding is '%s'", name)
	}
	bad := func() error {
		return status.Errorf(codes.Internal, "Unexpected error decompressing data for algorithm '%s'", name)
	}
	if err := r.source.charge.Take(budget.Decompression, decompressorBytes); err != nil {
		return AsOutOfMemory(err)
	}
	defer r.source.charge.Give(budget.Decompression, decompressorBytes)
	in := sourceReader{source: &r.source}
	expanded, err := compressor.Decompress(&in)
	if err != nil {
		return in.or(bad())
	}
	if c, ok := expanded.(io.Closer); ok {
		defer c.Close()
	}
	var out mem.BufferSlice
	total := 0
	for end := false; !end; {
		const step = 32 << 10
		if err := r.source.charge.Take(budget.Decompression, step); err != nil {
			out.Free()
			return AsOutOfMemory(err)
		}
		b := r.cfg.Pool.Get(step)
		n := 0
		for n < step && !end {
			var k int
			k, err = expanded.Read((*b)[n:])
			n, end = n+k, err != nil
		}
		*b = (*b)[:n]
		out = append(out, mem.NewBuffer(b, r.cfg.Pool)) // bound: charged
		total += n
		if err := larger(r.source.charge, total, most); err != nil {
			out.Free()
			return err
		}
	}
	if err != io.EOF {
		out.Free()
		return in.or(bad())
	}
	if err := r.source.skip(r.source.left); err != nil {
		out.Free()
		return err
	}
	r.source.reset(total, out)
	return nil
}

// sourceReader is a source as an io.Reader.
type sourceReader struct {
	source *source
	err    error // why it ended early
}

// or returns the reader's own error, or else err.
func (r *sourceReader) or(err error) error {
	if r.err != nil {
		return r.err
	}
	return err
}

func (r *sourceReader) Read(p []byte) (int, error) {
	if r.source.left == 0 {
		return 0, io.EOF
	}
	if err := r.source.fill(); err != nil {
		r.err = err
		return 0, err
	}
	n := copy(p, r.source.cur)
	r.source.advance(n)
	return n, nil
}

// Compression returns the client's compression method, or "".
func (r *Receiver) Compression() string {
	if r.transport == nil {
		return ""
	}
	return r.transport.RecvCompress()
}
