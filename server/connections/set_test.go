package connections

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/budget"
)

// newMember returns a connection that has been idle since the given time, or is busy if it is 0.
func newMember(h *Set, idle int64) *Member {
	g, _ := enter(h, idle)
	return g
}

// enter adds a new connection, and reports whether it was accepted.
func enter(h *Set, idle int64) (g *Member, in bool) {
	g = &Member{}
	g.Close = func() bool { return g.idle.CompareAndSwap(g.since, 0) } // called with the lock that guards since
	if in = h.Enter(g); in {
		g.idle.Store(idle)
	}
	return g, in
}

// TestEvictTakesTheIdlest checks that the connection that has been idle for longest is evicted,
// across all front ends and however often it was busy before.
func TestEvictTakesTheIdlest(t *testing.T) {
	var all Budget
	account := budget.New(budget.Config{Limit: 6400})
	http, grpc := NewSet(&all, 3, account, 10), NewSet(&all, 3, account, 20)
	a, b, c, d := newMember(http, 0), newMember(http, 0), newMember(grpc, 0), newMember(grpc, 0)
	first := time.Now().UnixNano()
	c.idle.Store(first)
	a.idle.Store(first + 1)
	d.idle.Store(first + 2)
	if used := account.Used(budget.Connections); used != 60 {
		t.Errorf("four connections are charged %d, want 60", used)
	}
	for _, step := range []struct {
		name    string
		before  func()
		evicted *Member
	}{
		{"the oldest", func() {}, c},
		{"one that was busy meanwhile", func() { a.idle.Store(time.Now().UnixNano()) }, d},
		{"one that has become idle", func() {
			b.idle.Store(time.Now().UnixNano())
			a.idle.Store(b.idle.Load() + 1)
		}, b},
		{"the last", func() {}, a},
		{"none", func() {}, nil},
	} {
		step.before()
		for now := time.Now().UnixNano(); time.Now().UnixNano() < now+10; { // no idle time may be in the future
		}
		all.mu.Lock()
		ok := all.evictLocked(http, 0)
		all.mu.Unlock()
		if ok != (step.evicted != nil) || step.evicted != nil && http.heap.Has(step.evicted) {
			t.Errorf("%s: evicted %v, want that one", step.name, ok)
		}
	}
	for _, g := range []*Member{a, b, c, d} {
		http.Leave(g) // as each connection does, evicted or not
	}
	if n := account.Total(); n != 0 {
		t.Errorf("%d bytes are charged at the end", n)
	}
}

