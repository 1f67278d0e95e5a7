package command

import (
	"bytes"
	"io"
)

// Description describes a command, like its usage.
type Description struct {
	Name     string // one word, such as list in `nereid env list`
	Call     string // its command line: "nereid env list [options]"
	Summary  string // a sentence or a few
	Flags    []Flag
	Commands []Description // commands of its own, if any
}

// Flag is one flag of a command.
type Flag struct {
	Group string // the heading above it; may be empty
	Name  string // without dashes
	Value string // the name of its value; empty if it takes none
	Help  string
	// Values are all possible values, or nil if they are not known. Models reports whether the
	// value is a model name.
	Values []string
	Models bool
}

// Run runs a command. args follow the command's name; status is the exit status.
type Run func(args []string, stdout, stderr io.Writer) (status int)

// describer is a writer that makes Usage and GroupUsage describe instead of print.
type describer struct {
	bytes.Buffer
	told *Description
}

// Describe runs a command with --help, and its commands in turn, to get their usages. A command
// whose usage is not written by Usage or GroupUsage has only a name.
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
