package devserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/panics"
)

// Terminal is the controlling terminal of this process. A model's debugger puts its own process
// group into the foreground while it runs, and this one back afterwards. Terminal does so if the
// debugger's process has died before.
type Terminal struct {
	file    *os.File
	modes   *unix.Termios // the initial ones; a debugger may die after changing them
	group   int           // the process group of this process
	stop    chan struct{} // closed by Close
	stopped chan struct{} // closed by the goroutine
}

// between is the interval between checks for a dead debugger.
const between = 200 * time.Millisecond

// OpenTerminal returns the controlling terminal, or nil. Its goroutine runs until Close.
func OpenTerminal(log zerolog.Logger) *Terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	t := &Terminal{file: file, group: unix.Getpgrp(), stop: make(chan struct{}), stopped: make(chan struct{})}
	_ = t.do(func(fd int) (err error) { t.modes, err = unix.IoctlGetTermios(fd, unix.TCGETS); return err })
	panics.Go(log, panics.Server, func() {
		defer close(t.stopped)
		ticks := time.NewTicker(between)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				if group := t.foreground(); group > 0 && group != t.group && errors.Is(unix.Kill(-group, 0), unix.ESRCH) {
					t.takeBack()
					log.Warn().Msg("the process of a model has exited in its debugger: the server has taken the terminal back")
				}
			case <-t.stop:
				return
			}
		}
	}, nil)
	return t
}

// Close takes the terminal back from a debugger. Models must have ended before.
func (t *Terminal) Close() {
	close(t.stop)
	<-t.stopped
	if group := t.foreground(); group > 0 && group != t.group && errors.Is(unix.Kill(-group, 0), unix.ESRCH) {
		t.takeBack()
	}
	_ = t.file.Close()
}

// IsLent reports whether the debugger of a model has the terminal.
func (t *Terminal) IsLent() bool {
	group := t.foreground()
	return group > 0 && group != t.group && parentOf(group) == os.Getpid()
}

// foreground returns the process group in the foreground, or 0 if it is unknown.
func (t *Terminal) foreground() (group int) {
	_ = t.do(func(fd int) (err error) { group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP); return err })
	return group
}

// takeBack puts this process into the foreground, with the initial modes of the terminal. The
// kernel stops background groups that try, unless the thread blocks the signal.
func (t *Terminal) takeBack() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var blocked, before unix.Sigset_t
	blocked.Val[0] = 1 << (unix.SIGTTOU - 1)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, &before) != nil {
		return
	}
	_ = t.do(func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, t.group); err != nil || t.modes == nil {
			return err
		}
		return unix.IoctlSetTermios(fd, unix.TCSETSW, t.modes)
	})
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
}

func (t *Terminal) do(f func(fd int) error) error {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return errors.Join(failed, err)
}

// parentOf returns the parent of a process, or 0 if the process is gone.
func parentOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may contain any character. The state and the parent follow its end.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1])) // 0 without a parent
	return parent
}
