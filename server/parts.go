package server

import (
	"errors"
	"fmt"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/tracing"
)

// Access is what a front end lets clients use: which groups of endpoints need a header, and
// which headers become parameters of inferences.
type Access struct {
	Restrictions Restrictions
	Forwarding   *Forwarding // nil forwards nothing
}

// NewAccess makes the Access of a front end, from the fields of its Config that its errors
// name.
func NewAccess(restricted []Restriction, forwardPattern string) (a Access, err error) {
	if a.Restrictions, err = NewRestrictions(restricted); err != nil {
		return a, fmt.Errorf("Restricted: %w", err)
	}
	if a.Forwarding, err = NewForwarding(forwardPattern); err != nil {
		return a, fmt.Errorf("ForwardPattern: %w", err)
	}
	return a, nil
}

// Parts are what the front ends share.
type Parts struct {
	// Core is required.
	Core Core
	// Allocate lends memory for tensors of more than 4096 bytes; nil leaves them
	// on the Go heap.
	Allocate Allocator
	// Open lends memory for larger tensors and texts that arrive piece by piece;
	// nil leaves them to Allocate and the Go heap.
	Open Opener
	// Memory is the account of what requests take; nil means one of its own, of
	// the default size.
	Memory *budget.Account
	// Regions has what clients have registered of their shared memory; nil means that
	// they may not.
	Regions *clientshm.Registry
	// Traces decides which requests are traced; nil means none.
	Traces *tracing.Tracer
	// Samples returns the samples of a metric that models make, for load reports; nil means
	// that there are none.
	Samples func(family string) []metrics.Sample
	// IsReplayKey reports whether a value of infer.ReplayHeader keeps a request out of the recording.
	// Nil: requests are not recorded, and front ends do not look for the header.
	IsReplayKey func(value string) bool
	// Logging shows and changes the log settings; required.
	Logging LogControl
}

// Complete refuses Parts without what is required, and gives them an account, regions
// and a tracer if they have none.
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
