package plugin

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
	"github.com/nereid-serving/nereid/sdk"
	"golang.org/x/sys/unix"
)

// Exit codes of a stub: the backend did not start; this process and the server have lost each
// other; there was no memory; the server has violated the protocol.
const (
	exitNotStarted = 1
	exitLost       = 70
	exitConfused   = 76
)

// Serve runs a backend as a plugin of the server that has started this process, and ends the
// process. Main calls it before it writes anything to stdout.
func Serve(initialize sdk.New) {
	if os.Getenv(ipc.PluginCookieKey) != ipc.PluginCookieValue {
		fmt.Fprintf(os.Stderr, "%s is a backend of Nereid, which starts it by itself: put it at <backend-directory>/<name>/nereid_<name>, "+
			"name the backend in the config of a model, and start the server with --backend-directory\n", os.Args[0])
		os.Exit(exitNotStarted)
	}
	os.Exit(serve(initialize))
}

func serve(initialize sdk.New) int {
	fds, err := descriptors(os.Getenv(ipc.PluginFilesEnv))
	if err == nil {
		err = settle(fds)
	}
	if err == nil {
		err = greet(os.Getenv(ipc.PluginVersionsEnv), fds)
	}
	if err != nil {
		return complain(err)
	}
	// Programs that the author starts are not plugins.
	for _, name := range []string{ipc.PluginCookieKey, ipc.PluginFilesEnv, ipc.PluginVersionsEnv} {
		_ = os.Unsetenv(name)
	}
	s := newSession(initialize)
	if err := s.attach(fds); err != nil {
		return complain(err)
	}
	code, err := s.run()
	if err != nil {
		return complain(err)
	}
	return code
}

// complain prints the reason for the end of this process for the operator, and returns the exit
// code.
func complain(err error) int {
	var broken *ipc.ProtocolError
	switch {
	case errors.Is(err, peer.ErrGone):
		// The lifeline normally ends the group before this is noticed.
		fmt.Fprintln(os.Stderr, "plugin: Non-graceful termination detected. ")
		_ = unix.Kill(-unix.Getpgrp(), unix.SIGKILL)
	case errors.As(err, &broken):
		fmt.Fprintln(os.Stderr, "plugin: the server cannot be trusted:", broken.Detail)
		return exitConfused
	}
	fmt.Fprintln(os.Stderr, "plugin:", err)
	return exitLost
}

// inherited are the file descriptors passed to this process, in the order of ipc.PluginFilesEnv.
type inherited struct {
	files  peer.Files
	others []int // of Files
	life   int   // the lifeline
	output [2]int
}

func descriptors(list string) (*inherited, error) {
	var fds []int
	for field := range strings.SplitSeq(list, ",") {
		fd, err := strconv.Atoi(field)
		if err != nil || fd < 3 {
			return nil, fmt.Errorf("%s is %q, want the numbers of descriptors with commas between", ipc.PluginFilesEnv, list)
		}
		fds = append(fds, fd)
	}
	// Six, optionally the socket for regions, and two for output.
	if len(fds) != 8 && len(fds) != 9 {
		return nil, fmt.Errorf("%s has %d descriptors, want 8 or 9: the server speaks another version", ipc.PluginFilesEnv, len(fds))
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	file := func(i int, name string) *os.File { return os.NewFile(uintptr(fds[i]), name) }
	in := &inherited{
		files: peer.Files{Down: file(0, "down"), Up: file(1, "up"), Requests: file(2, "requests"), DownBell: file(3, "bell"), UpBell: file(4, "bell")},
		life:  fds[5], output: [2]int(fds[len(fds)-2:]),
	}
	if len(fds) == 9 {
		in.others = fds[6:7]
	}
	return in, nil
}

// settle moves this process to its own process group, which dies with the server and does not
// receive Ctrl-C.
func settle(fds *inherited) error {
	if unix.Getpgrp() != os.Getpid() {
		if err := unix.Setpgid(0, 0); err != nil {
			return os.NewSyscallError("setpgid", err)
		}
	}
	arm(fds.life)
	// Caught and not ignored, because programs that the author starts would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGTERM)
	// Descriptors of clients' regions are not used: each MAP is refused.
	for _, fd := range fds.others {
		_ = unix.Close(fd)
	}
	return nil
}

// arm makes the kernel kill this process group when the other end of the lifeline is closed. No
// thread takes part, so it works while the group is stopped. If the kernel does not support it, the
// end of the bell ends the process, though later.
func arm(lifeline int) {
	if _, err := unix.FcntlInt(uintptr(lifeline), unix.F_SETOWN, -unix.Getpgrp()); err != nil {
		return
	}
	if _, err := unix.FcntlInt(uintptr(lifeline), unix.F_SETSIG, int(unix.SIGKILL)); err != nil {
		return
	}
	flags, err := unix.FcntlInt(uintptr(lifeline), unix.F_GETFL, 0)
	if err != nil {
		return
	}
	if _, err := unix.FcntlInt(uintptr(lifeline), unix.F_SETFL, flags|unix.O_ASYNC); err != nil {
		return
	}
	ended := []unix.PollFd{{Fd: int32(lifeline)}}
	if n, err := unix.Poll(ended, 0); n > 0 && err == nil { // before it was armed
		_ = unix.Kill(-unix.Getpgrp(), unix.SIGKILL)
	}
}

// greet writes the handshake line to stdout, and then replaces stdout and stderr with the server's
// files. The version is the highest that both sides support.
func greet(versions string, fds *inherited) error {
	common := false
	for field := range strings.SplitSeq(versions, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		common = common || err == nil && n == ipc.PluginVersion
	}
	if _, err := fmt.Println(ipc.PluginLine(ipc.PluginVersion)); err != nil {
		return fmt.Errorf("write the handshake line: %w", err)
	}
	if !common {
		return fmt.Errorf("the server speaks versions %q, this backend was built with %d: build it with the sdk of that server", versions, ipc.PluginVersion)
	}
	for i, fd := range fds.output {
		if err := unix.Dup3(fd, 1+i, 0); err != nil {
			return os.NewSyscallError("dup3", err)
		}
		_ = unix.Close(fd)
	}
	return nil
}
