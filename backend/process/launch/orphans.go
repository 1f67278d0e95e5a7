package launch

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Orphans are processes that models started and that left their stub's process
// group, daemons for example. When their parent ends they become children of
// this process, the subreaper. As long as their stub lives they are its
// model's business; they end with it. They are told from children that are none of
// a stub's in two ways:
//
//   - By their mark, a variable of the environment. A stub has it in its own
//     environment, so that processes which it forks have it too, and in that of the
//     programs that it starts.
//   - By their parents, as long as these live: a stub is looked at before it ends.
//
// What has changed its environment and has lost its parent before its stub ends is
// not found. When this process is killed, a template ends what has a mark of ours.

// stubVariable is the variable that has the mark.
const stubVariable = "NEREID_STUB"

// markDigits is how long the number of a stub is in its mark: a forked stub writes
// its own over that of the template.
const markDigits = 10

// newToken makes what all marks of one Children begin with.
func newToken() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // it ends the process rather than fail
	return hex.EncodeToString(random) + "."
}

// NewMark makes the mark of a process that is to be started.
func (c *Children) NewMark() string {
	return fmt.Sprintf("%s%0*d", c.token, markDigits, c.marks.Add(1))
}

// TemplateMark is the mark of templates: processes that fork others. A forked
// process has room for its own mark there.
func (c *Children) TemplateMark() string { return c.token + strings.Repeat("0", markDigits) }

// environmentWith is an environment with a mark.
func environmentWith(environment []string, mark string) []string {
	all := slices.DeleteFunc(slices.Clone(environment), func(v string) bool { return strings.HasPrefix(v, stubVariable+"=") })
	return append(all, stubVariable+"="+mark)
}

// marked reports whether a process has a mark with this beginning.
func marked(pid int, mark string) bool {
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	sought := []byte(stubVariable + "=" + mark)
	return bytes.HasPrefix(environment, sought) || bytes.Contains(environment, append([]byte{0}, sought...))
}

// relative is a process that descends from a stub, known by when it began as well:
// its number may be another's one day.
type relative struct {
	pid   int
	began string // field 22 of its stat
}

// kill ends the process, if it is still the same.
func (r relative) kill() {
	same := func() bool {
		now, ok := readStat(r.pid)
		return ok && now.began == r.began
	}
	fd, err := unix.PidfdOpen(r.pid, 0)
	if err != nil {
		if same() { // an old kernel, or no descriptor is left
			_ = unix.Kill(r.pid, unix.SIGKILL)
		}
		return
	}
	defer unix.Close(fd)
	if same() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// descendants lists the processes below one.
func (c *Children) descendants(of int) []relative {
	var found []relative
	children := c.census.take()
	todo := children(of)
	for len(todo) > 0 {
		pid := todo[0]
		todo = todo[1:]
		if s, ok := readStat(pid); ok {
			found = append(found, relative{pid, s.began})
			todo = append(todo, children(pid)...)
		}
	}
	return found
}

// Look notes what a process has started, as long as that can be seen: before it is
// reaped.
func (c *Children) Look(p *Process) { p.addFamily(c.descendants(p.pid)) }

// addFamily notes what the process has started.
func (p *Process) addFamily(family []relative) {
	p.mu.Lock()
	p.family = append(p.family, family...)
	p.mu.Unlock()
}

// KillFamily ends what the process had started when it was looked at.
func (p *Process) KillFamily() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.family {
		r.kill()
	}
}

// KillOrphans ends what a process has started that has outlived it and has its mark.
func (c *Children) KillOrphans(of *Process) { c.killMarked(of.mark) }

// KillMarked ends a process that was forked with this mark and has never been watched, if there is one.
func (c *Children) KillMarked(mark string) { c.killMarked(mark) }

// killMarked ends the orphans whose mark begins with this, and those that their
// ends bring here. It returns when there are none, or after groupLimit.
func (c *Children) killMarked(mark string) {
	killed := make(map[int]bool)
	for deadline := time.Now().Add(groupLimit); ; time.Sleep(groupPause) {
		found := false
		known := c.known()
		for _, pid := range c.census.take()(os.Getpid()) {
			switch {
			case killed[pid]:
				// Reaped here: where other code of this process starts programs, nothing
				// else is.
				_, _ = wait4(pid, nil, unix.WNOHANG)
			case known[pid] || !marked(pid, mark):
				continue
			default:
				family := c.descendants(pid)
				_ = unix.Kill(pid, unix.SIGKILL) // a child, so its number is its own until it is reaped
				killed[pid] = true
				for _, r := range family {
					r.kill()
				}
			}
			found = true
		}
		if !found || time.Now().After(deadline) {
			return
		}
	}
}

// KillAll ends all processes but templates at once, with what they have started.
func (c *Children) KillAll() {
	// With the lock, so that no process is forgotten while it is killed. All are killed
	// before the first family is: a process that lives could start others.
	c.mu.Lock()
	for p := range c.processes {
		if p.mark != c.TemplateMark() {
			c.Look(p)
			p.Kill()
		}
	}
	for p := range c.processes {
		p.KillFamily()
	}
	c.mu.Unlock()
	c.killMarked(c.token)
}

// known are the processes that are watched.
func (c *Children) known() map[int]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := make(map[int]bool, len(c.processes))
	for p := range c.processes {
		known[p.pid] = true
	}
	return known
}

// reapOrphans takes the orphans that have ended. births is held, so that a stub
// which has just been forked is known.
func (c *Children) reapOrphans() {
	if !c.soleParent {
		return
	}
	c.births.Lock()
	defer c.births.Unlock()
	known := c.known()
	for _, pid := range c.census.take()(os.Getpid()) {
		if !known[pid] {
			_, _ = wait4(pid, nil, unix.WNOHANG)
		}
	}
}

// census tells the children of processes. Where the kernel does not list them, all
// processes are looked at: once for all callers meanwhile, for many stubs may end
// together.
type census struct {
	asked atomic.Uint64

	mu     sync.Mutex
	served uint64 // calls up to this number are answered by last
	last   map[int][]int
}

// take returns a function that lists the children of a process, as they are now or
// were after take was called.
func (c *census) take() (children func(pid int) []int) {
	// Absent on kernels that were built without it.
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err == nil {
		return listChildren
	}
	// A look that began after this call's number was given may answer it. A caller that
	// waited for the lock finds mostly that the one before it has looked for both.
	number := c.asked.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.served < number {
		c.served = c.asked.Load()
		c.last = allChildren()
	}
	last := c.last
	return func(pid int) []int { return last[pid] }
}

// allChildren lists the children of all processes.
func allChildren() map[int][]int {
	entries, _ := os.ReadDir("/proc")
	all := make(map[int][]int)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s, ok := readStat(pid); ok {
			all[s.parent] = append(all[s.parent], pid)
		}
	}
	return all
}

// listChildren has the kernel list the children of a process.
func listChildren(pid int) []int {
	var children []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended, and another has its children
		}
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				children = append(children, pid)
			}
		}
	}
	return children
}

// processStat is what the kernel says of a process.
type processStat struct {
	parent int
	began  string
}

func readStat(pid int) (processStat, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processStat{}, false
	}
	// proc(5): "pid (command) state ppid …", where the command may hold anything.
	const state, parent, began = 3, 4, 22
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= began-state {
		return processStat{}, false
	}
	number, err := strconv.Atoi(fields[parent-state])
	return processStat{number, fields[began-state]}, err == nil
}
