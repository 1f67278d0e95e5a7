package entry

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Line is a command line after its form is resolved.
type Line struct {
	Program  string   // the program's name in the usage
	Args     []string // without the program's name
	Commands bool     // the first of Args may be a subcommand
	// Exec is the path of a program that replaces this process, with Args; may be empty.
	Exec string
	// Settings are variables that take precedence over the environment.
	Settings map[string]string
	// Notes are lines for the standard output.
	Notes []string
}

// Getenv returns a getenv that looks into Settings first.
func (l *Line) Getenv(getenv func(string) string) func(string) string {
	if len(l.Settings) == 0 {
		return getenv
	}
	return func(name string) string {
		if value, ok := l.Settings[name]; ok {
			return value
		}
		return getenv(name)
	}
}

// Machine holds the inputs of a form besides its arguments.
type Machine struct {
	Getenv func(string) string
	// Root is the prefix of platform directories such as /opt/ml/model. It is empty outside of
	// tests.
	Root string
}

// Names of the binary.
const (
	triton     = "tritonserver"
	nereid     = "nereid"
	sageMaker  = "serve"
	entryPoint = "nereid-entrypoint"
)

// Resolve resolves args, which begin with the program's name. An error is a complete line for the
// user.
func (m Machine) Resolve(args []string) (Line, error) {
	program := filepath.Base(args[0])
	args = args[1:]
	switch program {
	case triton:
		return Line{Program: triton, Args: args}, nil
	case sageMaker:
		return m.sageMaker(args)
	case entryPoint:
		return m.entryPoint(args)
	}
	return m.command(program, args)
}

// command resolves the arguments of the command nereid. They may begin with its own name or with
// tritonserver's, because charts written for Triton pass those to an image whose entry point is
// `nereid`.
func (m Machine) command(program string, args []string) (Line, error) {
	if len(args) > 0 {
		switch named := filepath.Base(args[0]); {
		case named == triton:
			return Line{Program: triton, Args: args[1:]}, nil
		case named == nereid:
			return m.command(nereid, args[1:])
		case len(args) == 1 && args[0] == sageMaker && m.inSageMaker():
			return m.sageMaker(nil)
		}
	}
	return Line{Program: program, Args: args, Commands: true}, nil
}

// entryPoint resolves the arguments of a container: flags are for the server, and anything else
// names a program, usually this one.
func (m Machine) entryPoint(args []string) (Line, error) {
	// Vertex AI passes only flags. The words before them are not a program.
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || m.Getenv("AIP_MODE") != "" && filepath.Base(args[0]) != triton {
		return Line{Program: triton, Args: args}, nil
	}
	switch named := filepath.Base(args[0]); {
	case named == triton, named == nereid:
		return m.command(nereid, args)
	case named == sageMaker && len(args) == 1:
		return m.sageMaker(nil)
	case named == sageMaker:
		return m.command(nereid, args)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return Line{}, fmt.Errorf("%s: %q is neither a flag nor a program on PATH; want server flags, `tritonserver`, `nereid`, `serve`, or a program", entryPoint, args[0])
	}
	return Line{Program: args[0], Exec: path, Args: args[1:]}, nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
