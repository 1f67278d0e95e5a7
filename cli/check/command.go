package check

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/objectstore"
)

const summary = `Checks a model repository, or one model in it, without serving it. Reports each mistake with file, line and remedy, and
differences from Triton. Accepts all flags of the server.`

// ReadFlags parses a command line with the command's own flags and any of the server's, and returns
// the other arguments. An error is flag.ErrHelp or a *command.UsageError.
type ReadFlags func(own *flag.FlagSet, args []string) (names []string, server nereid.Options, err error)

// options are the parsed command line.
type options struct {
	importing, trying, writing bool
	strict, json               bool
	request                    string // a file
	body                       []byte // its content

	server nereid.Options
	// models lists the models to check, including the steps of ensembles; empty: the whole repository.
	// model is set if only one is checked.
	models []string
	model  string
}

// Run runs the command line that follows `nereid check`. It returns the exit status.
func Run(args []string, read ReadFlags, stdout, stderr io.Writer) int {
	o := &options{}
	flags := command.Flags("check")
	flags.BoolVar(&o.importing, "import", false, "also load the models as the server would: start processes, run auto_complete_config, initialize and warm-up")
	flags.BoolVar(&o.trying, "try", false, "like --import, and send a request to each model without a model_warmup")
	flags.StringVar(&o.request, "request", "", "`FILE` with a JSON request, for --try and --write-config with one model; - reads standard input")
	flags.BoolVar(&o.writing, "write-config", false, "write a config.pbtxt for one model that has none, derived from a first request")
	flags.BoolVar(&o.strict, "strict", false, "exit with status 1 for warnings as well")
	flags.BoolVar(&o.json, "json", false, "print one JSON object instead of lines")
	flags.Func("model", "check only `MODEL`, and the composing models if it is an ensemble; may be repeated", func(name string) error {
		if name == "" {
			return errors.New("want the name of a model")
		}
		if !slices.Contains(o.models, name) {
			o.models = append(o.models, name)
		}
		return nil
	})
	names, server, err := read(flags, args)
	if err == nil {
		o.server = server
		err = o.locate(names)
	}
	if err == nil && o.request != "" {
		o.body, err = readAll(o.request)
	}
	if err == nil {
		// From here on a signal ends the command in order. Before, for example while it reads a
		// request from a terminal, a signal kills it.
		ctx, stop := command.UntilSignal()
		defer stop()
		err = o.run(ctx, stdout, stderr)
	}
	usage := func(w io.Writer) {
		command.Usage(w, "nereid check DIRECTORY|FILE.py [options] [flags of the server]", summary, flags)
	}
	return command.End("nereid check", err, usage, stdout, stderr)
}

// locate finds the repository for the arguments: a directory of models, or of one model.
func (o *options) locate(names []string) error {
	if len(names) > 1 || len(names)+len(o.server.Repository.Paths) == 0 {
		_, err := command.One(names, "the directory of a model or a repository")
		return err
	}
	o.importing = o.importing || o.trying
	if len(names) == 1 {
		directory := names[0]
		if location, inStore, err := objectstore.Parse(directory); inStore {
			if o.writing {
				return command.Usagef("--write-config needs a local directory, but %s is in an object store", location)
			}
			o.server.Repository.Paths = append(o.server.Repository.Paths, directory)
			return err
		}
		info, err := os.Stat(directory)
		switch {
		case err != nil:
			return command.Usagef("%s does not exist: want a model repository or a model", directory)
		case !info.IsDir():
			return command.Usagef("%s is not a directory: want a model repository or a model", directory)
		case isFile(filepath.Join(directory, scriptName)) && !isModel(directory):
			if !numbered(filepath.Base(directory)) {
				return command.Usagef("%s has a %s outside a version directory: move it to %s", directory, scriptName, filepath.Join(directory, "1", scriptName))
			}
			return command.Usagef("%s is a version directory: want the model, which is its parent directory", directory)
		}
		if isModel(directory) {
			absolute, err := filepath.Abs(directory)
			if err != nil {
				return err
			}
			if len(o.models) > 0 {
				return command.Usagef("%s is a model: --model selects from a repository, such as %s", directory, filepath.Dir(filepath.Clean(directory)))
			}
			o.model, directory = filepath.Base(absolute), filepath.Dir(filepath.Clean(directory))
			if filepath.Base(filepath.Join(directory, o.model)) != filepath.Base(filepath.Clean(names[0])) { // "." or ".."
				directory = filepath.Dir(absolute)
			}
		}
		o.server.Repository.Paths = append(o.server.Repository.Paths, directory)
	}
	switch {
	case o.model != "":
		o.models = []string{o.model}
	case len(o.models) == 1:
		o.model = o.models[0]
	}
	switch {
	case (o.writing || o.request != "") && o.model == "":
		return command.Usagef("--write-config and --request need exactly one model: name its directory, such as models/greeter, or add --model greeter")
	case o.request != "" && !o.trying && !o.writing:
		return command.Usagef("--request needs --try or --write-config")
	}
	return nil
}

// isModel reports whether a directory is a model instead of a repository.
func isModel(directory string) bool {
	if isFile(filepath.Join(directory, "config.pbtxt")) {
		return true
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if numbered(e.Name()) && isFile(filepath.Join(directory, e.Name(), "model.py")) {
			return true
		}
	}
	return false
}

// numbered reports whether a name is a version directory's.
func numbered(name string) bool {
	_, err := strconv.ParseUint(name, 10, 63)
	return err == nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// isSpecial reports whether a path is neither a file nor a directory, such as a pipe.
func isSpecial(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// run checks and reports.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) error {
	c := &check{options: o, log: &capture{}, scripts: make(map[string]finding)}
	if err := c.everything(ctx, stdout, stderr); err != nil {
		return err
	}
	c.report.finish()
	if o.json {
		if err := c.report.writeJSON(stdout); err != nil {
			return err
		}
	} else {
		c.report.writeText(stdout)
	}
	if c.report.Errors > 0 || o.strict && c.report.Warnings > 0 {
		return command.ErrTrouble
	}
	return nil
}

// place splits file:line:column.
func splitSource(text string) (file string, line, column int) {
	file = text
	for range 2 {
		before, number, found := cutLast(file)
		if !found {
			break
		}
		file, line, column = before, number, line
	}
	return file, line, column
}

func cutLast(text string) (before string, number int, found bool) {
	at := strings.LastIndexByte(text, ':')
	if at < 0 {
		return text, 0, false
	}
	number, err := strconv.Atoi(text[at+1:])
	return text[:at], number, err == nil
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if one == "difference" {
		return fmt.Sprintf("%d differences", n)
	}
	return fmt.Sprintf("%d %ss", n, one)
}
