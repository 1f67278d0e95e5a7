package conda

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// owned are the variables that the activation sets itself; files of an environment cannot set them.
var owned = []string{
	"PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT",
	"CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_SHLVL", "CONDA_PROMPT_MODIFIER",
}

// unsetValue is conda's mark in its state for an unset variable.
const unsetValue = "***unset***"

// Bounds of what sets variables. Linux passes 2 MiB of them to a program.
const (
	maxScripts   = 200     // files of a folder
	maxScript    = 1 << 20 // bytes of all files together, and of all variables
	maxVariables = 1000
	maxIgnored   = 100 // lines that are reported
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// readActivation reads the variables that activating a conda environment sets, in the order of
// `conda activate`: those of packages, those of `conda env config vars set`, then the scripts.
func (e *Environment) readActivation() {
	if e.Form != Conda {
		return
	}
	for _, file := range e.list("etc/conda/env_vars.d", ".json") {
		e.addJSON(file, func(text []byte, into *map[string]string) error { return json.Unmarshal(text, into) }) // bound: maxScript
	}
	e.addJSON(filepath.Join(e.Directory, "conda-meta", "state"), func(text []byte, into *map[string]string) error {
		var state struct {
			Variables *map[string]string `json:"env_vars"`
		}
		state.Variables = into
		return json.Unmarshal(text, &state) // bound: maxScript
	})
	for _, file := range e.list("etc/conda/activate.d", ".sh") {
		e.addScript(filepath.Base(file), string(e.readScript(file))) // bound: maxScript
	}
}

// list returns the first files of a folder of the environment, sorted by name.
func (e *Environment) list(folder, suffix string) []string {
	var files []string // bound: twice maxScripts
	_ = each(filepath.Join(e.Directory, folder), func(entry fs.DirEntry) bool {
		if strings.HasSuffix(entry.Name(), suffix) {
			files = append(files, filepath.Join(e.Directory, folder, entry.Name()))
		}
		if len(files) == 2*maxScripts {
			slices.Sort(files)
			files = files[:maxScripts]
		}
		return true
	})
	slices.Sort(files)
	return files[:min(len(files), maxScripts)]
}

// readScript reads a file that sets variables.
func (e *Environment) readScript(file string) []byte {
	text := readText(file)
	if e.read+len(text) > maxScript {
		e.ignore("%s: the files that set variables have more than %d bytes together", filepath.Base(file), maxScript)
		return nil
	}
	e.read += len(text)
	return text
}

// ignore reports a line that was not used.
func (e *Environment) ignore(format string, args ...any) {
	if len(e.Ignored) < maxIgnored {
		e.Ignored = append(e.Ignored, shortened(fmt.Sprintf(format, args...)))
	}
}

// addJSON adds the variables of a file, sorted by name.
func (e *Environment) addJSON(file string, parse func(text []byte, into *map[string]string) error) {
	text := e.readScript(file)
	if len(text) == 0 {
		return
	}
	values := make(map[string]string) // bound: maxScript
	if err := parse(text, &values); err != nil {
		e.ignore("%s: %v", filepath.Base(file), err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(values)) { // bound: maxScript
		if value := values[name]; value != unsetValue {
			if reason := e.add(name, value); reason != "" {
				e.ignore("%s: %s: %s", filepath.Base(file), shortened(name), reason)
			}
		}
	}
}

// add adds a variable, or returns why it does not.
func (e *Environment) add(name, value string) (refused string) {
	switch {
	case !variableName.MatchString(name):
		return "this is not a variable name"
	case slices.Contains(owned, name):
		return "the activation sets this variable itself"
	case strings.HasPrefix(name, "NEREID_"):
		return "variables of the server are not set by environments"
	case strings.ContainsRune(value, 0):
		return "the value has a zero byte"
	case len(e.variables) == maxVariables || e.bytes+len(name)+len(value) > maxScript:
		return fmt.Sprintf("the environment sets more than %d variables, or %d bytes of them", maxVariables, maxScript)
	}
	e.bytes += len(name) + len(value)
	e.variables = append(e.variables, variable{name, value})
	return ""
}

// addScript adds the plain exports of a script: `export NAME=value`, one per line, outside blocks.
// The rest is read only to find the ends of blocks, quotes and here-documents.
func (e *Environment) addScript(name, text string) {
	depth := 0  // of if, for, case and braces
	number := 0 // of the line
	ignore := func(reason string) { e.ignore("%s:%d: %s", name, number, reason) }
	for line := range strings.SplitSeq(text, "\n") {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		assignment, exported := strings.CutPrefix(line, "export ")
		if exported && depth == 0 {
			variable, value, reason := parseExport(strings.TrimSpace(assignment), e.Directory)
			if reason == "" {
				reason = e.add(variable, value)
			}
			if reason == "" {
				continue
			}
			ignore(reason)
		} else if exported {
			ignore("an export inside of a block")
		} else if assigns(line) || strings.Contains(line, "export ") {
			ignore("not a plain export")
		}
		if opensText(line) {
			ignore("a text over several lines: the rest of the file is ignored")
			return
		}
		if depth += blocks(line); depth < 0 {
			ignore("a block ends that has not begun: the rest of the file is ignored")
			return
		}
		if word := firstWord(line); depth == 0 && (word == "return" || word == "exit") {
			return
		}
	}
}

var assignment = regexp.MustCompile(`^(?:[A-Za-z_][A-Za-z0-9_]*=|declare |typeset |unset |eval |\. |source )`)

// assigns reports whether a line may set or unset a variable.
func assigns(line string) bool { return assignment.MatchString(line) }

func firstWord(line string) string {
	if i := strings.IndexAny(line, " \t;(&|"); i >= 0 {
		return line[:i]
	}
	return line
}

var (
	opening = []string{"if", "for", "while", "until", "case", "select", "{", "("}
	closing = []string{"fi", "done", "esac", "}", ")"}
	parting = regexp.MustCompile(`[;&|]+|\s+`)
)

// blocks returns the number of blocks that a line opens minus the number that it closes.
func blocks(line string) (n int) {
	if comment := strings.Index(line, " #"); comment >= 0 {
		line = line[:comment]
	}
	for _, word := range parting.Split(line, -1) { // bound: maxScript
		switch {
		case slices.Contains(opening, word), strings.HasSuffix(word, "(){"), strings.HasSuffix(word, "){"):
			n++
		case slices.Contains(closing, word):
			n--
		}
	}
	return n
}

// opensText reports whether a quote, a here-document or a condition continues after a line.
func opensText(line string) bool {
	for _, end := range []string{`\`, "&&", "||", "|"} {
		if strings.HasSuffix(line, end) {
			return true
		}
	}
	if strings.Contains(line, "<<") {
		return true
	}
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quote != '\'':
			i++
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t'):
			return false
		case c == quote && quote != 0:
			quote = 0
		}
	}
	return quote != 0
}

// plain are the characters that mean themselves to a shell, unquoted. The first of them
// are letters and digits.
const (
	plain   = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	letters = 62
)

// parseExport reads NAME=value. The value consists of bare words, '…' and "…" side by side;
// $CONDA_PREFIX stands for prefix in the first and the last.
func parseExport(text, prefix string) (name, value, reason string) {
	name, rest, ok := strings.Cut(text, "=")
	if !ok || !variableName.MatchString(name) {
		return "", "", "not of the form export NAME=value"
	}
	if len(rest)+strings.Count(rest, "CONDA_PREFIX")*len(prefix) > maxScript {
		return "", "", fmt.Sprintf("the value has more than %d bytes", maxScript)
	}
	var b strings.Builder // bound: maxScript
	for rest != "" {
		switch c := rest[0]; {
		case c == '\'':
			inside, after, closed := strings.Cut(rest[1:], "'")
			if !closed {
				return "", "", "a quote is not closed"
			}
			b.WriteString(inside)
			rest = after
		case c == '"':
			inside, after, closed := strings.Cut(rest[1:], `"`)
			if !closed {
				return "", "", "a quote is not closed"
			}
			for inside != "" {
				at := strings.IndexAny(inside, "$`\\")
				if at < 0 {
					b.WriteString(inside)
					break
				}
				b.WriteString(inside[:at])
				if inside, ok = cutPrefix(inside[at:]); !ok {
					return "", "", "the value is not plain: only $CONDA_PREFIX is expanded"
				}
				b.WriteString(prefix)
			}
			rest = after
		case c == '$':
			if rest, ok = cutPrefix(rest); !ok {
				return "", "", "the value is not plain: only $CONDA_PREFIX is expanded"
			}
			b.WriteString(prefix)
		case strings.IndexByte(plain, c) >= 0:
			b.WriteByte(c)
			rest = rest[1:]
		case c == ' ' || c == '\t' || c == ';':
			if after := strings.TrimLeft(rest, " \t;"); after != "" && after[0] != '#' {
				return "", "", "more than one export in the line"
			}
			rest = ""
		default:
			return "", "", fmt.Sprintf("the value is not plain: it has a %q", c)
		}
	}
	return name, b.String(), ""
}

// cutPrefix cuts $CONDA_PREFIX or ${CONDA_PREFIX} from the front of text.
func cutPrefix(text string) (rest string, ok bool) {
	if rest, ok := strings.CutPrefix(text, "${CONDA_PREFIX}"); ok {
		return rest, true
	}
	rest, ok = strings.CutPrefix(text, "$CONDA_PREFIX")
	if !ok || rest != "" && (rest[0] == '_' || strings.IndexByte(plain[:letters], rest[0]) >= 0) {
		return text, false
	}
	return rest, true
}
