package launch

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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

// Orphans are processes that models started and that left their stub's process group, for example
// daemons. When their parent ends they become children of this process, the subreaper. While their
// stub lives they are its model's business; they end with it. Two things distinguish them from
// children of other code:
//
//   - By their mark, a variable of the environment. A stub has it in its own
//     environment, so that processes which it forks have it too, and in that of the
//     programs that it starts.
//   - By their parents, as long as these live: a stub is looked at before it ends.
//
// A process that has changed its environment and has lost its parent before its stub ends is not
// found. When this process is killed, a template ends the processes with its marks.

// stubVariable is the environment variable that contains the mark.
const stubVariable = "NEREID_STUB"

// markDigits is the length of a stub's number in its mark: a forked stub overwrites the template's
// with its own.
const markDigits = 10

// newToken returns the common prefix of all marks of one Children.
func newToken() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // it never fails
	// bound: 8 bytes
	return hex.EncodeToString(random) + "."
}

// NewMark returns the mark of a process that is to be started.
func (c *Children) NewMark() string {
	return fmt.Sprintf("%s%0*d", c.token, markDigits, c.marks.Add(1))
}

// TemplateMark returns the mark of templates: processes that fork others. A forked process has room
// for its own mark there.
func (c *Children) TemplateMark() string { return c.token + strings.Repeat("0", markDigits) }

// environmentWith returns an environment with a mark.
//
// bound: environment, which is this process's or a backend's
func environmentWith(environment []string, mark string) []string {
	all := slices.DeleteFunc(slices.Clone(environment), func(v string) bool { return strings.HasPrefix(v, stubVariable+"=") })
	return append(all, stubVariable+"="+mark)
}

// mostEnvironment is the number of bytes in which a mark is sought: the kernel passes at most 6 MiB
// to a program, but a process can declare any of its memory its environment.
const mostEnvironment = 8 << 20

// marked reports whether a process has a mark with this prefix.
func marked(pid int, mark string) bool {
	file, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	defer file.Close()
	return holdsMark(io.LimitReader(file, mostEnvironment), mark)
}

// holdsMark reports whether an environment has a mark with this prefix.
func holdsMark(environment io.Reader, mark string) bool {
	sought := []byte(stubVariable + "=" + mark) // bound: the length of a mark
	variables := bufio.NewReader(environment)
	for begins := true; ; {
		part, err := variables.ReadSlice(0)
		if begins && bytes.HasPrefix(part, sought) {
			return true
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return false
		}
		begins = err == nil
	}
}

// relative is a descendant of a stub, identified by its start time too, because its pid may be
// reused.
type relative struct {
	pid   int
	began string // field 22 of its stat
}

// identify returns the process that has this pid now.
func identify(pid int) (relative, bool) {
	s, ok := readStat(pid)
	return relative{pid, s.began}, ok
}

// lives reports whether the process's pid has not been reused. It may have ended.
func (r relative) lives() bool {
	now, ok := identify(r.pid)
	return ok && now == r
}

// kill ends the process, if its pid has not been reused.
func (r relative) kill() {
	fd, err := unix.PidfdOpen(r.pid, 0)
	if err != nil {
		if r.lives() { // an old kernel, or no descriptor is left
			_ = unix.Kill(r.pid, unix.SIGKILL)
		}
		return
	}
	defer unix.Close(fd)
	if r.lives() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// mostRelatives limits the descendants that are listed: processes that start others all the time
// would never be listed completely. KillOrphans finds the rest by their mark.
const mostRelatives = 1 << 16

// descendants lists the descendants of a process.
func (c *Children) descendants(of int) []relative {
	var found []relative // bound: mostRelatives
	children := c.census.take()
	todo := children(of) // bound: the processes of the machine
	for len(todo) > 0 && len(found) < mostRelatives {
		pid := todo[0]
		todo = todo[1:]
		if r, ok := identify(pid); ok {
			found = append(found, r)
			todo = append(todo, children(pid)...)
		}
	}
	return found
}

// Look records the descendants of a process while they can still be found: before it is reaped.
func (c *Children) Look(p *Process) { p.addFamily(c.descendants(p.pid)) }

// addFamily records descendants of the process.
func (p *Process) addFamily(family []relative) {
	p.mu.Lock()
	p.family = append(p.family, family...)
	p.mu.Unlock()
}

// KillFamily ends the recorded descendants.
func (p *Process) KillFamily() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.family {
		r.kill()
	}
}

// KillOrphans ends the orphans of a process, which have its mark.
func (c *Children) KillOrphans(of *Process) { c.KillMarked(of.mark) }

// KillMarked ends the orphans whose mark has this prefix, and orphans that are reparented as a
// result. It returns when none is left, or after groupLimit.
func (c *Children) KillMarked(mark string) {
	killed := make(map[relative]bool) // bound: the processes of the machine
	for deadline := time.Now().Add(groupLimit); ; time.Sleep(groupPause) {
		found := false
		known := c.known()
		for _, pid := range c.census.take()(os.Getpid()) {
			orphan, ok := identify(pid)
			switch {
			case !ok || known[pid]:
				continue
			case killed[orphan]:
				// Reaped here: if other code of this process starts programs, nothing else reaps
				// them.
				c.reapOrphan(orphan)
			case !marked(pid, mark):
				continue
			default:
				family := c.descendants(pid)
				orphan.kill()
				killed[orphan] = true
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

// reapOrphan reaps a killed child if it has ended. births is held: the child may be a stub that has
// just been forked, whose status only Wait may take, or its pid may now be that of such a stub.
func (c *Children) reapOrphan(r relative) {
	c.births.Lock()
	defer c.births.Unlock()
	if !c.known()[r.pid] && r.lives() {
		_, _ = wait4(r.pid, nil, unix.WNOHANG)
	}
}

// KillAll kills all processes except templates, with their descendants.
func (c *Children) KillAll() {
	// With the lock held, so that no process is forgotten meanwhile. All are killed before the
	// first family is: a living process could start others.
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
	c.KillMarked(c.token)
}

// known returns the pids of the watched processes.
//
// bound: the processes
func (c *Children) known() map[int]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := make(map[int]bool, len(c.processes))
	for p := range c.processes {
		known[p.pid] = true
	}
	return known
}

// reapOrphans reaps the orphans that have ended. births is held, so that a stub that has just been
// forked is known.
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

// census lists the children of processes. Where the kernel does not list them, it scans all
// processes: once for all callers that wait meanwhile, because many stubs may end together.
type census struct {
	asked atomic.Uint64

	mu     sync.Mutex
	served uint64 // calls up to this number are answered by last
	last   map[int][]int
}

// take returns a function that lists the children of a process, at a time not before the call of
// take.
func (c *census) take() (children func(pid int) []int) {
	// Absent on kernels that were built without it.
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err == nil {
		return listChildren
	}
	// A scan that began after this call's number was given may answer it. A caller that waited for
	// the lock usually finds that the one before it has scanned for both.
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
//
// bound: the processes of the machine
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

// listChildren reads the kernel's list of the children of a process.
//
// bound: the processes of the machine
func listChildren(pid int) []int {
	var children []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended, and another one has its children
		}
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				children = append(children, pid)
			}
		}
	}
	return children
}

// processStat is the kernel's data about a process.
type processStat struct {
	parent int
	began  string
}

// readStat reads the stat of a process.
//
// bound: a line of the kernel
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
	return processStat{number, strings.Clone(fields[began-state])}, err == nil
}
