package jsontext

import (
	"math"
	"strconv"
)

func isDigit(c byte) bool { return c-'0' <= 9 }

// scanNumber checks the number at b[i] and returns the offset after it. It reports anything that
// begins no value as an invalid value.
func scanNumber(b []byte, i int) (int, error) {
	start := i
	if b[i] == '-' {
		i++
	}
	digits := i
	switch {
	case i >= len(b):
		return 0, &SyntaxError{invalidValue, i}
	case b[i] == '0':
		i++
	case isDigit(b[i]):
		for i++; i < len(b) && isDigit(b[i]); i++ {
		}
		if i-digits > 308 && tooManyDigits(b[digits:i]) {
			return 0, &SyntaxError{tooBig, start}
		}
	default:
		return scanInfNaN(b, i)
	}
	whole := i
	if i < len(b) && b[i] == '.' {
		i++
		if i >= len(b) || !isDigit(b[i]) {
			return 0, &SyntaxError{missFraction, i}
		}
		for i++; i < len(b) && isDigit(b[i]); i++ {
		}
	}
	if i >= len(b) || b[i]|0x20 != 'e' {
		return i, nil
	}
	fraction := i
	minus := false
	if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
		minus = b[i] == '-'
		i++
	}
	if i >= len(b) || !isDigit(b[i]) {
		return 0, &SyntaxError{missExponent, i}
	}
	exp := 0
	for ; i < len(b) && isDigit(b[i]); i++ {
		exp = min(exp*10+int(b[i]-'0'), math.MaxInt32)
	}
	if !minus && exp > 308 && exp > 308+significantFraction(b[digits:whole], b[whole:fraction]) {
		return 0, &SyntaxError{tooBig, start}
	}
	return i, nil
}

// scanInfNaN reads NaN, Inf or Infinity; a sign before it has been read.
func scanInfNaN(b []byte, i int) (int, error) {
	peek := func(c byte) bool { return i < len(b) && b[i] == c }
	words := func(s string) bool {
		for n := range len(s) {
			if !peek(s[n]) {
				return false
			}
			i++
		}
		return true
	}
	switch {
	case peek('N') && words("NaN"):
		return i, nil
	case peek('I') && words("Inf"):
		if !peek('i') || words("inity") {
			return i, nil
		}
	}
	return 0, &SyntaxError{invalidValue, i}
}

// tooManyDigits reports whether the parser rejects a whole part of more than 308 digits: another
// digit must not follow a value of DBL_MAX/10.
func tooManyDigits(digits []byte) bool {
	if len(digits) > 309 {
		return true
	}
	v, err := strconv.ParseFloat(string(digits[:308]), 64)
	return err != nil || v >= math.MaxFloat64/10
}

// significantFraction counts the digits of a fraction ("", or with its point) that the parser takes
// into the significand. An exponent may exceed 308 by that number, whatever the number's value is.
func significantFraction(whole, fraction []byte) int {
	if len(fraction) < 2 {
		return 0
	}
	significant := len(whole) - 1
	if significant > 18 { // the parser changed to doubles within the whole part
		significant = 17
	}
	n := 0
	mantissa, _ := strconv.ParseUint(string(whole), 10, 64) // bound: at most 309 digits
	exact := len(whole) < 20
	for _, c := range fraction[1:] {
		if exact && mantissa <= 1<<53-1 {
			mantissa = mantissa*10 + uint64(c-'0')
		} else {
			exact = false
			if significant >= 17 {
				break
			}
		}
		n++
		if mantissa != 0 {
			significant++
		}
	}
	return n
}

// numberKind is the range of a JSON number: integral and within the range of an int64, a uint64 or
// both, or a double.
type numberKind uint8

const (
	notNumber numberKind = iota
	doubleNumber
	negativeNumber // fits only int64
	bigNumber      // fits only uint64
	smallNumber    // fits both
)

