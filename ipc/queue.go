package ipc

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/shm"
)

// Producer writes frames to the ring of this side's own file. One goroutine at a time calls its
// methods.
type Producer struct {
	name   string // of the ring
	ring   []byte
	tail   *atomic.Uint64 // ours, shared
	posted *atomic.Uint64 // ours, shared
	head   *atomic.Uint64 // the other side's: untrusted
	life   uint32

	// The true positions are private: the shared ones are for the other side alone.
	published uint64
	reserved  uint64 // end of the frame that is being written
	consumed  uint64 // last head that was believed
}

// NewProducer creates the producer of the ring in own, the file that this side writes; peer is the
// other side's. name is the name of the ring, for errors. Both files outlive it.
func NewProducer(name string, own, peer *shm.Region, life uint32) (*Producer, error) {
	ring, err := own.Bytes(shm.RingOffset, shm.RingSize)
	if err != nil {
		return nil, err
	}
	return &Producer{
		name: name, ring: ring, life: life,
		tail: own.Uint64(shm.TailOffset), posted: own.Uint64(shm.PostedOffset), head: peer.Uint64(shm.HeadOffset),
	}, nil
}

// Begin returns contiguous room for a frame of size bytes, with its header written; nil if the ring
// is too full. Commit publishes the frame; without it nothing happens.
func (p *Producer) Begin(kind Kind, id uint64, size int) ([]byte, error) {
	frame, err := p.reserve(size)
	if frame != nil {
		putHeader(frame, size, kind, 0, p.life, id)
	}
	return frame, err
}

// padding returns the number of bytes that stay unused before a frame of need bytes at position, so
// that it is contiguous.
func padding(position, need uint64) uint64 {
	if at := position % shm.RingSize; at+need > shm.RingSize {
		return shm.RingSize - at
	}
	return 0
}

// reserve returns contiguous room for a frame of size bytes, header included; nil if the ring is
// too full. Commit publishes the frame.
func (p *Producer) reserve(size int) ([]byte, error) {
	need := uint64(Align8(size))
	at := p.published % shm.RingSize
	pad := padding(p.published, need)
	// The other side's word is only read when the ring seems full by its last value: it lies in a
	// cache line that the other side writes.
	if p.published+pad+need-p.consumed > shm.RingSize {
		head := p.head.Load()
		// Unsigned differences: a head that moved back or ran ahead is too far away.
		if head-p.consumed > p.published-p.consumed || head%8 != 0 {
			return nil, Broken("head", "head of the %s ring is %d, want a multiple of 8 between %d and %d", p.name, head, p.consumed, p.published)
		}
		p.consumed = head
		if p.published+pad+need-p.consumed > shm.RingSize {
			return nil, nil
		}
	}
	// A pad is published with the frame after it, by one store of tail. A frame that is reserved
	// and given up leaves nothing: the next one overwrites it.
	if pad > 0 {
		le.PutUint32(p.ring[at:], uint32(pad))
		le.PutUint32(p.ring[at+4:], uint32(Pad))
		at = 0
	}
	p.reserved = p.published + pad + need
	return p.ring[at : at+uint64(size) : at+need], nil
}

// Commit publishes the frame that Begin gave room for, at now, CLOCK_MONOTONIC ns. Ordering: the
// frame's bytes and posted are plain stores before tail's atomic one, so a reader that sees the new
// tail sees the frame. tail is swapped, a full barrier, before the caller loads the reader's sleep
// word.
func (p *Producer) Commit(now int64) {
	p.published = p.reserved
	p.posted.Store(uint64(now))
	p.tail.Swap(p.published)
}

// Consumer reads frames from the ring of the other side's file. One goroutine at a time calls its
// methods, except Pending.
type Consumer struct {
	name   string // of the ring
	ring   []byte
	tail   *atomic.Uint64 // the other side's: untrusted
	posted *atomic.Uint64 // of the latest frame; the other side's
	head   *atomic.Uint64 // ours, shared
	life   uint32
	flags  uint16 // flags that frames may have

	position uint64        // ours; the shared word is only a copy
	seen     atomic.Uint64 // position, for Pending
}

// NewConsumer creates the consumer of the ring in peer, the file that the other side writes. Its
// frames may have the given flags. own is this side's file; both files must outlive the consumer.
// name appears in errors.
func NewConsumer(name string, own, peer *shm.Region, life uint32, flags uint16) (*Consumer, error) {
	ring, err := peer.Bytes(shm.RingOffset, shm.RingSize)
	if err != nil {
		return nil, err
	}
	return &Consumer{
		name: name, ring: ring, life: life, flags: flags,
		tail: peer.Uint64(shm.TailOffset), posted: peer.Uint64(shm.PostedOffset), head: own.Uint64(shm.HeadOffset),
	}, nil
}

// Pending reports whether there may be something to take. Any goroutine may call it.
func (c *Consumer) Pending() bool { return c.tail.Load() != c.seen.Load() }

// Posted returns the time at which the other side published its latest frame, CLOCK_MONOTONIC ns.
// It is the other side's word.
func (c *Consumer) Posted() int64 { return int64(c.posted.Load()) }

// Next copies the next frame out of the ring; ok is false without one.
func (c *Consumer) Next() (f Frame, flags uint16, ok bool, err error) {
	for {
		tail := c.tail.Load()
		avail := tail - c.position
		if avail == 0 {
			return Frame{}, 0, false, nil
		}
		if avail > shm.RingSize || avail%8 != 0 {
			return Frame{}, 0, false, Broken("tail", "tail of the %s ring is %d at position %d, want at most %d more", c.name, tail, c.position, shm.RingSize)
		}
		at := c.position % shm.RingSize
		room := min(avail, shm.RingSize-at)

		// The header is copied before any of it is used: the other side may still write here.
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
		if flags&^c.flags != 0 || le.Uint32(header[12:]) != 0 {
			return Frame{}, 0, false, Broken("frame", "flags are %#x and the reserved word %#x", flags, le.Uint32(header[12:]))
		}
		f = Frame{Kind: kind, ID: le.Uint64(header[16:])}
		// The body is also copied before it is used, and before head allows the other side to write
		// here: a Handler, or a goroutine that it starts, may keep it.
		if size > HeaderSize {
			f.Body = make([]byte, size-HeaderSize) // bound: MaxFrame
			copy(f.Body, c.ring[at+HeaderSize:at+size])
		}
		c.advance(uint64(Align8(int(size))))
		return f, flags, true, nil
	}
}

// advance returns n bytes to the producer. The shared head comes last: from then on the producer
// may overwrite them.
func (c *Consumer) advance(n uint64) {
	c.position += n
	c.seen.Store(c.position)
	c.head.Store(c.position)
}
