// Command starts measures how long a server takes from its start until its model is ready: with the
// server's own interpreter, in an unpacked environment, and in a packed environment from the cache.
// Run it in the root of the repository, after "make build".
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/bench/measure"
)

// patience is how long a server may take to start.
const patience = 2 * time.Minute

// settings are the flags.
type settings struct {
	python    string
	rounds    int
	megabytes int
	files     int
}

func main() {
	var s settings
	flag.StringVar(&s.python, "python", "", "interpreter with numpy; default the newest of .venvs")
	flag.IntVar(&s.rounds, "rounds", 15, "starts of each kind")
	flag.IntVar(&s.megabytes, "megabytes", 200, "size of the environment")
	flag.IntVar(&s.files, "files", 5000, "files of the environment")
	flag.Parse()
	if s.python == "" {
		s.python = measure.NewestPython()
	}
	if err := s.run(); err != nil {
		fmt.Fprintln(os.Stderr, "starts:", err)
		os.Exit(1)
	}
}

func (s *settings) run() (err error) {
	if s.python, err = filepath.Abs(s.python); err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "starts")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	archive := filepath.Join(directory, "env.tar.gz")
	if err := s.pack(archive); err != nil {
		return err
	}
	cache := filepath.Join(directory, "cache")
	kinds := []struct{ name, environment string }{
		{"the server's interpreter", ""}, {"an unpacked environment", s.python}, {"a packed environment, in the cache", archive},
	}
	repositories := make([]string, len(kinds))
	for i, kind := range kinds {
		repositories[i] = filepath.Join(directory, fmt.Sprint(i))
		if err := writeModel(repositories[i], kind.environment); err != nil {
			return err
		}
	}
	fmt.Printf("%d processors, %s\n\nFrom the start of a server until its model is ready; an environment of %d MB in %d files\n\n",
		runtime.NumCPU(), runtime.Version(), s.megabytes, s.files)
	cold, err := s.start(repositories[len(kinds)-1], cache)
	if err != nil {
		return err
	}
	times := make([]measure.Times, len(kinds))
	// They take turns, so that a slow phase of the machine affects all of them.
	for range s.rounds {
		for i := range kinds {
			took, err := s.start(repositories[i], cache)
			if err != nil {
				return err
			}
			times[i].Each = append(times[i].Each, took)
		}
	}
	var table measure.Table
	table.Row("start with", "p50 ms", "p90 ms", "more than the first, ms")
	for i, kind := range kinds {
		middle := times[i].Quantile(0.5)
		table.Row(kind.name, milliseconds(middle), milliseconds(times[i].Quantile(0.9)), milliseconds(middle-times[0].Quantile(0.5)))
	}
	table.Row("a packed environment, the first time", milliseconds(cold), "", "")
	return table.Write(os.Stdout)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000)
}

// writeModel creates a repository with one model, in an environment unless that is "".
func writeModel(repository, environment string) error {
	config := `backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
`
	if environment != "" {
		config += fmt.Sprintf("parameters { key: \"EXECUTION_ENV_PATH\" value { string_value: %q } }\n", environment)
	}
	const model = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
	if err := os.MkdirAll(filepath.Join(repository, "m", "1"), 0o700); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(repository, "m", "config.pbtxt"), []byte(config), 0o600),
		os.WriteFile(filepath.Join(repository, "m", "1", "model.py"), []byte(model), 0o600))
}

// start runs a server until its model is ready, and returns how long that took.
func (s *settings) start(repository, cache string) (took time.Duration, err error) {
	ports, err := measure.ReservePorts(1)
	if err != nil {
		return 0, err
	}
	command := exec.Command("bin/nereid", "--model-repository="+repository, "--http-address=127.0.0.1", "--http-port="+ports[0],
		"--allow-grpc=false", "--allow-metrics=false", "--backend-config=python,python-executable="+s.python, "--backend-config=python,env-cache-directory="+cache)
	log, err := os.CreateTemp("", "starts")
	if err != nil {
		return 0, err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	began := time.Now()
	if err := command.Start(); err != nil {
		return 0, fmt.Errorf("%w (run \"make build\" first)", err)
	}
	defer func() {
		_ = command.Process.Signal(unix.SIGTERM)
		if ended := command.Wait(); err == nil && ended != nil {
			err = ended
		}
	}()
	for url := "http://127.0.0.1:" + ports[0] + "/v2/health/ready"; time.Since(began) < patience; time.Sleep(time.Millisecond) {
		if response, err := http.Get(url); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return time.Since(began), nil
			}
		}
	}
	text, _ := os.ReadFile(log.Name())
	return 0, fmt.Errorf("the server was not ready within %s:\n%s", patience, text)
}
