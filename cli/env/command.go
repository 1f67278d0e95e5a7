package env

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/conda/cache"
)

// subcommand is a command of `nereid env`.
type subcommand struct {
	name      string
	arguments string // as in the usage
	summary   string // a sentence
	run       func(ctx context.Context, i *invocation) error
}

// commands lists all commands in the order of the usage.
func commands() []subcommand {
	return []subcommand{
		{"doctor", "PATH", "Checks whether models can run in an environment, in a packed archive or with an interpreter. If not, it explains the remedy.", doctor},
		{"list", "", "Lists the environments in the cache.", list},
		{"prune", "[NAME…]", "Removes environments that no process uses, and leftovers of killed processes.", prune},
		{"verify", "[NAME…]", "Compares environments with their original files. Without names, it compares all of them.", verify},
	}
}

// invocation is one command line.
type invocation struct {
	command subcommand
	flags   *flag.FlagSet
	json    bool
	names   []string // arguments other than flags

	stdout, stderr io.Writer
}

// Run runs the command named by args, which follow `nereid env`. It returns the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := command.UntilSignal()
	defer stop()
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		if len(args) > 0 {
			usage(stdout)
			return command.StatusOK
		}
		usage(stderr)
		return command.StatusUsage
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.start(ctx, args[1:], stdout, stderr)
		}
	}
	return command.Unknown("nereid env", "command", args[0], described(), stderr)
}

func described() (list []command.Description) {
	for _, c := range commands() {
		list = append(list, command.Description{Name: c.name, Call: c.arguments, Summary: c.summary})
	}
	return list
}

func usage(w io.Writer) {
	command.GroupUsage(w, "nereid env COMMAND [options]", "Manages execution environments of models (EXECUTION_ENV_PATH) and the cache of unpacked ones.",
		described(), "nereid env COMMAND --help shows the options of a command.")
}

func (c subcommand) start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	i := &invocation{command: c, flags: command.Flags(c.name), stdout: stdout, stderr: stderr, names: args}
	i.flags.BoolVar(&i.json, "json", false, "print JSON")
	usage := func(w io.Writer) {
		command.Usage(w, "nereid env "+strings.TrimSpace(c.name+" [options] "+c.arguments), c.summary, i.flags)
	}
	return command.End("nereid env "+c.name, c.run(ctx, i), usage, stdout, stderr)
}

// parse parses the flags, which may stand between and after other arguments.
func (i *invocation) parse() (err error) {
	i.names, err = command.Parse(i.flags, i.names)
	return err
}

// printJSON prints a value as JSON.
func (i *invocation) printJSON(value any) error {
	encoder := json.NewEncoder(i.stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// withCache parses the flags, opens the selected cache and calls f with it.
func (i *invocation) withCache(f func(c *cache.Cache) error) error {
	return i.withOptions(func(options cache.Options) (err error) {
		// A server would create the directory, but a missing one has nothing to report.
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

// withOptions parses the flags and calls f with the cache options.
func (i *invocation) withOptions(f func(options cache.Options) error) error {
	directory := i.flags.String("env-cache-directory", "", "`DIRECTORY` of the cache, as in --backend-config=python,env-cache-directory=… (default: in the user's cache directory)")
	if err := i.parse(); err != nil {
		return err
	}
	log := zerolog.New(zerolog.ConsoleWriter{Out: i.stderr, NoColor: true, PartsOrder: []string{"level", "message"}}).Level(zerolog.WarnLevel)
	return f(cache.Options{Directory: *directory, MaxBytes: -1, Log: log, Run: runProgram})
}

// chosen returns the entries named by the arguments.
func (i *invocation) chosen(entries []cache.Entry) ([]cache.Entry, error) {
	var all []cache.Entry
	for _, name := range i.names {
		found := cache.Find(entries, name)
		switch {
		case len(found) == 0:
			return nil, fmt.Errorf("the cache has no environment %q: see nereid env list", name)
		case len(found) > 1:
			return nil, fmt.Errorf("%q matches %d environments, including %s and %s: give the full name", name, len(found), found[0].Name, found[1].Name)
		}
		all = append(all, found[0])
	}
	return all, nil
}

// bytesText formats a number of bytes for people.
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
