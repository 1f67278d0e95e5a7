package models

import (
	"cmp"
	"slices"
)

// Identity tells models apart. Namespace is the repository in which a model
// lies, as the operator wrote it, if equal names may live in several of them; ""
// otherwise.
type Identity struct{ Namespace, Name string }

// String is the model as logs and the texts about dependencies show it.
func (id Identity) String() string {
	if id.Namespace == "" {
		return id.Name
	}
	return id.Namespace + "::" + id.Name
}

func (id Identity) compare(other Identity) int {
	return cmp.Or(cmp.Compare(id.Namespace, other.Namespace), cmp.Compare(id.Name, other.Name))
}

// identities is a set of models.
type identities map[Identity]bool

func identitiesOf(list ...Identity) identities {
	set := make(identities, len(list))
	for _, id := range list {
		set[id] = true
	}
	return set
}

func (s identities) sorted() []Identity {
	list := make([]Identity, 0, len(s))
	for id := range s {
		list = append(list, id)
	}
	slices.SortFunc(list, Identity.compare)
	return list
}
