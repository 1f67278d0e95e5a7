package catalog

import (
	"strings"

	"github.com/nereid-serving/nereid/models/repository"
)

// Ids makes a set of models by their names.
func Ids(names string) repository.Set {
	set := make(repository.Set)
	for _, name := range strings.Fields(names) {
		set[repository.Identity{Name: name}] = true
	}
	return set
}
