package ipc

import (
	"math"
	"sync/atomic"

	"github.com/nereid-serving/nereid/shm"
)

// A stub asks before its arena grows: it stores the bytes that it wants to have reserved,
// increments its count of questions, and rings. The answer is a word too, so that any of its
// threads can wait for it, whatever else it holds. The stub reports returned memory in the same
// way.

// grants tracks the bytes that a stub may reserve.
type grants struct {
	// This side's, shared.
	granted, answered *atomic.Uint64
	// The stub's: untrusted.
	wanted, asked *atomic.Uint64

	seen  atomic.Uint64 // the last answered value of asked
	bytes int64         // granted
}

// upSize is the sparse size of an up file: a quarter more than the stub may reserve, because blocks
// of different sizes leave gaps.
func upSize(maxArena int64) int64 {
	if maxArena > math.MaxInt64/2 {
		return maxArena
	}
	return shm.ArenaOffset + (maxArena+maxArena/4+shm.PageSize-1)/shm.PageSize*shm.PageSize
}

func (c *Channel) beginGrants() {
	g := &c.grant
	g.granted, g.answered = c.down.Uint64(shm.GrantOffset), c.down.Uint64(shm.AskedOffset)
	g.wanted, g.asked = c.up.Uint64(shm.GrantOffset), c.up.Uint64(shm.AskedOffset)
	if c.config.Charge == nil {
		return
	}
	g.bytes = min(max(c.config.FreeArena, shm.PageSize), c.config.MaxArena)
	g.granted.Store(uint64(g.bytes))
	free := g.bytes
	// The memory outlives the channel while a response lies in it. Nothing is granted then.
	c.up.OnGone(func() { c.config.Refund(g.bytes - free) })
}

func (g *grants) pending() bool { return g.asked.Load() != g.seen.Load() }

// answerGrantLocked grants the bytes that the stub wants, or leaves the grant unchanged. The caller
// holds recv.
func (c *Channel) answerGrantLocked() error {
	g := &c.grant
	// Ordering: the stub stores its wish before it increments its count, so the value of wanted
	// read below is at least as new as this count. A later question has a new count and is answered
	// next time.
	asked := g.asked.Load()
	if asked == g.seen.Load() {
		return nil
	}
	if c.config.Charge != nil {
		wanted := int64(min(g.wanted.Load(), uint64(c.config.MaxArena)))
		free := min(max(c.config.FreeArena, shm.PageSize), c.config.MaxArena)
		switch {
		case wanted > g.bytes:
			if c.config.Charge(wanted - g.bytes) {
				g.bytes = wanted
			}
		case wanted < g.bytes:
			// Memory that the stub reports as returned may still be allocated.
			if n := max(wanted, c.UpBytes()-shm.ArenaOffset, free); n < g.bytes {
				c.config.Refund(g.bytes - n)
				g.bytes = n
			}
		}
		g.granted.Store(uint64(g.bytes))
	}
	// The grant is stored before the answer: a thread that sees its answer sees the grant.
	g.seen.Store(asked)
	g.answered.Store(asked)
	return nil
}
