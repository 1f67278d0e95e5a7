// Package terminal creates pseudo-terminals for tests of interactive programs. Each is closed when
// its test ends. Open creates one for output only, and Start runs a program in one.
package terminal

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pair opens both ends of a pseudo-terminal. It skips the test if the machine has none.
func pair(t testing.TB) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	var number int
	raw, err := person.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
				number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			}
		})
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// Open creates a pseudo-terminal for programs under test. They write to file; closed closes it and
// returns their output with the original line ends.
func Open(t testing.TB) (file *os.File, closed func() string) {
	t.Helper()
	reader, file := pair(t)
	read := make(chan string, 1) // the goroutine sends once and does not close it
	go func() {
		var text strings.Builder
		piece := make([]byte, 4096)
		for {
			n, err := reader.Read(piece)
			text.Write(piece[:n])
			if err != nil { // EIO: all writers have closed
				read <- text.String()
				return
			}
		}
	}()
	return file, func() string {
		t.Helper()
		_ = file.Close()
		return strings.ReplaceAll(<-read, "\r\n", "\n")
	}
}
