package python

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/settings"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
)

// Config holds the settings of `--backend-config=python,<key>=<value>`: those of processes and
// those of the interpreter. ParseConfig has the defaults.
type Config struct {
	process.Config
	// Executable is the interpreter; empty means the first python3 on PATH that can import numpy. Key
	// python-executable.
	Executable string
	// InterpreterTimeout limits the start of an interpreter until it has imported numpy; 0 means no
	// limit. Key interpreter-timeout-seconds.
	InterpreterTimeout time.Duration
	// TemplateIdle is how long the template of an interpreter other than the server's own lives after
	// its last fork; 0 means as long as its models. Key template-idle-seconds.
	TemplateIdle time.Duration
	// EnvironmentCache is the directory in which packed execution environments are unpacked; "" means
	// nereid/environments in the user's cache directory. Key env-cache-directory.
	EnvironmentCache string
	// EnvironmentCacheBytes limits the size of the cache; 0 means cache.DefaultMaxBytes. Key
	// env-cache-byte-size.
	EnvironmentCacheBytes int64
	// EnvironmentFiles, EnvironmentBytes and EnvironmentRatio limit what one archive may unpack to; 0
	// means archive.DefaultLimits. Keys env-max-files, env-max-bytes and env-max-ratio.
	EnvironmentFiles, EnvironmentBytes, EnvironmentRatio int64
	// BuildEnvironments builds an environment from a model's requirements if it names no
	// environment. Key env-build.
	BuildEnvironments bool
	// EnvironmentTimeout limits the unpacking or building of an environment; 0 means no limit. Key
	// env-timeout-seconds.
	EnvironmentTimeout time.Duration
	// StrictOutputs turns a response into an error if it has an output that is not in the model's
	// config. It has no key.
	StrictOutputs bool
	// Develop enables debugging of models at the terminal of this process. It has no key.
	Develop bool
	// NoTemplate starts every stub as a separate program instead of forking it from a template. Key
	// stub-template=off.
	NoTemplate bool
}

// table has the settings of Python models. Triton's keys come in Triton's order.
var table = slices.Concat(
	settings.Table[Config]{
		{Key: "python-executable", Read: func(c *Config, text string) error { c.Executable = text; return nil }},
	},
	settings.Hosting(func(c *Config) *process.Config { return &c.Config }),
	settings.Table[Config]{
		{Key: "stub-timeout-seconds", Read: settings.Number(func(c *Config, n int64) error {
			c.StubTimeout = time.Duration(n) * time.Second
			if err := settings.Refuse(n <= 0, "stub-timeout-seconds can't be smaller than or equal to zero."); err != nil {
				return err
			}
			return settings.Refuse(n > settings.MostSeconds, "stub-timeout-seconds is %d, want at most %d", n, settings.MostSeconds)
		})},
		settings.Seconds("interpreter-timeout-seconds", func(c *Config) *time.Duration { return &c.InterpreterTimeout }),
		settings.Seconds("template-idle-seconds", func(c *Config) *time.Duration { return &c.TemplateIdle }),
		{Key: "env-cache-directory", Read: func(c *Config, text string) error {
			c.EnvironmentCache = text
			return settings.Refuse(text != "" && !filepath.IsAbs(text), "env-cache-directory is %q, want an absolute path", text)
		}},
		settings.Positive("env-cache-byte-size", func(c *Config) *int64 { return &c.EnvironmentCacheBytes }),
		settings.Positive("env-max-files", func(c *Config) *int64 { return &c.EnvironmentFiles }),
		settings.Positive("env-max-bytes", func(c *Config) *int64 { return &c.EnvironmentBytes }),
		settings.Positive("env-max-ratio", func(c *Config) *int64 { return &c.EnvironmentRatio }),
		{Key: "env-build", Read: func(c *Config, text string) error {
			lower := strings.ToLower(text)
			c.BuildEnvironments = lower == "true"
			return settings.Refuse(lower != "" && lower != "true" && lower != "false", "env-build is %q, want true or false", text)
		}},
		settings.Seconds("env-timeout-seconds", func(c *Config) *time.Duration { return &c.EnvironmentTimeout }),
		// Triton's keys without effect here are still checked as in Triton.
		{Key: "thread-pool-size", Read: settings.Number(func(_ *Config, n int64) error {
			return settings.Refuse(n < 1, "thread-pool-size can't be less than 1.")
		})},
		{Key: "shm_message_queue_size", Read: settings.Number(func(*Config, int64) error { return nil })},
		{Key: "shm-region-prefix-name", Read: func(c *Config, text string) error {
			c.RegionPrefix = text
			if err := (shm.Named{Prefix: text}).Validate(); err != nil {
				return infer.Errorf(infer.InvalidArg, "%s", err)
			}
			return nil
		}},
		{Key: "stub-template", Read: func(c *Config, text string) error {
			lower := strings.ToLower(text)
			c.NoTemplate = lower == "off"
			return settings.Refuse(lower != "" && lower != "on" && lower != "off", "stub-template is %q, want on or off", text)
		}},
	},
)

// Settings returns the keys that ParseConfig knows.
func Settings() []string { return table.Keys() }

// ParseConfig parses the settings of the command line. Like Triton, it ignores unknown keys. Errors
// are InvalidArg, with Triton's texts for Triton's keys.
func ParseConfig(values map[string]string) (Config, error) {
	c := Config{InterpreterTimeout: 30 * time.Second, TemplateIdle: time.Minute, EnvironmentTimeout: time.Hour, Config: settings.Defaults()}
	if err := table.Read(&c, values); err != nil {
		return Config{}, err
	}
	settings.Complete(&c.Config)
	return c, nil
}
