package manual

import (
	"fmt"
	"strings"

	"github.com/nereid-serving/nereid/cli/command"
)

// page writes the manual page of a program.
func page(root command.Description, release string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s %s\" \"User Commands\"\n", strings.ToUpper(root.Name), escape(root.Name), escape(release))
	// Paragraphs of options read better unjustified. Hyphens would be copied with the text.
	b.WriteString(".ad l\n.nh\n")
	fmt.Fprintf(&b, ".SH NAME\n%s \\- inference server for Triton repositories of Python models\n", escape(root.Name))
	b.WriteString(".SH SYNOPSIS\n")
	b.WriteString(".nf\n")
	for _, call := range calls(root) {
		b.WriteString(escape(call) + "\n")
	}
	b.WriteString(".fi\n.SH DESCRIPTION\n")
	text(&b, root.Summary)
	b.WriteString(".SH COMMANDS\n")
	server := make(map[string]bool) // flags below OPTIONS
	for _, f := range root.Flags {
		server[f.Group+f.Name] = true
	}
	for _, c := range root.Commands {
		describe(&b, root.Name, c, server)
	}
	b.WriteString(".SH OPTIONS\nThese options apply to the server without a command, and to\n.BR \"nereid serve\" .\n")
	group := ""
	for _, f := range root.Flags {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(&b, ".SS %s\n", escape(group))
		}
		option(&b, f)
	}
	b.WriteString(".SH EXIT STATUS\n.TP\n.B 0\nThe server was stopped and has exited in order, or the command succeeded.\n" +
		".TP\n.B 1\nThe server or the command failed.\n.TP\n.B 2\nThe command line of a command is not valid.\n")
	return b.String()
}

// calls lists the command lines of the program and its commands.
func calls(c command.Description) []string {
	if len(c.Commands) == 0 {
		return []string{c.Call}
	}
	var list []string
	if len(c.Flags) > 0 {
		list = append(list, c.Call)
	}
	for _, sub := range c.Commands {
		list = append(list, calls(sub)...)
	}
	return list
}

// describe writes a command and the commands below it, without the server's flags.
func describe(b *strings.Builder, parent string, c command.Description, server map[string]bool) {
	name := parent + " " + c.Name
	fmt.Fprintf(b, ".SS %s\n", escape(name))
	text(b, c.Summary)
	for _, f := range c.Flags {
		if !server[f.Group+f.Name] {
			option(b, f)
		}
	}
	for _, sub := range c.Commands {
		describe(b, name, sub, server)
	}
}

func option(b *strings.Builder, f command.Flag) {
	b.WriteString(".TP\n.B " + escape("--"+f.Name))
	if f.Value != "" {
		b.WriteString(" \\fI" + escape(f.Value) + "\\fR")
	}
	b.WriteString("\n")
	text(b, f.Help)
}

// text writes a paragraph.
func text(b *strings.Builder, s string) {
	for line := range strings.Lines(s) {
		b.WriteString(escape(strings.TrimRight(line, "\n")) + "\n")
	}
}

// escape escapes backslashes, minus signs, and characters that begin a macro line.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "─", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
