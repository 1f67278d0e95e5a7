// Package command has what subcommands of the command line have in common: flags that may stand between
// and behind other arguments, usage, and exit statuses. A usage is written for people, or described for
// completion and the manual page (Describe), from one source. The package has no state.
package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/internal/spelling"
)

// The exit statuses.
const (
	StatusOK      = 0
	StatusTrouble = 1 // the command has found or met a problem
	StatusUsage   = 2 // the command line is not understood
)

// UsageError is a command line that is not understood.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// ErrTrouble ends a command that has already printed the problem.
var ErrTrouble = errors.New("trouble")

// Flags returns an empty set of flags that prints nothing by itself.
func Flags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // it would print the usage before we know where to
	return flags
}

// Parse reads the flags, which may stand between and behind other arguments, and returns the latter. An
// error is flag.ErrHelp or a *UsageError.
func Parse(flags *flag.FlagSet, args []string) (names []string, err error) {
	for {
		if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			return nil, &UsageError{complaint(flags, err)}
		}
		args = flags.Args()
		if len(args) == 0 {
			return names, nil
		}
		names = append(names, args[0])
		args = args[1:]
	}
}

// undefined begins what package flag says of a flag that is not there.
const undefined = "flag provided but not defined: "

// flagName is where package flag names a flag, with one dash.
var flagName = regexp.MustCompile(`(^flag provided but not defined: |^flag needs an argument: | for flag | for )-([^\s:]+)(: parse error$)?`)

// complaint is an error of package flag with flags as the usage writes them.
func complaint(flags *flag.FlagSet, err error) string {
	text := err.Error()
	at := flagName.FindStringSubmatchIndex(text)
	if at == nil {
		return text
	}
	dashed := text[:at[4]] + "-" + text[at[4]:]
	if strings.HasPrefix(text, undefined) {
		var names []string
		flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
		if meant := spelling.Nearest(text[at[4]:at[5]], names); meant != "" {
			return dashed + "; did you mean --" + meant + "?"
		}
		return dashed
	}
	if f := flags.Lookup(text[at[4]:at[5]]); f != nil && at[6] >= 0 {
		if value, ok := f.Value.(flag.Getter); ok {
			dashed = strings.TrimSuffix(dashed, "parse error")
			switch value.Get().(type) {
			case time.Duration:
				return dashed + "want a time such as 10s"
			case bool:
				return dashed + "want true or false"
			case float64:
				return dashed + "want a number"
			}
			return dashed + "want a whole number"
		}
	}
	return dashed
}

// choice is the value of a flag that can be one of a few.
type choice struct {
	to     *string
	values []string
}

func (c choice) String() string {
	if c.to == nil { // of package flag's zero value
		return ""
	}
	return *c.to
}

func (c choice) Set(value string) error {
	*c.to = value
	return nil
}

// Choice adds a flag for one of some values, which completion offers. Others are the command's to refuse.
func Choice(flags *flag.FlagSet, to *string, name, usual, help string, values ...string) {
	*to = usual
	flags.Var(choice{to, values}, name, help)
}

// model is the placeholder for a model name in a usage.
const model = "MODEL"

// TakesModel reports whether an argument of the command is the name of a model.
func (d Description) TakesModel() bool { return slices.Contains(strings.Fields(d.Call), model) }

// Usage prints the usage of a command, its summary and its options.
func Usage(w io.Writer, call, summary string, flags *flag.FlagSet) {
	description := Description{Call: call, Summary: summary}
	flags.VisitAll(func(f *flag.Flag) {
		value, help := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
			help += " (default " + f.DefValue + ")"
		}
		told := Flag{Name: f.Name, Value: value, Help: help, Models: value == model}
		if c, ok := f.Value.(choice); ok {
			told.Values = c.values
			if value == "value" { // as package flag calls it
				told.Value = "string"
			}
		}
		description.Flags = append(description.Flags, told)
	})
	var options strings.Builder
	for _, f := range description.Flags {
		fmt.Fprintf(&options, "  %s\n\t%s\n", strings.TrimSpace("--"+f.Name+" "+f.Value), f.Help)
	}
	Show(w, description, options.String())
}

// Show prints the usage and the summary of a command, and then a text about its options.
func Show(w io.Writer, description Description, options string) {
	if d, ok := w.(*describer); ok {
		d.told = &description
		return
	}
	fmt.Fprintf(w, "Usage: %s\n\n%s\n\n%s", description.Call, description.Summary, options)
}

// GroupUsage shows how a command is called that has commands of its own, of which Call has the arguments, and Summary a sentence.
// More is the last line.
func GroupUsage(w io.Writer, call, summary string, commands []Description, more string) {
	if d, ok := w.(*describer); ok {
		d.told = &Description{Call: call, Summary: summary, Commands: commands}
		return
	}
	fmt.Fprintf(w, "Usage: %s\n\n%s\n\n", call, summary)
	for _, c := range commands {
		fmt.Fprintf(w, "  %s\n\t%s\n", strings.TrimSpace(c.Name+" "+c.Call), c.Summary)
	}
	fmt.Fprintf(w, "\n%s\n", more)
}

// Unknown says in two lines that a group of commands, such as "nereid env", has none of the name that was given, which it calls
// noun, and returns the exit status.
func Unknown(group, noun, given string, commands []Description, stderr io.Writer) int {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	meant := ""
	if near := spelling.Nearest(given, names); near != "" {
		meant = "did you mean " + near + "? "
	} else if len(names) < 6 {
		meant = "there is " + strings.Join(names, ", ") + "; "
	}
	fmt.Fprintf(stderr, "%s: there is no %s %q\n%s%s --help says more\n", group, noun, given, meant, group)
	return StatusUsage
}

// End tells of the error that a command of the given name has ended with, and returns its exit status. Of a command line that is
// not understood it tells in two lines, which the whole usage would bury.
func End(name string, err error, usage func(io.Writer), stdout, stderr io.Writer) int {
	var wrong *UsageError
	switch {
	case err == nil:
		return StatusOK
	case errors.Is(err, flag.ErrHelp):
		usage(stdout)
		return StatusOK
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "%s: %s\n%s --help lists the options\n", name, wrong.Text, name)
		return StatusUsage
	case !errors.Is(err, ErrTrouble):
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
	}
	return StatusTrouble
}
