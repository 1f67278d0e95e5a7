package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenText     tokenKind = iota // outside of tags
	tokenName                      // also keywords
	tokenString                    // without quotes and escapes
	tokenInt                       // digits
	tokenFloat                     // digits with a point or an exponent
	tokenOperator                  // text is the operator
	tokenBegin                     // {{ or {%
	tokenEnd                       // }} or %}
	tokenEOF
)

type token struct {
	kind tokenKind
	text string
	line int
}

// is reports whether t is that operator, name or delimiter.
func (t token) is(kind tokenKind, text string) bool { return t.kind == kind && t.text == text }

// lexer splits a source into tokens. It trims the newline after a block or a comment, and the
// spaces between the beginning of a line and a block.
type lexer struct {
	source string
	at     int
	line   int
	tokens []token
}

func lex(source string) ([]token, error) {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1}
	for l.at < len(l.source) {
		if err := l.textAndTag(); err != nil {
			return nil, err
		}
	}
	l.add(tokenEOF, "")
	return l.tokens, nil
}

func (l *lexer) add(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

func (l *lexer) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %w", l.line, fmt.Errorf(format, args...))
}

// nextTag returns the offset of the next tag, or of the end of the source.
func (l *lexer) nextTag() int {
	for i := l.at; ; i++ {
		n := strings.IndexByte(l.source[i:], '{')
		if n < 0 || i+n+1 >= len(l.source) {
			return len(l.source)
		}
		i += n
		if c := l.source[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
	}
}

func (l *lexer) textAndTag() error {
	begin := l.nextTag()
	text := l.source[l.at:begin]
	if begin == len(l.source) {
		l.add(tokenText, text)
		l.at = begin
		return nil
	}
	kind, sign := l.source[begin+1], byte(0)
	if begin+2 < len(l.source) {
		sign = l.source[begin+2]
	}
	lineStart := l.at == 0 || l.source[l.at-1] == '\n'
	l.addText(trimBefore(text, kind, sign, lineStart))
	l.line += strings.Count(text, "\n")
	l.at = begin + 2
	if sign == '-' || sign == '+' {
		l.at++
	}
	switch kind {
	case '#':
		return l.comment()
	case '%':
		if l.rawBlock() {
			return l.raw()
		}
	}
	l.add(tokenBegin, "{"+string(kind))
	return l.tag(kind)
}

func (l *lexer) addText(text string) {
	if text != "" {
		l.add(tokenText, text)
	}
}

// trimBefore trims the text before a tag. lineStart reports whether the text begins a line.
func trimBefore(text string, kind, sign byte, lineStart bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, unicode.IsSpace)
	case kind == '{' || sign == '+':
		return text
	}
	blank := strings.TrimRight(text, " \t\f\v")
	if blank == "" && lineStart || strings.HasSuffix(blank, "\n") {
		return blank
	}
	return text
}

// after skips the text that is trimmed after a tag.
func (l *lexer) after(minus, newline bool) {
	rest := l.source[l.at:]
	switch {
	case minus:
		trimmed := strings.TrimLeftFunc(rest, unicode.IsSpace)
		l.line += strings.Count(rest[:len(rest)-len(trimmed)], "\n")
		l.at = len(l.source) - len(trimmed)
	case newline && strings.HasPrefix(rest, "\n"):
		l.line++
		l.at++
	}
}

func (l *lexer) comment() error {
	n := strings.Index(l.source[l.at:], "#}")
	if n < 0 {
		return l.errorf("a comment has no end")
	}
	text := l.source[l.at : l.at+n]
	l.line += strings.Count(text, "\n")
	l.at += n + 2
	l.after(strings.HasSuffix(text, "-"), !strings.HasSuffix(text, "+"))
	return nil
}

// rawBlock reports whether a block is raw, and skips its tag.
func (l *lexer) rawBlock() bool {
	rest := strings.TrimLeftFunc(l.source[l.at:], unicode.IsSpace)
	rest, ok := strings.CutPrefix(rest, "raw")
	if !ok {
		return false
	}
	rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
	minus := strings.HasPrefix(rest, "-")
	rest, ok = strings.CutPrefix(strings.TrimPrefix(rest, "-"), "%}")
	if !ok {
		return false
	}
	l.at = len(l.source) - len(rest)
	l.after(minus, true)
	return true
}

// raw adds the text up to the end of a raw block.
func (l *lexer) raw() error {
	for i := l.at; ; i += 2 {
		n := strings.Index(l.source[i:], "{%")
		if n < 0 {
			return l.errorf("a raw block has no end")
		}
		i += n
		inside := l.source[i+2:]
		sign := byte(0)
		if strings.HasPrefix(inside, "-") || strings.HasPrefix(inside, "+") {
			sign, inside = inside[0], inside[1:]
		}
		inside, ok := strings.CutPrefix(strings.TrimLeftFunc(inside, unicode.IsSpace), "endraw")
		if !ok {
			continue
		}
		inside = strings.TrimLeftFunc(inside, unicode.IsSpace)
		minus := strings.HasPrefix(inside, "-")
		inside, ok = strings.CutPrefix(strings.TrimPrefix(inside, "-"), "%}")
		if !ok {
			continue
		}
		text := l.source[l.at:i]
		l.addText(trimBefore(text, '%', sign, strings.HasSuffix(l.source[:l.at], "\n")))
		l.line += strings.Count(text, "\n")
		l.at = len(l.source) - len(inside)
		l.after(minus, true)
		return nil
	}
}

