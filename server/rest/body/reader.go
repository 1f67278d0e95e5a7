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
	// Left is how many bytes are still to come, -1 if only the body's end will tell:
	// it is chunked or compressed.
	Left int64
	// Got counts the bytes that have been read.
	Got int64
}

// NewReader returns a Reader of src, which has so many bytes; -1 if only its end will
// tell.
func NewReader(src io.Reader, length int64) Reader { return Reader{src: src, Left: length} }

// Source returns what the body is read from.
func (b *Reader) Source() io.Reader { return b.src }

// ReadFull fills p. Where the body ends before that, n is less and err is nil.
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

// readGrowing reads up to limit bytes onto the heap, and charges the memory as it
// grows, so that a length which a client only claims takes none.
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

// AtEnd reports whether nothing is left. It finds the end of a body whose length
// is not known, so that the connection can take the next request.
func (b *Reader) AtEnd() (bool, error) {
	if b.Left >= 0 {
		return b.Left == 0, nil
	}
	var one [1]byte
	n, err := b.ReadFull(one[:])
	return n == 0 && err == nil, err
}

// Refuse says why a body could not be read to its end.
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
