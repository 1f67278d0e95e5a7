package completion

import (
	"regexp"
	"strings"

	"github.com/nereid-serving/nereid/cli/command"
)

// candidate is a possible word at the cursor.
type candidate struct {
	word string
	help string // one line; may be empty
}

// Kinds of files that are also possible, as named in the scripts.
const (
	noFiles     = "none"
	anyFiles    = "files"
	directories = "directories"
)

// found holds the candidates at the cursor.
type found struct {
	candidates []candidate
	files      string
	models     *wanted // nil: a model's name is not possible
}

// wanted is a model's name, and the sources of model names on the command line.
type wanted struct {
	before, prefix string   // the flag in front of a value, and the whole word
	directories    []string // words that may be directories of models or of records; the first one with models counts
	url            string   // of a server; "" if none is queried
}

func (f *found) add(prefix, word, help string) {
	if strings.HasPrefix(word, prefix) {
		line, _, _ := strings.Cut(help, "\n")
		f.candidates = append(f.candidates, candidate{word, line})
	}
}

// complete finds candidates for the last word, which may be empty. It offers the flags of the
// command that the other words select.
func complete(root command.Description, words []string) found {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	at := root
	first := true             // only flags have followed the command's name so far
	var waiting *command.Flag // a flag that still needs its value
	var targets wanted
	for i, word := range words[:len(words)-1] {
		switch {
		case waiting != nil:
			targets.note(waiting.Name, word)
			waiting = nil
		case strings.HasPrefix(word, "--"):
			name, value, given := strings.Cut(word[2:], "=")
			f := flagOf(at, name)
			switch {
			case f == nil || f.Value == "":
			case given:
				targets.note(name, value)
			default:
				waiting = f
			}
		case strings.HasPrefix(word, "-"):
		default:
			next := commandOf(at, word)
			if next == nil || !first || at.Name == root.Name && i > 0 { // only the first word can be a command of nereid
				first = false
				targets.directories = append(targets.directories, word)
				continue
			}
			at, first = *next, true
		}
	}
	result := found{files: noFiles}
	name, _, given := strings.Cut(strings.TrimPrefix(last, "--"), "=")
	switch {
	case waiting != nil:
		result.values(waiting, "", last, targets)
	case strings.HasPrefix(last, "--") && given:
		if f := flagOf(at, name); f != nil && f.Value != "" {
			result.values(f, "--"+name+"=", last, targets)
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
		if first && at.TakesModel() {
			if targets.url == "" {
				targets.url = usualServer
			}
			result.want(targets, "", last)
		}
	}
	return result
}

// quoted finds the values listed in the help of a flag.
var quoted = regexp.MustCompile(`"([A-Za-z0-9_*]+)"`)

// values adds the values of a flag, after a prefix of the word.
func (f *found) values(of *command.Flag, before, prefix string, targets wanted) {
	if of.Models {
		f.want(targets, before, prefix)
		return
	}
	for _, value := range of.Values {
		f.add(prefix, before+value, "")
	}
	if of.Values != nil {
		return
	}
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

// want records that a model's name is possible here.
func (f *found) want(targets wanted, before, prefix string) {
	targets.before, targets.prefix = before, prefix
	f.models = &targets
}

// note records the value of a flag that gives the location of models.
func (w *wanted) note(flag, value string) {
	switch flag {
	case "url":
		w.url = value
	case "model-repository", "model-store", "input-record":
		w.directories = append([]string{value}, w.directories...)
	}
}

// filesOf returns the kind of files that a text mentions: the value of a flag, its help, or the
// arguments of a command.
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
