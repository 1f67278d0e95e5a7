package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

// settingsOf returns what a backend is told: the settings of all backends and
// over them its own. The server's own ones are among them.
func (o *Options) settingsOf(backend string) map[string]string {
	all := map[string]string{
		"auto-complete-config":   strconv.FormatBool(!o.Repository.DisableAutoCompleteConfig),
		"backend-directory":      o.Backends.Directory,
		"min-compute-capability": strconv.FormatFloat(o.Memory.MinComputeCapability, 'f', 6, 64),
	}
	maps.Copy(all, o.Backends.Settings[""])
	maps.Copy(all, o.Backends.Settings[backend])
	return all
}

// backendConfigJSON is settingsOf as backends get it and as the start-up table
// shows it: keys in order, and the default batch size last unless it was set.
func (o *Options) backendConfigJSON(backend string) string {
	settings := o.settingsOf(backend)
	keys := slices.Sorted(maps.Keys(settings))
	const batch = "default-max-batch-size"
	if _, set := settings[batch]; !set {
		settings[batch] = "4"
		keys = append(keys, batch)
	}
	var b strings.Builder
	b.WriteString(`{"cmdline":{`)
	for i, key := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quote(key) + ":" + quote(settings[key]))
	}
	b.WriteString("}}")
	return b.String()
}

func quote(text string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can always be encoded
	return strings.TrimSuffix(b.String(), "\n")
}

// PythonSettings are the settings of the Python backend. The first six keys are
// Triton's, the others are our own.
type PythonSettings struct {
	SHMDefaultBytes   int64         // shm-default-byte-size: memory that a pool keeps when it is idle
	SHMGrowthBytes    int64         // shm-growth-byte-size: the step in which memory is reserved
	StubTimeout       time.Duration // stub-timeout-seconds
	SHMPrefix         string        // shm-region-prefix-name: empty is memory without a name
	ThreadPoolSize    int64         // thread-pool-size
	MessageQueueSize  int64         // shm_message_queue_size
	Executable        string        // python-executable: empty is python3 on the PATH
	ExecuteTimeout    time.Duration // execute-timeout-seconds: 0 is none
	InitializeTimeout time.Duration // initialize-timeout-seconds: 0 is none
	FinalizeTimeout   time.Duration // finalize-timeout-seconds: 30 unless given, 0 is none
	SpinMicros        int64         // ipc-spin-us: how long an answer is awaited before sleeping; 0 is not at all
	SHMMaxBytes       int64         // shm-max-byte-size: of one stub's memory; 0 is no limit of its own
	Template          bool          // stub-template: fork stubs from a process that has imported numpy
}

// pythonSettings reads the settings of the Python backend; keys that it does
// not know are passed over. The error is an *infer.Error of code InvalidArg, with
// which every model of the backend fails to load.
func pythonSettings(settings map[string]string) (PythonSettings, error) {
	s := PythonSettings{
		SHMDefaultBytes: 1 << 20, SHMGrowthBytes: 1 << 20, StubTimeout: 30 * time.Second, ThreadPoolSize: 32,
		MessageQueueSize: 1000, FinalizeTimeout: 30 * time.Second, SpinMicros: 50, Template: true,
	}
	// In the order in which Triton reads them, so that the same one is named first.
	for _, key := range []struct {
		name string
		read func(text string) error
	}{
		{"shm-default-byte-size", atLeast(&s.SHMDefaultBytes, 1<<20, "shm-default-byte-size can't be smaller than 4 MiBs")},
		{"shm-growth-byte-size", atLeast(&s.SHMGrowthBytes, 1, "shm-growth-byte-size can't be smaller than or equal to zero.")},
		{"stub-timeout-seconds", seconds(&s.StubTimeout, 1, "stub-timeout-seconds can't be smaller than or equal to zero.")},
		{"shm_message_queue_size", atLeast(&s.MessageQueueSize, 1, "shm_message_queue_size can't be smaller than or equal to zero.")},
		{"shm-region-prefix-name", func(text string) error {
			s.SHMPrefix = text
			if text == "" {
				return errors.New("shm-region-prefix-name must at least contain one character.")
			}
			return nil
		}},
		{"thread-pool-size", atLeast(&s.ThreadPoolSize, 1, "thread-pool-size can't be less than 1.")},
		{"python-executable", func(text string) error { s.Executable = text; return nil }},
		{"execute-timeout-seconds", seconds(&s.ExecuteTimeout, 0, "execute-timeout-seconds can't be smaller than zero.")},
		{"initialize-timeout-seconds", seconds(&s.InitializeTimeout, 0, "initialize-timeout-seconds can't be smaller than zero.")},
		{"finalize-timeout-seconds", seconds(&s.FinalizeTimeout, 0, "finalize-timeout-seconds can't be smaller than zero.")},
		{"ipc-spin-us", atLeast(&s.SpinMicros, 0, "ipc-spin-us can't be smaller than zero.")},
		{"shm-max-byte-size", atLeast(&s.SHMMaxBytes, 0, "shm-max-byte-size can't be smaller than zero.")},
		{"stub-template", func(text string) (err error) {
			if s.Template, err = parseBool(text); err != nil {
				return fmt.Errorf("stub-template is %q, want on or off.", text)
			}
			return nil
		}},
	} {
		text, given := settings[key.name]
		if !given {
			continue
		}
		if err := key.read(text); err != nil {
			return PythonSettings{}, infer.Errorf(infer.InvalidArg, "%s", err)
		}
	}
	return s, nil
}

// atLeast makes the reader of a number.
func atLeast(field *int64, low int64, refusal string) func(string) error {
	return func(text string) error {
		n, err := parseInt64(text)
		switch {
		case err != nil:
			return errors.New("stol") // all that Triton says
		case n < low:
			return errors.New(refusal)
		}
		*field = n
		return nil
	}
}

// seconds makes the reader of a time in whole seconds.
func seconds(field *time.Duration, low int64, refusal string) func(string) error {
	return func(text string) error {
		var n int64
		if err := atLeast(&n, low, refusal)(text); err != nil {
			return err
		}
		if n > int64(1<<63-1)/int64(time.Second) {
			return errors.New("stol")
		}
		*field = time.Duration(n) * time.Second
		return nil
	}
}
