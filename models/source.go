package models

import "github.com/nereid-serving/nereid/models/repository"

// source is what a model is or was to be loaded from.
type source struct {
	*repository.Description
	upload *repository.Upload   // where the model lies if it is not in the repository
	files  repository.Footprint // when it was read; of a model with an upload nothing
	// configured says that the configuration has come with a load request.
	configured bool
}
