package backends

import (
	"encoding/json"
	"maps"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/native"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/shm"
)

// plugin runs a program like a server. It implements conformance.Way.
type plugin struct {
	program  string
	settings map[string]string
	pool     *shm.Pool
	metrics  *metrics.Registry
}

// mostMemory is the size of the memory for requests in bytes. The suite's requests are small.
const mostMemory = 64 << 20

func newPlugin(program string, settings map[string]string) (*plugin, error) {
	region, err := shm.NewRegionUpTo(shm.Memfd{}, mostMemory, mostMemory, shm.ReadWrite)
	if err != nil {
		return nil, err
	}
	pool, err := shm.NewPool(region, shm.PoolConfig{})
	if err != nil {
		return nil, err
	}
	return &plugin{program: program, settings: settings, pool: pool, metrics: metrics.New(metrics.Config{})}, nil
}

func (p *plugin) close() { p.pool.Close() }

// InProcess implements conformance.Way.
func (p *plugin) InProcess() bool { return false }

// Open implements conformance.Way.
func (p *plugin) Open(_ string, log zerolog.Logger) (backend.Backend, func(), error) {
	supervisor, err := process.New(process.Environment{
		Requests: p.pool, Log: log, Metrics: p.metrics,
		LogLevels: func() process.LogLevels { return process.LogLevels{Warning: true, Error: true} },
	})
	if err != nil {
		return nil, nil, err
	}
	b := native.New(native.Environment{
		Supervisor: supervisor, Settings: p.told, Directory: filepath.Dir(filepath.Dir(p.program)), Log: log,
	})
	return opener{b, p.program}, supervisor.Close, nil
}

// told returns the backend's settings: a server's defaults, and those of the command line.
func (p *plugin) told(string) (values map[string]string, message string) {
	values = map[string]string{
		"auto-complete-config": "true", "backend-directory": filepath.Dir(filepath.Dir(p.program)),
		"min-compute-capability": "0.000000", "default-max-batch-size": "4",
	}
	maps.Copy(values, p.settings)
	text, _ := json.Marshal(map[string]any{"cmdline": values}) // strings can always be encoded
	return values, string(text)
}

// opener opens models with the program, in any directory.
type opener struct {
	backend *native.Backend
	program string
}

// Open implements backend.Backend.
func (o opener) Open(env backend.Env) (backend.Model, error) {
	env.Plugin = o.program
	return o.backend.Open(env)
}
