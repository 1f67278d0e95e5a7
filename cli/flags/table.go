package flags

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/internal/bounds"
)

// flag is one row of the settings table. The parser, --help, the tables in docs/operations.md and
// the schema of the chart's server.flags are generated from these rows.
type flag struct {
	name  string
	value string // the value as --help shows it; empty if the flag takes none
	help  string // one or a few sentences
	set   func(p *parser, text string) error

	preset      func(o *Options) string // the default, shown after the help; nil: the help names it
	exceeded    string                  // what happens beyond a limit
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

// accepts describes the valid values.
func (f *flag) accepts() string {
	switch {
	case f.most == 0:
		return f.value
	case f.most > math.MaxInt32:
		return fmt.Sprintf("%d or more", f.least)
	}
	return fmt.Sprintf("%d to %d", f.least, f.most)
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
			help := f.describe(defaults)
			if f.exceeded != "" {
				help += " If exceeded: " + f.exceeded + "."
			}
			list = append(list, command.Flag{Group: title, Name: f.name, Value: f.value, Help: help, Models: f.name == "load-model"})
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
func unlessZero(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func word(name, help string, field func(*Options) *string) flag {
	parse := func(text string) (string, error) { return text, nil }
	return typed(name, "<string>", help, parse, func(text string) string { return text }, field)
}

// pattern creates the row of a regular expression.
func pattern(name, help string, field func(*Options) *string) flag {
	return typed(name, "<string>", help, func(text string) (string, error) {
		_, err := regexp.Compile(text)
		return text, err
	}, func(text string) string { return text }, field)
}

// millis creates the row of a time in milliseconds, with the upper bound in the table of its
// config. A time of 0 is not shown as a default.
func millis(name, help string, field func(*Options) *time.Duration) flag {
	f := typed(name, "<integer>", help, nil, inMillis, field)
	f.most = boundsOf(field).Most / int64(time.Millisecond)
	f.set = setWith(func(text string) (time.Duration, error) {
		d, err := parseMillis(text)
		if err == nil && (d < 0 || d.Milliseconds() > f.most) {
			err = outOfBound(text)
		}
		return d, err
	}, field)
	return f
}

func inMillis(d time.Duration) string { return unlessZero(d.Milliseconds()) }

// wholeSeconds creates the row of a time in seconds that Triton does not check.
func wholeSeconds(name, help string, field func(*Options) *time.Duration) flag {
	return typed(name, "<integer>", help, parseSeconds, inSeconds, field)
}

// limit creates a bounded row. exceeded tells what happens beyond the limit.
func limit[T int | int64 | time.Duration](name, help, exceeded string, field func(*Options) *T) flag {
	f := bounded(name, help, field)
	f.exceeded = exceeded
	return f
}

// bounded creates the row of a number, or a time in seconds, with the bounds in the table of its
// config.
func bounded[T int | int64 | time.Duration](name, help string, field func(*Options) *T) flag {
	unit := int64(1)
	if _, ok := any(T(0)).(time.Duration); ok {
		unit = int64(time.Second)
	}
	show := func(value T) string { return unlessZero(int64(value) / unit) }
	f := typed(name, "<integer>", help, nil, show, field)
	b := boundsOf(field)
	f.least, f.most = (b.Least+unit-1)/unit, b.Most/unit
	f.set = setWith(func(text string) (T, error) {
		n, err := parseWhole(text)
		if err == nil && (n < f.least || n > f.most) {
			err = outOfBound(text)
		}
		return T(n * unit), err
	}, field)
	return f
}

// boundsOf returns the bounds of a field.
func boundsOf[T int | int64 | time.Duration](field func(*Options) *T) bounds.Field {
	o := &Options{}
	all := append(o.Bounds(), bounds.Of("grpc-infer-thread-count", &o.Threads.GRPCInfer, 2, 2, 128))
	return all[slices.IndexFunc(all, func(f bounds.Field) bool { return f.At == any(field(o)) })]
}

// tritonLimit creates the row of a limit that Triton has, too, with its parser and its error text.
func tritonLimit[T int | int64](name, help, refusal string, parse func(string) (T, error), field func(*Options) *T) flag {
	f := bounded(name, help, field)
	f.set = setWith(func(text string) (T, error) {
		n, err := parse(text)
		if err == nil && (int64(n) < f.least || int64(n) > f.most) {
			err = errors.New(refusal)
		}
		return n, err
	}, field)
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
