package objectstore

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

const (
	maxKey       = 1024 // bytes below the location's path
	maxComponent = 255  // bytes: Linux has no longer file names
)

// CheckKey returns why a key cannot become the path of a file below a directory, or nil. The text
// is one fact, such as `".." is a component`.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("it is empty")
	case len(key) > maxKey:
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(key), maxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("it is not UTF-8")
	case !printable(key):
		return fmt.Errorf("it has a control character")
	}
	for component := range strings.SplitSeq(key, "/") {
		switch {
		case component == "":
			return fmt.Errorf("it has an empty component")
		case component == ".", component == "..":
			return fmt.Errorf("%q is a component", component)
		case len(component) > maxComponent:
			return fmt.Errorf("a component has %d bytes, at most %d are allowed", len(component), maxComponent)
		}
	}
	return nil
}

// printable reports whether text has no control characters, including NUL.
func printable(text string) bool {
	return !strings.ContainsFunc(text, control)
}

func control(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }

// cleanText replaces control characters and invalid UTF-8, for texts that are shown.
//
// bound: maxKey, or mostText
func cleanText(text string) string {
	text = strings.ToValidUTF8(text, "?")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case control(r):
			return '?'
		}
		return r
	}, text)
}

const (
	// mostRefused bounds the refused keys that an error lists; it counts the others.
	mostRefused = 20
	// mostNames bounds the first components that it keeps, at about 300 bytes each.
	mostNames = 10_000
	// mostListedRefused ends a listing: no repository comes near it.
	mostListedRefused = 1 << 20
)

// RefusedError lists the keys of a listing that no file can have. Its text is Triton's for the
// first of them.
type RefusedError struct {
	// Keys are the first refused keys, as stored below the location's path: for comparing and
	// quoting, never a path.
	Keys  []string // bound: mostRefused
	Count int
	// Names are the first components of refused keys with several, except components too long for
	// any key.
	Names map[string]struct{} // bound: mostNames
	// Partial is true if Names is incomplete, or the listing ended because of too many refused
	// keys.
	Partial bool
	text    string
}

// Error gives the first key with the reason.
func (e *RefusedError) Error() string { return e.text }

// Refuse adds a key that CheckKey has refused with the error why.
func (e *RefusedError) Refuse(l Location, key string, why error) {
	e.Count++
	if len(e.Keys) < mostRefused {
		e.Keys = append(e.Keys, strings.Clone(key[:min(len(key), 2*maxKey)]))
	}
	if name, _, inside := strings.Cut(key, "/"); inside && len(name) <= maxComponent {
		e.name(name)
	}
	if e.text == "" {
		shown := cleanText(key[:min(len(key), maxKey)])
		directory, _, _ := strings.Cut(shown, "//")
		if directory == shown {
			directory = path.Dir(shown)
		}
		e.text = fmt.Sprintf("Cannot handle item with empty name at %s (the object %q has no name that a file can have: %v)", l.Join(strings.TrimPrefix(directory, ".")), shown, why)
	}
}

func (e *RefusedError) name(name string) {
	if _, has := e.Names[name]; has {
		return
	}
	if len(e.Names) == mostNames {
		e.Partial = true
		return
	}
	if e.Names == nil {
		e.Names = make(map[string]struct{})
	}
	e.Names[strings.Clone(name)] = struct{}{} // bound: maxComponent
}
