package server

import "github.com/nereid-serving/nereid/infer"

// ErrRepositoryName rejects requests that name one of several repositories.
var ErrRepositoryName = &infer.Error{Code: infer.Unsupported, Message: "'repository_name' specification is not supported"}

const (
	// FilePrefix begins the names of load parameters with a file's content.
	FilePrefix = "file:"
	// EmptyConfig stands for an empty configuration of a client, which is not JSON but differs from
	// no configuration.
	EmptyConfig = " "
)
