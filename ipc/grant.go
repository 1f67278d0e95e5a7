package ipc

import (
	"math"
	"sync/atomic"

	"github.com/nereid-serving/nereid/shm"
)

// A stub asks before its arena grows: it stores how many bytes it wants to have
// reserved and that it has asked once more, and rings. The answer is a word too,
// so that any of its threads can wait for it, whatever else it holds. It says so
// in the same way when it has given memory back.

// grants is how much a stub may reserve.
type grants struct {
	// Ours, shared.
	granted, answered *atomic.Uint64
	// The stub's: untrusted.
	wanted, asked *atomic.Uint64

	seen  atomic.Uint64 // the last of asked that was answered
	bytes int64         // granted
}

// upSize is the sparse size of an up file whose stub may reserve so much: a
// quarter more, as blocks of different sizes leave gaps.
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
	// The memory outlives the channel for as long as a response lies in it. By then
	// nothing is granted any more.
	c.up.OnGone(func() { c.config.Refund(g.bytes - free) })
}

func (g *grants) pending() bool { return g.asked.Load() != g.seen.Load() }

// answerGrantLocked grants what the stub wants, or leaves it at what it has.
// Callers hold recv.
func (c *Channel) answerGrantLocked() error {
	g := &c.grant
	// Ordering: the stub stores what it wants before it counts that it has asked, so what
	// is read as wanted below is at least as new as this count. Another question that
	// comes meanwhile has a new count and is answered next time.
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
			// What it says it has given back may still be there.
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
