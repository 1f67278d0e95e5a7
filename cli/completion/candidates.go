package completion

import (
	"regexp"
	"strings"

	"github.com/nereid-serving/nereid/cli/command"
)

// candidate is a word that can stand where the cursor is.
type candidate struct {
	word string
	help string // one line; may be empty
}

// The files that fit as well, as the scripts know them.
const (
	noFiles     = "none"
	anyFiles    = "files"
	directories = "directories"
)

// found is what can stand where the cursor is.
type found struct {
	candidates []candidate
	files      string
}

func (f *found) add(prefix, word, help string) {
	if strings.HasPrefix(word, prefix) {
		line, _, _ := strings.Cut(help, "\n")
		f.candidates = append(f.candidates, candidate{word, line})
	}
}

// complete finds what can stand in the place of the last word, which may be empty. Flags are those of the
// command that the words before it name.
func complete(root command.Description, words []string) found {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	at := root
	first := true             // no word but flags has come since the command's name
	var waiting *command.Flag // for its value
	for i, word := range words[:len(words)-1] {
		switch {
		case waiting != nil:
			waiting = nil
		case strings.HasPrefix(word, "--"):
			name, _, given := strings.Cut(word[2:], "=")
			if f := flagOf(at, name); f != nil && f.Value != "" && !given {
				waiting = f
			}
		case strings.HasPrefix(word, "-"):
		default:
			next := commandOf(at, word)
			if next == nil || !first || at.Name == root.Name && i > 0 { // a command of nereid itself is its first word
				first = false
				continue
			}
			at, first = *next, true
		}
	}
	result := found{files: noFiles}
	name, _, given := strings.Cut(strings.TrimPrefix(last, "--"), "=")
	switch {
	case waiting != nil:
		result.values(waiting, "", last)
	case strings.HasPrefix(last, "--") && given:
		if f := flagOf(at, name); f != nil && f.Value != "" {
			result.values(f, "--"+name+"=", last)
		}
	case strings.HasPrefix(last, "-"):
		for _, f := range at.Flags {
			result.add(last, "--"+f.Name, f.Help)
		}
	default:
		if first && (at.Name != root.Name || len(words) == 1) {
			for _, c := range at.Commands {
				result.add(last, c.Name, c.Summary)
			}
		}
		if len(at.Commands) == 0 {
			result.files = filesOf(at.Call)
		}
	}
	return result
}

// quoted finds the values that the help of a flag lists.
var quoted = regexp.MustCompile(`"([A-Za-z0-9_*]+)"`)

// values adds what a flag can be set to, behind a prefix of the word.
func (f *found) values(of *command.Flag, before, prefix string) {
	switch of.Value {
	case "<boolean>":
		f.add(prefix, before+"true", "")
		f.add(prefix, before+"false", "")
	case "<string>":
		for _, value := range quoted.FindAllStringSubmatch(of.Help, -1) {
			f.add(prefix, before+value[1], "")
		}
		if len(f.candidates) == 0 {
			f.files = filesOf(of.Help)
		}
	default:
		f.files = filesOf(of.Value)
	}
}

// filesOf says which files a text speaks of: the value of a flag, its help, or the arguments of a command.
func filesOf(text string) string {
	switch {
	case strings.Contains(text, "DIR"), strings.Contains(text, "irectory"):
		return directories
	case strings.Contains(text, "PATH"), strings.Contains(text, "FILE"), strings.Contains(text, "file"):
		return anyFiles
	}
	return noFiles
}

func flagOf(of command.Description, name string) *command.Flag {
	for i := range of.Flags {
		if of.Flags[i].Name == name {
			return &of.Flags[i]
		}
	}
	return nil
}

func commandOf(of command.Description, name string) *command.Description {
	for i := range of.Commands {
		if of.Commands[i].Name == name {
			return &of.Commands[i]
		}
	}
	return nil
}
