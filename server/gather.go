package server

import (
	"errors"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
)

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
func (h *HTTP) gather(b *requestBody, c *memory.Charge, kind memory.Kind, limit int64, announced bool) ([]byte, infer.Memory, error) {
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
		case errors.Is(err, ErrUnproven):
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
	h    *HTTP
	body *requestBody
	data []byte // the memory; data[:got] has been read
	got  int
	room Filling // nil while data lies on the heap
}

// fill reads until data is full, or the body has ended: then more is false.
func (g *gathering) fill() (more bool, err error) {
	for g.got < len(g.data) {
		to := len(g.data)
		if g.room != nil {
			to = g.step(to)
			if err := g.room.Grow(to); err != nil {
				return false, Refusal(g.h.account, to, err)
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
		return Refusal(g.h.account, int(min(limit, 2*size)), err)
	}
	return nil
}

// move moves what has been read to a block of n bytes.
func (g *gathering) move(n int) error {
	room, err := g.h.open(n, g.got)
	if err != nil {
		if errors.Is(err, ErrUnproven) {
			return err
		}
		return Refusal(g.h.account, n, err)
	}
	if g.got > 0 {
		if err := room.Grow(g.got); err != nil {
			room.Release()
			return Refusal(g.h.account, n, err)
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
