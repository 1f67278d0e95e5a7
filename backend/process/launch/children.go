package launch

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Children are the processes of all models, and what these have started. One process
// has one Children.
type Children struct {
	log        zerolog.Logger
	token      string         // what the marks of all processes begin with
	marks      atomic.Uint64  // that have been given
	signals    chan os.Signal // sent to by the runtime, closed by Close
	closing    sync.WaitGroup // what Close waits for
	soleParent bool
	census     census
	// births is held for reading while a process is started, until it is watched.
	births sync.RWMutex

	mu        sync.Mutex
	processes map[*Process]struct{} // that are watched
}

// NewChildren makes this process the subreaper of what its children start. soleParent
// says that nothing else in this process waits for children: then all that come home to
// it are reaped, also the children of other code.
func NewChildren(log zerolog.Logger, soleParent bool) (*Children, error) {
	// Orphans of stubs come home to this process, and stubs that a template forked
	// become children of ours.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, errors.Join(errors.New("become the subreaper of stubs"), err)
	}
	c := &Children{
		log: log, token: newToken(), signals: make(chan os.Signal, 1), soleParent: soleParent,
		processes: make(map[*Process]struct{}),
	}
	// Children of stubs whose parents have ended come home to this process; each
	// SIGCHLD is a reason to look for ended ones among them, too.
	signal.Notify(c.signals, unix.SIGCHLD)
	c.Later(func() {
		for range c.signals {
			panics.Guard(c.log, panics.Life, c.reapAll, nil)()
		}
	})
	return c, nil
}

// Close waits for what Later was given, and ends all orphans. All processes must have
// been told to end.
func (c *Children) Close() {
	// In this order: the runtime sends no signal after Stop, so close is safe, and its end
	// is what the goroutine that reaps waits for.
	signal.Stop(c.signals)
	close(c.signals)
	c.closing.Wait()
	c.killMarked(c.token)
}

// Later has Close wait for f, which runs beside.
func (c *Children) Later(f func()) {
	c.closing.Go(panics.Guard(c.log, panics.Life, f, nil))
}

// Bear starts a process by start and watches it. Until it is watched no child is
// reaped that is not known.
func (c *Children) Bear(start func() (*Process, error)) (*Process, error) {
	// For reading, so that starts do not wait for each other. reapOrphans, which waits for
	// all of them, could take a child that has ended before it is watched, and Wait would
	// never learn its status.
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

// Count is how many processes are watched, templates too.
func (c *Children) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.processes)
}

// reapAll takes all processes that have ended.
func (c *Children) reapAll() {
	c.reapWatched()
	c.reapOrphans()
}

// reapWatched takes what has ended of each process and its group. Wait does that too: it
// is woken by the pidfd, and sees what reap has noted.
func (c *Children) reapWatched() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.processes {
		p.reap()
	}
}
