package openai

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// buffer builds a text and charges its memory before it grows. After an error writes do nothing.
type buffer struct {
	charge *budget.Charge // nil: the text is short
	kind   budget.Kind
	b      []byte
	err    error
}

const (
	// firstBuffer is the least size of a buffer.
	firstBuffer = 1 << 10
	// pieceSize is how much of a text is quoted at a time.
	pieceSize = 1 << 10
)

// room makes room for n bytes.
func (w *buffer) room(n int) bool {
	if need := len(w.b) + n; w.err == nil && need > cap(w.b) {
		larger := max(need, 2*cap(w.b), firstBuffer)
		if w.err = w.charge.Take(w.kind, int64(larger-cap(w.b))); w.err == nil {
			w.b = append(make([]byte, 0, larger), w.b...) // bound: charged
		}
	}
	return w.err == nil
}

// free releases the memory.
func (w *buffer) free() {
	w.charge.Give(w.kind, int64(cap(w.b)))
	w.b = nil
}

// fail keeps the first error.
func (w *buffer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *buffer) raw(parts ...string) {
	for _, part := range parts {
		if w.room(len(part)) {
			w.b = append(w.b, part...) // bound: there is room
		}
	}
}

func (w *buffer) bytes(b []byte) {
	if w.room(len(b)) {
		w.b = append(w.b, b...) // bound: there is room
	}
}

func (w *buffer) int(n int64) {
	if w.room(20) {
		w.b = strconv.AppendInt(w.b, n, 10)
	}
}

// quote writes a JSON string. It replaces bytes that are not UTF-8, since clients decode bodies
// strictly.
func quote[T string | []byte](w *buffer, s T) {
	w.raw(`"`)
	for from := 0; from < len(s); {
		end := min(from+pieceSize, len(s))
		for back := 1; back < utf8.UTFMax && end < len(s) && !utf8.RuneStart(s[end]); back++ {
			end--
		}
		piece := s[from:end]
		from = end
		if !w.room(6*len(piece) + 2) { // if all of it is escaped, with its quotes
			return
		}
		at := len(w.b)
		if isUTF8(piece) {
			w.b = jsontext.AppendString(w.b, piece) // bound: there is room
		} else {
			w.b = jsontext.AppendString(w.b, strings.ToValidUTF8(string(piece), "\ufffd")) // bound: pieceSize
		}
		w.b = w.b[:at+copy(w.b[at:], w.b[at+1:len(w.b)-1])] // without its quotes
	}
	w.raw(`"`)
}

func isUTF8[T string | []byte](s T) bool {
	switch s := any(s).(type) {
	case string:
		return utf8.ValidString(s)
	case []byte:
		return utf8.Valid(s)
	}
	return false
}

// optional writes a JSON string, or null for an empty one.
func (w *buffer) optional(s string) {
	if s == "" {
		w.raw("null")
		return
	}
	quote(w, s)
}

// ascii writes a JSON string as Python's json does, which escapes all non-ASCII characters.
func (w *buffer) ascii(s []byte) {
	w.raw(`"`)
	for len(s) > 0 && w.room(len(`\ud83d\ude00`)) {
		c, size := utf8.DecodeRune(s)
		s = s[size:]
		switch {
		case c == '"' || c == '\\':
			w.b = append(w.b, '\\', byte(c)) // bound: there is room
		case c == '\n':
			w.raw(`\n`)
		case c == '\r':
			w.raw(`\r`)
		case c == '\t':
			w.raw(`\t`)
		case c == '\b':
			w.raw(`\b`)
		case c == '\f':
			w.raw(`\f`)
		case ' ' <= c && c <= '~':
			w.b = append(w.b, byte(c)) // bound: there is room
		case c <= 0xffff:
			w.escape(c)
		default:
			c -= 0x10000
			w.escape(0xd800 + c>>10)
			w.escape(0xdc00 + c&0x3ff)
		}
	}
	w.raw(`"`)
}

// escape writes a UTF-16 code unit. The caller has made room.
func (w *buffer) escape(c rune) {
	const hex = "0123456789abcdef"
	w.b = append(w.b, '\\', 'u', hex[c>>12&15], hex[c>>8&15], hex[c>>4&15], hex[c&15]) // bound: there is room
}

// plain returns a string without its escapes. It overwrites w if the string has escapes.
func (w *buffer) plain(s jsontext.String) []byte {
	if !s.Escaped {
		return s.Raw
	}
	w.b = w.b[:0]
	if w.room(s.Len()) {
		w.b = s.AppendTo(w.b)
	}
	return w.b
}
