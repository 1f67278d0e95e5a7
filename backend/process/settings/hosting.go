package settings

import (
	"math"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// Hosting returns the settings that all backends with processes share. of returns the process
// config of a backend's config.
func Hosting[C any](of func(*C) *process.Config) Table[C] {
	return Table[C]{
		Number("shm-default-byte-size", "Memory that an idle process keeps for its outputs, in bytes.", 1, 1<<20, math.MaxInt64,
			func(c *C) *int64 { return &of(c).DefaultBytes }).AsTriton("shm-default-byte-size can't be smaller than 4 MiBs"),
		Positive("shm-growth-byte-size", "Step in which that memory grows, in bytes.",
			func(c *C) *int64 { return &of(c).GrowthBytes }).AsTriton("shm-growth-byte-size can't be smaller than or equal to zero."),
		Positive("shm-max-byte-size", "Maximum size of that memory, in bytes; at least shm-default-byte-size. An output that needs more is an error of its request. Default: half of the limit of the machine or the control group, at most the account's share for outputs.",
			func(c *C) *int64 { return &of(c).MaxBytes }),
		Seconds("initialize-timeout-seconds", "Time for each step of the initialization of a model and its instances, in seconds; 0: no limit.",
			func(c *C) *time.Duration { return &of(c).InitializeTimeout }),
		Seconds("execute-timeout-seconds", "Time for one call of execute, in seconds; 0: no limit. A process that takes longer is killed and restarted.",
			func(c *C) *time.Duration { return &of(c).ExecuteTimeout }),
		Seconds("finalize-timeout-seconds", "Time for finalize, in seconds; 0: no limit. Then the process is killed.",
			func(c *C) *time.Duration { return &of(c).FinalizeTimeout }),
		Seconds("ready-timeout-seconds", "Time for is_ready, in seconds; 0: no limit. A model that takes longer is not ready. Checks that arrive during the call share its result.",
			func(c *C) *time.Duration { return &of(c).ReadyTimeout }),
		Seconds("unload-timeout-seconds", "Time for the requests in flight and finalize when a model, a version or an instance ends, in seconds; 0: no limit. Then the processes are killed and the remaining requests fail. Set more for models with longer requests. An unload also waits this long for a load in progress.",
			func(c *C) *time.Duration { return &of(c).UnloadTimeout }),
		Number("ipc-spin-us", "Time to poll for a response before sleeping, in microseconds; 0: never.", time.Microsecond, 0, 100_000,
			func(c *C) *time.Duration { return &of(c).Spin }),
		Choice("output", "Destination of what models print. plain: unchanged to the server's streams. tagged: to the log, with model, version and instance.", "plain", "tagged",
			func(c *C, tagged bool) { of(c).TaggedOutput = tagged }),
	}
}

// Defaults returns the config without any settings.
func Defaults() process.Config {
	return process.Config{
		DefaultBytes: 1 << 20,
		GrowthBytes:  1 << 20,
		StubTimeout:  30 * time.Second,
		// Models fetch weights in initialize; a download that hangs must end eventually.
		InitializeTimeout: time.Hour,
		FinalizeTimeout:   30 * time.Second,
		UnloadTimeout:     30 * time.Second,
		Spin:              100 * time.Microsecond,
		ReadyTimeout:      5 * time.Second,
	}
}

// Complete sets the values that depend on others: by default a process may use half of the
// machine's memory.
func Complete(c *process.Config) error {
	if c.Spin == 0 {
		c.Spin = -1
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = max(budget.Limit()/2, c.DefaultBytes)
	}
	if c.MaxBytes < c.DefaultBytes {
		return infer.Errorf(infer.InvalidArg, "--backend-config: shm-max-byte-size is %d, want at least %d (shm-default-byte-size)", c.MaxBytes, c.DefaultBytes)
	}
	return nil
}
