package server

import (
	"errors"
	"io"
	"os"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server/http1"
)

// requestBody reads a request's body in order.
type requestBody struct {
	src io.Reader
	// left is what is still to come, -1 if only the body's end will tell: it is
	// chunked or compressed.
	left int64
	// got counts what has been read.
	got int64
}

// readFull fills p. Where the body ends before that, n is less and err is nil.
func (b *requestBody) readFull(p []byte) (n int, err error) {
	if b.left >= 0 && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err = io.ReadFull(b.src, p)
	b.got += int64(n)
	if b.left >= 0 {
		b.left -= int64(n)
		if err != nil {
			return n, errBody(err)
		}
		return n, nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, nil
	}
	if err != nil {
		err = errBody(err)
	}
	return n, err
}

// readGrowing reads up to limit bytes onto the heap, and charges the memory as it
// grows, so that a length which a client only claims takes none.
func (b *requestBody) readGrowing(c *memory.Charge, kind memory.Kind, limit int64) ([]byte, error) {
	if b.left >= 0 {
		limit = min(limit, b.left)
	}
	size := min(limit, gatherStep)
	if err := c.Take(kind, size); err != nil {
		return nil, err
	}
	buf := make([]byte, size)
	for from := 0; ; {
		n, err := b.readFull(buf[from:])
		from += n
		if err != nil {
			return nil, err
		}
		if from < len(buf) || int64(len(buf)) == limit || b.left == 0 {
			return buf[:from], nil
		}
		before, size := int64(len(buf)), min(limit, 2*int64(len(buf)))
		if err := c.Take(kind, size); err != nil {
			return nil, err
		}
		larger := make([]byte, size)
		copy(larger, buf)
		buf = larger
		c.Give(kind, before)
	}
}

// atEnd reports whether nothing is left. It finds the end of a body whose length
// is not known, so that net/http knows it too.
func (b *requestBody) atEnd() (bool, error) {
	if b.left >= 0 {
		return b.left == 0, nil
	}
	var one [1]byte
	n, err := b.readFull(one[:])
	return n == 0 && err == nil, err
}

// errBody says why a body could not be read to its end.
func errBody(err error) error {
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

// withBody calls use with the whole body of a request that is JSON, nil if empty,
// and with the charge of its bytes. Nothing may keep a part of it.
func (h *HTTP) withBody(r *http1.Request, use func(body []byte, c *memory.Charge) error) error {
	c := memory.Charge{Account: h.account}
	defer c.Settle()
	b := requestBody{src: r.Body(), left: r.Length}
	if err := h.checkJSONLength(b.left); err != nil {
		return err
	}
	limit := h.cfg.MaxInputBytes + 1
	if b.left >= 0 {
		limit = b.left
	}
	body, room, err := h.gather(&b, &c, memory.JSON, limit, b.left > gatherStep)
	if room != nil {
		defer room.Release()
	}
	if err == nil {
		err = h.checkJSONLength(int64(len(body)))
	}
	if err != nil {
		return err
	}
	return use(body, &c)
}

// checkJSONLength refuses a JSON text of more than the limit.
func (h *HTTP) checkJSONLength(n int64) error {
	if limit := h.cfg.MaxInputBytes; n > limit {
		return infer.Errorf(infer.InvalidArg,
			"request JSON size of %d bytes exceeds the maximum allowed input size of %d bytes. Use --http-max-input-size to increase the limit.", n, limit)
	}
	return nil
}
