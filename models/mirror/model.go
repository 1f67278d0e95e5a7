package mirror

import (
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/objectstore"
)

// Model is one model in a listing. It is immutable.
type Model struct {
	Name string
	// Objects have keys relative to the model's directory, ascending. Directories are those with an
	// object of their own; others follow from the keys.
	Objects []objectstore.Object
	// TextName is the name of the configuration file, "" if the model has none; Text is its
	// content.
	TextName string
	Text     []byte
	// Fault is why the model cannot be read although the store answers; nil if it can.
	Fault error
}

// Entry is a directory entry of a model.
type Entry struct {
	Name      string
	Directory bool
}

// List returns the entries of a directory, "." for the model's own, sorted by name.
func (m *Model) List(directory string) []Entry {
	prefix := directory + "/"
	if directory == "." {
		prefix = ""
	}
	var entries []Entry // bound: the model's objects
	for _, o := range m.Objects {
		rest, below := strings.CutPrefix(o.Key, prefix)
		if !below || rest == "" {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		entries = append(entries, Entry{Name: name, Directory: deeper || o.Directory})
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	// A name that is both a file and a directory, which only a store can have, makes the copy fail.
	return slices.CompactFunc(entries, func(a, b Entry) bool { return a.Name == b.Name })
}

// Has reports whether the model has a file of that name.
func (m *Model) Has(name string) bool {
	_, has := m.object(name)
	return has
}

func (m *Model) object(name string) (objectstore.Object, bool) {
	at, found := slices.BinarySearchFunc(m.Objects, objectstore.Object{Key: name}, byKey)
	if !found {
		return objectstore.Object{}, false
	}
	return m.Objects[at], true
}

// same reports whether two objects of equal keys have the same content.
func same(a, b objectstore.Object) bool {
	if a.Version == "" && !a.Modified.Equal(b.Modified) { // a store without versions
		return false
	}
	return a.Key == b.Key && a.Size == b.Size && a.Version == b.Version && a.Directory == b.Directory
}

// sameListed reports whether two listed objects are interchangeable.
func sameListed(a, b objectstore.Object) bool { return same(a, b) && a.Modified.Equal(b.Modified) }

func sameModel(a, b *Model) bool {
	return a != nil && b != nil && slices.EqualFunc(a.Objects, b.Objects, same) && (a.Fault == nil) == (b.Fault == nil)
}
