package launch

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Children are the processes of all models, with their descendants. The server has one.
type Children struct {
	log        zerolog.Logger
	token      string         // the prefix of all marks
	marks      atomic.Uint64  // marks given so far
	signals    chan os.Signal // written by the runtime, closed by Close
	closing    sync.WaitGroup // the goroutines for which Close waits
	soleParent bool
	census     census
	// births is held for reading from the start of a process until it is watched.
	births sync.RWMutex

	mu        sync.Mutex
	processes map[*Process]struct{} // the watched processes; bound: each takes far more memory itself
}

// NewChildren makes this process the subreaper of its children's descendants. soleParent means that
// no other code in this process waits for children: then all reparented children are reaped,
// including those of other code.
func NewChildren(log zerolog.Logger, soleParent bool) (*Children, error) {
	// Orphans of stubs are reparented to this process, and so are stubs that a template forked.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, errors.Join(errors.New("become the subreaper of stubs"), err)
	}
	c := &Children{
		log: log, token: newToken(), signals: make(chan os.Signal, 1), soleParent: soleParent,
		processes: make(map[*Process]struct{}),
	}
	// Each SIGCHLD may come from a reparented orphan too.
	signal.Notify(c.signals, unix.SIGCHLD)
	c.Later(func() {
		for range c.signals {
			panics.Guard(c.log, panics.Life, c.reapAll, nil)()
		}
	})
	return c, nil
}

// Close waits for the functions of Later, and ends all orphans. All processes must have been told
// to end.
func (c *Children) Close() {
	// In this order: the runtime sends no signal after Stop, so close is safe; and closing ends the
	// goroutine that reaps.
	signal.Stop(c.signals)
	close(c.signals)
	c.closing.Wait()
	c.KillMarked(c.token)
}

// Later runs f in a goroutine for which Close waits.
func (c *Children) Later(f func()) {
	c.closing.Go(panics.Guard(c.log, panics.Life, f, nil))
}

// A program that this process has just written may be busy: another child that was forked meanwhile
// has the descriptor for writing until it executes its own program. Bear tries again for a second.
const (
	busyTries = 200
	busyPause = 5 * time.Millisecond
)

// Bear starts a process by start and watches it. Until then no unknown child is reaped. It calls
// start again if the program is busy.
func (c *Children) Bear(start func() (*Process, error)) (*Process, error) {
	p, err := c.bear(start)
	for tries := 1; errors.Is(err, unix.ETXTBSY) && tries < busyTries; tries++ {
		time.Sleep(busyPause) // without births: children are reaped meanwhile
		p, err = c.bear(start)
	}
	return p, err
}

func (c *Children) bear(start func() (*Process, error)) (*Process, error) {
	// For reading, so that starts do not wait for each other. reapOrphans, which waits for all of
	// them, could otherwise reap a child before it is watched, and Wait would never learn its
	// status.
	c.births.RLock()
	defer c.births.RUnlock()
	p, err := start()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.processes[p] = struct{}{}
	c.mu.Unlock()
	return p, nil
}

// Forget ends the watch of a process, which has been reaped.
func (c *Children) Forget(p *Process) {
	c.mu.Lock()
	delete(c.processes, p)
	c.mu.Unlock()
}

// Count returns the number of watched processes, including templates.
func (c *Children) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.processes)
}

// reapAll reaps all processes that have ended.
func (c *Children) reapAll() {
	c.reapWatched()
	c.reapOrphans()
}

// reapWatched reaps the watched processes and their groups. Wait does that too: the pidfd wakes it,
// and it sees the result of reap.
func (c *Children) reapWatched() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.processes {
		p.reap()
	}
}
