// Package settings reads what --backend-config says to backends whose models run in processes of ours: a table of keys, each with its
// reader, and the rows that all such backends have in common. It has no state. Errors are infer.InvalidArg, with Triton's texts
// for Triton's keys.
package settings

import (
	"math"
	"strconv"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

// Setting is a key of the settings of a backend whose config is a C, and how its value is read.
type Setting[C any] struct {
	Key  string
	Read func(c *C, text string) error
}

// Table is in the order in which settings are read: of several mistakes the first one here is told.
type Table[C any] []Setting[C]

// Keys lists the keys that the table has.
func (t Table[C]) Keys() []string {
	keys := make([]string, len(t))
	for i, s := range t {
		keys[i] = s.Key
	}
	return keys
}

// Read reads values into c. Keys that the table does not have are passed over, as Triton does.
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

// MostSeconds is what a time.Duration can hold.
const MostSeconds = int64(math.MaxInt64 / time.Second)

// Refuse returns the error of a value that is not accepted.
func Refuse(bad bool, format string, args ...any) error {
	if !bad {
		return nil
	}
	return infer.Errorf(infer.InvalidArg, format, args...)
}

// Number makes the reader of a number of Triton's.
func Number[C any](set func(c *C, n int64) error) func(*C, string) error {
	return func(c *C, text string) error {
		n, err := infer.Stol(text)
		if err != nil {
			return err
		}
		return set(c, n)
	}
}

// Seconds is a key of Nereid's own, a time limit; 0 is none.
func Seconds[C any](key string, into func(c *C) *time.Duration) Setting[C] {
	return Setting[C]{key, func(c *C, text string) error {
		n, err := Whole(key, text, 0, "none", MostSeconds)
		*into(c) = time.Duration(n) * time.Second
		return err
	}}
}

// Positive is a key of Nereid's own, a bound of 1 at least.
func Positive[C any](key string, into func(c *C) *int64) Setting[C] {
	return Setting[C]{key, func(c *C, text string) (err error) {
		*into(c), err = Whole(key, text, 1, "the least", math.MaxInt64)
		return err
	}}
}

// Whole reads a number of Nereid's own keys from least, whose meaning the error tells, to most. Unlike in Triton's, all of
// text counts: half a second is not taken for none.
func Whole(key, text string, least int64, meaning string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, infer.Errorf(infer.InvalidArg, "%s is %q, want a whole number between %d (%s) and %d", key, text, least, meaning, most)
	}
	return n, nil
}
