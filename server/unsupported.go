package server

import "github.com/nereid-serving/nereid/infer"

// ErrTracesOff refuses the settings of traces.
var ErrTracesOff = &infer.Error{Code: infer.Unsupported, Message: "This server does not support traces."}

// ErrRegionsOff refuses clients' shared memory. Triton's own text names a flag,
// which would not help here.
var ErrRegionsOff = &infer.Error{Code: infer.Unsupported,
	Message: "This server does not support the shared memory of clients."}

// NoRegion says that a region of one kind of shared memory, "system" or "cuda",
// is not there.
func NoRegion(kind, region string) error {
	return infer.Errorf(infer.NotFound, "Unable to find %s shared memory region: '%s'", kind, region)
}
