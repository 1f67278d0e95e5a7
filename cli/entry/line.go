package entry

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Line is a command line behind its form.
type Line struct {
	Program  string   // the program's name in the usage
	Args     []string // without the program's name
	Commands bool     // the first of Args may be a subcommand
	// Exec is the path of a program that replaces this process, with Args; may be empty.
	Exec string
	// Settings are variables that count as set, whatever the environment says.
	Settings map[string]string
	// Notes are lines for the standard output.
	Notes []string
}

// Getenv looks into Settings first and then asks getenv.
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

// Machine has the inputs of a form other than its arguments.
type Machine struct {
	Getenv func(string) string
	// Root stands in front of the directories of platforms, such as /opt/ml/model. Outside of tests it is empty.
	Root string
}

// The names by which the binary is started.
const (
	triton     = "tritonserver"
	nereid     = "nereid"
	sageMaker  = "serve"
	entryPoint = "nereid-entrypoint"
)

// Resolve reads args, whose first is the program's name. An error is a whole line for the user.
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

// command reads the arguments of the command nereid, which may begin with its own name or with tritonserver's: an image
// whose entry point is `nereid` gets them from charts that were written for Triton's.
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

// entryPoint reads the arguments of a container: flags are the server's, and anything else names a program, mostly this one.
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
		return Line{}, fmt.Errorf("%s: %q is neither a flag nor a program on PATH; want flags of the server, `tritonserver`, `nereid` or `serve`, or a program", entryPoint, args[0])
	}
	return Line{Program: args[0], Exec: path, Args: args[1:]}, nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
