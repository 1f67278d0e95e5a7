package catalog

import (
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/repository"
)

// Source is where a model is or was loaded from. It is immutable.
type Source struct {
	*repository.Description
	Upload *copies.Copy         // the model's directory if it is not in the repository
	Files  repository.Footprint // at the time of reading; empty for a model with an upload
}
