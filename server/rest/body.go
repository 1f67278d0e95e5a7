package rest

import (
	"errors"
	"io"
	"os"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server"
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
// is not known, so that the connection can take the next request.
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
func (h *FrontEnd) withBody(r *http1.Request, use func(body []byte, c *memory.Charge) error) error {
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
func (h *FrontEnd) checkJSONLength(n int64) error {
	if limit := h.cfg.MaxInputBytes; n > limit {
		return infer.Errorf(infer.InvalidArg,
			"request JSON size of %d bytes exceeds the maximum allowed input size of %d bytes. Use --http-max-input-size to increase the limit.", n, limit)
	}
	return nil
}

const (
	// gatherStep is the first step in which a body is read whose bytes may not come.
	gatherStep = 64 << 10
	// plentyStep is the first step while the pool has less than a plentyPart of the
	// account.
	plentyStep = 1 << 20
	plentyPart = 8
	// gatherGrowth is how many times as large the next block is when the one
	// before is full: what is copied then is an eighth of it.
	gatherGrowth = 8
)

// gather reads up to limit bytes of a body into memory that is taken and charged
// as they come. announced tells that the client has said there will be so many:
// then they lie in the pool. Else, if they are few, on the heap as that kind.
func (h *FrontEnd) gather(b *requestBody, c *memory.Charge, kind memory.Kind, limit int64, announced bool) ([]byte, infer.Memory, error) {
	if h.open == nil {
		data, err := b.readGrowing(c, kind, limit)
		return data, nil, err
	}
	g := gathering{h: h, body: b}
	whole := false
	defer func() { // after a panic too
		if !whole {
			g.release()
		}
	}()
	if announced {
		switch err := g.move(int(limit)); {
		case errors.Is(err, server.ErrUnproven):
		case err != nil:
			return nil, nil, err
		}
	}
	if g.room == nil {
		size := min(limit, gatherStep)
		if err := c.Take(kind, size); err != nil {
			return nil, nil, err
		}
		g.data = make([]byte, size)
	}
	for {
		more, err := g.fill()
		if err == nil && more && int64(len(g.data)) < limit {
			heap := g.room == nil
			if err = g.larger(limit); err == nil {
				if heap {
					c.Give(kind, gatherStep)
				}
				continue
			}
		}
		if err != nil {
			return nil, nil, err
		}
		whole = true
		if g.room == nil {
			return g.data[:g.got], nil, nil
		}
		return g.data[:g.got], g.room, nil
	}
}

// gathering is a body that is being read.
type gathering struct {
	h    *FrontEnd
	body *requestBody
	data []byte // the memory; data[:got] has been read
	got  int
	room server.Filling // nil while data lies on the heap
}

// fill reads until data is full, or the body has ended: then more is false.
func (g *gathering) fill() (more bool, err error) {
	for g.got < len(g.data) {
		to := len(g.data)
		if g.room != nil {
			to = g.step(to)
			if err := g.room.Grow(to); err != nil {
				return false, server.Refusal(g.h.account, to, err)
			}
		}
		n, err := g.body.readFull(g.data[g.got:to])
		g.got += n
		if err != nil || g.got < to {
			return false, err
		}
	}
	return true, nil
}

// step returns how far the block becomes real next, of all its bytes: few steps while
// there is plenty of memory, as each costs a read of the socket or two, and no more
// than twice of what has come where there is not.
func (g *gathering) step(all int) int {
	if account := g.h.account; account.Used(memory.Blocks) < account.Limit()/plentyPart {
		return min(all, max(4*g.got, plentyStep))
	}
	return min(all, max(2*g.got, gatherStep))
}

// nextSize is that of the block after one of size bytes: an eighth of the limit
// comes before the limit itself, for both blocks are there for a moment.
func nextSize(size, limit int64) int64 {
	eighth := (limit + gatherGrowth - 1) / gatherGrowth
	switch next := gatherGrowth * size; {
	case size >= eighth:
		return limit
	case next > eighth:
		return eighth
	default:
		return next
	}
}

// larger moves to a larger block.
func (g *gathering) larger(limit int64) error {
	size := int64(len(g.data))
	err := g.move(int(nextSize(size, limit)))
	if err != nil && 2*size < limit {
		err = g.move(int(2 * size))
	}
	if err != nil {
		return server.Refusal(g.h.account, int(min(limit, 2*size)), err)
	}
	return nil
}

// move moves what has been read to a block of n bytes.
func (g *gathering) move(n int) error {
	room, err := g.h.open(n, g.got)
	if err != nil {
		if errors.Is(err, server.ErrUnproven) {
			return err
		}
		return server.Refusal(g.h.account, n, err)
	}
	if g.got > 0 {
		if err := room.Grow(g.got); err != nil {
			room.Release()
			return server.Refusal(g.h.account, n, err)
		}
		copy(room.Bytes(), g.data[:g.got])
	}
	g.release()
	g.room, g.data = room, room.Bytes()
	return nil
}

func (g *gathering) release() {
	if g.room != nil {
		g.room.Release()
		g.room = nil
	}
}
