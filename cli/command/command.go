// Package command has the code that the subcommands share: flags anywhere on the command line,
// usage texts, and exit statuses. The same source prints a usage and describes it for completion
// and the manual page (Describe).
package command

import (
	"cmp"
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

// Exit statuses.
const (
	StatusOK      = 0
	StatusTrouble = 1 // the command found a problem or failed
	StatusUsage   = 2 // the command line is not valid
)

// UsageError is the error for a bad command line.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

// Usagef creates a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// ErrTrouble ends a command that has already printed the problem.
var ErrTrouble = errors.New("trouble")

// Flags returns an empty set of flags that prints nothing by itself.
func Flags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // it would print the usage before the output is known
	return flags
}

// Parse parses flags, which may stand between and after other arguments, and returns the other
// arguments. An error is flag.ErrHelp or a *UsageError.
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

// One returns the only argument, or the error about a missing or superfluous one.
func One(names []string, what string) (string, error) {
	switch len(names) {
	case 0:
		return "", Usagef("%s is missing", what)
	case 1:
		return names[0], nil
	}
	return "", Usagef("unexpected argument %q after %s", names[1], what)
}

// undefined is the beginning of package flag's error for an unknown flag.
const undefined = "flag provided but not defined: "

// flagName matches the place of a flag's name, with one dash, in package flag's errors.
var flagName = regexp.MustCompile(`(^flag provided but not defined: |^flag needs an argument: | for flag | for )-([^\s:]+)(: parse error$)?`)

// complaint returns an error of package flag with flags spelled as in the usage.
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

// choice is the value of a flag with a fixed set of values.
type choice struct {
	to     *string
	values []string
}

func (c choice) String() string {
	if c.to == nil { // package flag calls it on a zero value
		return ""
	}
	return *c.to
}

func (c choice) Set(value string) error {
	*c.to = value
	return nil
}

// Choice adds a flag with a fixed set of values, which completion offers. The command itself
// rejects other values.
func Choice(flags *flag.FlagSet, to *string, name, usual, help string, values ...string) {
	*to = usual
	flags.Var(choice{to, values}, name, help)
}

// model is the placeholder for a model name in a usage.
const model = "MODEL"

// TakesModel reports whether an argument of the command is the name of a model.
func (d Description) TakesModel() bool { return slices.Contains(strings.Fields(d.Call), model) }

// placeholders replace package flag's default names of values.
var placeholders = map[string]string{
	"int": "N", "uint": "N", "float": "N", "duration": "TIME", "string": "TEXT", "value": "VALUE",
}

// Usage prints the usage of a command, its summary and its options.
func Usage(w io.Writer, call, summary string, flags *flag.FlagSet) {
	description := Description{Call: call, Summary: summary}
	flags.VisitAll(func(f *flag.Flag) {
		value, help := flag.UnquoteUsage(f)
		value = cmp.Or(placeholders[value], value)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
			help += " (default " + f.DefValue + ")"
		}
		told := Flag{Name: f.Name, Value: value, Help: help, Models: value == model}
		if c, ok := f.Value.(choice); ok {
			told.Values = c.values
			if value == placeholders["value"] {
				told.Value = strings.Join(c.values, "|")
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

// Show prints the usage and the summary of a command, followed by a text about its options.
func Show(w io.Writer, description Description, options string) {
	if d, ok := w.(*describer); ok {
		d.told = &description
		return
	}
	fmt.Fprintf(w, "Usage: %s\n\n%s\n\n%s", description.Call, description.Summary, options)
}

// GroupUsage prints the usage of a command that has commands of its own. call is its command line,
// summary a sentence, and more the last line.
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

// Unknown prints two lines about an unknown command in a group such as "nereid env", and returns
// the exit status. noun is the word for its commands.
func Unknown(group, noun, given string, commands []Description, stderr io.Writer) int {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	meant := ""
	if near := spelling.Nearest(given, names); near != "" {
		meant = "did you mean " + near + "? "
	} else if len(names) < 6 {
		meant = "want " + strings.Join(names, ", ") + "; "
	}
	fmt.Fprintf(stderr, "%s: unknown %s %q\n%ssee %s --help\n", group, noun, given, meant, group)
	return StatusUsage
}

// End prints the error with which a command has ended, and returns its exit status. For a bad
// command line it prints two lines, because the complete usage would bury the error.
func End(name string, err error, usage func(io.Writer), stdout, stderr io.Writer) int {
	var wrong *UsageError
	switch {
	case err == nil:
		return StatusOK
	case errors.Is(err, flag.ErrHelp):
		usage(stdout)
		return StatusOK
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "%s: %s\nsee %s --help for the options\n", name, wrong.Text, name)
		return StatusUsage
	case !errors.Is(err, ErrTrouble):
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
	}
	return StatusTrouble
}
