package launch

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start runs a program with the given files as its descriptors 0, 1, 2, … in a
// process group of its own, with a mark.
//
// There is no parent-death signal: it would come before the lifeline's, end the stub
// alone, and with it the lifeline that ends what the model has started.
func Start(argv []string, files []*os.File, mark string) (*Process, error) {
	fds := make([]uintptr, len(files))
	for i, f := range files {
		fds[i] = f.Fd()
	}
	pidfd := -1
	attr := &syscall.ProcAttr{
		Env:   environmentWith(mark),
		Files: fds,
		Sys:   &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd},
	}
	pid, _, err := syscall.StartProcess(argv[0], argv, attr)
	runtime.KeepAlive(files)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
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
