package archive

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxComponent = 255  // bytes: what Linux file systems allow
	maxName      = 3072 // bytes: Linux opens 4,096 with the directory's own path in front
	maxTarget    = 4095 // bytes of a symbolic link
)

// cleanName returns a name of an archive as components with single slashes between them, "" for the
// directory itself.
func cleanName(name string, depth int) (string, error) {
	switch {
	case name == "":
		return "", &Error{Reason: "it has no name"}
	case name[0] == '/':
		return "", &Error{Reason: refusedHeader + "Path is absolute"}
	case len(name) > maxName+2: // "./"
		return "", &Error{Reason: fmt.Sprintf("its name has %d bytes, at most %d are possible", len(name), maxName)}
	}
	clean, components := true, 0
	for component := range strings.SplitSeq(name, "/") {
		switch {
		case component == "..":
			return "", &Error{Reason: refusedHeader + "Path contains '..'"}
		case component == "" || component == ".":
			clean = false
		case len(component) > maxComponent:
			return "", &Error{Reason: fmt.Sprintf("a component of its name has %d bytes, at most %d are possible", len(component), maxComponent)}
		default:
			components++
		}
	}
	if components > depth {
		return "", &Error{Reason: fmt.Sprintf("its name has %d components, the limit of the depth is %d", components, depth)}
	}
	if err := checkCharacters("its name", name); err != nil {
		return "", err
	}
	if clean {
		return name, nil
	}
	kept := make([]string, 0, components) // bound: depth
	for component := range strings.SplitSeq(name, "/") {
		if component != "" && component != "." {
			kept = append(kept, component)
		}
	}
	return strings.Join(kept, "/"), nil // bound: maxName
}

// checkCharacters refuses characters that could forge log lines or send commands to terminals.
// Linux accepts invalid UTF-8 in names.
func checkCharacters(what, text string) error {
	for i, r := range text {
		if r < ' ' || r >= 0x7f && r != utf8.RuneError && unicode.IsControl(r) {
			return &Error{Reason: fmt.Sprintf("%s has the control character %U at byte %d", what, r, i)}
		}
	}
	return nil
}

// splitName divides a clean name into its directory and its last component.
func splitName(name string) (directory, base string) {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}
