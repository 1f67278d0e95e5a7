package server

import (
	"errors"
	"fmt"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/tracing"
)

// Access has the restrictions and the forwarded headers of a front end.
type Access struct {
	Restrictions Restrictions
	Forwarding   *Forwarding // nil forwards nothing
}

// NewAccess returns the Access of a front end. Its errors name the fields of the front end's
// Config.
func NewAccess(restricted []Restriction, forwardPattern string) (a Access, err error) {
	if a.Restrictions, err = NewRestrictions(restricted); err != nil {
		return a, fmt.Errorf("Restricted: %w", err)
	}
	if a.Forwarding, err = NewForwarding(forwardPattern); err != nil {
		return a, fmt.Errorf("ForwardPattern: %w", err)
	}
	return a, nil
}

// Parts are shared by all front ends.
type Parts struct {
	// Core is required.
	Core Core
	// Allocate lends memory for tensors of more than 4096 bytes. If nil, they are on the Go heap.
	Allocate Allocator
	// Open lends memory for larger tensors and texts that arrive piece by piece. If nil, Allocate
	// and the Go heap serve them.
	Open Opener
	// Memory is the account of requests; nil: a new one of the default size.
	Memory *budget.Account
	// Regions has the shared memory that clients have registered; nil: they cannot.
	Regions *clientshm.Registry
	// Traces decides which requests are traced; nil: none.
	Traces *tracing.Tracer
	// Samples returns the samples of a metric of models, for load reports; nil: no metrics.
	Samples func(family string) []metrics.Sample
	// IsReplayKey reports whether a value of ReplayHeader keeps a request out of the
	// recording. If nil, requests are not recorded, and front ends ignore the header.
	IsReplayKey func(value string) bool
	// Logging shows and changes the log settings; required.
	Logging LogControl
}

// Complete rejects Parts without their required fields, and sets an account, regions and a tracer
// if they are missing.
func (p *Parts) Complete() error {
	if p.Core == nil || p.Logging == nil {
		return errors.New("Parts has no Core or no Logging, want both")
	}
	if p.Memory == nil {
		p.Memory = budget.New(budget.Config{})
	}
	if p.Regions == nil {
		p.Regions = clientshm.New(clientshm.Config{})
	}
	if p.Traces == nil {
		p.Traces = tracing.Disabled()
	}
	return nil
}
