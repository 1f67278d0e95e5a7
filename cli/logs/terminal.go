package logs

import (
	"bytes"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/cli/command"
)

// IsTerminal reports whether w is a terminal, or a Console that writes to one.
func IsTerminal(w io.Writer) bool {
	fd := -1
	switch to := w.(type) {
	case *Console:
		fd = to.fd
	case *os.File:
		// Fd would make the descriptor blocking.
		if raw, err := to.SyscallConn(); err == nil {
			_ = raw.Control(func(of uintptr) { fd = int(of) })
		}
	}
	if fd < 0 {
		return false
	}
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// appendReadable appends text for a terminal. It is escaped, and lines after the first are
// indented, so that none looks like another log line.
func appendReadable(dst, text []byte) []byte {
	line, rest, more := bytes.Cut(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	dst = command.AppendPrintable(dst, line)
	for more {
		line, rest, more = bytes.Cut(rest, []byte("\n"))
		dst = command.AppendPrintable(append(dst, "\n    "...), line)
	}
	return dst
}
