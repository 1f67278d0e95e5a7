package cli

import (
	"errors"
	stdflag "flag"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
)

// flag is one row of the command line.
type flag struct {
	name  string
	value string // what --help calls its value; empty if it takes none
	help  string // one or a few sentences
	set   func(p *parser, text string) error
}

// wholeHelp says whether anything acts on the flag, too.
func (f *flag) wholeHelp() string {
	if slices.Contains(noEffect, f.name) {
		return f.help + " Accepted without effect."
	}
	return f.help
}

// group is what --help shows under one heading.
type group struct {
	title string
	ours  bool // flags that tritonserver does not have
	flags []flag
}

// noEffect lists the flags that are read and checked, as Triton does, but on
// which nothing acts. A change that makes one act removes it here.
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

// flagTable is every flag, in the order in which --help shows them and an
// ambiguous prefix lists them.
func flagTable() []group {
	return slices.Concat(serverFlags(), endpointFlags(), backendFlags(), deprecatedFlags(), ourFlags())
}

// parser reads one command line.
type parser struct {
	o      *Options
	stderr io.Writer // of the warnings about deprecated flags

	trace      traceParser
	oldStrict  *bool  // --strict-model-config, nil if it is not given
	oldCache   string // --response-cache-byte-size, if given
	cacheGiven bool
}

// syntaxError is a complaint of getopt_long's: it is shown before the usage,
// and the hint, if any, after it.
type syntaxError struct {
	complaint, hint string
}

func (e *syntaxError) Error() string { return e.complaint }

// valueError is a bad value, or a pair of options that do not agree: it is
// shown after the usage.
type valueError struct {
	text string
}

func (e *valueError) Error() string { return e.text }

// optionError names an option other than the flag that was given.
type optionError struct {
	option string
	err    error
}

func (e *optionError) Error() string { return e.err.Error() }

// errHelp is --help, and errVersion --version.
var (
	errHelp    = errors.New("help was asked for")
	errVersion = errors.New("the version was asked for")
)

// parseOptions reads the arguments that follow the program's name. An error is
// errHelp, errVersion, a *syntaxError or a *valueError.
func parseOptions(args []string, getenv func(string) string, stderr io.Writer) (*Options, error) {
	p := &parser{o: defaults(getenv), stderr: stderr}
	rest, err := scanFlags(args, flagTable(), p.found)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, &valueError{"Unexpected argument: " + rest[0]}
	}
	return p.o, p.finish()
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

// readFlags reads the command line of a subcommand that has flags of its own and takes those of the
// server. What it returns beside the options are the other arguments. An error is flag.ErrHelp or a
// *command.UsageError.
func readFlags(own *stdflag.FlagSet, args []string, getenv func(string) string, stderr io.Writer, extensions ...nereid.Extension) (names []string, server nereid.Options, err error) {
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
		o, err = parseOptions(theirs, getenv, stderr)
	}
	if err == nil {
		for _, extend := range extensions {
			extend(&o.Options)
		}
		return names, o.Options, nil
	}
	var wrong *command.UsageError
	var syntax *syntaxError
	switch {
	case errors.Is(err, stdflag.ErrHelp), errors.As(err, &wrong):
		return nil, server, err
	case errors.As(err, &syntax) && syntax.hint != "":
		return nil, server, command.Usagef("%s: %s", syntax.complaint, syntax.hint)
	}
	return nil, server, command.Usagef("%v", err)
}

func (p *parser) found(f *flag, value string) error {
	switch f.name {
	case "help":
		return errHelp
	case "version":
		return errVersion
	}
	if err := f.set(p, value); err != nil {
		option := "--" + f.name
		if other := (*optionError)(nil); errors.As(err, &other) {
			option = other.option
		}
		return &valueError{fmt.Sprintf("Bad option: %q.\n%v", option, err)}
	}
	if slices.Contains(noEffect, f.name) && !slices.Contains(p.o.NoEffect, f.name) {
		p.o.NoEffect = append(p.o.NoEffect, f.name)
	}
	return nil
}

// finishStrict decides between --disable-auto-complete-config and the flag that
// it has replaced.
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

// The functions below make the setter of a flag of the field that it fills.

func setString(field func(*Options) *string) func(*parser, string) error {
	return func(p *parser, text string) error {
		*field(p.o) = text
		return nil
	}
}

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

func setBool(field func(*Options) *bool) func(*parser, string) error {
	return setWith(parseBool, field)
}

func setInt(field func(*Options) *int) func(*parser, string) error { return setWith(parseInt, field) }

func setMillis(field func(*Options) *time.Duration) func(*parser, string) error {
	return setWith(parseMillis, field)
}

// setIntBetween refuses what Triton refuses with a text of its own.
func setIntBetween(low, high int, refusal string, field func(*Options) *int) func(*parser, string) error {
	return func(p *parser, text string) error {
		n, err := parseInt(text)
		switch {
		case err != nil:
			return err
		case n < low || n > high:
			return errors.New(refusal)
		}
		*field(p.o) = n
		return nil
	}
}
