package jsontext

import (
	"math"
	"strconv"
)

const upperHex = "0123456789ABCDEF"

// AppendString appends s as Triton's writer prints strings: control characters, quotes and
// backslashes are escaped. All other bytes stay as they are, whether or not they are UTF-8.
//
// bound: the caller has room for Quoted
func AppendString[T string | []byte](b []byte, s T) []byte {
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', upperHex[c>>4], upperHex[c&15])
		}
	}
	return append(append(b, s[from:]...), '"')
}

// Quoted returns the number of bytes that AppendString appends.
func Quoted[T string | []byte](s T) int {
	n := len(s) + len(`""`)
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t':
			n++
		case c < 0x20:
			n += len(`u0000`)
		}
	}
	return n
}

// TextBytes bounds the length of a text in JSON, with a comma.
func TextBytes[T string | []byte](text T) int {
	const few = 64
	if len(text) <= few { // too short to be worth a look
		return 6*len(text) + 3
	}
	return Quoted(text) + 1
}

// AppendFloat appends f with its shortest digits, in the form of Triton's writer: always with a
// point or an exponent, without an exponent up to 21 digits before the point and 6 after it, and
// the tokens NaN, Infinity and -Infinity.
//
// bound: 26 bytes
func AppendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, "NaN"...)
	case math.IsInf(f, 1):
		return append(b, "Infinity"...)
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...)
	}
	if math.Signbit(f) {
		b = append(b, '-')
		f = -f
	}
	if f == 0 {
		return append(b, "0.0"...)
	}
	if f < 1<<53 && f == math.Trunc(f) {
		return append(strconv.AppendUint(b, uint64(f), 10), '.', '0')
	}
	var scratch [32]byte
	s := strconv.AppendFloat(scratch[:0], f, 'e', -1, 64) // d[.ddd]e±dd
	e := len(s) - 1
	for s[e] != 'e' {
		e--
	}
	point := 0 // position of the point, counted from the first digit
	for _, c := range s[e+2:] {
		point = point*10 + int(c-'0')
	}
	if s[e+1] == '-' {
		point = -point
	}
	point++
	digits := s[:e]
	if e > 1 { // without its point
		s[1] = s[0]
		digits = s[1:e]
	}
	switch n := len(digits); {
	case n <= point && point <= 21:
		b = append(b, digits...)
		for range point - n {
			b = append(b, '0')
		}
		return append(b, '.', '0')
	case 0 < point && point <= 21:
		b = append(b, digits[:point]...)
		b = append(b, '.')
		return append(b, digits[point:]...)
	case -6 < point && point <= 0:
		b = append(b, '0', '.')
		for range -point {
			b = append(b, '0')
		}
		return append(b, digits...)
	default:
		b = append(b, digits[0])
		if n > 1 {
			b = append(b, '.')
			b = append(b, digits[1:]...)
		}
		return strconv.AppendInt(append(b, 'e'), int64(point-1), 10)
	}
}

// AppendInts appends the numbers of all lists as one array.
//
// bound: 21 bytes for each number, for which the caller has room
func AppendInts(b []byte, lists ...[]int64) []byte {
	b = append(b, '[')
	more := false
	for _, list := range lists {
		for _, n := range list {
			if more {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, n, 10)
			more = true
		}
	}
	return append(b, ']')
}
