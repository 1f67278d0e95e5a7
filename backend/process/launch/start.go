package launch

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is a program to start.
type Command struct {
	Argv  []string   // the path of the program, and its arguments
	Files []*os.File // its descriptors 0, 1, 2, …
	// Environment is all that the program gets but its mark; nil: what this process has.
	Environment []string
	Directory   string // it works in; "": that of this process
}

// Start runs a program in a process group of its own, with a mark.
//
// There is no parent-death signal: it would come before the lifeline's, end the stub
// alone, and with it the lifeline that ends what the model has started.
func Start(c Command, mark string) (*Process, error) {
	fds := make([]uintptr, len(c.Files))
	for i, f := range c.Files {
		fds[i] = f.Fd()
	}
	environment := c.Environment
	if environment == nil {
		environment = os.Environ()
	}
	pidfd := -1
	attr := &syscall.ProcAttr{
		Dir:   c.Directory,
		Env:   environmentWith(environment, mark),
		Files: fds,
		Sys:   &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd},
	}
	pid, _, err := syscall.StartProcess(c.Argv[0], c.Argv, attr)
	runtime.KeepAlive(c.Files)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	return Adopt(pid, pidfd, mark), nil
}

// Arm makes the end of the lifeline a SIGKILL for the process group of a stub.
// The stub does so too, but it takes a while until it gets there. Where the
// kernel refuses, the end of the down bell still tells.
func Arm(lifeline *os.File, p *Process) {
	fd := lifeline.Fd()
	if _, err := unix.FcntlInt(fd, unix.F_SETOWN, -p.pid); err != nil {
		return
	}
	if _, err := unix.FcntlInt(fd, unix.F_SETSIG, int(unix.SIGKILL)); err != nil {
		return
	}
	if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err == nil {
		_, _ = unix.FcntlInt(fd, unix.F_SETFL, flags|unix.O_ASYNC)
	}
}
