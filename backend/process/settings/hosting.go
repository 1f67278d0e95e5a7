package settings

import (
	"math"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/budget"
)

// Hosting returns the settings that all backends with processes share. of returns the process
// config of a backend's config.
func Hosting[C any](of func(*C) *process.Config) Table[C] {
	seconds := func(key string, into func(p *process.Config) *time.Duration) Setting[C] {
		return Seconds(key, func(c *C) *time.Duration { return into(of(c)) })
	}
	return Table[C]{
		{"shm-default-byte-size", Number(func(c *C, n int64) error {
			of(c).DefaultBytes = n
			return Refuse(n < 1<<20, "shm-default-byte-size can't be smaller than 4 MiBs")
		})},
		{"shm-growth-byte-size", Number(func(c *C, n int64) error {
			of(c).GrowthBytes = n
			return Refuse(n <= 0, "shm-growth-byte-size can't be smaller than or equal to zero.")
		})},
		{"shm-max-byte-size", func(c *C, text string) (err error) {
			of(c).MaxBytes, err = Whole("shm-max-byte-size", text, of(c).DefaultBytes, "shm-default-byte-size", math.MaxInt64)
			return err
		}},
		seconds("initialize-timeout-seconds", func(p *process.Config) *time.Duration { return &p.InitializeTimeout }),
		seconds("execute-timeout-seconds", func(p *process.Config) *time.Duration { return &p.ExecuteTimeout }),
		seconds("finalize-timeout-seconds", func(p *process.Config) *time.Duration { return &p.FinalizeTimeout }),
		seconds("ready-timeout-seconds", func(p *process.Config) *time.Duration { return &p.ReadyTimeout }),
		seconds("unload-timeout-seconds", func(p *process.Config) *time.Duration { return &p.UnloadTimeout }),
		{"ipc-spin-us", func(c *C, text string) error {
			n, err := Whole("ipc-spin-us", text, 0, "off", 100_000)
			of(c).Spin = time.Duration(n) * time.Microsecond
			if n == 0 {
				of(c).Spin = -1
			}
			return err
		}},
		{"output", func(c *C, text string) error {
			lower := strings.ToLower(text) // bound: the command line
			of(c).TaggedOutput = lower == "tagged"
			return Refuse(lower != "" && lower != "plain" && lower != "tagged", "output is %q, want plain or tagged", text)
		}},
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
func Complete(c *process.Config) {
	if c.MaxBytes == 0 {
		c.MaxBytes = max(budget.Limit()/2, c.DefaultBytes)
	}
}
