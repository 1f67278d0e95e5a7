package models

import (
	"context"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// Info describes one loaded version of a model. It is immutable.
type Info = version.Info

// ErrReplaced reports that a version no longer serves.
var ErrReplaced = version.ErrReplaced

// Target is the version that a request reaches, found once for all that the front end
// asks of it. It is held while the request runs and not before, so that a client that
// sends slowly does not delay an unload.
type Target interface {
	Info() *Info
	// Infer is infer.Handler's for this version. If it fails with ErrReplaced, nothing
	// has been sent, and the request belongs to the version's successor.
	Infer(ctx context.Context, req *infer.Request, send infer.Sender) error
}

// Target returns the version that would serve a request. It fails with NotFound or Unavailable if
// no version is ready. With Develop it waits while the model is being reloaded.
func (r *Registry) Target(name string, number int64) (Target, error) {
	if r.gates != nil {
		r.gates.pass(name, r.changes.Done())
	}
	v, err := r.lookup(name, number)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Infer implements infer.Handler. While the server exits it fails with Unavailable.
func (r *Registry) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	if err := r.checkExiting(); err != nil {
		return err
	}
	h, err := r.reach(req.Model, req.Version)
	if err != nil {
		return err
	}
	defer h.Release()
	return h.Infer(ctx, req, send)
}

// ConfigText returns the current configuration file of a model in the repository, which may be
// newer than the loaded one, and the file's name. text is nil if there is no such file, and holds
// at most the first limit bytes. It waits for no load.
func (r *Registry) ConfigText(name string, limit int64) (file string, text []byte, err error) {
	return r.config.Repository.Config(repository.Identity{Name: name}, limit)
}
