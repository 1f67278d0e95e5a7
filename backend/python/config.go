package python

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/shm"
)

// Config is what `--backend-config=python,<key>=<value>` sets: of the hosting of
// processes, and of the interpreter. Defaults are ParseConfig's.
type Config struct {
	process.Config
	// Executable is the interpreter to use; empty: the first python3 on PATH that
	// can import numpy. Key python-executable.
	Executable string
	// InterpreterTimeout bounds the start of an interpreter until it has imported numpy; 0: no
	// bound. Key interpreter-timeout-seconds.
	InterpreterTimeout time.Duration
	// TemplateIdle is how long the template of an interpreter lives that models have of their
	// own, after the last process was forked; 0: as long as these. Key template-idle-seconds.
	TemplateIdle time.Duration
	// EnvironmentCache is the directory in which packed execution environments are unpacked,
	// "": nereid/environments in the user's cache directory. Key env-cache-directory.
	EnvironmentCache string
	// EnvironmentCacheBytes bounds what lies there; 0: cache.DefaultMaxBytes. Key
	// env-cache-byte-size.
	EnvironmentCacheBytes int64
	// EnvironmentFiles, EnvironmentBytes and EnvironmentRatio bound what one archive may
	// unpack to, 0: as archive.DefaultLimits. Keys env-max-files, env-max-bytes and
	// env-max-ratio.
	EnvironmentFiles, EnvironmentBytes, EnvironmentRatio int64
	// BuildEnvironments makes an environment of what a model's files require, if it names none.
	// Key env-build.
	BuildEnvironments bool
	// EnvironmentTimeout bounds the unpacking or building of an environment; 0: no bound. Key
	// env-timeout-seconds.
	EnvironmentTimeout time.Duration
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
	seconds("ready-timeout-seconds", func(c *Config) *time.Duration { return &c.ReadyTimeout }),
	seconds("unload-timeout-seconds", func(c *Config) *time.Duration { return &c.UnloadTimeout }),
	seconds("interpreter-timeout-seconds", func(c *Config) *time.Duration { return &c.InterpreterTimeout }),
	seconds("template-idle-seconds", func(c *Config) *time.Duration { return &c.TemplateIdle }),
	{"env-cache-directory", func(c *Config, text string) error {
		c.EnvironmentCache = text
		return refuse(text != "" && !filepath.IsAbs(text), "env-cache-directory is %q, want an absolute path", text)
	}},
	positive("env-cache-byte-size", func(c *Config) *int64 { return &c.EnvironmentCacheBytes }),
	positive("env-max-files", func(c *Config) *int64 { return &c.EnvironmentFiles }),
	positive("env-max-bytes", func(c *Config) *int64 { return &c.EnvironmentBytes }),
	positive("env-max-ratio", func(c *Config) *int64 { return &c.EnvironmentRatio }),
	{"env-build", func(c *Config, text string) error {
		lower := strings.ToLower(text)
		c.BuildEnvironments = lower == "true"
		return refuse(lower != "" && lower != "true" && lower != "false", "env-build is %q, want true or false", text)
	}},
	seconds("env-timeout-seconds", func(c *Config) *time.Duration { return &c.EnvironmentTimeout }),
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
	c := Config{InterpreterTimeout: 30 * time.Second, TemplateIdle: time.Minute, EnvironmentTimeout: time.Hour, Config: process.Config{
		DefaultBytes: 1 << 20,
		GrowthBytes:  1 << 20,
		StubTimeout:  30 * time.Second,
		// Models fetch weights in initialize; a download that hangs must end some day.
		InitializeTimeout: time.Hour,
		FinalizeTimeout:   30 * time.Second,
		UnloadTimeout:     30 * time.Second,
		Spin:              100 * time.Microsecond,
		ReadyTimeout:      5 * time.Second,
	}}
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
		n, err := infer.Stol(text)
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

// positive is a key of Nereid's own, a bound.
func positive(key string, into func(c *Config) *int64) setting {
	return setting{key, func(c *Config, text string) (err error) {
		*into(c), err = whole(key, text, 1, "the least", math.MaxInt64)
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
