package tracing

import (
	"math"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// Names of the settings, as clients send them.
const (
	KeyLevel     = "trace_level"
	KeyRate      = "trace_rate"
	KeyCount     = "trace_count"
	KeyFrequency = "log_frequency"
	KeyFile      = "trace_file"
	KeyMode      = "trace_mode"
)

// ErrFile rejects another trace file.
var ErrFile = &infer.Error{Code: infer.Unsupported, Message: "trace file location can not be updated through network protocol"}

// ErrModel rejects the settings of a model that does not serve.
func ErrModel(name string) error {
	return infer.Errorf(infer.InvalidArg, "Request for unknown model : %s", name)
}

// ReadLevels reads the names of levels into c. It ignores unknown ones; without a known one nothing
// changes.
func (c *Change) ReadLevels(names []string) error {
	given, off := 0, false
	var set Level
	for _, name := range names {
		if l, known := ParseLevel(name); known {
			given++
			off = off || l == Off
			set |= l
		}
	}
	if off && given > 1 {
		return infer.Errorf(infer.InvalidArg, "Expect only one trace level 'OFF' is specified")
	}
	if given > 0 {
		c.Level = Update[Level]{Given: true, Value: set}
	}
	return nil
}

// ReadRate reads the text of trace_rate into c.
func (c *Change) ReadRate(text string) (err error) {
	c.Rate, err = parseUnsigned(KeyRate, text)
	return err
}

// ReadFrequency reads the text of log_frequency into c.
func (c *Change) ReadFrequency(text string) (err error) {
	c.Frequency, err = parseUnsigned(KeyFrequency, text)
	return err
}

// ReadCount reads the text of trace_count into c. before precedes the number in an error, where
// Triton's protocols differ.
func (c *Change) ReadCount(text, before string) error {
	n, err := parse(KeyCount, text, "-1", math.MaxInt32)
	if err != nil {
		return err
	}
	if n < -1 {
		return infer.Errorf(infer.InvalidArg, "Unable to parse 'trace_count'. Expecting value >= -1, got:%s%s", before, text)
	}
	c.Count = Update[int32]{Given: true, Value: n}
	return nil
}

// parseUnsigned reads a number that Triton keeps as unsigned: negative ones wrap around.
func parseUnsigned(key, text string) (Update[uint32], error) {
	n, err := parse(key, text, "0", math.MaxUint32)
	return Update[uint32]{Given: err == nil, Value: uint32(n)}, err
}

func parse(key, text, low string, high int64) (int32, error) {
	n, ok, fits := stoi(text)
	switch {
	case !ok:
		return 0, infer.Errorf(infer.InvalidArg, "Unable to parse '%s', got: %s", key, text)
	case !fits:
		return 0, infer.Errorf(infer.InvalidArg, "Unable to parse '%s', value is out of range [ %s, %d ], got: %s", key, low, high, text)
	}
	return n, nil
}

// stoi reads a number as C++'s stoi does: white space, a sign, digits, and any rest.
func stoi(text string) (n int32, ok, fits bool) {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	end := 0
	if text != "" && (text[0] == '+' || text[0] == '-') {
		end = 1
	}
	digits := end
	for end < len(text) && '0' <= text[end] && text[end] <= '9' {
		end++
	}
	if end == digits {
		return 0, false, false
	}
	wide, err := strconv.ParseInt(text[:end], 10, 32)
	return int32(wide), true, err == nil
}
