package flags

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The values of flags are parsed like C++'s stoi and related functions: leading blanks, a sign, and
// all following digits; the rest is ignored. The error texts are Triton's.

func invalidValue(text string) error {
	return errors.New("Invalid option value. Got " + text)
}

func outOfBound(text string) error {
	return errors.New("Provided option value is out of bound. Got " + text)
}

// leadingNumber returns the sign and the digits at the beginning of text.
func leadingNumber(text string) (negative bool, digits string) {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	if text != "" && (text[0] == '-' || text[0] == '+') {
		negative = text[0] == '-'
		text = text[1:]
	}
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	return negative, text[:end]
}

// parseInt64 is stoll.
func parseInt64(text string) (int64, error) {
	negative, digits := leadingNumber(text)
	if digits == "" {
		return 0, invalidValue(text)
	}
	if negative {
		digits = "-" + digits
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, outOfBound(text)
	}
	return n, nil
}

// parseWhole parses a number for a flag that Triton lacks. The whole text counts, so that 1M is an
// error instead of 1.
func parseWhole(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w, want a whole number without a unit", invalidValue(strconv.Quote(text)))
	}
	return n, nil
}

// parseWholeSize is parseWhole for a size in bytes.
func parseWholeSize(text string) (uint64, error) {
	n, err := parseWhole(text)
	if err == nil && n < 0 {
		err = outOfBound(text)
	}
	return uint64(n), err
}

// parseInt is stoi, which has a 32-bit result.
func parseInt(text string) (int, error) {
	n, err := parseInt64(text)
	if err != nil {
		return 0, err
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		return 0, outOfBound(text)
	}
	return int(n), nil
}

// parseSeconds is stoi for a number of seconds.
func parseSeconds(text string) (time.Duration, error) {
	n, err := parseInt(text)
	return time.Duration(n) * time.Second, err
}

// parseMillis is stoi for a number of milliseconds.
func parseMillis(text string) (time.Duration, error) {
	n, err := parseInt(text)
	return time.Duration(n) * time.Millisecond, err
}

// parseMillis64 is stoll for a number of milliseconds.
func parseMillis64(text string) (time.Duration, error) {
	n, err := parseInt64(text)
	return time.Duration(n) * time.Millisecond, err
}

// parseUint64 is stoull, which lets negative numbers wrap around.
func parseUint64(text string) (uint64, error) {
	negative, digits := leadingNumber(text)
	if digits == "" {
		return 0, invalidValue(text)
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, outOfBound(text)
	}
	if negative {
		n = -n
	}
	return n, nil
}

var leadingFloat = regexp.MustCompile(`^[ \t\n\v\f\r]*([+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|(?i:inf(?:inity)?|nan)))`)

// parseFloat is stod without hexadecimal numbers.
func parseFloat(text string) (float64, error) {
	match := leadingFloat.FindStringSubmatch(text)
	if match == nil {
		return 0, invalidValue(text)
	}
	n, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		return 0, outOfBound(text)
	}
	return n, nil
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "on", "1":
		return true, nil
	case "false", "off", "0":
		return false, nil
	}
	return false, errors.New("invalid value for bool option: " + text)
}

// parsePair splits "<first><separator><second>".
func parsePair(text, separator string) (first, second string, err error) {
	first, second, ok := strings.Cut(text, separator)
	if !ok {
		return "", "", fmt.Errorf("Cannot parse pair option due to incorrect number of inputs."+
			"--<pair option> argument requires format <first>%s<second>. Found: %s", separator, text)
	}
	return first, second, nil
}

// setting is "<name>,<key>=<value>" or, with an empty name, "<key>=<value>".
type setting struct {
	name, key, value string
	comma            bool // there was a comma, even with nothing before it
}

// parseSetting splits text at its first separator, usually a comma, and at the first equals sign
// after it. It returns false without an equals sign, or without text before or after it.
func parseSetting(text, separator string) (s setting, ok bool) {
	rest := text
	if name, after, found := strings.Cut(text, separator); found {
		s.name, s.comma, rest = name, true, after
	}
	var equals bool
	s.key, s.value, equals = strings.Cut(rest, "=")
	return s, equals && s.key != "" && s.value != ""
}
