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
		// Not by Fd, which would change the descriptor.
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

// appendReadable appends text for a terminal: the lines behind the first are indented, so that
// none can be taken for another line of the log, and all are printable.
func appendReadable(dst, text []byte) []byte {
	line, rest, more := bytes.Cut(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	dst = command.AppendPrintable(dst, line)
	for more {
		line, rest, more = bytes.Cut(rest, []byte("\n"))
		dst = command.AppendPrintable(append(dst, "\n    "...), line)
	}
	return dst
}
