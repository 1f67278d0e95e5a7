package server

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/memory"
)

// Connections bounds the connections of all front ends together by the
// descriptors that the process may have. Where there is no room for another one,
// the connection that has been idle for longest is closed for it.
type Connections struct {
	// Needs returns how many descriptors are to be kept for what the process has
	// yet to open; nil: 0.
	Needs func() int

	mu    sync.Mutex
	homes []*guests
	// others is how many descriptors were open besides connections when it was
	// looked at.
	others int
	looked time.Time
}

const (
	// sparedDescriptors are kept besides Needs: for loads, files of requests, logs.
	sparedDescriptors = 32
	// leastConnections are let in however few descriptors there are.
	leastConnections = 8
	// busyApart is how long it is not tried to evict a connection when all were busy,
	// and evictTries how many may become busy at the very moment.
	busyApart  = 5 * time.Millisecond
	evictTries = 16
	// settled is how long after its last answer a connection is not idle yet. Its next
	// request may be on its way, and its client could not tell a connection that was
	// closed meanwhile from an answer that was lost; so a flood of new connections, which
	// have asked for nothing, makes room for itself first.
	settled = 5 * time.Second
	// lookApart is how long a count of the open descriptors holds.
	lookApart = 100 * time.Millisecond
)

// guests are the connections of one front end.
type guests struct {
	all     *Connections
	limit   int
	account *memory.Account // nil: nothing is charged
	cost    int64           // what each takes of it

	mu        sync.Mutex
	heap      guestHeap
	busyUntil int64 // until then nothing is looked for, as all were busy
}

// guest is a connection as guests see it. It belongs to the one that serves it;
// idle alone may be set at any time.
type guest struct {
	idle  atomic.Int64 // since when it is idle, in ns, or from when on; busy: 0
	close func() bool  // closes it unless it is busy
	since int64        // idle, as the heap has it
	index int          // in the heap; -1: it is not there
}

// home returns the place for the connections of another front end, each of which
// takes so much.
func (c *Connections) home(limit int, account *memory.Account, cost int64) *guests {
	if c == nil {
		c = &Connections{}
	}
	h := &guests{all: c, limit: limit, account: account, cost: cost}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.homes = append(c.homes, h)
	return h
}

// Most returns how many connections there may be now.
func (c *Connections) Most() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mostLocked(c.countLocked())
}

func (c *Connections) countLocked() (n int) {
	for _, h := range c.homes {
		n += h.count()
	}
	return n
}

func (c *Connections) mostLocked(connections int) int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	if now := time.Now(); now.Sub(c.looked) > lookApart {
		c.looked, c.others = now, max(0, openDescriptors()-connections)
	}
	needs := sparedDescriptors
	if c.Needs != nil {
		needs += c.Needs()
	}
	return max(int(limit.Cur)-c.others-needs, leastConnections)
}

// openDescriptors counts the descriptors of the process.
func openDescriptors() int {
	const own = "/proc/self/fd"
	if info, err := os.Stat(own); err == nil && info.Size() > 0 { // from Linux 6.2 on
		return int(info.Size())
	}
	dir, err := os.Open(own)
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	return len(names)
}

// enter lets a connection in, which is idle at first, if need be in the place of
// another one. False: all are busy.
func (h *guests) enter(g *guest) bool {
	c := h.all
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.count() >= h.limit && !h.evict() {
		return false
	}
	if n := c.countLocked(); n >= c.mostLocked(n) && !c.evictLocked() {
		return false
	}
	for h.account != nil && !h.account.Try(memory.Transport, h.cost) {
		if !c.evictLocked() {
			return false
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g.since = time.Now().UnixNano()
	g.idle.Store(g.since)
	heap.Push(&h.heap, g)
	return true
}

// leave is said of each connection that has entered, when it ends.
func (h *guests) leave(g *guest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.index >= 0 {
		h.removeLocked(g)
	}
}

func (h *guests) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.heap)
}

// evictLocked closes the connection of all front ends that has been idle for
// longest.
func (c *Connections) evictLocked() bool {
	for range evictTries {
		var home *guests
		longest := int64(math.MaxInt64)
		for _, h := range c.homes {
			if since := h.longest(); since < longest {
				home, longest = h, since
			}
		}
		if home == nil {
			return false
		}
		if home.evict() {
			return true
		}
	}
	return false
}

// relieve makes room for a descriptor where the system has none.
func (c *Connections) relieve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evictLocked()
}

// longest returns since when the connection is idle that is so for longest,
// math.MaxInt64 if all are busy.
func (h *guests) longest() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.idlestLocked(); g != nil {
		return g.since
	}
	return math.MaxInt64
}

// idlestLocked returns the connection that has been idle for longest, nil if all
// are busy. Connections become busy and idle without a word to the heap: what it
// has of each is a time since when it cannot have been idle for longer, and the
// first ones are brought up to date until one is right.
func (h *guests) idlestLocked() *guest {
	now := time.Now().UnixNano()
	if now < h.busyUntil {
		return nil
	}
	for len(h.heap) > 0 {
		g := h.heap[0]
		switch since := g.idle.Load(); {
		case since == g.since && since <= now:
			return g
		case since != 0 && since != g.since:
			g.since = since
		case since == 0 && g.since < now:
			g.since = now
		default: // and no other one is older
			h.busyUntil = now + int64(busyApart)
			return nil
		}
		heap.Fix(&h.heap, 0)
	}
	return nil
}

// evict closes the connection that has been idle for longest; false if there is
// none.
func (h *guests) evict() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range evictTries {
		g := h.idlestLocked()
		if g == nil {
			return false
		}
		if g.close() {
			h.removeLocked(g)
			return true
		}
		g.since = time.Now().UnixNano() // it becomes busy
		heap.Fix(&h.heap, 0)
	}
	return false
}

func (h *guests) removeLocked(g *guest) {
	heap.Remove(&h.heap, g.index)
	if h.account != nil {
		h.account.Give(memory.Transport, h.cost)
	}
}

// guestHeap is a heap.Interface with the one in front that is idle for longest.
type guestHeap []*guest

func (h guestHeap) Len() int           { return len(h) }
func (h guestHeap) Less(i, j int) bool { return h[i].since < h[j].since }

func (h guestHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *guestHeap) Push(x any) {
	g := x.(*guest) //nolint:forcetypeassert // enter pushes nothing else
	g.index = len(*h)
	*h = append(*h, g)
}

// Pop implements heap.Interface.
func (h *guestHeap) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	g.index = -1
	return g
}

// acceptor accepts connections whatever comes between: want of descriptors or
// memory, and what the network says of a connection that is no more.
type acceptor struct {
	socket net.Listener
	all    *Connections
	log    zerolog.Logger
	warned time.Time
}

// accept returns the next connection; an error is the end of the socket, or of ctx.
func (a *acceptor) accept(ctx context.Context) (net.Conn, error) {
	for {
		conn, err := a.socket.Accept()
		if err == nil || !isPassing(err) {
			return conn, err
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			a.all.relieve()
		}
		if time.Since(a.warned) > 10*time.Second {
			a.warned = time.Now()
			a.log.Warn().Err(err).Msg("connections are not accepted")
		}
		pause := time.NewTimer(acceptPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		}
	}
}

// acceptPause is how long nothing is accepted after an error.
const acceptPause = 50 * time.Millisecond
