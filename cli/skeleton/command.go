package skeleton

import (
	"flag"
	"io"
	"regexp"
	"slices"

	"github.com/nereid-serving/nereid/cli/command"
)

// kind is a kind of skeleton.
type kind struct {
	name    string
	summary string // a sentence
	make    func(i *invocation) error
}

func kinds() []kind {
	return []kind{
		{"model", "Writes a Python model: config.pbtxt, model.py, a unit test and a client.", makeModel},
		{"backend", "Writes a Go backend: a plugin program, its tests, an example model and a client.", makeBackend},
	}
}

// invocation is one command line.
type invocation struct {
	kind    kind
	flags   *flag.FlagSet
	release string // of this server, as printed by `nereid --version`
	args    []string

	stdout io.Writer
}

// Run runs the command named by args, which follow `nereid new`. release is the server's version.
// It returns the exit status.
func Run(args []string, release string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return command.StatusUsage
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		usage(stdout)
		return command.StatusOK
	}
	for _, k := range kinds() {
		if k.name == args[0] {
			return k.run(args[1:], release, stdout, stderr)
		}
	}
	return command.Unknown("nereid new", "kind", args[0], described(), stderr)
}

func described() (list []command.Description) {
	for _, k := range kinds() {
		list = append(list, command.Description{Name: k.name, Call: "NAME", Summary: k.summary})
	}
	return list
}

func usage(w io.Writer) {
	command.GroupUsage(w, "nereid new KIND NAME [options]", "Writes the first files of a new model or backend. It never overwrites a file.",
		described(), "nereid new KIND --help shows the options of a kind.")
}

func (k kind) run(args []string, release string, stdout, stderr io.Writer) int {
	i := &invocation{kind: k, flags: command.Flags(k.name), release: release, args: args, stdout: stdout}
	usage := func(w io.Writer) {
		command.Usage(w, "nereid new "+k.name+" NAME [options]", k.summary, i.flags)
	}
	return command.End("nereid new "+k.name, k.make(i), usage, stdout, stderr)
}

// goodName matches names for a Go program and a Go module. A folder, a model and a test file can
// also have hyphens, but not dots, with which pytest would look for a package.
var (
	goodName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	modelName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
)

// parse parses the flags and returns the validated name.
func (i *invocation) parse(good *regexp.Regexp, besides string) (name string, err error) {
	names, err := command.Parse(i.flags, i.args)
	if err == nil {
		name, err = command.One(names, "the name")
	}
	if err == nil && !good.MatchString(name) {
		err = command.Usagef("the name %q: want a letter, then letters, %s", name, besides)
	}
	return name, err
}

// directory adds the flag for the output directory.
func (i *invocation) directory() *string {
	return i.flags.String("directory", ".", "write `DIRECTORY`/NAME")
}
