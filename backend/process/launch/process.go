package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/budget"
)

// ExitError describes how a stub ended, with its last output. Error gives one line; the %+v verb
// adds Stderr, which usually contains the Python traceback.
type ExitError struct {
	Code   int         // exit code, or -1 if a signal ended it
	Signal unix.Signal // 0 if it ended by itself
	// OutOfMemory reports that the kernel's count of out-of-memory kills rose while the stub was
	// killed.
	OutOfMemory bool
	Stderr      []string // last lines, oldest first, bounded
}

func (e *ExitError) Error() string { return "process " + e.how() }

// how describes the end of the process, after its name.
func (e *ExitError) how() string {
	if e.Signal == 0 {
		return fmt.Sprintf("exited with code %d", e.Code)
	}
	text := fmt.Sprintf("was ended by signal %d (%s)", int(e.Signal), unix.SignalName(e.Signal))
	if e.OutOfMemory {
		text += ", out of memory"
	}
	return text
}

// Format implements fmt.Formatter.
func (e *ExitError) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprint(f, e.Error())
	if verb == 'v' && f.Flag('+') {
		for _, line := range e.Stderr {
			_, _ = fmt.Fprint(f, "\n", line)
		}
	}
}

// Process is one stub process, a child of this process and the leader of its own process group.
type Process struct {
	pid   int
	mark  string   // its descendants have it too
	pidfd *os.File // nil if unavailable
	// OOMKills is the kernel's count when the process began. Only tests change it once the process
	// is waited for.
	OOMKills int64

	mu     sync.Mutex
	ended  bool
	status unix.WaitStatus
	family []relative // its descendants when they were listed; bound: mostRelatives for each Look
}

// PID returns the process's pid, which is not reused until Wait has returned.
func (p *Process) PID() int { return p.pid }

// Adopt returns a Process for a child's pid and pidfd; it opens the pidfd if that is below 0. If
// that fails (an old kernel, a system call filter, no descriptor left), the pid is enough: it is
// not reused until this process reaps the child.
func Adopt(pid, pidfd int, mark string) *Process {
	if pidfd < 0 {
		var err error
		if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
			pidfd = -1
		}
	}
	p := &Process{pid: pid, mark: mark, OOMKills: oomKills()}
	if pidfd >= 0 {
		// Non-blocking, so that the runtime's poller waits for the end instead of a thread.
		_ = unix.SetNonblock(pidfd, true)
		p.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	}
	return p
}

// Wait returns when the process has ended and the rest of its group has been killed and reaped, or
// groupLimit has passed.
func (p *Process) Wait() *ExitError {
	polled := false
	if p.pidfd != nil {
		if raw, err := p.pidfd.SyscallConn(); err == nil {
			polled = raw.Read(func(uintptr) bool { return p.reap() }) == nil
		}
	}
	if !polled && !p.reap() {
		// Without a usable pidfd a thread waits.
		for waitid(p.pid, unix.WEXITED|unix.WNOWAIT); !p.reap(); {
			time.Sleep(groupPause)
		}
	}
	// Grandchildren are reparented to this process, the subreaper, when their parents end. The
	// group was killed when its leader was reaped.
	for deadline := time.Now().Add(groupLimit); unix.Kill(-p.pid, 0) == nil && time.Now().Before(deadline); {
		p.reap()
		time.Sleep(groupPause)
	}
	if p.pidfd != nil {
		_ = p.pidfd.Close()
	}

	exit := &ExitError{Code: -1}
	if p.status.Signaled() {
		exit.Signal = p.status.Signal()
		exit.OutOfMemory = exit.Signal == unix.SIGKILL && oomKills() > p.OOMKills
	} else {
		exit.Code = p.status.ExitStatus()
	}
	return exit
}

// A killed group is checked every groupPause until groupLimit: a process that hangs in the kernel
// cannot be waited for.
const (
	groupPause = time.Millisecond
	groupLimit = 2 * time.Second
)

// reap reaps the process and its group as far as they have ended, and reports whether the process
// itself has. It does not wait. It kills the group when the process has ended and before its pid is
// released, because afterwards the pid may be reused.
func (p *Process) reap() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	take := func(which int) bool {
		var status unix.WaitStatus
		pid, err := wait4(which, &status, unix.WNOHANG)
		if pid == p.pid {
			p.ended, p.status = true, status
			_ = unix.Kill(-p.pid, unix.SIGKILL) // in case it has just ended
		}
		return pid > 0 && err == nil
	}
	if !p.ended && waitid(p.pid, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG) {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
	}
	for take(-p.pid) {
	}
	return p.ended
}

// Kill kills the process alone. Its pid is not reused until reap, which takes mu, has seen its end.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
}

func wait4(pid int, status *unix.WaitStatus, options int) (int, error) {
	for {
		n, err := unix.Wait4(pid, status, options, nil)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// waitid reports whether a child has ended.
func waitid(pid, options int) bool {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, options, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && info.Signo == int32(unix.SIGCHLD)
		}
	}
}

// oomYield is added to the server's oom_score_adj (proc(5)) for its children: half of the memory of
// the control group, about as much as the server itself may have.
const oomYield = 500

// oomScore returns the oom_score_adj of children in a control group that limits memory, or nil: if
// models fill the group, the kernel should kill one of them, not the server. Without such a group
// the score would prefer them to all processes of the machine.
var oomScore = sync.OnceValue(func() []byte {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	n, parseErr := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil || parseErr != nil || !budget.InGroup() {
		return nil
	}
	return strconv.AppendInt(nil, int64(min(n+oomYield, 1000)), 10)
})

// oomKills returns the kernel's count of out-of-memory kills, in this process's control group if
// available, otherwise in the whole machine.
//
// bound: files of the kernel
func oomKills() int64 {
	for _, path := range oomFiles() {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
				if err == nil {
					return n
				}
			}
		}
	}
	return 0
}

// oomFiles lists the files that may contain the count, those of this process's group first, for
// both versions of control groups.
var oomFiles = sync.OnceValue(func() []string {
	const root = "/sys/fs/cgroup"
	membership, _ := os.ReadFile("/proc/self/cgroup")
	return append(oomFilesOf(root, string(membership)),
		root+"/memory.events", root+"/memory/memory.oom_control", "/proc/vmstat")
})

// oomFilesOf lists the files for the groups in membership.
//
// bound: the control groups of this process
func oomFilesOf(root, membership string) (files []string) {
	for line := range strings.Lines(membership) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case controllers == "":
			files = append(files, filepath.Join(root, path, "memory.events"))
		case slices.Contains(strings.Split(controllers, ","), "memory"):
			files = append(files, filepath.Join(root, "memory", path, "memory.oom_control"))
		}
	}
	return files
}
