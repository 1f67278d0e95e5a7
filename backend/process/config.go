package process

import (
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
)

// Config is what a backend decides for the processes of a model. Sizes are in bytes.
// The zero value of a duration means no limit.
type Config struct {
	// DefaultBytes and GrowthBytes are what a stub's memory begins with, at least
	// 1 MiB, and grows by.
	DefaultBytes int64
	GrowthBytes  int64
	// MaxBytes bounds a stub's memory, no less than DefaultBytes.
	MaxBytes int64
	// RegionPrefix makes named regions instead of unnamed ones, which "" means.
	RegionPrefix string
	// StubTimeout bounds the time from the start of a stub process until it says
	// HELLO; the model's own code is not in it. It is more than 0.
	StubTimeout time.Duration
	// InitializeTimeout bounds the answer to INITIALIZE, ExecuteTimeout that to
	// EXECUTE, FinalizeTimeout that to FINALIZE.
	InitializeTimeout time.Duration
	ExecuteTimeout    time.Duration
	FinalizeTimeout   time.Duration
	// UnloadTimeout bounds what an end may wait for: requests in flight, and the answer to
	// FINALIZE.
	UnloadTimeout time.Duration
	// Spin is how long a side looks for the other's frames before it sleeps; not at all
	// if it is negative.
	Spin time.Duration
	// ReadyTimeout bounds the wait for the answer to READY?; 0 is no bound.
	ReadyTimeout time.Duration
	// Grace is how long a process that is to be ended by force may take to end what it has left open: it is told FINALIZE; 0: it is
	// killed at once.
	Grace time.Duration
	// CopyRegions has inputs in regions of clients copied, as the processes map none.
	CopyRegions bool
	// TaggedOutput makes lines of the log of what models print, with the names of
	// model, version and instance.
	TaggedOutput bool
}

// Backing returns how the regions are to be made. Those with names are entered in files
// for so long.
func (c *Config) Backing(files *shm.NamedFiles) shm.Backing {
	if c.RegionPrefix == "" {
		return shm.Memfd{}
	}
	return shm.Named{Prefix: c.RegionPrefix, Files: files}
}

// validateInstanceName refuses names that Triton's screening refuses.
func validateInstanceName(name string) error {
	const refused = ";|&$`<>()[]{}\\\"'*?~#!"
	for i := range len(name) {
		for j := range len(refused) {
			if name[i] == refused[j] {
				return infer.Errorf(infer.InvalidArg, "Invalid stub name: contains invalid characters")
			}
		}
	}
	return nil
}
