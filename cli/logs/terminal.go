package logs

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether a person reads what is written to w: a file or a Console that leads
// to a terminal.
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
// none can be taken for another line of the log, and control characters but the tabulator are
// written as escapes, since models and clients choose the text.
func appendReadable(dst, text []byte) []byte {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			if i+1 < len(text) {
				dst = append(dst, "\n    "...)
			}
		case c == 0xC2 && i+1 < len(text) && text[i+1] >= 0x80 && text[i+1] <= 0x9F: // U+0080 to U+009F
			i++
			dst = append(dst, `\u00`...)
			dst = append(dst, upperHex[text[i]>>4], upperHex[text[i]&15])
		case c == '\t' || c >= ' ' && c != 0x7F:
			dst = append(dst, c)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}
