package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// maxChunkLine bounds the line that begins a chunk, and the trailers.
	maxChunkLine = 1024
)

var (
	errChunk = errors.New("a chunk of the body is malformed")
)

// BodyError is the reason, for the client, why a body is rejected.
type BodyError struct{ Text string }

func (e *BodyError) Error() string { return e.Text }

// bodyReader reads the body of the request that its connection serves: a known length, or chunks.
type bodyReader struct {
	c       *conn
	left    int64 // of the body, or of the chunk
	chunked bool
	chunks  int
	expects bool  // the client waits for 100 Continue
	err     error // io.EOF at the end; others end the connection too
}

// begin is called for each request.
func (b *bodyReader) begin(length int64) {
	b.left, b.chunked, b.chunks, b.err = length, length < 0, 0, nil
	if length == 0 {
		b.err = io.EOF
	}
	if b.chunked {
		b.left = 0
	}
}

// Read fills p from the connection's buffer or, if p is large, straight from the
// socket.
func (b *bodyReader) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if b.expects {
		b.expects = false
		if err := b.c.sendContinue(); err != nil {
			b.err = err
			return 0, err
		}
	}
	if b.chunked && b.left == 0 {
		if b.err = b.nextChunk(); b.err != nil {
			return 0, b.err
		}
	}
	n, err := b.c.read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.err = io.ErrUnexpectedEOF
	case err != nil:
		b.err = err
	case b.left > 0:
	case b.chunked:
		b.err = b.endChunk()
	default:
		b.err = io.EOF
	}
	if b.ended() {
		return n, nil // the end comes with the next call
	}
	return n, b.err
}

// nextChunk reads the line that begins a chunk, or the end of the body.
func (b *bodyReader) nextChunk() error {
	line, err := b.c.readLine(maxChunkLine)
	if err != nil {
		return err
	}
	n, err := parseChunkLine(line)
	if err != nil {
		return err
	}
	if n == 0 {
		return b.readTrailers()
	}
	// Each chunk costs work that its bytes may not be worth.
	if most := b.c.server.cfg.MaxChunks; b.chunks >= most {
		return &BodyError{fmt.Sprintf("Chunked request body exceeds maximum of %d non-empty chunks. Send fewer or larger HTTP chunks.", most)}
	}
	b.chunks++
	b.left = n
	return nil
}

// parseChunkLine reads a chunk's size, which only extensions may follow. Extensions are ignored,
// but a control character in them may end the line for another reader.
func parseChunkLine(line []byte) (int64, error) {
	digits, n := 0, int64(0)
	for ; digits < len(line); digits++ {
		d := line[digits]
		switch {
		case isDigit(d):
			d -= '0'
		case 'a' <= lower(d) && lower(d) <= 'f':
			d = lower(d) - 'a' + 10
		default:
			d = 16
		}
		if d == 16 {
			break
		}
		n = n<<4 | int64(d)
	}
	if digits == 0 || digits > 15 {
		return 0, errChunk
	}
	if extensions := bytes.TrimLeft(line[digits:], " \t"); digits < len(line) && !bytes.HasPrefix(extensions, []byte(";")) ||
		control(string(extensions)) >= 0 { // bound: maxChunkLine
		return 0, errChunk
	}
	return n, nil
}

func (b *bodyReader) endChunk() error {
	line, err := b.c.readLine(maxChunkLine)
	if err == nil && len(line) > 0 {
		err = errChunk
	}
	return err
}

// readTrailers reads and discards trailers.
func (b *bodyReader) readTrailers() error {
	for left := maxChunkLine; left > 0; {
		line, err := b.c.readLine(left)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return io.EOF
		}
		if _, err := parseField(string(line)); err != nil { // bound: maxChunkLine
			return errChunk
		}
		left -= len(line) + 2
	}
	return errChunk
}

// ended reports whether the body has been read to its end, so that the next
// request can follow.
func (b *bodyReader) ended() bool { return errors.Is(b.err, io.EOF) }

// broken reports whether nothing more can be read.
func (b *bodyReader) broken() bool { return b.err != nil && !b.ended() }

// discard reads and discards the rest of the body, up to limit bytes. It reports whether another
// request can follow.
func (b *bodyReader) discard(limit int64) bool {
	if b.ended() {
		return true
	}
	if b.expects || b.broken() || b.left > limit {
		return false
	}
	n, _ := io.CopyN(io.Discard, b, limit)
	return n < limit && b.ended()
}
