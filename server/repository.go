package server

import "github.com/nereid-serving/nereid/infer"

// ErrRepositoryName refuses requests that name one of several repositories.
var ErrRepositoryName = &infer.Error{Code: infer.Unsupported, Message: "'repository_name' specification is not supported"}

const (
	// FilePrefix begins the names of load parameters that hold a file's content.
	FilePrefix = "file:"
	// EmptyConfig stands for a configuration that a client gives and that is empty:
	// no JSON either, but not the same as none.
	EmptyConfig = " "
)
