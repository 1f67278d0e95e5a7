package jsontext

import (
	"errors"
	"strconv"

	"github.com/nereid-serving/nereid/budget"
)

// A Document is a JSON document whose syntax has been checked. Its values are read in place.
//
// Syntax and the texts of syntax errors are those of Triton's parser, which differs from RFC 8259:
// it accepts NaN, Inf and Infinity, skips a byte-order mark before the document, ends the document
// at a NUL, and does not check UTF-8.
type Document struct {
	buf []byte
	// root is the offset of the outermost value.
	root int
	// spans has the ends of long containers, sorted by start, so that a walk over the members
	// around them does not read them again.
	spans []span
	// walked is the container whose end was found last. The end of a walk over a container is where
	// the walk around it goes on, so a walk over everything reads each byte once.
	walked span
}

type span struct{ start, end int }

// spanMin is the shortest container that gets a span.
const spanMin = 1024

// ErrTooDeep is the error of a document with more than budget.MaxJSONDepth brackets open at once.
// The outermost bracket counts.
var ErrTooDeep = errors.New("JSON nesting depth exceeds maximum allowed limit (" + strconv.Itoa(budget.MaxJSONDepth) + ")")

// SyntaxError is the first syntax error of a document, with its position.
type SyntaxError struct {
	reason string
	offset int
}

// Offset returns the position of the error in the document, in bytes.
func (e *SyntaxError) Offset() int { return e.offset }

func (e *SyntaxError) Error() string {
	return e.reason + " at " + strconv.Itoa(e.offset)
}

// The reasons, word for word those of Triton's parser.
const (
	emptyDocument    = "The document is empty."
	trailing         = "The document root must not be followed by other values."
	invalidValue     = "Invalid value."
	missName         = "Missing a name for object member."
	missColon        = "Missing a colon after a name of object member."
	missMemberEnd    = "Missing a comma or } after an object member."
	missElementEnd   = "Missing a comma or ] after an array element."
	missQuote        = "Missing a closing quotation mark in string."
	invalidEscape    = "Invalid escape character in string."
	invalidHex       = "Incorrect hex digit after \\u escape in string."
	invalidSurrogate = "The surrogate pair in string is invalid."
	tooBig           = "Number too big to be stored in double."
	missFraction     = "Miss fraction part in number."
	missExponent     = "Miss exponent in number."
)

// Scanner is the working memory of a scan; it can be used again.
type Scanner struct {
	// spans are the open containers and the long ones, sorted by start. The end of an open one is
	// the index of the container around it.
	spans []span
	depth int // open containers
	inner int // index of the innermost of them
}

// Scan checks the syntax of buf, and charges the spans to c. The result refers to buf and to the
// scanner's spans, and is valid until either changes. The error is a *SyntaxError, ErrTooDeep, or
// the error of a charge.
func (s *Scanner) Scan(c *budget.Charge, buf []byte) (Document, error) {
	s.spans, s.depth = s.spans[:0], 0
	i := 0
	if len(buf) >= 3 && buf[0] == 0xef && buf[1] == 0xbb && buf[2] == 0xbf {
		i = 3
	}
	i = skipSpace(buf, i)
	if i >= len(buf) || buf[i] == 0 {
		return Document{}, &SyntaxError{emptyDocument, i}
	}
	root := i
	i, err := s.scanValue(c, buf, i)
	if err != nil {
		return Document{}, err
	}
	if i = skipSpace(buf, i); i < len(buf) && buf[i] != 0 {
		return Document{}, &SyntaxError{trailing, i}
	}
	return Document{buf: buf, root: root, spans: s.spans}, nil
}

// Kept returns the capacity of the working memory, in entries.
func (s *Scanner) Kept() int { return cap(s.spans) }

