package command

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// AppendPrintable appends text in a form that is safe for a terminal: control characters except tab
// and line feed, characters that change the direction of text, and bytes that are not UTF-8 become
// escapes such as \u001B. Text can come from models, clients, servers and repositories, and a
// terminal obeys control sequences in it. In JSON the escapes stand for the same characters.
func AppendPrintable(dst, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1: // without UTF-8, terminals treat 0x80 to 0x9F as control characters
			dst = fmt.Appendf(dst, `\x%02X`, text[0])
		case steers(r):
			dst = fmt.Appendf(dst, `\u%04X`, r)
		default:
			dst = append(dst, text[:n]...)
		}
		text = text[n:]
	}
	return dst
}

func steers(r rune) bool {
	switch {
	case r == '\t', r == '\n':
		return false
	case r < ' ', r >= 0x7F && r <= 0x9F:
		return true
	}
	return r == 0x061C || r == 0x200E || r == 0x200F || r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069
}

// breaks become spaces in a line.
var breaks = strings.NewReplacer("\t", " ", "\n", " ")

// Line returns text as AppendPrintable escapes it, in one line.
func Line(text string) string { return breaks.Replace(string(AppendPrintable(nil, []byte(text)))) }

// printable is the type of Printable's result.
type printable struct{ to io.Writer }

// Printable returns a writer that escapes text like AppendPrintable. A character must not be split
// between two writes.
func Printable(to io.Writer) io.Writer { return printable{to} }

func (w printable) Write(p []byte) (int, error) {
	if _, err := w.to.Write(AppendPrintable(make([]byte, 0, len(p)), p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// File returns the file behind a writer, which may be wrapped by Printable, or nil.
func File(w io.Writer) *os.File {
	if p, ok := w.(printable); ok {
		w = p.to
	}
	file, _ := w.(*os.File)
	return file
}

// IsTerminal reports whether a writer, which may be wrapped by Printable, is a terminal.
func IsTerminal(w io.Writer) bool {
	file := File(w)
	if file == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
