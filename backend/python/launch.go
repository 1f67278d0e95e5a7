package python

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/nereid-serving/nereid/ipc"
	"golang.org/x/sys/unix"
)

// startProgram runs a program with the given files as its descriptors 0, 1, 2, … in a
// process group of its own, with a mark.
func startProgram(argv []string, files []*os.File, mark string) (*process, error) {
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
	return adopt(pid, pidfd, mark), nil
}

// stubFiles are what a stub process inherits.
type stubFiles struct {
	peer     ipc.PeerFiles
	requests *os.File
	output   [2]*os.File // become stdout and stderr
}

func (f *stubFiles) close() {
	f.peer.Close()
	for _, file := range []*os.File{f.requests, f.output[0], f.output[1]} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// list returns the files in the order in which the stub is told their numbers.
func (f *stubFiles) list() []*os.File {
	return []*os.File{f.peer.Down, f.peer.Up, f.requests, f.peer.DownBell, f.peer.UpBell, f.peer.Lifeline}
}

// startStub starts a stub of its own: a program, not a fork of the template.
func startStub(interpreter, program, instance, mark string, files *stubFiles) (*process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	inherit := append([]*os.File{null, files.output[0], files.output[1]}, files.list()...)
	numbers := make([]string, 0, 6)
	for fd := 3; fd < len(inherit); fd++ {
		numbers = append(numbers, strconv.Itoa(fd))
	}
	// No parent-death signal: it would come before the lifeline's, end the stub
	// alone, and with it the lifeline that ends what the model has started.
	return startProgram([]string{interpreter, "-u", program, instance, "--fds=" + strings.Join(numbers, ",")}, inherit, mark)
}

// arm makes the end of the lifeline a SIGKILL for the process group of a stub.
// The stub does so too, but it takes a while until it gets there. Where the
// kernel refuses, the end of the down bell still tells.
func arm(lifeline *os.File, group int) {
	fd := lifeline.Fd()
	if _, err := unix.FcntlInt(fd, unix.F_SETOWN, -group); err != nil {
		return
	}
	if _, err := unix.FcntlInt(fd, unix.F_SETSIG, int(unix.SIGKILL)); err != nil {
		return
	}
	if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err == nil {
		_, _ = unix.FcntlInt(fd, unix.F_SETFL, flags|unix.O_ASYNC)
	}
}

// becomeSubreaper lets orphans of our stubs come home to this process, and
// stubs that a template forked become children of ours.
func becomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return errors.Join(errors.New("become the subreaper of stubs"), err)
	}
	return nil
}
