package env

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/nereid-serving/nereid/conda/cache"
	"github.com/rs/zerolog"
)

// The exit statuses.
const (
	statusOK      = 0
	statusTrouble = 1
	statusUsage   = 2
)

// command is one of `nereid env`.
type command struct {
	name      string
	arguments string // as in the usage
	summary   string // a sentence
	run       func(ctx context.Context, i *invocation) error
}

// commands is all of them, in the order of the usage.
func commands() []command {
	return []command{
		{"doctor", "PATH", "says whether models can run in an environment, an archive of one or with a python, and what mends it if not.", doctor},
		{"list", "", "lists the environments of the cache.", list},
		{"prune", "[NAME…]", "removes environments that no process uses, and what killed processes have left.", prune},
		{"verify", "[NAME…]", "compares environments with what they were when they were made; all without a name.", verify},
	}
}

// invocation is one command line.
type invocation struct {
	command command
	flags   *flag.FlagSet
	json    bool
	names   []string // arguments that are no flags

	stdout, stderr io.Writer
}

// errTrouble ends a command whose output says already what is wrong.
var errTrouble = errors.New("trouble")

// usageError is a command line that is not understood.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// Run runs the command that args, which follow `nereid env`, name. It returns the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		if len(args) > 0 {
			usage(stdout)
			return statusOK
		}
		usage(stderr)
		return statusUsage
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.start(ctx, args[1:], stdout, stderr)
		}
	}
	fmt.Fprintf(stderr, "nereid env: there is no command %q\n", args[0])
	usage(stderr)
	return statusUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Usage: nereid env COMMAND [options]\n\nEnvironments of models (EXECUTION_ENV_PATH), and the cache that they are unpacked to.\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %s\n\t%s\n", strings.TrimSpace(c.name+" "+c.arguments), c.summary)
	}
	fmt.Fprint(w, "\nnereid env COMMAND --help shows the options of a command.\n")
}

func (c command) start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	i := &invocation{command: c, flags: flag.NewFlagSet(c.name, flag.ContinueOnError), stdout: stdout, stderr: stderr}
	i.flags.SetOutput(io.Discard) // it would print the usage before we know where to
	i.flags.BoolVar(&i.json, "json", false, "print JSON")
	i.names = args
	err := c.run(ctx, i)
	var wrong *usageError
	switch {
	case err == nil:
		return statusOK
	case errors.Is(err, flag.ErrHelp):
		i.usage(stdout)
		return statusOK
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "nereid env %s: %s\n", c.name, wrong.text)
		i.usage(stderr)
		return statusUsage
	case !errors.Is(err, errTrouble):
		fmt.Fprintf(stderr, "nereid env %s: %v\n", c.name, err)
	}
	return statusTrouble
}

// parse reads the flags, which may stand between and behind other arguments.
func (i *invocation) parse() error {
	rest := i.names
	i.names = nil
	for {
		if err := i.flags.Parse(rest); errors.Is(err, flag.ErrHelp) {
			return err
		} else if err != nil {
			return &usageError{err.Error()}
		}
		rest = i.flags.Args()
		if len(rest) == 0 {
			return nil
		}
		i.names = append(i.names, rest[0])
		rest = rest[1:]
	}
}

// usage shows the options of a command.
func (i *invocation) usage(w io.Writer) {
	fmt.Fprintf(w, "Usage: nereid env %s\n\n%s %s\n\n", strings.TrimSpace(i.command.name+" [options] "+i.command.arguments), i.command.name, i.command.summary)
	i.flags.VisitAll(func(f *flag.Flag) {
		value, help := flag.UnquoteUsage(f)
		fmt.Fprintf(w, "  %s\n\t%s\n", strings.TrimSpace("--"+f.Name+" "+value), help)
	})
}

// printJSON prints a value for programs.
func (i *invocation) printJSON(value any) error {
	encoder := json.NewEncoder(i.stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// withCache reads the flags, opens the cache that they name and calls f with it.
func (i *invocation) withCache(f func(c *cache.Cache) error) error {
	return i.withOptions(func(options cache.Options) (err error) {
		// A server would make the directory, but there is nothing to tell of one that is not there.
		if _, err := os.Stat(options.Directory); options.Directory != "" && err != nil {
			return fmt.Errorf("the cache directory: %w", err)
		}
		c, err := cache.Open(options)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		return f(c)
	})
}

// withOptions reads the flags and calls f with the options of the cache that they name.
func (i *invocation) withOptions(f func(options cache.Options) error) error {
	directory := i.flags.String("env-cache-directory", "", "`DIRECTORY` of the cache, as in --backend-config=python,env-cache-directory=…; the user's cache folder without it")
	if err := i.parse(); err != nil {
		return err
	}
	log := zerolog.New(zerolog.ConsoleWriter{Out: i.stderr, NoColor: true, PartsOrder: []string{"level", "message"}}).Level(zerolog.WarnLevel)
	return f(cache.Options{Directory: *directory, MaxBytes: -1, Log: log, Run: runProgram})
}

// chosen returns the entries that the arguments name.
func (i *invocation) chosen(entries []cache.Entry) ([]cache.Entry, error) {
	var all []cache.Entry
	for _, name := range i.names {
		found := cache.Find(entries, name)
		switch {
		case len(found) == 0:
			return nil, fmt.Errorf("the cache has no environment %q: nereid env list shows which it has", name)
		case len(found) > 1:
			return nil, fmt.Errorf("%q names %d environments, %s and %s among them: give the name", name, len(found), found[0].Name, found[1].Name)
		}
		all = append(all, found[0])
	}
	return all, nil
}

// bytesText is a number of bytes for people.
func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, prefix := float64(n)/unit, 0
	for value >= unit && prefix < 3 {
		value /= unit
		prefix++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[prefix])
}
