package repository

import (
	"cmp"
	"slices"
)

// Identity identifies a model. Namespace is the model's repository, as the operator wrote it, if
// equal names may exist in several; else "".
type Identity struct{ Namespace, Name string }

// String returns the model's name as logs and texts about dependencies show it.
func (id Identity) String() string {
	if id.Namespace == "" {
		return id.Name
	}
	return id.Namespace + "::" + id.Name
}

// Compare orders identities by namespace and name.
func (id Identity) Compare(other Identity) int {
	return cmp.Or(cmp.Compare(id.Namespace, other.Namespace), cmp.Compare(id.Name, other.Name))
}

// Set is a set of models.
type Set map[Identity]bool

// SetOf makes a set of the models in list.
//
// bound: list
func SetOf(list ...Identity) Set {
	set := make(Set, len(list))
	for _, id := range list {
		set[id] = true
	}
	return set
}

// KeysOf makes a set of the keys of a map.
//
// bound: m
func KeysOf[T any](m map[Identity]T) Set {
	set := make(Set, len(m))
	for id := range m {
		set[id] = true
	}
	return set
}

// Sorted lists the models by namespace and name.
func (s Set) Sorted() []Identity {
	list := make([]Identity, 0, len(s)) // bound: s
	for id := range s {
		list = append(list, id)
	}
	slices.SortFunc(list, Identity.Compare)
	return list
}
