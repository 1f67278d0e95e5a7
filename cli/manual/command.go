package manual

import (
	"io"

	"github.com/nereid-serving/nereid/cli/command"
)

const summary = "Prints the manual page. `nereid man | man -l -` shows it; `nereid man > /usr/local/share/man/man1/nereid.1` installs it."

// Run runs the command line that follows `nereid man`. root describes the program, of the given
// release. Run returns the exit status.
func Run(args []string, release string, root func() command.Description, stdout, stderr io.Writer) int {
	flags := command.Flags("man")
	names, err := command.Parse(flags, args)
	if err == nil && len(names) > 0 {
		err = command.Usagef("unexpected argument %q", names[0])
	}
	if err == nil {
		_, err = io.WriteString(stdout, page(root(), release))
	}
	return command.End("nereid man", err, func(w io.Writer) { command.Usage(w, "nereid man", summary, flags) }, stdout, stderr)
}
