package body

import (
	"errors"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
)

// Gatherer reads bodies into memory that is charged as their bytes arrive. All requests of a front
// end share one.
type Gatherer struct {
	// Open lends memory for large bodies; nil: they are on the Go heap.
	Open server.Opener
	// Account is charged for memory on the Go heap; the Opener charges for the rest.
	Account *budget.Account
	// MaxBytes bounds the JSON text of a request, a raw input, the JSON data of an input when
	// decoded, and a decompressed body.
	MaxBytes int64
}

// CheckInput rejects an input whose JSON data decode to more than MaxBytes.
func (from *Gatherer) CheckInput(name string, size int64) error {
	if size > from.MaxBytes {
		return infer.Errorf(infer.InvalidArg,
			"JSON input '%s' has a byte_size (%d bytes) that exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.",
			name, size, from.MaxBytes)
	}
	return nil
}

const (
	// FirstStep is the first allocation for a body whose bytes may not come.
	FirstStep = 64 << 10
	// plentyStep is the first allocation while blocks take less than one PlentyPart-th of the
	// account.
	plentyStep = 1 << 20
	// PlentyPart divides the limit of the account: memory is plentiful below that part.
	PlentyPart = 8
	// gatherGrowth is the factor between a full block and the next one, which bounds the copied
	// bytes to an eighth of it.
	gatherGrowth = 8
)

// Gather reads up to limit bytes of a body into memory that is charged as they arrive. announced
// means that the client has announced limit bytes: then they are in the pool. Otherwise few bytes
// are on the heap, charged as that kind. The caller releases the Memory, which is nil for the heap.
// After an error there is nothing to release.
func (from *Gatherer) Gather(b *Reader, c *budget.Charge, kind budget.Kind, limit int64, announced bool) ([]byte, infer.Memory, error) {
	if from.Open == nil {
		data, err := b.readGrowing(c, kind, limit)
		return data, nil, err
	}
	if most := from.Account.Most(budget.Blocks); announced && limit > most {
		return nil, nil, from.Account.Refuse(budget.Blocks, limit)
	}
	g := gathering{from: from, body: b, charge: c}
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
		size := min(limit, FirstStep)
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
					c.Give(kind, FirstStep)
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
	from *Gatherer
	body *Reader
	data []byte // the memory; data[:got] has been read
	got  int
	room server.Filling // nil while data is on the heap
	// held is how much of room is real, and attributed to the holder of charge.
	charge *budget.Charge
	held   int
}

// fill reads until data is full or the body has ended. more is false at the end.
func (g *gathering) fill() (more bool, err error) {
	for g.got < len(g.data) {
		to := len(g.data)
		if g.room != nil {
			to = g.step(to)
			if err := g.room.Grow(to); err != nil {
				return false, server.Refusal(g.from.Account, to, err)
			}
			g.hold(to)
		}
		n, err := g.body.ReadFull(g.data[g.got:to])
		g.got += n
		if err != nil || g.got < to {
			return false, err
		}
	}
	return true, nil
}

// step returns the size up to which the block becomes real next, of all its bytes. While memory is
// plentiful there are few steps, since each costs one or two reads of the socket. Otherwise a step
// at most doubles the received bytes.
func (g *gathering) step(all int) int {
	if account := g.from.Account; account.Used(budget.Blocks) < account.Limit()/PlentyPart {
		return min(all, max(4*g.got, plentyStep))
	}
	return min(all, max(2*g.got, FirstStep))
}

// nextSize returns the size of the block after one of size bytes. An eighth of the limit comes
// before the limit itself, since both blocks exist for a moment.
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
		return server.Refusal(g.from.Account, int(min(limit, 2*size)), err)
	}
	return nil
}

// move moves the received bytes to a block of n bytes.
func (g *gathering) move(n int) error {
	room, err := g.from.Open(n, g.got)
	if err != nil {
		if errors.Is(err, server.ErrUnproven) {
			return err
		}
		return server.Refusal(g.from.Account, n, err)
	}
	if g.got > 0 {
		if err := room.Grow(g.got); err != nil {
			room.Release()
			return server.Refusal(g.from.Account, n, err)
		}
		copy(room.Bytes(), g.data[:g.got])
	}
	g.release()
	g.room, g.data = room, room.Bytes()
	g.hold(g.got)
	return nil
}

// hold attributes the first n bytes of the room to the holder.
func (g *gathering) hold(n int) {
	g.charge.HoldBlocks(int64(n - g.held))
	g.held = n
}

func (g *gathering) release() {
	if g.room != nil {
		g.hold(0)
		g.room.Release()
		g.room = nil
	}
}
