package python

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
)

// Config is what `--backend-config=python,<key>=<value>` sets. Sizes are in
// bytes. The zero value of a duration means no limit.
type Config struct {
	// Executable is the interpreter to use; empty: the first python3 on PATH that
	// can import numpy. Key python-executable.
	Executable string
	// DefaultBytes and GrowthBytes are shm-default-byte-size and
	// shm-growth-byte-size: what a stub's memory begins with and grows by.
	DefaultBytes int64 // default 1 MiB, at least 1 MiB
	GrowthBytes  int64 // default 1 MiB
	// MaxBytes bounds a stub's memory. Key shm-max-byte-size, default half of what
	// the machine or the control group allows, and no less than DefaultBytes.
	MaxBytes int64
	// RegionPrefix makes named regions instead of unnamed ones. Key
	// shm-region-prefix-name, default "" (unnamed).
	RegionPrefix string
	// StubTimeout bounds the time from the start of a stub process until it says
	// HELLO; the model's own code is not in it. Key stub-timeout-seconds, default 30 s.
	StubTimeout time.Duration
	// InitializeTimeout bounds import and initialize, ExecuteTimeout one call of
	// execute, FinalizeTimeout finalize. Keys initialize-timeout-seconds,
	// execute-timeout-seconds and finalize-timeout-seconds; default 1 h, none, 30 s.
	InitializeTimeout time.Duration
	ExecuteTimeout    time.Duration
	FinalizeTimeout   time.Duration
	// Spin is how long a side looks for the other's frames before it sleeps. Key
	// ipc-spin-us, default 100 µs; negative: not at all.
	Spin time.Duration
	// NoTemplate starts every stub as a program of its own instead of forking it
	// from a template. Key stub-template=off.
	NoTemplate bool
}

// Keys are the settings that ParseConfig knows.
var Keys = []string{
	"shm-default-byte-size", "shm-growth-byte-size", "shm-max-byte-size", "shm-region-prefix-name", "stub-timeout-seconds",
	"initialize-timeout-seconds", "execute-timeout-seconds", "finalize-timeout-seconds", "ipc-spin-us", "python-executable",
	"stub-template", "thread-pool-size", "shm_message_queue_size",
}

// ParseConfig reads the settings of the command line. Unknown keys are ignored,
// as Triton does. Errors are InvalidArg with Triton's texts for Triton's keys.
func ParseConfig(settings map[string]string) (Config, error) {
	c := Config{
		DefaultBytes: 1 << 20,
		GrowthBytes:  1 << 20,
		StubTimeout:  30 * time.Second,
		// Models fetch weights in initialize; one that hangs must end some day.
		InitializeTimeout: time.Hour,
		FinalizeTimeout:   30 * time.Second,
		Spin:              100 * time.Microsecond,
		Executable:        settings["python-executable"],
	}
	number := func(key string, into func(int64) error) func() error {
		return func() error {
			text, ok := settings[key]
			if !ok {
				return nil
			}
			n, err := stol(text)
			if err != nil {
				return err
			}
			return into(n)
		}
	}
	seconds := func(into *time.Duration) func(int64) error {
		return func(n int64) error {
			if n < 0 || n > int64(math.MaxInt64/time.Second) {
				return infer.Errorf(infer.InvalidArg, "timeout is %d seconds, want between 0 (none) and %d", n, int64(math.MaxInt64/time.Second))
			}
			*into = time.Duration(n) * time.Second
			return nil
		}
	}
	for _, parse := range []func() error{
		number("shm-default-byte-size", func(n int64) error {
			if n < 1<<20 {
				return infer.Errorf(infer.InvalidArg, "shm-default-byte-size can't be smaller than 4 MiBs")
			}
			c.DefaultBytes = n
			return nil
		}),
		number("shm-growth-byte-size", func(n int64) error {
			if n <= 0 {
				return infer.Errorf(infer.InvalidArg, "shm-growth-byte-size can't be smaller than or equal to zero.")
			}
			c.GrowthBytes = n
			return nil
		}),
		number("shm-max-byte-size", func(n int64) error {
			if n < c.DefaultBytes {
				return infer.Errorf(infer.InvalidArg, "shm-max-byte-size is %d, want at least shm-default-byte-size, %d", n, c.DefaultBytes)
			}
			c.MaxBytes = n
			return nil
		}),
		number("stub-timeout-seconds", func(n int64) error {
			if n <= 0 {
				return infer.Errorf(infer.InvalidArg, "stub-timeout-seconds can't be smaller than or equal to zero.")
			}
			return seconds(&c.StubTimeout)(n)
		}),
		number("initialize-timeout-seconds", seconds(&c.InitializeTimeout)),
		number("execute-timeout-seconds", seconds(&c.ExecuteTimeout)),
		number("finalize-timeout-seconds", seconds(&c.FinalizeTimeout)),
		number("ipc-spin-us", func(n int64) error {
			if n < 0 || n > 100_000 {
				return infer.Errorf(infer.InvalidArg, "ipc-spin-us is %d, want between 0 (off) and 100000", n)
			}
			c.Spin = time.Duration(n) * time.Microsecond
			if n == 0 {
				c.Spin = -1
			}
			return nil
		}),
		// Triton's keys that mean nothing here are still checked as Triton does.
		number("thread-pool-size", func(n int64) error {
			if n < 1 {
				return infer.Errorf(infer.InvalidArg, "thread-pool-size can't be less than 1.")
			}
			return nil
		}),
		number("shm_message_queue_size", func(int64) error { return nil }),
	} {
		if err := parse(); err != nil {
			return Config{}, err
		}
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = max(shm.MemoryLimit()/2, c.DefaultBytes)
	}
	if prefix, ok := settings["shm-region-prefix-name"]; ok {
		if err := (shm.Named{Prefix: prefix}).Validate(); err != nil {
			return Config{}, infer.Errorf(infer.InvalidArg, "%s", err)
		}
		c.RegionPrefix = prefix
	}
	switch v := settings["stub-template"]; strings.ToLower(v) {
	case "", "on":
	case "off":
		c.NoTemplate = true
	default:
		return Config{}, infer.Errorf(infer.InvalidArg, "stub-template is %q, want on or off", v)
	}
	return c, nil
}

// stol reads the decimal number that text begins with, as C's function of that
// name does, which Triton uses.
func stol(text string) (int64, error) {
	i := 0
	for i < len(text) && (text[i] == ' ' || text[i] >= '\t' && text[i] <= '\r') {
		i++
	}
	begin := i
	if i < len(text) && (text[i] == '+' || text[i] == '-') {
		i++
	}
	digits := i
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		i++
	}
	if i == digits {
		return 0, infer.Errorf(infer.InvalidArg, "stol")
	}
	n, err := strconv.ParseInt(text[begin:i], 10, 64)
	if err != nil {
		return 0, infer.Errorf(infer.InvalidArg, "stol") // out of range; Triton says no more
	}
	return n, nil
}

// Backing returns how the regions are to be made.
func (c *Config) Backing() shm.Backing {
	if c.RegionPrefix == "" {
		return shm.Memfd{}
	}
	return shm.Named{Prefix: c.RegionPrefix}
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

// unhealthy is what the requests inside a lost stub are answered with.
func unhealthy(instance string) *infer.Error {
	return infer.Errorf(infer.Internal, "Stub process '%s' is not healthy.", instance)
}
