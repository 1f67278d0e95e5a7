package models

import (
	"cmp"
	"slices"

	"github.com/nereid-serving/nereid/infer"
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

// Composing names the models that an ensemble is composed of, each with the
// versions that its steps require, ascending and each once; infer.LatestVersion
// stands for any. A name without a namespace may be that of a model in any. It
// is empty for other models.
func (d *Description) Composing() map[Identity][]int64 {
	steps := d.Config.GetEnsembleScheduling().GetStep()
	composing := make(map[Identity][]int64, len(steps))
	for _, step := range steps {
		id := Identity{Namespace: step.GetModelNamespace(), Name: step.GetModelName()}
		version := step.GetModelVersion()
		if version < 0 {
			version = infer.LatestVersion
		}
		if at, known := slices.BinarySearch(composing[id], version); !known {
			composing[id] = slices.Insert(composing[id], at, version)
		}
	}
	return composing
}
