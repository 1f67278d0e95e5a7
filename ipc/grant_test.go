package ipc_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// TestArenaGrantsAreBoundedAndCharged checks that grants never exceed the account's limit, whatever
// size the stub requests, that returned memory is verified, and that nothing stays charged.
func TestArenaGrantsAreBoundedAndCharged(t *testing.T) {
	const free, most, limit = 1 << 20, 64 << 20, 40 << 20
	charged := int64(0) // by the receiving goroutine, later by the test
	c, p := newChannel(t, ipc.Config{
		MaxArena: most, FreeArena: free,
		Charge: func(n int64) bool {
			if charged+n > limit {
				return false
			}
			charged += n
			return true
		},
		Refund: func(n int64) { charged -= n },
	})
	if got := p.DownWord(shm.GrantOffset).Load(); got != free {
		t.Errorf("at first: got %d, want %d", got, free)
	}
	stop := run(t, c, func(ipc.Frame) error { return nil })
	for i, test := range []struct{ wanted, reserve, want uint64 }{
		{10 << 20, 10 << 20, 10 << 20},
		{60 << 20, 0, 10 << 20}, // more than is available
		{1 << 63, 0, 10 << 20},
		{5 << 20, 0, 10 << 20}, // false: 10 MiB are still reserved
		{41 << 20, 0, 41 << 20},
		{20 << 20, 0, 20 << 20},
		{0, 0, 10 << 20},
	} {
		if test.reserve > 0 {
			if err := unix.Fallocate(int(p.Files.Up.Fd()), 0, shm.ArenaOffset, int64(test.reserve)); err != nil {
				t.Fatal(err)
			}
		}
		if got := p.Ask(uint64(i+1), test.wanted); got != test.want {
			t.Errorf("question %d for %d: got %d, want %d", i+1, test.wanted, got, test.want)
		}
	}
	extent, _, err := c.Arena().Lend(1, shm.ArenaOffset, 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if charged != 9<<20 {
		t.Errorf("%d bytes are charged while a response lies in the memory, want 9 MiB", charged)
	}
	extent.Release()
	if charged != 0 {
		t.Errorf("%d bytes are charged at the end, want none", charged)
	}
}

// TestNoGrantsAreNeededWithoutAnAccount checks that the server still replies to a stub that asks
// for memory without an account.
func TestNoGrantsAreNeededWithoutAnAccount(t *testing.T) {
	c, p := newChannel(t, ipc.Config{MaxArena: 1 << 20})
	if size := ipc.UpSize(1 << 20); size < shm.ArenaOffset+1<<20 || size > 2<<20 {
		t.Errorf("the up file has %d bytes for an arena of 1 MiB", size)
	}
	stop := run(t, c, func(ipc.Frame) error { return nil })
	if got := p.Ask(7, 1<<30); got != 0 {
		t.Errorf("got %d, want 0: as much as there is", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
