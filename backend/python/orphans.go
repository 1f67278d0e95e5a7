package python

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Orphans are processes that models started and that left their stub's process
// group, daemons for example. When their parent ends they become children of
// this process, the subreaper. As long as their stub lives they are its
// model's business; they end with it, and at the latest with the backend.

// stubVariable is in the environment of whatever a stub starts; its value is the
// stub's process id.
const stubVariable = "NEREID_STUB"

// orphansLocked lists the children of this process that the backend did not
// start. births must be held, so that a stub which has just been forked is
// known.
func (b *Backend) orphansLocked() []int {
	if !b.soleParent {
		return nil
	}
	known := make(map[int]bool)
	b.live.Lock()
	for p := range b.live.processes {
		known[p.pid] = true
	}
	b.live.Unlock()
	var orphans []int
	for _, pid := range childProcesses() {
		if !known[pid] {
			orphans = append(orphans, pid)
		}
	}
	return orphans
}

// reapOrphans takes the orphans that have ended.
func (b *Backend) reapOrphans() {
	b.births.Lock()
	defer b.births.Unlock()
	for _, pid := range b.orphansLocked() {
		_, _ = wait4(pid, nil, unix.WNOHANG)
	}
}

// killOrphansOf ends the orphans of a stub that has been reaped. Those that
// changed their environment are not recognised.
func (b *Backend) killOrphansOf(stub int) {
	b.births.Lock()
	defer b.births.Unlock()
	mark := []byte(fmt.Sprintf("%s=%d\x00", stubVariable, stub))
	for _, pid := range b.orphansLocked() {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && (bytes.HasPrefix(environment, mark) || bytes.Contains(environment, append([]byte{0}, mark...))) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// killOrphans ends all orphans, and those that their ends bring here.
func (b *Backend) killOrphans() {
	for deadline := time.Now().Add(groupLimit); time.Now().Before(deadline); time.Sleep(groupPause) {
		b.births.Lock()
		orphans := b.orphansLocked()
		for _, pid := range orphans {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = wait4(pid, nil, unix.WNOHANG)
		}
		b.births.Unlock()
		if len(orphans) == 0 {
			return
		}
	}
}

// childProcesses lists the children of this process.
func childProcesses() []int {
	var children []int
	lists, _ := filepath.Glob("/proc/self/task/*/children") // absent on kernels built without it
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
	if len(lists) > 0 {
		return children
	}
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// proc(5): "pid (command) state ppid …", where the command may hold anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			children = append(children, pid)
		}
	}
	return children
}
