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

// found has the candidates at the cursor.
type found struct {
	candidates []candidate
	files      string
	models     *wanted // nil: no name of a model can
}

// wanted is the name of a model, and where the command line says that models are.
type wanted struct {
	before, prefix string   // the flag part of the word, and the whole word
	directories    []string // words that may be directories, of models or of records; the first that has some counts
	url            string   // of a server; "" where none is asked
}

func (f *found) add(prefix, word, help string) {
	if strings.HasPrefix(word, prefix) {
		line, _, _ := strings.Cut(help, "\n")
		f.candidates = append(f.candidates, candidate{word, line})
	}
}

// complete finds the candidates for the last word, which may be empty. It offers the flags of the
// command that the previous words name.
func complete(root command.Description, words []string) found {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	at := root
	first := true             // no word but flags has come since the command's name
	var waiting *command.Flag // for its value
	var places wanted
	for i, word := range words[:len(words)-1] {
		switch {
		case waiting != nil:
			places.note(waiting.Name, word)
			waiting = nil
		case strings.HasPrefix(word, "--"):
			name, value, given := strings.Cut(word[2:], "=")
			f := flagOf(at, name)
			switch {
			case f == nil || f.Value == "":
			case given:
				places.note(name, value)
			default:
				waiting = f
			}
		case strings.HasPrefix(word, "-"):
		default:
			next := commandOf(at, word)
			if next == nil || !first || at.Name == root.Name && i > 0 { // a command of nereid itself is its first word
				first = false
				places.directories = append(places.directories, word)
				continue
			}
			at, first = *next, true
		}
	}
	result := found{files: noFiles}
	name, _, given := strings.Cut(strings.TrimPrefix(last, "--"), "=")
	switch {
	case waiting != nil:
		result.values(waiting, "", last, places)
	case strings.HasPrefix(last, "--") && given:
		if f := flagOf(at, name); f != nil && f.Value != "" {
			result.values(f, "--"+name+"=", last, places)
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
			if places.url == "" {
				places.url = usualServer
			}
			result.want(places, "", last)
		}
	}
	return result
}

// quoted finds the values that the help of a flag lists.
var quoted = regexp.MustCompile(`"([A-Za-z0-9_*]+)"`)

// values adds the values of a flag, after a prefix of the word.
func (f *found) values(of *command.Flag, before, prefix string, places wanted) {
	if of.Models {
		f.want(places, before, prefix)
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

// want says that the name of a model can stand here.
func (f *found) want(places wanted, before, prefix string) {
	places.before, places.prefix = before, prefix
	f.models = &places
}

// note takes the value of a flag that says where models are.
func (w *wanted) note(flag, value string) {
	switch flag {
	case "url":
		w.url = value
	case "model-repository", "model-store", "input-record":
		w.directories = append([]string{value}, w.directories...)
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
