package command

import (
	"bytes"
	"io"
)

// Description is a command as its usage tells it.
type Description struct {
	Name     string // one word, such as list in `nereid env list`
	Call     string // how it is called: "nereid env list [options]"
	Summary  string // a sentence or a few
	Flags    []Flag
	Commands []Description // of a command that has commands of its own
}

// Flag is one flag of a command.
type Flag struct {
	Group string // the heading that it stands under; may be empty
	Name  string // without dashes
	Value string // what its value is called; empty if it takes none
	Help  string
	// Values are all that it can be set to; nil: they are not known. Models says that its value is the name of a model.
	Values []string
	Models bool
}

// Run is a command: args follow its name, the status is that of the process.
type Run func(args []string, stdout, stderr io.Writer) (status int)

// describer is the writer for which Usage and GroupUsage describe instead of writing.
type describer struct {
	bytes.Buffer
	told *Description
}

// Describe asks a command for its usage, by --help, and its commands for theirs. A command whose usage is not
// written by Usage or GroupUsage has a name alone.
func Describe(name string, run Run) Description {
	d := &describer{}
	run([]string{"--help"}, d, io.Discard)
	if d.told == nil {
		return Description{Name: name}
	}
	told := *d.told
	told.Name = name
	told.Commands = nil
	for _, c := range d.told.Commands {
		told.Commands = append(told.Commands, Describe(c.Name, func(args []string, stdout, stderr io.Writer) int {
			return run(append([]string{c.Name}, args...), stdout, stderr)
		}))
	}
	return told
}
