package python_test

import (
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

func TestParseConfigReadsAndRefusesSettings(t *testing.T) {
	base, err := python.ParseConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	if limit := budget.Limit(); base.MaxBytes != max(limit/2, base.DefaultBytes) {
		t.Errorf("shm-max-byte-size: got %d without being given, want half of %d", base.MaxBytes, limit)
	}
	for _, test := range []struct {
		key, value string
		want       func(c *python.Config) // nil if it is refused
		refusal    string
	}{
		{"shm-default-byte-size", " 5242880abc", func(c *python.Config) { c.DefaultBytes = 5 << 20 }, ""},
		{"shm-default-byte-size", "4611686018427387904", func(c *python.Config) { c.DefaultBytes, c.MaxBytes = 1<<62, 1<<62 }, ""},
		{"shm-default-byte-size", "1048575", nil, "shm-default-byte-size can't be smaller than 4 MiBs"},
		{"shm-default-byte-size", "x", nil, "stol"},
		{"shm-default-byte-size", "99999999999999999999", nil, "stol"},
		{"shm-growth-byte-size", "0", nil, "shm-growth-byte-size can't be smaller than or equal to zero."},
		{"stub-timeout-seconds", "7", func(c *python.Config) { c.StubTimeout = 7 * time.Second }, ""},
		{"stub-timeout-seconds", "-1", nil, "stub-timeout-seconds can't be smaller than or equal to zero."},
		{"stub-timeout-seconds", "9223372036854775807", nil, `stub-timeout-seconds is "9223372036854775807", want a whole number without a unit, 1 to 9223372036`},
		{"stub-timeout-seconds", "7s", func(c *python.Config) { c.StubTimeout = 7 * time.Second }, ""},
		{"shm-region-prefix-name", "p", func(c *python.Config) { c.RegionPrefix = "p" }, ""},
		{"shm-region-prefix-name", "", nil, "shm-region-prefix-name must at least contain one character."},
		{"thread-pool-size", "0", nil, "thread-pool-size can't be less than 1."},
		{"shm_message_queue_size", "5", func(*python.Config) {}, ""},
		{"python-executable", "/p", func(c *python.Config) { c.Executable = "/p" }, ""},
		{"interpreter-timeout-seconds", "0", func(c *python.Config) { c.InterpreterTimeout = 0 }, ""},
		{"template-idle-seconds", "5", func(c *python.Config) { c.TemplateIdle = 5 * time.Second }, ""},
		{"env-cache-directory", "/c", func(c *python.Config) { c.EnvironmentCache = "/c" }, ""},
		{"env-cache-directory", "c", nil, `--backend-config: env-cache-directory is "c", want an absolute path`},
		{"env-cache-byte-size", "5", func(c *python.Config) { c.EnvironmentCacheBytes = 5 }, ""},
		{"env-cache-byte-size", "0", nil, `--backend-config: env-cache-byte-size is "0", want a whole number without a unit, 1 to 9223372036854775807`},
		{"env-max-files", "6", func(c *python.Config) { c.EnvironmentFiles = 6 }, ""},
		{"env-max-bytes", "7", func(c *python.Config) { c.EnvironmentBytes = 7 }, ""},
		{"env-max-ratio", "8", func(c *python.Config) { c.EnvironmentRatio = 8 }, ""},
		{"env-build", "True", func(c *python.Config) { c.BuildEnvironments = true }, ""},
		{"env-build", "yes", nil, `--backend-config: env-build is "yes", want false or true`},
		{"env-timeout-seconds", "0", func(c *python.Config) { c.EnvironmentTimeout = 0 }, ""},
		{"execute-timeout-seconds", "1", func(c *python.Config) { c.ExecuteTimeout = time.Second }, ""},
		{"accelerator", "off", func(c *python.Config) { c.NoAccelerator = true }, ""},
		{"free-threading", "off", func(c *python.Config) { c.Threads = python.ThreadsOff }, ""},
		{"free-threading", "ON", func(c *python.Config) { c.Threads = python.ThreadsOn }, ""},
		{"free-threading", "yes", nil, `--backend-config: free-threading is "yes", want auto or off or on`},
		{"accelerator", "no", nil, `--backend-config: accelerator is "no", want on or off`},
		{"initialize-timeout-seconds", "2", func(c *python.Config) { c.InitializeTimeout = 2 * time.Second }, ""},
		{"finalize-timeout-seconds", "0", func(c *python.Config) { c.FinalizeTimeout = 0 }, ""},
		{"ready-timeout-seconds", "1", func(c *python.Config) { c.ReadyTimeout = time.Second }, ""},
		{"ready-timeout-seconds", "0", func(c *python.Config) { c.ReadyTimeout = 0 }, ""},
		{"ipc-spin-us", "0", func(c *python.Config) { c.Spin = -1 }, ""},
		{"execute-timeout-seconds", "abc", nil, `--backend-config: execute-timeout-seconds is "abc", want a whole number without a unit, 0 to 9223372036`},
		{"execute-timeout-seconds", "0.5", nil, `--backend-config: execute-timeout-seconds is "0.5", want a whole number without a unit, 0 to 9223372036`},
		{"execute-timeout-seconds", "-1", nil, `--backend-config: execute-timeout-seconds is "-1", want a whole number without a unit, 0 to 9223372036`},
		{"initialize-timeout-seconds", "1h", nil, `--backend-config: initialize-timeout-seconds is "1h", want a whole number without a unit, 0 to 9223372036`},
		{"finalize-timeout-seconds", "", nil, `--backend-config: finalize-timeout-seconds is "", want a whole number without a unit, 0 to 9223372036`},
		{"ready-timeout-seconds", "-1", nil, `--backend-config: ready-timeout-seconds is "-1", want a whole number without a unit, 0 to 9223372036`},
		{"unload-timeout-seconds", "9223372037", nil, `--backend-config: unload-timeout-seconds is "9223372037", want a whole number without a unit, 0 to 9223372036`},
		{"ipc-spin-us", "-1", nil, `--backend-config: ipc-spin-us is "-1", want a whole number without a unit, 0 to 100000`},
		{"ipc-spin-us", "100001", nil, `--backend-config: ipc-spin-us is "100001", want a whole number without a unit, 0 to 100000`},
		{"shm-max-byte-size", "2097152", func(c *python.Config) { c.MaxBytes = 2 << 20 }, ""},
		{"shm-max-byte-size", "9", nil, `--backend-config: shm-max-byte-size is 9, want at least 1048576 (shm-default-byte-size)`},
		{"shm-max-byte-size", "2G", nil, `--backend-config: shm-max-byte-size is "2G", want a whole number without a unit, 1 to 9223372036854775807`},
		{"stub-template", "Off", func(c *python.Config) { c.NoTemplate = true }, ""},
		{"stub-template", "no", nil, `--backend-config: stub-template is "no", want on or off`},
		{"anything-else", "x", func(*python.Config) {}, ""},
	} {
		t.Run(test.key+"="+test.value, func(t *testing.T) {
			got, err := python.ParseConfig(map[string]string{test.key: test.value})
			if test.want == nil {
				if e := infer.AsError(err); e == nil || e.Code != infer.InvalidArg || e.Message != test.refusal {
					t.Fatalf("got %+v, %v, want the refusal %q", got, err, test.refusal)
				}
				return
			}
			want := base
			test.want(&want)
			if err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		})
	}
}
