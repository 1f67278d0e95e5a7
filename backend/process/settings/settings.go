// Package settings has the tables of the --backend-config settings of backends that host processes:
// each key with its help, its default, its bounds and the function that reads its value.
// docs/operations.md is generated from the tables. Errors are infer.InvalidArg, with Triton's texts
// for Triton's keys.
package settings

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

// Row describes a setting.
type Row struct {
	Key, Help   string
	Default     string   // "" if the help names it
	Least, Most int64    // bounds of a number; Most is 0 for other values
	Choices     []string // the valid texts, the default first; nil: not limited
	Theirs      bool     // Triton has the key
}

// Rows describes the settings of a backend.
type Rows []Row

// Find returns the row of a key, or nil.
func (r Rows) Find(key string) *Row {
	for i := range r {
		if r[i].Key == key {
			return &r[i]
		}
	}
	return nil
}

// Keys lists the keys of the settings.
func (r Rows) Keys() []string {
	keys := make([]string, len(r)) // bound: the table
	for i := range r {
		keys[i] = r[i].Key
	}
	return keys
}

// Setting is the row of a key of a backend with config type C.
type Setting[C any] struct {
	Row
	Read  func(c *C, text string) error
	store func(c *C, n int64)
	load  func(c *C) int64
}

// Table lists settings in the order in which they are read: the first invalid one is reported.
type Table[C any] []Setting[C]

// Rows describes the settings of the table. defaults is the config without any settings.
func (t Table[C]) Rows(defaults *C) Rows {
	rows := make(Rows, len(t)) // bound: the table
	for i, s := range t {
		rows[i] = s.Row
		if s.load != nil && s.load(defaults) >= s.Least {
			rows[i].Default = strconv.FormatInt(s.load(defaults), 10)
		}
	}
	return rows
}

// Read reads values into c. Like Triton it ignores unknown keys.
func (t Table[C]) Read(c *C, values map[string]string) error {
	for _, s := range t {
		text, given := values[s.Key]
		if !given {
			continue
		}
		if err := s.Read(c, text); err != nil && !s.Theirs {
			return infer.Errorf(infer.InvalidArg, "--backend-config: %s", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// MostSeconds is the maximum of a time.Duration in seconds.
const MostSeconds = int64(math.MaxInt64 / time.Second)

// Check returns an error if a text is not a valid value. Reading one of Triton's keys is more
// lenient: leading digits count.
func (r *Row) Check(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case r.Most != 0 && (err != nil || n < r.Least || n > r.Most):
		return infer.Errorf(infer.InvalidArg, "%s is %q, want a whole number without a unit, %d to %d", r.Key, text, r.Least, r.Most)
	case r.Choices != nil && text != "" && !slices.Contains(r.Choices, strings.ToLower(text)): // bound: the command line
		return infer.Errorf(infer.InvalidArg, "%s is %q, want %s", r.Key, text, strings.Join(r.Choices, " or ")) // bound: the table
	}
	return nil
}

// Text is a key of Nereid's own whose value is any text that read accepts.
func Text[C any](key, help string, read func(c *C, text string) error) Setting[C] {
	return Setting[C]{Row: Row{Key: key, Help: help}, Read: read}
}

// Choice is a key of Nereid's own with two values. set gets whether the value is the second, which
// is not the default.
func Choice[C any](key, help, usual, other string, set func(c *C, isOther bool)) Setting[C] {
	return OneOf(key, help, []string{usual, other}, func(c *C, choice string) { set(c, choice == other) })
}

// OneOf is a key of Nereid's own with the given values, in lower case, of which the first is the
// default.
func OneOf[C any](key, help string, choices []string, set func(c *C, choice string)) Setting[C] {
	row := Row{Key: key, Help: help, Choices: choices, Default: choices[0]} // bound: the table
	return Setting[C]{Row: row, Read: func(c *C, text string) error {
		set(c, strings.ToLower(text)) // bound: the command line
		return row.Check(text)
	}}
}

// Number is a key of Nereid's own whose value is a multiple of unit. The whole text counts: half a
// second is not taken for 0.
func Number[C any, T int64 | time.Duration](key, help string, unit T, least, most int64, field func(c *C) *T) Setting[C] {
	s := Setting[C]{
		Row:   Row{Key: key, Help: help, Least: least, Most: most},
		store: func(c *C, n int64) { *field(c) = T(n) * unit },
		load:  func(c *C) int64 { return int64(*field(c) / unit) },
	}
	s.Read = func(c *C, text string) error {
		if err := s.Check(text); err != nil {
			return err
		}
		n, _ := strconv.ParseInt(text, 10, 64)
		s.store(c, n)
		return nil
	}
	return s
}

// Seconds is a time limit; 0 means none.
func Seconds[C any](key, help string, field func(c *C) *time.Duration) Setting[C] {
	return Number(key, help, time.Second, 0, MostSeconds, field)
}

// Positive is a limit of at least 1.
func Positive[C any](key, help string, field func(c *C) *int64) Setting[C] {
	return Number(key, help, 1, 1, math.MaxInt64, field)
}

// AsTriton returns a number with Triton's parser, and Triton's text for a number below its minimum.
func (s Setting[C]) AsTriton(refusal string) Setting[C] {
	s.Theirs = true
	s.Read = func(c *C, text string) error {
		n, err := infer.Stol(text)
		switch {
		case err != nil:
			return err
		case n < s.Least:
			return infer.Errorf(infer.InvalidArg, "%s", refusal)
		case n > s.Most:
			return s.Check(text)
		}
		s.store(c, n)
		return nil
	}
	return s
}
