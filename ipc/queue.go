package ipc

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/shm"
)

// producer writes frames into the down ring. Its caller holds the send lock.
type producer struct {
	ring   []byte
	tail   *atomic.Uint64 // ours, shared
	posted *atomic.Uint64 // ours, shared
	head   *atomic.Uint64 // the stub's: untrusted
	life   uint32

	// The true positions are private: the shared ones are for the stub alone.
	published uint64
	reserved  uint64 // end of the frame that is being written
	consumed  uint64 // last head that was believed
}

// padding returns how many bytes stay unused before a frame of need bytes that
// would begin at position, so that it lies in one piece.
func padding(position, need uint64) uint64 {
	if at := position % shm.RingSize; at+need > shm.RingSize {
		return shm.RingSize - at
	}
	return 0
}

// reserve returns room for a frame of size bytes, header included, which lies
// in one piece; nil if the ring is too full. The frame is published by commit.
func (p *producer) reserve(size int) ([]byte, error) {
	need := uint64(Align8(size))
	at := p.published % shm.RingSize
	pad := padding(p.published, need)
	// The stub's word is only read when the ring seems full by what it said before: it
	// lies in a cache line that the stub writes.
	if p.published+pad+need-p.consumed > shm.RingSize {
		head := p.head.Load()
		// Unsigned differences: a head that moved back or ran ahead is too far away.
		if head-p.consumed > p.published-p.consumed || head%8 != 0 {
			return nil, Broken("head", "head of the down ring is %d, want a multiple of 8 between %d and %d", head, p.consumed, p.published)
		}
		p.consumed = head
		if p.published+pad+need-p.consumed > shm.RingSize {
			return nil, nil
		}
	}
	// A pad is published with the frame behind it, by one store of tail. A frame that is
	// reserved and given up leaves nothing: the next one is written over it.
	if pad > 0 {
		le.PutUint32(p.ring[at:], uint32(pad))
		le.PutUint32(p.ring[at+4:], uint32(Pad))
		at = 0
	}
	p.reserved = p.published + pad + need
	return p.ring[at : at+uint64(size) : at+need], nil
}

// commit publishes the frame that reserve gave room for. Ordering: the frame's
// bytes and posted are plain stores before tail's atomic one, so a reader that sees
// the new tail sees the frame.
func (p *producer) commit(now int64) {
	p.published = p.reserved
	p.posted.Store(uint64(now))
	p.tail.Store(p.published)
}

// consumer takes frames out of the up ring. Its caller holds the receive lock.
type consumer struct {
	ring []byte
	tail *atomic.Uint64 // the stub's: untrusted
	head *atomic.Uint64 // ours, shared
	life uint32

	position uint64        // ours; the shared word is only a copy
	seen     atomic.Uint64 // position, for pending without the lock
}

// pending reports whether there may be something to take. It needs no lock.
func (c *consumer) pending() bool { return c.tail.Load() != c.seen.Load() }

// next copies the next frame out of the ring; ok is false if there is none.
func (c *consumer) next() (f Frame, flags uint16, ok bool, err error) {
	for {
		tail := c.tail.Load()
		avail := tail - c.position
		if avail == 0 {
			return Frame{}, 0, false, nil
		}
		if avail > shm.RingSize || avail%8 != 0 {
			return Frame{}, 0, false, Broken("tail", "tail of the up ring is %d at position %d, want at most %d more", tail, c.position, shm.RingSize)
		}
		at := c.position % shm.RingSize
		room := min(avail, shm.RingSize-at)

		// The header is copied before any of it is looked at: the stub may go on
		// writing here.
		var header [HeaderSize]byte
		n := copy(header[:], c.ring[at:at+room])
		size := uint64(le.Uint32(header[0:]))
		kind := Kind(le.Uint16(header[4:]))
		if kind == Pad {
			if size != shm.RingSize-at || size > avail {
				return Frame{}, 0, false, Broken("frame", "pad of %d bytes at %d of %d", size, at, shm.RingSize)
			}
			c.advance(size)
			continue
		}
		if n < HeaderSize || size < HeaderSize || size > MaxFrame || size > room {
			return Frame{}, 0, false, Broken("frame", "frame of %d bytes at %d, where %d are published", size, at, room)
		}
		flags = le.Uint16(header[6:])
		if life := le.Uint32(header[8:]); life != c.life {
			return Frame{}, 0, false, Broken("life", "frame of life %d, want %d", life, c.life)
		}
		if flags&^FlagSpilled != 0 || le.Uint32(header[12:]) != 0 {
			return Frame{}, 0, false, Broken("frame", "flags are %#x and the reserved word %#x", flags, le.Uint32(header[12:]))
		}
		f = Frame{Kind: kind, ID: le.Uint64(header[16:])}
		// The body is copied too before it is looked at, and before head says that the stub
		// may write here: a Handler, or a goroutine it starts, may keep it.
		if size > HeaderSize {
			f.Body = make([]byte, size-HeaderSize)
			copy(f.Body, c.ring[at+HeaderSize:at+size])
		}
		c.advance(uint64(Align8(int(size))))
		return f, flags, true, nil
	}
}

// advance gives n bytes back to the stub. The shared head comes last: from then on the
// stub may overwrite them.
func (c *consumer) advance(n uint64) {
	c.position += n
	c.seen.Store(c.position)
	c.head.Store(c.position)
}
