package catalog

import (
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/repository"
)

// Source is what a model is or was to be loaded from. It does not change.
type Source struct {
	*repository.Description
	Upload *copies.Copy         // where the model lies if it is not in the repository
	Files  repository.Footprint // when it was read; of a model with an upload nothing
}