// readNumber classifies the value at b[i], whose syntax has been checked. u is the two's complement
// of an integral number.
func readNumber(b []byte, i int) (kind numberKind, u uint64, end int) {
	negative := b[i] == '-'
	if negative {
		i++
	}
	if i >= len(b) || !isDigit(b[i]) {
		if i < len(b) && (b[i] == 'N' || b[i] == 'I') {
			return doubleNumber, 0, i
		}
		return notNumber, 0, i
	}
	overflow := false
	for ; i < len(b); i++ {
		d := uint64(b[i] - '0')
		if d > 9 {
			break
		}
		if u >= math.MaxUint64/10 && (u > math.MaxUint64/10 || d > math.MaxUint64%10) {
			overflow = true
		}
		u = u*10 + d
	}
	if i < len(b) && (b[i] == '.' || b[i]|0x20 == 'e') {
		return doubleNumber, 0, i
	}
	switch {
	case overflow, negative && u > 1<<63:
		return doubleNumber, 0, i
	case negative && u > 0:
		return negativeNumber, -u, i
	case u > math.MaxInt64:
		return bigNumber, u, i
	}
	return smallNumber, u, i
}

// pow10 has the powers of ten that are exact as doubles.
var pow10 = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// readFloat returns the number at b[i], whose syntax has been checked, as the
// nearest double; ok is false if the value there is not a number. A minus zero
// without point or exponent is an integer and has no sign.
func readFloat(b []byte, i int) (f float64, end int, ok bool) {
	start := i
	negative := b[i] == '-'
	if negative {
		i++
	}
	if i >= len(b) || !isDigit(b[i]) {
		return readInfNaN(b, i, negative)
	}
	var mantissa uint64
	digits, exp := 0, 0 // digits counts the digits in mantissa
	integral := true
	for ; i < len(b) && isDigit(b[i]); i++ {
		mantissa = mantissa*10 + uint64(b[i]-'0')
		digits++
	}
	if i < len(b) && b[i] == '.' {
		integral = false
		for i++; i < len(b) && isDigit(b[i]); i++ {
			mantissa = mantissa*10 + uint64(b[i]-'0')
			digits++
			exp--
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		integral = false
		minus := false
		if i++; b[i] == '+' || b[i] == '-' {
			minus = b[i] == '-'
			i++
		}
		e := 0
		for ; i < len(b) && isDigit(b[i]); i++ {
			e = min(e*10+int(b[i]-'0'), 1<<20)
		}
		if minus {
			e = -e
		}
		exp += e
	}
	// An exact mantissa multiplied or divided by an exact power of ten rounds once.
	if digits <= 19 && mantissa < 1<<53 && -22 <= exp && exp <= 22 {
		f = float64(mantissa)
		if exp < 0 {
			f /= pow10[-exp]
		} else {
			f *= pow10[exp]
		}
		if negative && !(integral && mantissa == 0) {
			f = -f
		}
		return f, i, true
	}
	text := b[start:i]
	if len(text) > longNumber {
		text = shortened(text, exp)
	}
	f, _ = strconv.ParseFloat(string(text), 64) // bound: longNumber; out of range: infinite, or zero
	return f, i, true
}

// longNumber is the length beyond which digits of a number are cut, in bytes.
const longNumber = 1024

// shortened returns a number with at most 799 significant digits, and a 1 instead of the digits
// that are cut off. The last digit of text counts 10^exp. The result rounds to the same double,
// since the middle between two doubles has at most 767 digits.
func shortened(text []byte, exp int) []byte {
	const most = 799
	short := make([]byte, 0, longNumber)
	if text[0] == '-' {
		short, text = append(short, '-'), text[1:]
	}
	sign, cut := len(short), false
	for _, c := range text {
		if c|0x20 == 'e' {
			break
		}
		switch {
		case c == '.' || c == '0' && len(short) == sign:
		case len(short)-sign < most:
			short = append(short, c)
		default:
			cut = cut || c != '0'
			exp++
		}
	}
	if len(short) == sign {
		return append(short, '0')
	}
	if cut {
		short, exp = append(short, '1'), exp-1
	}
	return strconv.AppendInt(append(short, 'e'), int64(exp), 10)
}

func readInfNaN(b []byte, i int, negative bool) (f float64, end int, ok bool) {
	switch {
	case i < len(b) && b[i] == 'N':
		return math.NaN(), i + 3, true
	case i < len(b) && b[i] == 'I':
		end = i + 3
		if end < len(b) && b[end] == 'i' {
			end += 5
		}
		if negative {
			return math.Inf(-1), end, true
		}
		return math.Inf(1), end, true
	}
	return 0, i, false
}