// operators are tried in this order.
var operators = []string{"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "(", ")", "[", "]", "{", "}", ":", ",", ".", "|", "=", "<", ">"}

// tag adds the tokens of a tag and its end. Brackets of the expression may contain the same
// characters as the end, as in {{ {"a": {}} }}.
func (l *lexer) tag(kind byte) error {
	end := "}}"
	if kind == '%' {
		end = "%}"
	}
	open := 0
	for l.at < len(l.source) {
		rest := l.source[l.at:]
		c := rest[0]
		switch {
		case c == '\n':
			l.line++
			l.at++
		case c == ' ' || c == '\t' || c == '\f' || c == '\v':
			l.at++
		case open == 0 && (strings.HasPrefix(rest, end) || (c == '-' || c == '+') && strings.HasPrefix(rest[1:], end)):
			l.add(tokenEnd, end)
			l.at += len(end)
			if c == '-' || c == '+' {
				l.at++
			}
			l.after(c == '-', kind == '%' && c != '+')
			return nil
		case c == '\'' || c == '"':
			if err := l.quoted(c); err != nil {
				return err
			}
		case '0' <= c && c <= '9':
			l.number()
		default:
			if n := nameLength(rest); n > 0 {
				l.add(tokenName, rest[:n])
				l.at += n
				continue
			}
			operator := ""
			for _, o := range operators {
				if strings.HasPrefix(rest, o) {
					operator = o
					break
				}
			}
			switch operator {
			case "":
				return l.errorf("unexpected character %q", rest[:1])
			case "(", "[", "{":
				open++
			case ")", "]", "}":
				open--
			}
			l.add(tokenOperator, operator)
			l.at += len(operator)
		}
	}
	return l.errorf("a tag has no end")
}

func nameLength(s string) int {
	for i, c := range s {
		if c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c)) {
			return i
		}
	}
	return len(s)
}

func (l *lexer) number() {
	i, kind := l.at, tokenInt
	digits := func() {
		for i < len(l.source) && ('0' <= l.source[i] && l.source[i] <= '9' || l.source[i] == '_') {
			i++
		}
	}
	digits()
	if i+1 < len(l.source) && l.source[i] == '.' && '0' <= l.source[i+1] && l.source[i+1] <= '9' {
		kind = tokenFloat
		i++
		digits()
	}
	if i+1 < len(l.source) && (l.source[i] == 'e' || l.source[i] == 'E') {
		from := i
		i++
		if l.source[i] == '+' || l.source[i] == '-' {
			i++
		}
		first := i
		digits()
		if kind = tokenFloat; i == first {
			i, kind = from, tokenInt
		}
	}
	l.add(kind, strings.ReplaceAll(l.source[l.at:i], "_", ""))
	l.at = i
}

func (l *lexer) quoted(quote byte) error {
	var b strings.Builder
	for i := l.at + 1; i < len(l.source); i++ {
		switch c := l.source[i]; c {
		case quote:
			l.add(tokenString, b.String())
			l.line += strings.Count(l.source[l.at:i], "\n")
			l.at = i + 1
			return nil
		case '\\':
			n, err := l.escape(&b, l.source[i+1:])
			if err != nil {
				return err
			}
			i += n
		default:
			b.WriteByte(c)
		}
	}
	return l.errorf("a string has no end")
}

// escape writes the character of an escape, and returns the length of the escape after its
// backslash.
func (l *lexer) escape(b *strings.Builder, rest string) (n int, err error) {
	if rest == "" {
		return 0, l.errorf("a string has no end")
	}
	if at := strings.IndexByte(`\'"abfnrtv0`, rest[0]); at >= 0 {
		b.WriteByte("\\'\"\a\b\f\n\r\t\v\x00"[at])
		return 1, nil
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[rest[0]]
	switch {
	case rest[0] == '\n':
		return 1, nil
	case digits == 0:
		b.WriteByte('\\') // Python keeps unknown escapes
		_, size := utf8.DecodeRuneInString(rest)
		b.WriteString(rest[:size])
		return size, nil
	}
	var r rune
	if len(rest) <= digits {
		return 0, l.errorf("an escape is cut off")
	}
	if _, err := fmt.Sscanf(rest[1:1+digits], "%x", &r); err != nil {
		return 0, l.errorf("escape \\%s: %w", rest[:1+digits], err)
	}
	b.WriteRune(r)
	return 1 + digits, nil
}
