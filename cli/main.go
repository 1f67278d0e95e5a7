package cli

import (
	"encoding/json"
	"errors"
	stdflag "flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/backends"
	"github.com/nereid-serving/nereid/cli/bench"
	"github.com/nereid-serving/nereid/cli/check"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/cli/completion"
	"github.com/nereid-serving/nereid/cli/entry"
	"github.com/nereid-serving/nereid/cli/env"
	"github.com/nereid-serving/nereid/cli/flags"
	"github.com/nereid-serving/nereid/cli/functions"
	"github.com/nereid-serving/nereid/cli/health"
	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/cli/manual"
	"github.com/nereid-serving/nereid/cli/replay"
	"github.com/nereid-serving/nereid/cli/skeleton"
	"github.com/nereid-serving/nereid/cli/top"
	"github.com/nereid-serving/nereid/internal/spelling"
)

// version is set by the linker.
var version = "dev"

// Main is the main function of a server: it serves according to the command line, and exits.
// Extensions add linked backends, such as nereid.WithBackend.
func Main(extensions ...nereid.Extension) {
	os.Exit(run(os.Args, os.Getenv, os.Stdout, os.Stderr, extensions...))
}

// subcommand is selected by the first argument.
type subcommand struct {
	name    string
	summary string // without a full stop
	run     command.Run
}

// commands lists all subcommands. The environment and the extensions are for those that start a
// server.
func commands(getenv func(string) string, extensions ...nereid.Extension) []subcommand {
	read := func(stderr io.Writer) functions.ReadFlags {
		return func(own *stdflag.FlagSet, args []string) ([]string, nereid.Options, error) {
			return flags.ParseWith(own, args, getenv, stderr, extensions...)
		}
	}
	return []subcommand{
		{"backend", "Tests Go backends that are plugins", backends.Run},
		{"bench", "Measures a model under load", bench.Run},
		{"build", "Writes a model repository for the functions of a file", func(args []string, stdout, stderr io.Writer) int {
			return functions.Run(args, read(stderr), stdout, stderr)
		}},
		{"check", "Finds mistakes in a model repository", func(args []string, stdout, stderr io.Writer) int {
			closed := func() {}
			defer func() { closed() }()
			return check.Run(args, func(own *stdflag.FlagSet, args []string) ([]string, nereid.Options, error) {
				names, server, err := read(stderr)(own, args)
				if err == nil && len(names) == 1 && functions.IsFile(names[0]) {
					server.Repository.Paths, names = append(server.Repository.Paths, names[0]), nil
					closed, err = functions.Open(&server, stderr)
				}
				return names, server, err
			}, stdout, stderr)
		}},
		{"completion", "Prints shell completion scripts", func(args []string, stdout, stderr io.Writer) int {
			return completion.Run(args, describe, stdout, stderr)
		}},
		{"env", "Lists, checks and removes execution environments", env.Run},
		{"health", "Checks whether a server is live or ready", health.Run},
		{"man", "Prints the manual page", func(args []string, stdout, stderr io.Writer) int {
			return manual.Run(args, version, describe, stdout, stderr)
		}},
		{"new", "Creates the files of a new model or backend", func(args []string, stdout, stderr io.Writer) int {
			return skeleton.Run(args, version, stdout, stderr)
		}},
		{"replay", "Replays recorded requests and compares the responses", replay.Run},
		{serveName, "Serves models for local development", func(args []string, stdout, stderr io.Writer) int {
			return serveLocally(args, getenv, stdout, stderr, extensions)
		}},
		{"top", "Shows the state of a running server", top.Run},
		{"version", "Shows the version of this binary", showVersion},
	}
}

// noEnvironment is for commands that are described but not run.
func noEnvironment(string) string { return "" }

const summary = `Serves Triton model repositories over HTTP and gRPC. Without a command, it accepts tritonserver's command line.`

// describe describes the program, its flags and its commands, for completion and the manual page.
func describe() command.Description {
	root := command.Description{Name: "nereid", Call: "nereid [options]", Summary: summary, Flags: flags.Describe()}
	for _, c := range commands(noEnvironment) {
		told := command.Describe(c.name, c.run)
		if told.Summary == "" {
			told.Summary = c.summary + "."
		}
		root.Commands = append(root.Commands, told)
	}
	return root
}

// showVersion is the command version.
func showVersion(args []string, stdout, stderr io.Writer) int {
	own := command.Flags("version")
	asJSON := own.Bool("json", false, "print version, protocol, compiler and platform as a JSON object")
	names, err := command.Parse(own, args)
	switch {
	case err != nil:
	case len(names) > 0:
		err = command.Usagef("got %q, want nothing or --json", strings.Join(names, " "))
	case *asJSON:
		err = json.NewEncoder(stdout).Encode(map[string]string{
			"version": version, "protocol": nereid.ProtocolVersion, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		})
	default:
		fmt.Fprintln(stdout, "nereid", version)
	}
	usage := func(w io.Writer) {
		command.Usage(w, "nereid version [--json]", "Shows the version of this binary.", own)
	}
	return command.End("nereid version", err, usage, stdout, stderr)
}

