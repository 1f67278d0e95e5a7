package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// SyntaxError is why Python cannot parse a file.
type SyntaxError struct {
	File         string
	Line, Column int    // from 1; 0 if unknown
	Text         string // such as "SyntaxError: invalid syntax"
}

// parser parses the files in its arguments and runs none of them. It prints a line for each error,
// and whether this Python has numpy.
const parser = `import importlib.util, json, sys
if sys.version_info < (3, 8): sys.exit("stubs need Python 3.8 or newer")
for path in sys.argv[1:]:
    try:
        with open(path, "rb") as file: compile(file.read(), path, "exec", dont_inherit=True)
    except Exception as error:
        text = type(error).__name__ + ": " + (getattr(error, "msg", "") or str(error))
        print(json.dumps({"File": path, "Line": getattr(error, "lineno", 0) or 0, "Column": getattr(error, "offset", 0) or 0, "Text": text}))
print(json.dumps({"Numpy": importlib.util.find_spec("numpy") is not None}))
`

// mostParsed limits the files of one run of parser, and so the length of its command line.
const mostParsed = 256

// CheckSyntax parses Python files with the interpreter that models use by default, and returns
// their syntax errors. It runs none of their code.
func (b *Backend) CheckSyntax(ctx context.Context, files []string) (found []SyntaxError, err error) {
	interpreters, err := b.Interpreters()
	if err != nil {
		return nil, err
	}
	for part := range slices.Chunk(files, mostParsed) {
		errs, err := b.parse(ctx, interpreters, part)
		if err != nil {
			return nil, err
		}
		found = append(found, errs...) // bound: files
	}
	return found, nil
}

// parse parses files with the first interpreter that has numpy. If none has it, it uses the first
// interpreter that runs.
func (b *Backend) parse(ctx context.Context, interpreters, files []string) (found []SyntaxError, err error) {
	var failures []error
	works := false
	for _, interpreter := range interpreters {
		argv := append([]string{interpreter, "-W", "ignore", "-c", parser}, files...) // bound: mostParsed
		output, err := b.supervisor.Children().Run(ctx, argv, os.Environ(), b.dir)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", interpreter, err)) // bound: PATH
			continue
		}
		errs, numpy := parsed(output)
		if numpy || !works {
			found, works = errs, true
		}
		if numpy || b.config.Executable != "" {
			break
		}
	}
	if !works {
		return nil, errors.Join(failures...)
	}
	return found, nil
}

// parsed reads the output of parser.
func parsed(output string) (found []SyntaxError, numpy bool) {
	for line := range strings.Lines(output) {
		var one struct {
			SyntaxError
			Numpy *bool
		}
		switch err := json.Unmarshal([]byte(line), &one); { // bound: the output that Run keeps
		case err != nil: // printed by code of the installation, such as sitecustomize
		case one.Numpy != nil:
			numpy = *one.Numpy
		case one.File != "":
			found = append(found, one.SyntaxError) // bound: mostParsed
		}
	}
	return found, numpy
}
