package models

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/diagnosis"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/panics"
)

// errNotReady answers every request that needs models before startup has finished or after it has
// failed.
var errNotReady = infer.Errorf(infer.Unavailable, "Server not ready")

// errOvertaken ends the load of a model whose files have changed or disappeared meanwhile.
var errOvertaken = infer.Errorf(infer.Unavailable,
	"Newer operation has been applied to the model lifecycle, current load operation is out-dated.")

// errNotPolled is the client's text for every fault found before a model can be loaded. The log has
// the reason.
func errNotPolled(name string) error {
	return infer.Errorf(infer.Internal, "failed to load '%s', failed to poll from model repository", name)
}

// checkLength refuses names that are longer than any model's. Clients send them.
func checkLength(name string) error {
	if len(name) <= budget.MaxName {
		return nil
	}
	return infer.Errorf(infer.InvalidArg, "model name has %d bytes, but at most %d are allowed", len(name), budget.MaxName)
}

// StartError reports that models could not be loaded at startup. Its text and its *infer.Error are
// Triton's.
type StartError struct {
	error
	Faults []diagnosis.Fault // one for each model
}

// Unwrap returns the *infer.Error.
func (e *StartError) Unwrap() error { return e.error }

// faults collects the faults of a start.
type faults struct {
	repository *repository.Roots
	list       []diagnosis.Fault // bound: the models that a start loads
}

func (f *faults) add(id repository.Identity, err error) {
	f.list = append(f.list, diagnose(f.repository, id, err))
}

// maxDiagnosed bounds the bytes of a configuration in which the line of an error is searched.
const maxDiagnosed = 1 << 20

// diagnose diagnoses the error of a load. If the error has no position, it finds the line of the
// configuration to which the error refers.
func diagnose(roots *repository.Roots, id repository.Identity, err error) diagnosis.Fault {
	directory, path := roots.Where(id)
	fault := diagnosis.Of(id.String(), directory, path, err)
	if path == "" || fault.Source != path {
		return fault
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may be a pipe
	if err != nil {                                                // it is in an object store
		return fault
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return fault
	}
	source, _ := io.ReadAll(io.LimitReader(file, maxDiagnosed)) // bound: maxDiagnosed
	if line := diagnosis.Line(source, id.Name, fault.Reason); line > 0 {
		fault.Source += fmt.Sprintf(":%d", line)
	}
	return fault
}

// loadFailedError is the client's text for a model that was read but could not be loaded.
func loadFailedError(id repository.Identity, err error) error {
	if errors.Is(err, version.ErrExiting) {
		return err
	}
	text := func(message string) string { return fmt.Sprintf("load failed for model '%s': %s\n", id, message) }
	e := infer.AsError(err)
	told := &infer.Error{Code: infer.InvalidArg, Message: text(e.Message)}
	if e.Detail != "" && e.Detail != e.Message {
		told.Detail = text(e.Detail)
	}
	return told
}

// forClients hides the text of an error that was not written for clients.
func forClients(err error) error {
	var own *infer.Error
	var panicked *panics.Error
	if err == nil || errors.As(err, &own) || errors.As(err, &panicked) {
		return err
	}
	return &infer.Error{Code: infer.Internal, Message: "the load has failed, the server's log has the reason", Detail: err.Error()}
}

// Limits of the text of an error of a version, in bytes. The log has it as a whole.
const (
	maxVersionError  = 16 << 10
	maxVersionErrors = 32 << 10 // of all versions of a model; each may have leastVersionError
	// leastVersionError has room for errOvertaken.
	leastVersionError = 256
)

// shortened cuts the error of one of several versions that are loaded together, and hides the text
// of an error that was not written for clients.
func shortened(err error, versions int) error {
	most := min(maxVersionError, max(maxVersionErrors/versions, leastVersionError))
	err = forClients(err)
	var own *infer.Error
	if !errors.As(err, &own) || len(own.Message) <= most && len(own.Detail) <= most {
		return err
	}
	return &infer.Error{Code: own.Code, Message: infer.Cut(own.Message, most), Detail: infer.Cut(own.Detail, most), OutOfMemory: own.OutOfMemory}
}

// maxTroubles is the number of reasons from which on those of models without a directory are
// searched for and dropped.
const maxTroubles = 1000

// troubles records, for operators, why the last loads of models failed. A model without versions
// shows clients nothing of it. Only models with a directory are recorded, so clients that ask for
// missing models cannot make it grow.
type troubles struct {
	repository *repository.Roots

	mu      sync.Mutex                     // a leaf
	reasons map[repository.Identity]string // bound: maxReasonBytes for each model of the repository, and maxTroubles
	swept   int                            // len(reasons) after the last sweep
}

// note records why a model could not be read or loaded; nil clears the reason.
func (t *troubles) note(id repository.Identity, err error) {
	reason := ""
	if err != nil {
		if directory, _ := t.repository.Where(id); directory == "" { // reads directories, so not under the lock
			return
		}
		reason = infer.Cut(diagnose(t.repository, id, err).Why(), maxReasonBytes)
	}
	if full := t.set(id, reason); full {
		t.sweep()
	}
}

// set sets the reason of a model, "" for none, and reports whether a sweep is due.
func (t *troubles) set(id repository.Identity, reason string) (full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if reason == "" {
		delete(t.reasons, id)
		return false
	}
	if t.reasons == nil {
		t.reasons = make(map[repository.Identity]string)
	}
	t.reasons[id] = reason
	return len(t.reasons) > max(maxTroubles, 2*t.swept)
}

// sweep forgets the models whose directory is gone: clients can register and unregister directories
// without ever asking for the index.
func (t *troubles) sweep() {
	some := t.models()
	var there []repository.Identity // bound: reasons
	for id := range some {
		if slices.Contains(t.repository.Find(id.Name), id) {
			there = append(there, id)
		}
	}
	t.forget(some, there)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.swept = len(t.reasons)
}

// of returns the reason of one model, or "".
func (t *troubles) of(id repository.Identity) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reasons[id]
}

// models returns the models that have a reason.
func (t *troubles) models() repository.Set {
	t.mu.Lock()
	defer t.mu.Unlock()
	return repository.KeysOf(t.reasons)
}

// forget drops the reasons of models whose directory is gone.
func (t *troubles) forget(some repository.Set, there []repository.Identity) {
	kept := repository.SetOf(there...)
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range some {
		if !kept[id] {
			delete(t.reasons, id)
		}
	}
}
