package catalog

import (
	"strings"

	"github.com/nereid-serving/nereid/models/repository"
)

// Ids returns the set of models with these names.
func Ids(names string) repository.Set {
	set := make(repository.Set)
	for _, name := range strings.Fields(names) {
		set[repository.Identity{Name: name}] = true
	}
	return set
}
