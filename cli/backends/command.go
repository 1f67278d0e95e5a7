package backends

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/sdk/conformance"
)

// Run runs the command named by args, which follow `nereid backend`. It returns the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := command.UntilSignal()
	defer stop()
	switch {
	case len(args) == 0:
		usage(stderr)
		return command.StatusUsage
	case slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]):
		usage(stdout)
		return command.StatusOK
	case args[0] != "test":
		return command.Unknown("nereid backend", "command", args[0], described, stderr)
	}
	flags := command.Flags("test")
	err := test(ctx, flags, args[1:], stdout)
	return command.End("nereid backend test", err, func(w io.Writer) { testUsage(w, flags) }, stdout, stderr)
}

const testSummary = "Checks that a plugin follows the rules in docs/backends.md for methods, ownership, inputs and outputs."

var described = []command.Description{{Name: "test", Call: "PATH", Summary: testSummary}}

func usage(w io.Writer) {
	command.GroupUsage(w, "nereid backend COMMAND [options]", "Tests Go backends that are plugins.",
		described, "nereid backend test --help shows the options.")
}

func testUsage(w io.Writer, flags *flag.FlagSet) {
	command.Usage(w, "nereid backend test [options] PATH", testSummary+" PATH is a program nereid_NAME, or a folder that contains one.", flags)
}

// models is a flag that may be given several times.
type models []string

// String returns the default for package flag.
func (m *models) String() string { return "" }

// Set adds the value of one flag.
func (m *models) Set(text string) error {
	*m = append(*m, text)
	return nil
}

// test runs the suite.
func test(ctx context.Context, flags *flag.FlagSet, args []string, stdout io.Writer) error {
	var list models
	flags.Var(&list, "model", "`DIRECTORY` of a model for the backend, with a config.pbtxt; may be repeated. Default: the models of the backend in a folder models next to PATH or in the working directory")
	limit := flags.Duration("timeout", 30*time.Second, "maximum `TIME` of a request, a load or an unload")
	asJSON := flags.Bool("json", false, "print JSON")
	var settings settingsFlag
	flags.Var(&settings, "backend-config", "setting `SETTING=VALUE` of the backend; may be repeated")
	names, err := command.Parse(flags, args)
	if err != nil {
		return err
	}
	path, err := command.One(names, "the path")
	switch {
	case err != nil:
		return err
	case *limit <= 0:
		return command.Usagef("--timeout is %s, want more than 0s", *limit)
	}
	program, backend, err := find(path)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		if list = modelsOf(backend, filepath.Join(filepath.Dir(program), "models"), "models"); len(list) == 0 {
			return fmt.Errorf("no folder models, here or next to %[2]s, has a model of backend %[1]q: name one with --model", backend, program)
		}
	}
	p, err := newPlugin(program, settings)
	if err != nil {
		return err
	}
	defer p.close()
	var tested []conformance.Model
	for _, directory := range list {
		tested = append(tested, conformance.Model{Directory: directory})
	}
	report, err := conformance.Check(ctx, p, conformance.Options{Limit: *limit}, tested...)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case *asJSON:
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	default:
		err = report.Write(stdout)
	}
	if err == nil && !report.Passed() {
		err = command.ErrTrouble
	}
	return err
}

// settingsFlag collects settings of the backend.
type settingsFlag map[string]string

// String returns the default for package flag.
func (s *settingsFlag) String() string { return "" }

// Set adds the value of one flag.
func (s *settingsFlag) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return fmt.Errorf("got %q, want SETTING=VALUE", text)
	}
	if *s == nil {
		*s = settingsFlag{}
	}
	(*s)[name] = value
	return nil
}
