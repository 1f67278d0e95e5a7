package main

import (
	"testing"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

func TestPythonSettings(t *testing.T) {
	base, err := pythonSettings(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		key, value string
		want       func(s *PythonSettings) // nil if it is refused
		refusal    string
	}{
		{"shm-default-byte-size", "5242880abc", func(s *PythonSettings) { s.SHMDefaultBytes = 5 << 20 }, ""},
		{"shm-default-byte-size", "1048575", nil, "shm-default-byte-size can't be smaller than 4 MiBs"},
		{"shm-default-byte-size", "x", nil, "stol"},
		{"shm-default-byte-size", "99999999999999999999", nil, "stol"},
		{"shm-growth-byte-size", "0", nil, "shm-growth-byte-size can't be smaller than or equal to zero."},
		{"stub-timeout-seconds", "7", func(s *PythonSettings) { s.StubTimeout = 7 * time.Second }, ""},
		{"stub-timeout-seconds", "-1", nil, "stub-timeout-seconds can't be smaller than or equal to zero."},
		{"stub-timeout-seconds", "9223372036854775807", nil, "stol"},
		{"shm-region-prefix-name", "p", func(s *PythonSettings) { s.SHMPrefix = "p" }, ""},
		{"shm-region-prefix-name", "", nil, "shm-region-prefix-name must at least contain one character."},
		{"thread-pool-size", "0", nil, "thread-pool-size can't be less than 1."},
		{"shm_message_queue_size", "5", func(s *PythonSettings) { s.MessageQueueSize = 5 }, ""},
		{"python-executable", "/p", func(s *PythonSettings) { s.Executable = "/p" }, ""},
		{"execute-timeout-seconds", "1", func(s *PythonSettings) { s.ExecuteTimeout = time.Second }, ""},
		{"initialize-timeout-seconds", "2", func(s *PythonSettings) { s.InitializeTimeout = 2 * time.Second }, ""},
		{"finalize-timeout-seconds", "0", func(s *PythonSettings) { s.FinalizeTimeout = 0 }, ""},
		{"ipc-spin-us", "0", func(s *PythonSettings) { s.SpinMicros = 0 }, ""},
		{"ipc-spin-us", "-1", nil, "ipc-spin-us can't be smaller than zero."},
		{"shm-max-byte-size", "9", func(s *PythonSettings) { s.SHMMaxBytes = 9 }, ""},
		{"stub-template", "Off", func(s *PythonSettings) { s.Template = false }, ""},
		{"stub-template", "no", nil, `stub-template is "no", want on or off.`},
		{"anything-else", "x", func(*PythonSettings) {}, ""},
	} {
		t.Run(test.key+"="+test.value, func(t *testing.T) {
			got, err := pythonSettings(map[string]string{test.key: test.value})
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