// TestEnterBoundsConnections checks that the connections of a front end are limited by its own
// limit, by descriptors and by memory if no connection is idle.
func TestEnterBoundsConnections(t *testing.T) {
	needs := 0
	all := Budget{Needs: func() int { return needs }}
	h := NewSet(&all, 2, nil, 0)
	count := func(h *Set) (n int) {
		for range 100 {
			before := h.count()
			if newMember(h, 0); h.count() > before {
				n++
			}
		}
		return n
	}
	if n := count(h); n != 2 {
		t.Errorf("its limit: %d came in, want 2", n)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	needs = int(limit.Cur)
	if n, most := count(NewSet(&all, 100, nil, 0)), all.Most(); n != leastConnections-2 || most != leastConnections {
		t.Errorf("descriptors: %d came in and %d may, want %d and %d", n, most, leastConnections-2, leastConnections)
	}
	var other Budget
	account := budget.New(budget.Config{Limit: 6400})
	if n, want := count(NewSet(&other, 100, account, account.Most(budget.Connections)/10)), 10; n != want {
		t.Errorf("memory: %d came in, want %d", n, want)
	}
}

// TestFloodLeavesOthersTheirOwn fills one front end with busy connections until descriptors or
// memory run out. Another front end must still accept its reserved connections, and must not lose
// them to the flood.
func TestFloodLeavesOthersTheirOwn(t *testing.T) {
	for _, scarce := range []string{"descriptors", "memory"} {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		all := Budget{}
		cost := int64(0)
		account := budget.New(budget.Config{Limit: 1 << 20})
		if scarce == "descriptors" {
			all.Needs = func() int { return int(limit.Cur) - 68 - sparedDescriptors }
		} else {
			cost = account.Most(budget.Connections) / 20
		}
		flooded, metrics := NewSet(&all, 1000, account, cost), NewSet(&all, 1000, account, cost)
		for range 200 {
			newMember(flooded, 0)
		}
		if n := flooded.count(); n < 16 || n > 92 {
			t.Errorf("%s: %d connections came in, want those that there is room for", scarce, n)
		}
		var idle []*Member
		for range ownConnections {
			g, in := enter(metrics, time.Now().UnixNano())
			if !in {
				t.Fatalf("%s: a connection of another front end did not come in", scarce)
			}
			idle = append(idle, g)
		}
		for range 20 {
			newMember(flooded, 0)
		}
		for _, g := range idle {
			if g.heapIndex == 0 {
				t.Errorf("%s: an idle connection of another front end made room for the flood", scarce)
			}
		}
	}
}

// TestMembersKeepCountUnderStorm checks the counts and charges while connections become busy and
// idle, enter and leave concurrently.
func TestMembersKeepCountUnderStorm(t *testing.T) {
	var all Budget
	account := budget.New(budget.Config{Limit: 1 << 20})
	var wait sync.WaitGroup
	for range 3 {
		h := NewSet(&all, 20, account, 100)
		for range 3 {
			wait.Go(func() {
				var mine []*Member
				for i := range 2000 {
					if g, in := enter(h, time.Now().UnixNano()); in {
						mine = append(mine, g)
					}
					for n, g := range mine {
						if (i+n)%3 == 0 {
							g.idle.Store(time.Now().UnixNano())
						}
					}
					if len(mine) > 10 {
						h.Leave(mine[0])
						mine = mine[1:]
					}
					if n := h.count(); n > 20 {
						t.Errorf("%d connections, want at most 20", n)
					}
				}
				for _, g := range mine {
					h.Leave(g)
				}
			})
		}
	}
	wait.Wait()
	if n := account.Total(); n != 0 {
		t.Errorf("%d bytes are charged at the end", n)
	}
}

// failing is a listener whose first calls of Accept fail.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	client, server := net.Pipe()
	_ = client.Close()
	return server, nil
}

// TestAcceptSurvivesErrors checks that Accept retries after temporary errors, and returns only when
// its socket is closed or its context ends. An idle connection is closed when descriptors run out.
func TestAcceptSurvivesErrors(t *testing.T) {
	var all Budget
	h := NewSet(&all, 5, nil, 0)
	idle := newMember(h, time.Now().UnixNano())
	socket := &failing{errs: []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED, unix.EPERM, unix.ENOSYS, unix.ENOSPC, unix.EAGAIN}}
	a := Acceptor{socket: socket, set: h, log: zerolog.Nop()}
	conn, err := a.Accept(t.Context())
	if err != nil || len(socket.errs) > 0 {
		t.Fatalf("got %v with %d errors to come, want a connection", err, len(socket.errs))
	}
	_ = conn.Close()
	if idle.heapIndex != 0 {
		t.Error("no connection was closed for want of a descriptor")
	}
	socket.errs = []error{net.ErrClosed}
	if _, err := a.Accept(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket is closed: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	socket.errs = []error{unix.EMFILE}
	if _, err := a.Accept(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended: got %v", err)
	}
}

// TestAnsweredConnectionSettles checks that a connection is not evicted until Settle has passed
// since its reply, even if no other connection can make room.
func TestAnsweredConnectionSettles(t *testing.T) {
	for _, settle := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := NewSet(&Budget{Settle: settle}, 1, nil, 0)
			answered, next := newMember(s, 0), &Member{Close: func() bool { return true }}
			answered.Replied()
			wait := cmp.Or(settle, 5*time.Second)
			time.Sleep(wait - 10*time.Millisecond)
			if s.Enter(next) {
				t.Errorf("Settle %v: %v after the answer the connection made room, want not yet", settle, wait-10*time.Millisecond)
			}
			time.Sleep(20 * time.Millisecond)
			if !s.Enter(next) {
				t.Errorf("Settle %v: %v after the answer the connection does not make room", settle, wait+10*time.Millisecond)
			}
		})
	}
}
