package python

import (
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/settings"
	"github.com/nereid-serving/nereid/conda/archive"
	"github.com/nereid-serving/nereid/conda/cache"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
)

// Config holds the settings of `--backend-config=python,<key>=<value>`: those of processes and
// those of the interpreter. The table of settings describes the keys; ParseConfig has the defaults.
type Config struct {
	process.Config
	Executable            string        // python-executable; "": the first python3 on PATH that can import numpy
	InterpreterTimeout    time.Duration // interpreter-timeout-seconds; 0: no limit
	TemplateIdle          time.Duration // template-idle-seconds; 0: as long as its models
	EnvironmentCache      string        // env-cache-directory; "": nereid/environments in the user's cache directory
	EnvironmentCacheBytes int64         // env-cache-byte-size
	EnvironmentFiles      int64         // env-max-files, of one archive, as the next two
	EnvironmentBytes      int64         // env-max-bytes
	EnvironmentRatio      int64         // env-max-ratio
	BuildEnvironments     bool          // env-build
	EnvironmentTimeout    time.Duration // env-timeout-seconds; 0: no limit
	NoTemplate            bool          // stub-template=off: no stub is forked
	NoAccelerator         bool          // accelerator=off: the stub is only Python
	Threads               string        // free-threading: the instances of a group are threads of one process
	StrictOutputs         bool          // outputs that are not in the model's config are errors; has no key
	Develop               bool          // models are debugged at the terminal of this process; has no key
}

// The values of the setting free-threading.
const (
	ThreadsAuto = "auto" // if the interpreter has no GIL
	ThreadsOff  = "off"
	ThreadsOn   = "on"
)

// table has the settings of Python models. Triton's keys come in Triton's order.
var table = slices.Concat(
	settings.Table[Config]{
		settings.Text("python-executable", "Interpreter of all models without an environment of their own: a path, or a name on PATH. Default: the Python of the virtual environment in which the server is installed, if any; otherwise the first python3 on PATH that can import numpy.",
			func(c *Config, text string) error { c.Executable = text; return nil }),
	},
	settings.Hosting(func(c *Config) *process.Config { return &c.Config }),
	settings.Table[Config]{
		settings.Number("stub-timeout-seconds", "Time from the start of a process to its first message, in seconds; does not include the model's own code.", time.Second, 1, settings.MostSeconds,
			func(c *Config) *time.Duration { return &c.StubTimeout }).AsTriton("stub-timeout-seconds can't be smaller than or equal to zero."),
		settings.Seconds("interpreter-timeout-seconds", "Time from the start of an interpreter until it has imported numpy, in seconds; 0: no limit.",
			func(c *Config) *time.Duration { return &c.InterpreterTimeout }),
		settings.Seconds("template-idle-seconds", "Time after its last fork until the template of an environment or of a Python-based backend ends, in seconds; 0: never. That frees about 25 MiB. The next process, for example after a crash, restarts it in about 0.3 s. The backend's own template and the last template of a server stay.",
			func(c *Config) *time.Duration { return &c.TemplateIdle }),
		settings.Text("env-cache-directory", "Absolute path where execution environments are unpacked. Several servers may share it. It may be read-only if it already has all environments. Default: nereid/environments in the user's cache directory; a temporary directory of this server if that is not writable.",
			func(c *Config, text string) error {
				c.EnvironmentCache = text
				if text != "" && !filepath.IsAbs(text) {
					return infer.Errorf(infer.InvalidArg, "env-cache-directory is %q, want an absolute path", text)
				}
				return nil
			}),
		settings.Positive("env-cache-byte-size", "Size of the cache of environments, in bytes, above which the least recently used ones that no server uses are removed.",
			func(c *Config) *int64 { return &c.EnvironmentCacheBytes }),
		settings.Positive("env-max-files", "Maximum number of files in one archive.",
			func(c *Config) *int64 { return &c.EnvironmentFiles }),
		settings.Positive("env-max-bytes", "Maximum size of the files of one archive, in bytes.",
			func(c *Config) *int64 { return &c.EnvironmentBytes }),
		settings.Positive("env-max-ratio", "Maximum number of bytes unpacked for each byte of an archive, once 64 MiB are unpacked.",
			func(c *Config) *int64 { return &c.EnvironmentRatio }),
		settings.Choice("env-build", "true: build an environment from the requirements.txt, uv.lock or pixi.toml of each model that names no environment. uv or pixi then fetches packages and runs their code.", "false", "true",
			func(c *Config, build bool) { c.BuildEnvironments = build }),
		settings.Seconds("env-timeout-seconds", "Time for unpacking or building an environment, including the wait for another server that does so, in seconds; 0: no limit.",
			func(c *Config) *time.Duration { return &c.EnvironmentTimeout }),
		settings.Positive("thread-pool-size", "Checked as in Triton; without effect.",
			func(*Config) *int64 { return new(int64) }).AsTriton("thread-pool-size can't be less than 1."),
		{Row: settings.Row{Key: "shm_message_queue_size", Help: "Checked as in Triton; without effect.", Most: math.MaxInt64, Theirs: true}, Read: func(_ *Config, text string) error {
			_, err := infer.Stol(text)
			return err
		}},
		{Row: settings.Row{Key: "shm-region-prefix-name", Help: "Use /dev/shm/<prefix>… for the memory of outputs, mode 0600, unlinked as soon as the process has attached. Default: unnamed memory.", Theirs: true}, Read: func(c *Config, text string) error {
			c.RegionPrefix = text
			if err := (shm.Named{Prefix: text}).Validate(); err != nil {
				return infer.Errorf(infer.InvalidArg, "%s", err)
			}
			return nil
		}},
		settings.Choice("stub-template", "off: start each process as a program instead of forking it from the template, which has imported numpy. The template still runs, because it kills the models' leftover processes if the server is killed.", "on", "off",
			func(c *Config, off bool) { c.NoTemplate = off }),
		settings.Choice("accelerator", "off: run the stub in Python alone, without its compiled part. The environment variable NEREID_ACCELERATOR=off does the same.", "on", "off",
			func(c *Config, off bool) { c.NoAccelerator = off }),
		settings.OneOf("free-threading", "auto: a Python without the GIL runs all instances of a group as threads of one process. off: each instance has its own process. on: threads with every Python; with the GIL, they take turns.",
			[]string{ThreadsAuto, ThreadsOff, ThreadsOn}, func(c *Config, choice string) { c.Threads = choice }),
	},
)

// Settings describes the settings that ParseConfig knows.
func Settings() settings.Rows {
	defaults := defaultConfig()
	return table.Rows(&defaults)
}

// defaultConfig returns the config without any settings.
func defaultConfig() Config {
	return Config{
		Threads: ThreadsAuto, InterpreterTimeout: 30 * time.Second, TemplateIdle: time.Minute, EnvironmentTimeout: time.Hour, EnvironmentCacheBytes: cache.DefaultMaxBytes,
		EnvironmentFiles: archive.DefaultLimits.Files, EnvironmentBytes: archive.DefaultLimits.Bytes, EnvironmentRatio: archive.DefaultLimits.Ratio,
		Config: settings.Defaults(),
	}
}

// ParseConfig parses the settings of the command line. Like Triton, it ignores unknown keys. Errors
// are InvalidArg, with Triton's texts for Triton's keys.
func ParseConfig(values map[string]string) (Config, error) {
	c := defaultConfig()
	if err := table.Read(&c, values); err != nil {
		return Config{}, err
	}
	return c, settings.Complete(&c.Config)
}
