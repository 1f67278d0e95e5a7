package completion

import (
	"embed"
	"fmt"
	"io"
	"slices"

	"github.com/nereid-serving/nereid/cli/command"
)

//go:embed scripts
var scripts embed.FS

// shells are the commands that print a script.
var shells = []command.Description{
	{Name: "bash", Summary: `Prints the script for bash. Run source <(nereid completion bash), or install it in /etc/bash_completion.d.`},
	{Name: "zsh", Summary: `Prints the script for zsh. Run source <(nereid completion zsh) after compinit, or install it as _nereid in a folder of fpath.`},
	{Name: "fish", Summary: `Prints the script for fish. Install it with nereid completion fish > ~/.config/fish/completions/nereid.fish.`},
}

// Run runs the command line that follows `nereid completion`. It calls root for a description of
// the program if candidates are needed, and returns the exit status.
func Run(args []string, root func() command.Description, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[0] == "candidates" && args[1] == "--" { // only for the scripts
		found := complete(root(), args[2:])
		if found.models != nil {
			for _, name := range found.models.names() {
				found.add(found.models.prefix, found.models.before+name, "")
			}
		}
		fmt.Fprintln(stdout, found.files)
		for _, c := range found.candidates {
			fmt.Fprintf(stdout, "%s\t%s\n", c.word, c.help)
		}
		return command.StatusOK
	}
	switch {
	case len(args) == 0:
		usage(stderr)
		return command.StatusUsage
	case slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]):
		usage(stdout)
		return command.StatusOK
	}
	for _, shell := range shells {
		if shell.Name == args[0] {
			return printScript(shell, args[1:], stdout, stderr)
		}
	}
	return command.Unknown("nereid completion", "shell", args[0], shells, stderr)
}

func usage(w io.Writer) {
	command.GroupUsage(w, "nereid completion SHELL", "Prints a script with which a shell completes nereid commands.", shells,
		"See also docs/serve.md.")
}

func printScript(shell command.Description, args []string, stdout, stderr io.Writer) int {
	flags := command.Flags(shell.Name)
	names, err := command.Parse(flags, args)
	if err == nil && len(names) > 0 {
		err = command.Usagef("unexpected argument %q", names[0])
	}
	var script []byte
	if err == nil {
		script, err = scripts.ReadFile("scripts/nereid." + shell.Name)
	}
	if err == nil {
		_, err = stdout.Write(script)
	}
	usage := func(w io.Writer) {
		command.Usage(w, "nereid completion "+shell.Name, shell.Summary, flags)
	}
	return command.End("nereid completion "+shell.Name, err, usage, stdout, stderr)
}
