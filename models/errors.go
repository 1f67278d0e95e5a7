package models

import (
	"errors"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/diagnosis"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// errNotReady is the answer to every request that needs models before the start is over,
// or after it has failed.
var errNotReady = infer.Errorf(infer.Unavailable, "Server not ready")

// errOvertaken ends the load of a model whose files have changed meanwhile, or
// are gone.
var errOvertaken = infer.Errorf(infer.Unavailable,
	"Newer operation has been applied to the model lifecycle, current load operation is out-dated.")

// errNotPolled is the client's text for every fault of a model that is found before
// it can be loaded; the log has the reason.
func errNotPolled(name string) error {
	return infer.Errorf(infer.Internal, "failed to load '%s', failed to poll from model repository", name)
}

// StartError says that models could not be loaded at the start. Its text and its *infer.Error
// are Triton's.
type StartError struct {
	error
	Faults []diagnosis.Fault // one for each model
}

// Unwrap returns the *infer.Error.
func (e *StartError) Unwrap() error { return e.error }

// faults collects those of a start.
type faults struct {
	repository *repository.Roots
	list       []diagnosis.Fault
}

func (f *faults) add(id repository.Identity, err error) {
	directory, file := f.repository.Where(id)
	f.list = append(f.list, diagnosis.Of(id.String(), directory, file, err))
}

// loadFailedError is the client's text for a model that has been read and could
// not be loaded.
func loadFailedError(id repository.Identity, err error) error {
	if errors.Is(err, version.ErrExiting) {
		return err
	}
	return infer.Errorf(infer.InvalidArg, "load failed for model '%s': %s\n", id, infer.AsError(err).Message)
}
