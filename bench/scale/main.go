package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/bench/measure"
)

// settings are the flags.
type settings struct {
	binary, python, yardstick string
	parts                     string
	models, instances         measure.Numbers
	connections, requests     int
	rivalMost                 int
	span, idle                time.Duration
	descriptors, processes    int
	limited                   int
}

// part is a part of the report.
type part struct {
	name    string
	measure func(*settings, *report) error
}

// parts are all parts, in the order of the report.
var parts = []part{
	{"models", (*settings).measureModels},
	{"instances", (*settings).measureInstances},
	{"connections", (*settings).measureConnections},
	{"requests", (*settings).measureRequests},
	{"limits", (*settings).measureLimits},
}

func main() {
	s := settings{models: measure.Numbers{1, 20, 100}, instances: measure.Numbers{1, 16}}
	var names []string
	for _, part := range parts {
		names = append(names, part.name)
	}
	flag.StringVar(&s.binary, "binary", "bin/nereid", "the server")
	flag.StringVar(&s.python, "python", measure.NewestPython(), "its interpreter, with numpy")
	flag.StringVar(&s.yardstick, "yardstick", "", "directory with a tritonserver to measure beside it")
	flag.StringVar(&s.parts, "parts", strings.Join(names, ","), "what to measure")
	flag.Var(&s.models, "models", "numbers of models")
	flag.Var(&s.instances, "instances", "numbers of instances of a model")
	flag.IntVar(&s.connections, "connections", 1000, "connections of each protocol")
	flag.IntVar(&s.requests, "requests", 1000, "requests in flight")
	flag.IntVar(&s.rivalMost, "yardstick-most", 200, "models and instances with which Triton is still started: each of its processes is larger, and its start longer")
	flag.DurationVar(&s.span, "span", time.Second, "how long requests are timed")
	flag.DurationVar(&s.idle, "idle", 2*time.Second, "how long an idle server is watched")
	flag.IntVar(&s.descriptors, "descriptors", 256, "descriptors at whose limit a server is shown")
	flag.IntVar(&s.processes, "processes", 64, "processes and threads at whose limit a server is shown")
	flag.IntVar(&s.limited, "limited-models", 80, "models of these servers, more than the limits are enough for")
	flag.Parse()
	if err := s.run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func (s *settings) run(out io.Writer) error {
	wanted := strings.Split(s.parts, ",")
	for _, name := range wanted {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("-parts has %q, want some of models, instances, connections, requests, limits", name)
		}
	}
	if s.python != "" {
		var err error
		if s.python, err = filepath.Abs(s.python); err != nil {
			return err
		}
	}
	raiseDescriptors()
	rivals := []rival{{name: "Nereid", command: []string{s.binary, "--http-ui=false"}}}
	if s.python != "" {
		rivals[0].command = append(rivals[0].command, "--backend-config=python,python-executable="+s.python)
	}
	// The limit on connections should not affect the measurement.
	rivals[0].command = append(rivals[0].command, fmt.Sprint("--http-max-connections=", s.connections+100), fmt.Sprint("--grpc-max-connections=", s.connections+100))
	if s.yardstick != "" {
		rivals = append(rivals, rival{name: "Triton", command: []string{filepath.Join(s.yardstick, "tritonserver")}, most: s.rivalMost})
	}
	fmt.Fprintf(out, "%d processors, %s, load %s\n", runtime.NumCPU(), runtime.Version(), load())
	r := &report{rivals: rivals, out: out}
	for _, part := range parts {
		if !slices.Contains(wanted, part.name) {
			continue
		}
		if err := part.measure(s, r); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// report holds data that the parts share.
type report struct {
	rivals []rival
	out    io.Writer
}

// each lets each kind of server process repositories of all sizes, and prints the results as one
// table.
func (r *report) each(title string, heads []any, sizes []int, do func(v rival, size int) ([]any, error)) error {
	var table measure.Table
	table.Row(heads...)
	for _, size := range sizes {
		for _, v := range r.rivals {
			if v.most > 0 && size > v.most {
				continue
			}
			row, err := do(v, size)
			if err != nil {
				return fmt.Errorf("%s, %d: %w", v.name, size, err)
			}
			table.Row(append([]any{size, v.name}, row...)...)
		}
	}
	return r.print(title, &table)
}

func (r *report) print(title string, table *measure.Table) error {
	fmt.Fprintf(r.out, "\n**%s**\n\n", title)
	return table.WriteMarkdown(r.out)
}

// raiseDescriptors raises this program's limit of descriptors, which its servers inherit, to the
// maximum, and beyond it as root.
func raiseDescriptors() {
	const want = 1 << 18
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: want}) == nil {
		return
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) // too low a limit shows as an error of its own
	}
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}
