package catalog

import (
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/repository"
)

// Source is where a model is or was loaded from. It is immutable.
type Source struct {
	*repository.Description
	Upload *copies.Copy         // the model's directory if it is not in the repository
	Charge *budget.Shared       // of a configuration that came with a request, nil otherwise
	Files  repository.Footprint // at the time of reading; empty for a model with an upload
}

// hold adds a user of the source, which may be nil.
func (s *Source) hold() *Source {
	if s != nil {
		s.Upload.Hold()
		s.Charge.Hold()
	}
	return s
}

// Drop removes a user of the source, which may be nil.
func (s *Source) Drop() {
	if s != nil {
		s.Upload.Drop()
		s.Charge.Drop()
	}
}
