package launch

import (
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// newChildren returns Children that reap no child on their own, except watched ones.
func newChildren(t *testing.T) *Children {
	t.Helper()
	c, err := NewChildren(zerolog.Nop(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// begin starts a shell with a mark.
func begin(t *testing.T, script, mark string) *Process {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, err := Start(Command{Argv: []string{"/bin/sh", "-c", script}, Files: []*os.File{null, null, null}}, mark)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestStubsKilledAtBirthAreReapedByWait kills a stub by its mark before it is watched, as KillAll
// may, and checks that Wait still learns how it ended: otherwise it would wait forever.
func TestStubsKilledAtBirthAreReapedByWait(t *testing.T) {
	c := newChildren(t)
	mark := c.NewMark()
	killed := make(chan struct{}) // closed when KillMarked has returned
	p, err := c.Bear(func() (*Process, error) {
		p := begin(t, "exec sleep 600", mark)
		go func() {
			defer close(killed)
			c.KillMarked(mark)
		}()
		for c.births.TryRLock() { // KillMarked does not wait for the birth
			c.births.RUnlock()
			select {
			case <-killed:
				return p, nil
			case <-time.After(time.Millisecond):
			}
		}
		return p, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan *ExitError, 1)
	go func() { ended <- p.Wait() }()
	select {
	case exit := <-ended:
		if exit.Signal != unix.SIGKILL {
			t.Errorf("got %v, want that it was killed", exit)
		}
	case <-time.After(time.Minute):
		t.Error("Wait does not return")
	}
	<-killed
	c.Forget(p)
}

// TestReusedPIDsAreNotReaped checks that a killed orphan is reaped only as itself: not a watched
// process, nor another one with its pid.
func TestReusedPIDsAreNotReaped(t *testing.T) {
	c := newChildren(t)
	p := begin(t, "exit 3", c.NewMark())
	for !waitid(p.pid, unix.WEXITED|unix.WNOWAIT) {
	}
	r, ok := identify(p.pid)
	if !ok {
		t.Fatal("an ended child has no stat")
	}
	there := func() bool { return waitid(p.pid, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG) }
	c.reapOrphan(relative{r.pid, r.began + "0"})
	if !there() {
		t.Fatal("a process with the pid of an earlier one was reaped")
	}
	if _, err := c.Bear(func() (*Process, error) { return p, nil }); err != nil {
		t.Fatal(err)
	}
	c.reapOrphan(r)
	c.reapWatched() // as at any time
	if exit := p.Wait(); exit.Code != 3 {
		t.Errorf("got %v, want code 3", exit)
	}
	c.Forget(p)

	p = begin(t, "exit 3", c.NewMark())
	for !waitid(p.pid, unix.WEXITED|unix.WNOWAIT) {
	}
	if r, ok = identify(p.pid); !ok {
		t.Fatal("an ended child has no stat")
	}
	c.reapOrphan(r)
	if there() {
		t.Error("an orphan was not reaped")
	}
	_ = p.pidfd.Close()
}
