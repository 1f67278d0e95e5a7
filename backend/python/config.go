package python

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
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
	// UnloadTimeout bounds what an end may wait for: requests inside, and finalize.
	// Key unload-timeout-seconds, default 30 s.
	UnloadTimeout time.Duration
	// Spin is how long a side looks for the other's frames before it sleeps. Key
	// ipc-spin-us, default 100 µs; negative: not at all.
	Spin time.Duration
	// readyLimit bounds the wait for an answer to is_ready; always 5 s but in tests.
	readyLimit time.Duration
	// TaggedOutput makes lines of the log of what models print, with the names of
	// model, version and instance. Key output=tagged.
	TaggedOutput bool
	// NoTemplate starts every stub as a program of its own instead of forking it
	// from a template. Key stub-template=off.
	NoTemplate bool
}

// mostSeconds is what a time.Duration can hold.
const mostSeconds = int64(math.MaxInt64 / time.Second)

// setting is a key of the command line and how its value is read.
type setting struct {
	key  string
	read func(c *Config, text string) error
}

// settings are in the order in which they are read: of several mistakes the
// first one here is told.
var settings = []setting{
	{"python-executable", func(c *Config, text string) error { c.Executable = text; return nil }},
	{"shm-default-byte-size", number(func(c *Config, n int64) error {
		c.DefaultBytes = n
		return refuse(n < 1<<20, "shm-default-byte-size can't be smaller than 4 MiBs")
	})},
	{"shm-growth-byte-size", number(func(c *Config, n int64) error {
		c.GrowthBytes = n
		return refuse(n <= 0, "shm-growth-byte-size can't be smaller than or equal to zero.")
	})},
	{"shm-max-byte-size", func(c *Config, text string) (err error) {
		c.MaxBytes, err = whole("shm-max-byte-size", text, c.DefaultBytes, "shm-default-byte-size", math.MaxInt64)
		return err
	}},
	{"stub-timeout-seconds", number(func(c *Config, n int64) error {
		c.StubTimeout = time.Duration(n) * time.Second
		if err := refuse(n <= 0, "stub-timeout-seconds can't be smaller than or equal to zero."); err != nil {
			return err
		}
		return refuse(n > mostSeconds, "stub-timeout-seconds is %d, want at most %d", n, mostSeconds)
	})},
	seconds("initialize-timeout-seconds", func(c *Config) *time.Duration { return &c.InitializeTimeout }),
	seconds("execute-timeout-seconds", func(c *Config) *time.Duration { return &c.ExecuteTimeout }),
	seconds("finalize-timeout-seconds", func(c *Config) *time.Duration { return &c.FinalizeTimeout }),
	seconds("unload-timeout-seconds", func(c *Config) *time.Duration { return &c.UnloadTimeout }),
	{"ipc-spin-us", func(c *Config, text string) error {
		n, err := whole("ipc-spin-us", text, 0, "off", 100_000)
		c.Spin = time.Duration(n) * time.Microsecond
		if n == 0 {
			c.Spin = -1
		}
		return err
	}},
	// Triton's keys that mean nothing here are still checked as Triton does.
	{"thread-pool-size", number(func(_ *Config, n int64) error { return refuse(n < 1, "thread-pool-size can't be less than 1.") })},
	{"shm_message_queue_size", number(func(*Config, int64) error { return nil })},
	{"shm-region-prefix-name", func(c *Config, text string) error {
		c.RegionPrefix = text
		if err := (shm.Named{Prefix: text}).Validate(); err != nil {
			return infer.Errorf(infer.InvalidArg, "%s", err)
		}
		return nil
	}},
	{"output", func(c *Config, text string) error {
		lower := strings.ToLower(text)
		c.TaggedOutput = lower == "tagged"
		return refuse(lower != "" && lower != "plain" && lower != "tagged", "output is %q, want plain or tagged", text)
	}},
	{"stub-template", func(c *Config, text string) error {
		lower := strings.ToLower(text)
		c.NoTemplate = lower == "off"
		return refuse(lower != "" && lower != "on" && lower != "off", "stub-template is %q, want on or off", text)
	}},
}

// Settings lists the keys that ParseConfig knows.
func Settings() []string {
	var keys []string
	for _, s := range settings {
		keys = append(keys, s.key)
	}
	return keys
}

// ParseConfig reads the settings of the command line. Unknown keys are ignored,
// as Triton does. Errors are InvalidArg with Triton's texts for Triton's keys.
func ParseConfig(values map[string]string) (Config, error) {
	c := Config{
		DefaultBytes: 1 << 20,
		GrowthBytes:  1 << 20,
		StubTimeout:  30 * time.Second,
		// Models fetch weights in initialize; one that hangs must end some day.
		InitializeTimeout: time.Hour,
		FinalizeTimeout:   30 * time.Second,
		UnloadTimeout:     30 * time.Second,
		Spin:              100 * time.Microsecond,
		readyLimit:        5 * time.Second,
	}
	for _, s := range settings {
		text, given := values[s.key]
		if !given {
			continue
		}
		if err := s.read(&c, text); err != nil {
			return Config{}, err
		}
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = max(memory.Limit()/2, c.DefaultBytes)
	}
	return c, nil
}

// refuse returns the error of a value that is not accepted.
func refuse(bad bool, format string, args ...any) error {
	if !bad {
		return nil
	}
	return infer.Errorf(infer.InvalidArg, format, args...)
}

// number makes the reader of a number of Triton's.
func number(set func(c *Config, n int64) error) func(*Config, string) error {
	return func(c *Config, text string) error {
		n, err := stol(text)
		if err != nil {
			return err
		}
		return set(c, n)
	}
}

// seconds is a key of Nereid's own, a timeout.
func seconds(key string, into func(c *Config) *time.Duration) setting {
	return setting{key, func(c *Config, text string) error {
		n, err := whole(key, text, 0, "none", mostSeconds)
		*into(c) = time.Duration(n) * time.Second
		return err
	}}
}

// whole reads a number of Nereid's own keys. Unlike in Triton's, all of text
// counts: half a second is not taken for none.
func whole(key, text string, least int64, meaning string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, infer.Errorf(infer.InvalidArg, "%s is %q, want a whole number between %d (%s) and %d", key, text, least, meaning, most)
	}
	return n, nil
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
