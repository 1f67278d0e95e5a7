package process_test

import (
	"io/fs"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/pyutils"
	"github.com/nereid-serving/nereid/stub"
	"github.com/rs/zerolog"
)

// These tests use stubs of Python models, which put the most stress on a process and can misbehave
// in the most ways.
func init() {
	process.DefaultOptions = func() (process.Options, error) {
		config, err := python.ParseConfig(nil)
		return process.Options{Config: config.Config, Executable: config.Executable, NoTemplate: config.NoTemplate}, err
	}
	process.NewPython = func(supervisor *process.Supervisor, options process.Options, log zerolog.Logger) (process.PythonBackend, error) {
		return python.New(python.Environment{
			Supervisor: supervisor, Files: []fs.FS{stub.Files, pyutils.Files}, Log: log,
			Config: python.Config{Config: options.Config, Executable: options.Executable, NoTemplate: options.NoTemplate, InterpreterTimeout: options.InterpreterTimeout,
				TemplateIdle: options.TemplateIdle},
		})
	}
}
