package skeleton

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
)

// The exit statuses.
const (
	statusOK      = 0
	statusTrouble = 1
	statusUsage   = 2
)

// kind is one of the things that `nereid new` makes.
type kind struct {
	name    string
	summary string // a sentence
	make    func(i *invocation) error
}

func kinds() []kind {
	return []kind{
		{"model", "writes a model in Python: config.pbtxt, model.py, a unit test, a client.", makeModel},
	}
}

// invocation is one command line.
type invocation struct {
	kind    kind
	flags   *flag.FlagSet
	release string // of this server, as `nereid --version` has it
	args    []string

	stdout io.Writer
}

// usageError is a command line that is not understood.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// Run runs the command that args, which follow `nereid new`, name. Release is the server's version. It returns the exit status.
func Run(args []string, release string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return statusUsage
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		usage(stdout)
		return statusOK
	}
	for _, k := range kinds() {
		if k.name == args[0] {
			return k.run(args[1:], release, stdout, stderr)
		}
	}
	fmt.Fprintf(stderr, "nereid new: there is no skeleton of a %q\n", args[0])
	usage(stderr)
	return statusUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Usage: nereid new KIND NAME [options]\n\nWrites the files that something new begins with. It asks nothing and overwrites nothing.\n\n")
	for _, k := range kinds() {
		fmt.Fprintf(w, "  %s NAME\n\t%s\n", k.name, k.summary)
	}
	fmt.Fprint(w, "\nnereid new KIND --help shows the options of a kind.\n")
}

func (k kind) run(args []string, release string, stdout, stderr io.Writer) int {
	i := &invocation{kind: k, flags: flag.NewFlagSet(k.name, flag.ContinueOnError), release: release, args: args, stdout: stdout}
	i.flags.SetOutput(io.Discard) // it would print the usage before we know where to
	err := k.make(i)
	var wrong *usageError
	switch {
	case err == nil:
		return statusOK
	case errors.Is(err, flag.ErrHelp):
		i.usage(stdout)
		return statusOK
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "nereid new %s: %s\n", k.name, wrong.text)
		i.usage(stderr)
		return statusUsage
	}
	fmt.Fprintf(stderr, "nereid new %s: %v\n", k.name, err)
	return statusTrouble
}

// usage shows the options of a kind.
func (i *invocation) usage(w io.Writer) {
	fmt.Fprintf(w, "Usage: nereid new %s NAME [options]\n\n%s %s\n\n", i.kind.name, i.kind.name, i.kind.summary)
	i.flags.VisitAll(func(f *flag.Flag) {
		value, help := flag.UnquoteUsage(f)
		if value != "" {
			value = " " + value
		}
		fmt.Fprintf(w, "  --%s%s\n\t%s\n", f.Name, value, help)
	})
}

// goodName is what a folder, a model and a module of Python or Go can be called by.
var goodName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

// parse reads the flags, which may stand before and behind the name, and returns the name.
func (i *invocation) parse() (name string, err error) {
	var names []string
	for rest := i.args; ; {
		if err := i.flags.Parse(rest); errors.Is(err, flag.ErrHelp) {
			return "", err
		} else if err != nil {
			return "", &usageError{err.Error()}
		}
		if rest = i.flags.Args(); len(rest) == 0 {
			break
		}
		names = append(names, rest[0])
		rest = rest[1:]
	}
	if len(names) != 1 {
		return "", &usageError{fmt.Sprintf("got %d names, want one", len(names))}
	}
	if !goodName.MatchString(names[0]) {
		return "", &usageError{fmt.Sprintf("the name %q: want a letter, then letters, digits and underscores", names[0])}
	}
	return names[0], nil
}

// directory is the flag that says where to write.
func (i *invocation) directory() *string {
	return i.flags.String("directory", ".", "write `DIRECTORY`/NAME")
}
