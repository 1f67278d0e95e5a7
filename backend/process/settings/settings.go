// Package settings reads the --backend-config settings of backends that host processes: a table of
// keys, each with a function that reads its value, and the settings that all such backends share.
// Errors are infer.InvalidArg, with Triton's texts for Triton's keys.
package settings

import (
	"math"
	"strconv"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

// Setting is a key of the settings of a backend with config type C, and the function that reads its
// value.
type Setting[C any] struct {
	Key  string
	Read func(c *C, text string) error
}

// Table lists settings in the order in which they are read: the first invalid one is reported.
type Table[C any] []Setting[C]

// Keys lists the keys of the table.
func (t Table[C]) Keys() []string {
	keys := make([]string, len(t)) // bound: the table
	for i, s := range t {
		keys[i] = s.Key
	}
	return keys
}

// Read reads values into c. Like Triton it ignores unknown keys.
func (t Table[C]) Read(c *C, values map[string]string) error {
	for _, s := range t {
		text, given := values[s.Key]
		if !given {
			continue
		}
		if err := s.Read(c, text); err != nil {
			return err
		}
	}
	return nil
}

// MostSeconds is the maximum of a time.Duration in seconds.
const MostSeconds = int64(math.MaxInt64 / time.Second)

// Refuse returns the error for a rejected value.
func Refuse(bad bool, format string, args ...any) error {
	if !bad {
		return nil
	}
	return infer.Errorf(infer.InvalidArg, format, args...)
}

// Number returns a function that reads a number with Triton's rules.
func Number[C any](set func(c *C, n int64) error) func(*C, string) error {
	return func(c *C, text string) error {
		n, err := infer.Stol(text)
		if err != nil {
			return err
		}
		return set(c, n)
	}
}

// Seconds is one of Nereid's own keys, a time limit; 0 means none.
func Seconds[C any](key string, into func(c *C) *time.Duration) Setting[C] {
	return Setting[C]{key, func(c *C, text string) error {
		n, err := Whole(key, text, 0, "none", MostSeconds)
		*into(c) = time.Duration(n) * time.Second
		return err
	}}
}

// Positive is one of Nereid's own keys, a limit of at least 1.
func Positive[C any](key string, into func(c *C) *int64) Setting[C] {
	return Setting[C]{key, func(c *C, text string) (err error) {
		*into(c), err = Whole(key, text, 1, "the least", math.MaxInt64)
		return err
	}}
}

// Whole reads a number of one of Nereid's own keys, from least, whose meaning the error names, to
// most. Unlike for Triton's keys, the whole text counts: half a second is not taken for 0.
func Whole(key, text string, least int64, meaning string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, infer.Errorf(infer.InvalidArg, "%s is %q, want a whole number between %d (%s) and %d", key, text, least, meaning, most)
	}
	return n, nil
}
