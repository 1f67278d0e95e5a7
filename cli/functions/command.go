package functions

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
)

const summary = `Writes a model repository for the functions in FILE that have the decorator nereid.model. The repository contains all code that it
needs, and also runs on Triton. Accepts all flags of the server; --backend-config=python,python-executable=PATH names the
Python that reads FILE.`

// ReadFlags parses a command line with the command's own flags and any of the server's, and returns
// the other arguments. An error is flag.ErrHelp or a *command.UsageError.
type ReadFlags func(own *flag.FlagSet, args []string) (names []string, server nereid.Options, err error)

// Run runs the command line that follows `nereid build`. It returns the exit status.
func Run(args []string, read ReadFlags, stdout, stderr io.Writer) int {
	own := command.Flags("build")
	output := own.String("output", "", "`DIRECTORY` of the repository; models that it has are replaced, others stay (required)")
	names, server, err := read(own, args)
	if err == nil {
		err = build(names, *output, &server, stdout, stderr)
	}
	usage := func(w io.Writer) {
		command.Usage(w, "nereid build FILE --output=DIRECTORY [flags of the server]", summary, own)
	}
	return command.End("nereid build", err, usage, stdout, stderr)
}

func build(names []string, output string, server *nereid.Options, stdout, stderr io.Writer) error {
	file, err := command.One(names, "the Python file")
	switch {
	case err != nil:
		return err
	case !IsFile(file):
		return command.Usagef("%s is not a Python file: want a file such as app.py", file)
	case output == "":
		return command.Usagef("--output is missing: want the directory of the repository, such as --output=models")
	}
	ctx, stop := command.UntilSignal()
	defer stop()
	built, err := Build(ctx, server.BackendSettings("python"), file, output, Copy, map[string]string{}, stderr)
	var mistake *Mistake
	if errors.As(err, &mistake) {
		fmt.Fprintln(stderr, mistake)
		return command.ErrTrouble
	}
	if err != nil {
		return err
	}
	for _, warning := range built.Warnings {
		fmt.Fprintln(stderr, "warning:", warning)
	}
	fmt.Fprintf(stdout, "%s has %s; serve them with nereid serve %[1]s\n", strings.TrimSuffix(output, string(os.PathSeparator)), strings.Join(built.Models, ", "))
	return nil
}