// run is the whole program; it returns the exit status.
func run(args []string, getenv func(string) string, stdout, stderr io.Writer, extensions ...nereid.Extension) int {
	line, err := entry.Machine{Getenv: getenv}.Resolve(args)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	for _, note := range line.Notes {
		fmt.Fprintln(stdout, note)
	}
	if line.Exec != "" {
		err := unix.Exec(line.Exec, append([]string{line.Program}, line.Args...), os.Environ())
		fmt.Fprintf(stderr, "%s: %v\n", line.Exec, err)
		return 1
	}
	program, getenv := line.Program, line.Getenv(getenv)
	meant := ""
	if line.Commands && len(line.Args) > 0 {
		asked, arguments := line.Args[0], line.Args[1:]
		if asked == help && len(arguments) > 0 { // of one command
			asked, arguments = arguments[0], []string{"--help"}
		}
		for _, c := range commands(getenv, extensions...) {
			if c.name == asked && c.name == serveName { // the output of models is passed on unchanged
				return c.run(arguments, stdout, stderr)
			}
			if c.name == asked {
				return c.run(arguments, command.Printable(stdout), command.Printable(stderr))
			}
		}
		if line.Args[0] == help {
			writeCommands(stdout)
			return 0
		}
		meant = nearestCommand(line.Args[0])
	}
	options, err := flags.Parse(line.Args, getenv, stderr)
	if errors.Is(err, flags.ErrVersion) {
		fmt.Fprintln(stdout, "nereid", version)
		return 0
	}
	if err != nil {
		explain(err, program, meant, stderr)
		return 1
	}
	for _, extend := range extensions {
		extend(&options.Options)
	}
	if line.Commands && len(line.Args) == 0 && len(options.Repository.Paths) == 0 && logs.IsTerminal(stderr) {
		fmt.Fprint(stderr, firstSteps)
		return command.StatusUsage
	}
	return serve(options, getenv, stdout, stderr)
}

// firstSteps is the answer to nereid alone, on a terminal.
const firstSteps = `nereid serves Python models over HTTP and gRPC.

  nereid new model NAME   creates a model, with its config, a test and a client
  nereid serve DIR        serves the models in a folder
  nereid serve FILE.py    serves the functions of a file as models
  nereid help             lists all commands
  nereid --help           lists the flags of the server, which are tritonserver's
`

// explain prints a command-line error together with the usage, like tritonserver. On a terminal it
// prints two lines and no usage. meant is the command most similar to the first argument, or "".
func explain(err error, program, meant string, stderr io.Writer) {
	if meant != "" {
		meant = "did you mean nereid " + meant + "?"
	}
	var syntax *flags.SyntaxError
	if logs.IsTerminal(stderr) && !errors.Is(err, flags.ErrHelp) {
		text := err.Error()
		if errors.As(err, &syntax) {
			text = program + ": " + syntax.Complaint
		}
		hint := ""
		switch {
		case meant != "":
			hint = meant + " "
		case syntax != nil && syntax.Hint != "":
			hint = syntax.Hint + " "
		}
		fmt.Fprintf(stderr, "%s\n%s%s --help lists all flags\n", text, hint, program)
		return
	}
	if meant != "" {
		defer fmt.Fprintln(stderr, meant)
	}
	if errors.As(err, &syntax) {
		fmt.Fprintf(stderr, "%s: %s\n", program, syntax.Complaint)
		writeUsage(stderr, program)
		if syntax.Hint != "" {
			fmt.Fprintf(stderr, "%s: %s\n", syntax.Complaint, syntax.Hint)
		}
		return
	}
	writeUsage(stderr, program)
	if !errors.Is(err, flags.ErrHelp) {
		fmt.Fprintln(stderr, err)
	}
}

// help is the first argument that lists the commands.
const help = "help"

// nearestCommand returns the command with a name similar to a first argument, or "".
func nearestCommand(argument string) string {
	if strings.HasPrefix(argument, "-") {
		return ""
	}
	best, fewest := "", min(2, (len(argument)+1)/2)+1
	for _, c := range append(commands(noEnvironment), subcommand{name: help}) {
		if n := spelling.Distance(argument, c.name); n < fewest {
			best, fewest = c.name, n
		}
	}
	return best
}

// writeCommands writes the output of nereid help.
func writeCommands(w io.Writer) {
	fmt.Fprintf(w, "Usage: nereid COMMAND, or nereid [options]\n\n%s\n\n", summary)
	for _, c := range commands(noEnvironment) {
		fmt.Fprintf(w, "  %-10s  %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\nnereid COMMAND --help shows the options of a command. nereid --help shows those of the server.\n")
}

// helpWidth is the width at which --help wraps the text of a flag.
const helpWidth = 72

// writeUsage writes the usage for --help and for errors.
func writeUsage(w io.Writer, program string) {
	var b strings.Builder
	b.WriteString("Usage: " + program + " [options]\n")
	described := flags.Describe()
	for i, f := range described {
		if i > 0 && f.Group != described[i-1].Group {
			b.WriteString("\n" + f.Group + ":\n")
		}
		b.WriteString(strings.TrimRight("  --"+f.Name+" "+f.Value, " ") + "\n")
		writeWrapped(&b, f.Help)
	}
	b.WriteString("\nCommands:\n")
	for _, c := range commands(noEnvironment) {
		fmt.Fprintf(&b, "  %s\n\t%s; see %s --help.\n", c.name, c.summary, c.name)
	}
	b.WriteString("\n")
	_, _ = io.WriteString(w, b.String()) // there is nowhere else to report an error
}

func writeWrapped(b *strings.Builder, text string) {
	line := 0
	for _, word := range strings.Fields(text) {
		switch {
		case line == 0:
			b.WriteString("\t")
		case line+1+len(word) > helpWidth:
			b.WriteString("\n\t")
			line = 0
		default:
			b.WriteString(" ")
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	b.WriteString("\n")
}