// scanValue reads the value at b[i], which is not a space, and returns the offset after it. It does
// not recurse, so nesting does not consume the stack.
func (s *Scanner) scanValue(c *budget.Charge, b []byte, i int) (int, error) {
	var err error
value:
	if i >= len(b) {
		return 0, &SyntaxError{invalidValue, i}
	}
	switch b[i] {
	case '{':
		if err = s.enter(c, i); err != nil {
			return 0, err
		}
		i = skipSpace(b, i+1)
		if i < len(b) && b[i] == '}' {
			goto leave
		}
		goto member
	case '[':
		if err = s.enter(c, i); err != nil {
			return 0, err
		}
		i = skipSpace(b, i+1)
		if i < len(b) && b[i] == ']' {
			goto leave
		}
		goto value
	case '"':
		i, err = scanString(b, i)
	case 't':
		i, err = scanWord(b, i, "true")
	case 'f':
		i, err = scanWord(b, i, "false")
	case 'n':
		i, err = scanWord(b, i, "null")
	default:
		i, err = scanNumber(b, i)
	}
	if err != nil {
		return 0, err
	}
after: // a value that ends at i
	if s.depth == 0 {
		return i, nil
	}
	i = skipSpace(b, i)
	if b[s.spans[s.inner].start] == '[' {
		switch {
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
			goto value
		case i < len(b) && b[i] == ']':
			goto leave
		}
		return 0, &SyntaxError{missElementEnd, i}
	}
	switch {
	case i < len(b) && b[i] == ',':
		i = skipSpace(b, i+1)
		goto member
	case i < len(b) && b[i] == '}':
		goto leave
	}
	return 0, &SyntaxError{missMemberEnd, i}
member:
	if i >= len(b) || b[i] != '"' {
		return 0, &SyntaxError{missName, i}
	}
	if i, err = scanString(b, i); err != nil {
		return 0, err
	}
	if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
		return 0, &SyntaxError{missColon, i}
	}
	i = skipSpace(b, i+1)
	goto value
leave: // the container whose closing bracket is b[i]
	i++
	s.leave(i)
	goto after
}

// enter opens the container that starts at i.
func (s *Scanner) enter(c *budget.Charge, i int) error {
	if s.depth == budget.MaxJSONDepth {
		return ErrTooDeep
	}
	one := span{i, s.inner}
	if len(s.spans) < cap(s.spans) {
		s.spans = append(s.spans, one) // bound: there is room
	} else {
		var err error
		if s.spans, err = budget.Append(c, budget.JSON, s.spans, one); err != nil {
			return err
		}
	}
	s.depth++
	s.inner = len(s.spans) - 1
	return nil
}

// leave closes the innermost container, which ends before end. The span of a short one is the last,
// since all containers inside are shorter.
func (s *Scanner) leave(end int) {
	one := &s.spans[s.inner]
	around := one.end
	if end-one.start >= spanMin {
		one.end = end
	} else {
		s.spans = s.spans[:s.inner]
	}
	s.depth--
	s.inner = around
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

func scanWord(b []byte, i int, word string) (int, error) {
	for n := range len(word) {
		if i+n >= len(b) || b[i+n] != word[n] {
			return 0, &SyntaxError{invalidValue, i + n}
		}
	}
	return i + len(word), nil
}

// scanString reads the string whose opening quote is b[i].
func scanString(b []byte, i int) (int, error) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\':
			end, err := scanEscape(b, i)
			if err != nil {
				return 0, err
			}
			i = end - 1
		case c == 0:
			return 0, &SyntaxError{missQuote, i}
		case c < 0x20:
			return 0, &SyntaxError{invalidEscape, i}
		}
	}
	return 0, &SyntaxError{missQuote, i}
}

// scanEscape reads the escape whose backslash is b[i], both halves of a surrogate pair together. A
// low surrogate alone is accepted.
func scanEscape(b []byte, i int) (int, error) {
	at := i
	if i++; i >= len(b) {
		return 0, &SyntaxError{invalidEscape, at}
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, nil
	case 'u':
	default:
		return 0, &SyntaxError{invalidEscape, at}
	}
	r, ok := hex4(b, i+1)
	if !ok {
		return 0, &SyntaxError{invalidHex, at}
	}
	i += 5
	if r < 0xd800 || r > 0xdbff {
		return i, nil
	}
	if i+1 >= len(b) || b[i] != '\\' || b[i+1] != 'u' {
		return 0, &SyntaxError{invalidSurrogate, at}
	}
	low, ok := hex4(b, i+2)
	if !ok {
		return 0, &SyntaxError{invalidHex, at}
	}
	if low < 0xdc00 || low > 0xdfff {
		return 0, &SyntaxError{invalidSurrogate, at}
	}
	return i + 6, nil
}

// hex4 reads the four hexadecimal digits at b[i].
func hex4(b []byte, i int) (r rune, ok bool) {
	if i+4 > len(b) {
		return 0, false
	}
	for _, c := range b[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
