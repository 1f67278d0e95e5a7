package flags

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nereid-serving/nereid/cli/command"
)

// flag is one row of the settings table. The parser, --help, the tables in docs/operations.md and
// the schema of the chart's server.flags are generated from these rows.
type flag struct {
	name  string
	value string // the value as --help shows it; empty if the flag takes none
	help  string // one or a few sentences
	set   func(p *parser, text string) error

	preset      func(o *Options) string // the default, shown after the help; nil: the help names it
	least, most int64                   // bounds of a number; most is 0 without bounds
}

// describe returns the help with the default and a remark if the flag has no effect.
func (f *flag) describe(defaults *Options) string {
	text := f.help
	if f.preset != nil {
		if preset := f.preset(defaults); preset != "" {
			text += " Default: " + preset + "."
		}
	}
	if slices.Contains(noEffect, f.name) {
		text += " Accepted without effect."
	}
	return text
}

// group is a section of --help.
type group struct {
	title string
	ours  bool // flags that tritonserver does not have
	flags []flag
}

// noEffect lists the flags that are parsed and checked like Triton's, but have no effect.
var noEffect = []string{
	"buffer-manager-thread-count",
	"cache-directory",
	"cuda-memory-pool-byte-size",
	"cuda-virtual-address-size",
	"enable-peer-access",
	"grpc-http2-max-ping-strikes",
	"grpc-http2-max-pings-without-data",
	"grpc-infer-allocation-pool-size",
	"grpc-infer-thread-count",
	"http-thread-count",
	"pinned-memory-pool-byte-size",
	"repoagent-directory",
	"sagemaker-thread-count",
	"vertex-ai-thread-count",
}

// flagTable is the settings table, in the order of --help. An ambiguous prefix lists its candidates
// in the same order.
func flagTable() []group {
	return slices.Concat(serverFlags(), endpointFlags(), backendFlags(), deprecatedFlags(), ourFlags())
}

// Describe returns every flag of the server in the order of --help, each with the title of its
// group.
func Describe() []command.Flag {
	defaults := withoutEnvironment()
	var list []command.Flag
	for _, g := range flagTable() {
		title := g.title
		if title == "" {
			title = "General"
		}
		for _, f := range g.flags {
			list = append(list, command.Flag{Group: title, Name: f.name, Value: f.value, Help: f.describe(defaults), Models: f.name == "load-model"})
		}
	}
	return list
}

// withoutEnvironment returns the defaults without any environment variables.
func withoutEnvironment() *Options { return Defaults(func(string) string { return "" }) }

// The functions below create rows. field returns the field of Options that the flag sets.

// row creates a row with its own setter. Its help names the default.
func row(name, value, help string, set func(*parser, string) error) flag {
	return flag{name: name, value: value, help: help, set: set}
}

// typed creates the row of a value with a parser and a formatter.
func typed[T any](name, value, help string, parse func(string) (T, error), show func(T) string, field func(*Options) *T) flag {
	return flag{
		name: name, value: value, help: help, set: setWith(parse, field),
		preset: func(o *Options) string { return show(*field(o)) },
	}
}

func toggle(name, help string, field func(*Options) *bool) flag {
	return typed(name, "<boolean>", help, parseBool, strconv.FormatBool, field)
}

func number(name, help string, field func(*Options) *int) flag {
	return typed(name, "<integer>", help, parseInt, strconv.Itoa, field)
}

// unlessZero formats a number whose zero value stands for a default that the help names.
func unlessZero[T int | int64](n T) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

func word(name, help string, field func(*Options) *string) flag {
	parse := func(text string) (string, error) { return text, nil }
	return typed(name, "<string>", help, parse, func(text string) string { return text }, field)
}

// millis creates the row of a time in milliseconds. A time of 0 is not shown as a default.
func millis(name, help string, field func(*Options) *time.Duration) flag {
	return typed(name, "<integer>", help, parseMillis, inMillis, field)
}

func inMillis(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return strconv.FormatInt(d.Milliseconds(), 10)
}

// wholeSeconds creates the row of a time in seconds that Triton does not check.
func wholeSeconds(name, help string, field func(*Options) *time.Duration) flag {
	return typed(name, "<integer>", help, parseSeconds, inSeconds, field)
}

// numberWithin creates the row of a number with bounds for which Triton has its own error text.
func numberWithin(name, help string, least, most int, refusal string, field func(*Options) *int) flag {
	f := typed(name, "<integer>", help, parseInt, unlessZero, field)
	f.least, f.most = int64(least), int64(most)
	f.set = setWith(func(text string) (int, error) {
		n, err := parseInt(text)
		if err == nil && (n < least || n > most) {
			err = errors.New(refusal)
		}
		return n, err
	}, field)
	return f
}

// between creates the row of a number within bounds.
func between(name, help string, least, most int64, field func(*Options) *int) flag {
	parse := func(text string) (int, error) {
		n, err := parseWhole(text)
		if err == nil && (n < least || n > most) {
			err = fmt.Errorf("--%s must be %d to %d", name, least, most)
		}
		return int(n), err
	}
	f := typed(name, "<integer>", help, parse, strconv.Itoa, field)
	f.least, f.most = least, most
	return f
}

// most creates the row of a number that is at least 1.
func most[T int | int64](name, help string, field func(*Options) *T) flag {
	parse := func(text string) (T, error) {
		n, err := parseWhole(text)
		if err == nil && (T(n) < 1 || int64(T(n)) != n) {
			err = fmt.Errorf("--%s must be greater than 0", name)
		}
		return T(n), err
	}
	f := typed(name, "<integer>", help, parse, unlessZero, field)
	f.least, f.most = 1, math.MaxInt64
	return f
}

// longestSeconds is a year, so that the sum of several times does not overflow.
const longestSeconds = 366 * 24 * 60 * 60

// seconds creates the row of a time in seconds within bounds.
func seconds(name, help string, least int64, field func(*Options) *time.Duration) flag {
	parse := func(text string) (time.Duration, error) {
		n, err := parseWhole(text)
		if err == nil && (n < least || n > longestSeconds) {
			err = fmt.Errorf("it is %d seconds, want %d to %d", n, least, longestSeconds)
		}
		return time.Duration(n) * time.Second, err
	}
	f := typed(name, "<integer>", help, parse, inSeconds, field)
	f.least, f.most = least, longestSeconds
	return f
}

func inSeconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// setWith returns the setter of a field, given the parser of its value.
func setWith[T any](parse func(string) (T, error), field func(*Options) *T) func(*parser, string) error {
	return func(p *parser, text string) error {
		value, err := parse(text)
		if err != nil {
			return err
		}
		*field(p.o) = value
		return nil
	}
}
