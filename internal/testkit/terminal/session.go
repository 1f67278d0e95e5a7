package terminal

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// maxLogged is the number of output bytes that a failed test repeats. Full-screen programs write a
// lot.
const maxLogged = 16 << 10

// Session is a program running on its own terminal.
type Session struct {
	t      testing.TB
	cmd    *exec.Cmd
	person *os.File
	shown  testkit.Buffer
	ended  chan error // receives the result of Wait once
	seen   int        // how much of shown Await has passed
}

// Start starts a program in its own session with a new controlling terminal of 200 columns. The
// program is killed when the test ends.
func Start(t testing.TB, cmd *exec.Cmd) *Session {
	t.Helper()
	person, program := pair(t)
	s := &Session{t: t, cmd: cmd, person: person, ended: make(chan error, 1)}
	raw, err := program.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200})
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = program.Close()
	read := make(chan struct{}) // closed when no process has the terminal open any more
	go func() {
		defer close(read)
		piece := make([]byte, 4096)
		for {
			n, err := person.Read(piece)
			_, _ = s.shown.Write(piece[:n])
			if err != nil { // EIO
				return
			}
		}
	}()
	go func() { s.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		if t.Failed() {
			shown := s.Shown()
			t.Logf("the terminal showed, at the end:\n%s", shown[max(0, len(shown)-maxLogged):])
		}
	})
	return s
}

// Type types a text. A line ends with a newline.
func (s *Session) Type(text string) {
	s.t.Helper()
	if _, err := s.person.WriteString(text); err != nil {
		s.t.Fatalf("type %q: %v", text, err)
	}
}

// Await waits until the terminal shows a text after the previously awaited one. It fails the test
// after limit.
func (s *Session) Await(text string, limit time.Duration) {
	s.t.Helper()
	if !testkit.Within(limit, func() bool { return s.next(text) >= 0 }) {
		s.t.Fatalf("the terminal does not show %q within %s", text, limit)
	}
	s.seen = s.next(text)
}

// next returns the end of a text after the previously awaited one, or -1.
func (s *Session) next(text string) int {
	i := strings.Index(s.Shown()[s.seen:], text)
	if i < 0 {
		return i
	}
	return s.seen + i + len(text)
}

// Shown returns everything that the terminal has shown.
func (s *Session) Shown() string { return strings.ReplaceAll(s.shown.String(), "\r\n", "\n") }

// Process returns the started program.
func (s *Session) Process() *os.Process { return s.cmd.Process }

// Wait waits for the end of the program and returns its status, negative if a signal has killed it.
func (s *Session) Wait(limit time.Duration) int {
	s.t.Helper()
	select {
	case err := <-s.ended:
		s.ended <- err
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		s.t.Fatalf("the program still runs after %s", limit)
		return 0
	}
}
