package launch

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is a program to start.
type Command struct {
	Argv  []string   // the path of the program, and its arguments
	Files []*os.File // its descriptors 0, 1, 2, …
	// Environment is the program's environment without its mark; nil stands for this process's.
	Environment []string
	Directory   string // its working directory; "" stands for this process's
}

// Start runs a program with a mark in its own process group.
//
// It sets no parent-death signal: that would come before the lifeline's, end only the stub, and
// with it the lifeline that ends the stub's descendants.
func Start(c Command, mark string) (*Process, error) {
	fds := make([]uintptr, len(c.Files)) // bound: the descriptors of a program
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
	if score := oomScore(); score != nil { // its children inherit the score
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), score, 0)
	}
	return Adopt(pid, pidfd, mark), nil
}

// Arm makes the end of the lifeline send SIGKILL to the process group of a stub. The stub does so
// too, but only some time after its start. If the kernel refuses, the end of the down bell still
// tells the stub.
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

// PacketPair returns two connected sockets that preserve message boundaries.
func PacketPair() (near *net.UnixConn, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	far = os.NewFile(uintptr(fds[1]), "socket")
	nearFile := os.NewFile(uintptr(fds[0]), "socket")
	defer nearFile.Close()
	conn, err := net.FileConn(nearFile)
	if err != nil {
		_ = far.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), far, nil
}
