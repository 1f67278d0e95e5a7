package flags

import (
	"strings"

	"github.com/nereid-serving/nereid/internal/spelling"
)

// A command line is parsed like the GNU C library's getopt_long, because scripts rely on that:
// "--flag value" or "--flag=value", any unambiguous prefix of a flag, other arguments anywhere, and
// "--" ends the flags. A flag either takes a value or does not; a value may begin with dashes.

// scanFlags calls found for each flag of args in turn and returns the other arguments. If
// getopt_long would reject the line, the error is a SyntaxError with getopt_long's text.
func scanFlags(args []string, table []group, found func(f *flag, value string) error) ([]string, error) {
	var rest []string
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return append(rest, args...), nil
		case arg == "-" || !strings.HasPrefix(arg, "-"):
			rest = append(rest, arg)
			continue
		case !strings.HasPrefix(arg, "--"):
			return nil, &SyntaxError{Complaint: "invalid option -- '" + arg[1:2] + "'"}
		}

		f, err := lookUp(arg, table)
		if err != nil {
			return nil, err
		}
		_, value, given := strings.Cut(arg, "=")
		switch {
		case f.value == "" && given:
			return nil, &SyntaxError{Complaint: "option '--" + f.name + "' doesn't allow an argument"}
		case f.value != "" && !given:
			if len(args) == 0 {
				return nil, &SyntaxError{Complaint: "option '--" + f.name + "' requires an argument"}
			}
			value, args = args[0], args[1:]
		}
		if err := found(f, value); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// lookUp finds the flag for arg, which is "--name" or "--name=value" with a possibly abbreviated
// name. An abbreviation of our own flags is valid only if it is not an abbreviation of a Triton
// flag, so that command lines written for Triton keep their meaning.
func lookUp(arg string, table []group) (*flag, error) {
	name, _, _ := strings.Cut(arg[len("--"):], "=")
	var theirs, ours []*flag
	for i := range table {
		for j := range table[i].flags {
			f := &table[i].flags[j]
			switch {
			case f.name == name:
				return f, nil
			case !strings.HasPrefix(f.name, name):
			case table[i].ours:
				ours = append(ours, f)
			default:
				theirs = append(theirs, f)
			}
		}
	}
	matches := theirs
	if len(matches) == 0 {
		matches = ours
	}
	switch len(matches) {
	case 0:
		return nil, &SyntaxError{
			Complaint: "unrecognized option '" + arg + "'",
			Hint:      suggestion(name, table),
		}
	case 1:
		return matches[0], nil
	}
	complaint := "option '" + arg + "' is ambiguous; possibilities:"
	for _, f := range matches {
		complaint += " '--" + f.name + "'"
	}
	return nil, &SyntaxError{Complaint: complaint}
}

// suggestion asks whether the most similar flag was meant. It returns "" if none is similar.
func suggestion(name string, table []group) string {
	var names []string
	for _, g := range table {
		for _, f := range g.flags {
			names = append(names, f.name)
		}
	}
	if meant := spelling.Nearest(name, names); meant != "" {
		return "did you mean --" + meant + "?"
	}
	return ""
}
