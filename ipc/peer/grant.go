package peer

import (
	"fmt"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/shm"
)

// reserveLocked reserves size bytes, or only the needed ones if memory is short. It returns the
// number of reserved bytes.
func (a *Arena) reserveLocked(offset, size, needed int64) (int64, error) {
	reason := ""
	// Reserving ahead is optional. For the needed bytes free blocks are given up, in the end all of
	// them.
	for _, try := range []struct {
		amount     int64
		lastResort bool
	}{{size, false}, {needed, false}, {needed, true}} {
		over := a.backed + try.amount - a.sizes.Max
		if try.lastResort {
			over = a.backed - a.used
		}
		if over > 0 && try.amount == needed {
			a.giveBackLocked(over)
		}
		if a.backed+try.amount > a.sizes.Max {
			reason = a.fullLocked()
			continue
		}
		if !a.grantedLocked(a.backed + try.amount) {
			reason = fmt.Sprintf("a tensor needs %d bytes, others of this process use %d, and the model's share of the server's "+
				"memory for requests (--model-max-memory-share), or all of it, is used up (--request-memory-byte-size)", a.size, a.used)
			continue
		}
		if err := a.peer.up.Reserve(offset, try.amount); err != nil {
			reason = err.Error()
			continue
		}
		a.backed += try.amount
		return try.amount, nil
	}
	return 0, a.exhausted(needed, reason)
}

// grantedLocked reports whether total bytes may be reserved. It asks the server unless that has
// already granted as many, and waits for the reply with mu held. No frame is sent, so the goroutine
// that reads is not involved.
func (a *Arena) grantedLocked(total int64) bool {
	granted, answered := a.peer.down.Uint64(shm.GrantOffset), a.peer.down.Uint64(shm.AskedOffset)
	if most := granted.Load(); most == 0 || uint64(total) <= most {
		return true
	}
	number := a.tellLocked(total)
	late := time.Now().Add(grantPatience)
	for look := 0; answered.Load() != number; look++ {
		switch {
		case look < quickLooks:
			yield()
		case a.peer.moment() != nil || time.Now().After(late):
			return false
		}
	}
	return uint64(total) <= granted.Load()
}

// tellLocked tells the server how many bytes are wanted in total, and returns the number of the
// question.
//
// Ordering: wanted is stored before asked, both atomically: a server that sees the number sees the
// bytes.
func (a *Arena) tellLocked(total int64) uint64 {
	a.asked++
	a.peer.up.Uint64(shm.GrantOffset).Store(uint64(total))
	a.peer.up.Uint64(shm.AskedOffset).Store(a.asked)
	a.peer.ring()
	return a.asked
}

// tellLessLocked tells the server once that less is in use than it has granted. A request that was
// refused may have given back more than it took, and no later look reports that.
func (a *Arena) tellLessLocked() {
	granted, wanted := a.peer.down.Uint64(shm.GrantOffset), a.peer.up.Uint64(shm.GrantOffset)
	if uint64(max(a.backed, a.sizes.Default)) < granted.Load() && wanted.Load() != uint64(a.backed) {
		a.tellLocked(a.backed)
	}
}

// giveBackLocked gives back about surplus bytes: first bytes reserved ahead, then free blocks,
// large and old ones first.
func (a *Arena) giveBackLocked(surplus int64) {
	if surplus <= 0 {
		return
	}
	if ahead := a.reserved - a.top; ahead > 0 {
		a.reserved = a.top
		a.hollowOutLocked(a.top, ahead)
		surplus -= ahead
	}
	sizes := make([]int64, 0, len(a.free))
	for size := range a.free {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	for _, size := range slices.Backward(sizes) {
		for _, index := range a.free[size] {
			if surplus <= 0 {
				return
			}
			if p := &a.extents[index]; !p.hollow {
				p.hollow = true
				a.hollowOutLocked(p.offset, size)
				surplus -= size
			}
		}
	}
}

func (a *Arena) hollowOutLocked(offset, size int64) {
	a.backed -= size
	// If the kernel refuses to take memory back, it stays reserved until the block is given back
	// again.
	_ = a.peer.up.Discard(offset, size)
}
