package body

import (
	"errors"
	"io"
	"os"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
)

// Reader reads a request's body in order.
type Reader struct {
	src io.Reader
	// Left is the number of remaining bytes, or -1 if it is unknown: the body is chunked or
	// compressed.
	Left int64
	// Got counts the received bytes.
	Got int64
}

// NewReader returns a Reader of src, which has length bytes, or -1 if the length is unknown.
func NewReader(src io.Reader, length int64) Reader { return Reader{src: src, Left: length} }

// Source returns the underlying reader.
func (b *Reader) Source() io.Reader { return b.src }

// ReadFull fills p. At the end of the body n is less and err is nil.
func (b *Reader) ReadFull(p []byte) (n int, err error) {
	if b.Left >= 0 && int64(len(p)) > b.Left {
		p = p[:b.Left]
	}
	n, err = io.ReadFull(b.src, p)
	b.Got += int64(n)
	if b.Left >= 0 {
		b.Left -= int64(n)
		if err != nil {
			return n, Refuse(err)
		}
		return n, nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, nil
	}
	if err != nil {
		err = Refuse(err)
	}
	return n, err
}

// readGrowing reads up to limit bytes onto the heap. It charges the memory as it grows, so that an
// announced length alone takes none.
func (b *Reader) readGrowing(c *budget.Charge, kind budget.Kind, limit int64) ([]byte, error) {
	if b.Left >= 0 {
		limit = min(limit, b.Left)
	}
	size := min(limit, FirstStep)
	if err := c.Take(kind, size); err != nil {
		return nil, err
	}
	buf := make([]byte, size) // bound: charged
	for from := 0; ; {
		n, err := b.ReadFull(buf[from:])
		from += n
		if err != nil {
			return nil, err
		}
		if from < len(buf) || int64(len(buf)) == limit || b.Left == 0 {
			return buf[:from], nil
		}
		before, size := int64(len(buf)), min(limit, 2*int64(len(buf)))
		if err := c.Take(kind, size); err != nil {
			return nil, err
		}
		larger := make([]byte, size) // bound: charged
		copy(larger, buf)
		buf = larger
		c.Give(kind, before)
	}
}

// AtEnd reports whether the body has ended. It finds the end of a body of unknown length, so that
// the connection can take the next request.
func (b *Reader) AtEnd() (bool, error) {
	if b.Left >= 0 {
		return b.Left == 0, nil
	}
	var one [1]byte
	n, err := b.ReadFull(one[:])
	return n == 0 && err == nil, err
}

// Refuse returns the error of a body that could not be read to its end.
func Refuse(err error) error {
	var refused *http1.BodyError
	switch {
	case errors.As(err, &refused):
		return infer.Errorf(infer.InvalidArg, "%s", refused.Text)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return infer.Errorf(infer.InvalidArg, "request body came too slowly")
	default:
		return infer.Errorf(infer.InvalidArg, "request body ends early or is malformed")
	}
}
