package flags

import (
	"errors"
	stdflag "flag"
	"fmt"
	"io"
	"slices"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
)

// parser parses one command line.
type parser struct {
	o      *Options
	stderr io.Writer // for warnings about deprecated flags

	trace      traceParser
	oldStrict  *bool  // --strict-model-config, nil if not given
	oldCache   string // --response-cache-byte-size, if given
	cacheGiven bool
}

// SyntaxError is an error of getopt_long. It is shown before the usage, and the hint, if any, after
// it.
type SyntaxError struct {
	Complaint, Hint string
}

// Error implements error.
func (e *SyntaxError) Error() string { return e.Complaint }

// valueError is a bad value, or a contradiction between two options. It is shown after the usage.
type valueError struct {
	text string
}

func (e *valueError) Error() string { return e.text }

// optionError is about an option other than the given flag.
type optionError struct {
	option string
	err    error
}

func (e *optionError) Error() string { return e.err.Error() }

// ErrHelp is returned for --help, and ErrVersion for --version.
var (
	ErrHelp    = errors.New("help was asked for")
	ErrVersion = errors.New("the version was asked for")
)

// Parse parses the arguments after the program's name. An error is ErrHelp, ErrVersion, a
// *SyntaxError or a *valueError.
func Parse(args []string, getenv func(string) string, stderr io.Writer) (*Options, error) {
	p := &parser{o: Defaults(getenv), stderr: stderr}
	rest, err := scanFlags(args, flagTable(), p.found)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, &valueError{"Unexpected argument: " + rest[0]}
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return p.o, nil
}

// finish completes the options when all flags have been read.
func (p *parser) finish() error {
	p.trace.finish(p)
	p.finishStrict()
	if err := p.o.finish(p.oldCache != "" && p.cacheGiven); err != nil {
		return &valueError{err.Error()}
	}
	return nil
}

// ParseServe parses the arguments of the command serve, which has its own defaults. Errors are
// those of Parse.
func ParseServe(args []string, getenv func(string) string, stderr io.Writer) (*Options, error) {
	p := &parser{o: Defaults(getenv), stderr: stderr}
	p.o.HTTP.Address, p.o.GRPC.Address = "127.0.0.1", "127.0.0.1"
	p.o.ExitOnError = false
	p.o.Log.Interactive = true
	folders, err := scanFlags(args, flagTable(), p.found)
	if err != nil {
		return nil, err
	}
	p.o.Repository.Paths = append(p.o.Repository.Paths, folders...)
	if err := p.finish(); err != nil {
		return nil, err
	}
	if len(p.o.Repository.Paths) == 0 {
		return nil, &valueError{"no model repository given: nereid serve DIR serves the models in DIR, and nereid new model NAME creates a first one"}
	}
	return p.o, nil
}

// ParseWith parses the command line of a subcommand that accepts the server's flags and its own. It
// returns the server's options and the arguments that are not flags. An error is flag.ErrHelp or a
// *command.UsageError.
func ParseWith(own *stdflag.FlagSet, args []string, getenv func(string) string, stderr io.Writer, extensions ...nereid.Extension) (names []string, server nereid.Options, err error) {
	table := []group{{}}
	own.VisitAll(func(f *stdflag.Flag) {
		value := "<value>"
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
			value = ""
		}
		table[0].flags = append(table[0].flags, flag{name: f.Name, value: value})
	})
	var theirs []string
	names, err = scanFlags(args, append(table, flagTable()...), func(f *flag, value string) error {
		switch {
		case f.name == "help":
			return stdflag.ErrHelp
		case f.set != nil || own.Lookup(f.name) == nil:
			theirs = append(theirs, "--"+f.name)
			if f.value != "" {
				theirs = append(theirs, value)
			}
			return nil
		case f.value == "":
			value = "true"
		}
		if err := own.Set(f.name, value); err != nil {
			return command.Usagef("--%s: %v", f.name, err)
		}
		return nil
	})
	var o *Options
	if err == nil {
		o, err = Parse(theirs, getenv, stderr)
	}
	if err == nil {
		for _, extend := range extensions {
			extend(&o.Options)
		}
		return names, o.Options, nil
	}
	var wrong *command.UsageError
	var syntax *SyntaxError
	switch {
	case errors.Is(err, stdflag.ErrHelp), errors.As(err, &wrong):
		return nil, server, err
	case errors.As(err, &syntax) && syntax.Hint != "":
		return nil, server, command.Usagef("%s: %s", syntax.Complaint, syntax.Hint)
	}
	return nil, server, command.Usagef("%v", err)
}

func (p *parser) found(f *flag, value string) error {
	switch f.name {
	case "help":
		return ErrHelp
	case "version":
		return ErrVersion
	}
	if err := f.set(p, value); err != nil {
		option := "--" + f.name
		if other := (*optionError)(nil); errors.As(err, &other) {
			option = other.option
		}
		return &valueError{fmt.Sprintf("Bad option: %q.\n%v\n--%s is %q, want %s: %s", option, err, f.name, value, f.accepts(), f.describe(withoutEnvironment()))}
	}
	_, digits := leadingNumber(value)
	if _, err := parseWhole(value); f.value == "<integer>" && digits != "" && err != nil {
		p.o.Truncated = append(p.o.Truncated, fmt.Sprintf("--%s is %q, of which only %s counts: want a whole number without a unit", f.name, value, digits))
	}
	if slices.Contains(noEffect, f.name) && !slices.Contains(p.o.NoEffect, f.name) {
		p.o.NoEffect = append(p.o.NoEffect, f.name)
	}
	return nil
}

// finishStrict decides between --disable-auto-complete-config and the deprecated flag that it
// replaces.
func (p *parser) finishStrict() {
	disable := &p.o.Repository.DisableAutoCompleteConfig
	switch {
	case p.oldStrict == nil:
	case *p.oldStrict:
		*disable = true
	case *disable:
		p.warn("Overriding deprecated '--strict-model-config' from False to True in favor of '--disable-auto-complete-config'!")
	}
}

func (p *parser) warn(format string, args ...any) {
	fmt.Fprintf(p.stderr, "Warning: "+format+"\n", args...)
}
