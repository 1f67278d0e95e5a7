package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit/leaks"
	"github.com/nereid-serving/nereid/kserve"
)

// goProgram is a program without Python: the test binary, executed again.
type goProgram struct {
	process.FakeProgram
	children  *launch.Children
	behaviour string
	closed    *atomic.Int32 // the number of Close calls
}

func (*goProgram) Check(context.Context, string) error { return nil }
func (*goProgram) Configure(*kserve.ModelConfig) error { return nil }
func (p *goProgram) Close()                            { p.closed.Add(1) }

// Capabilities implements Program. The stubs write outputs to devices but accept no inputs there.
func (*goProgram) Capabilities() process.ProgramCapabilities {
	return process.ProgramCapabilities{UsesDevices: true}
}

func (p *goProgram) Start(_ context.Context, instance string, files *process.Files) (*launch.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	inherited := append([]*os.File{null, files.Output[0], files.Output[1]}, files.List()...)
	return p.children.Bear(func() (*launch.Process, error) {
		child, err := launch.Start(launch.Command{Argv: []string{self, stubArgument, instance}, Files: inherited}, p.children.NewMark())
		if err == nil && p.behaviour == "lacks memory" {
			child.OOMKills = -1 // as if the kernel's count had increased
		}
		return child, err
	})
}

func (*goProgram) Complete(config []byte, surroundings process.Surroundings) any {
	return &struct {
		Config string `msgpack:"config"`
		process.Surroundings
	}{string(config), surroundings}
}

func (p *goProgram) Initialize(_ process.InstanceSpec, initialization process.Initialization) any {
	return &struct {
		Behaviour string `msgpack:"behaviour"`
		process.Initialization
	}{p.behaviour, initialization}
}

// openProgram completes and starts a model whose stubs are in Go. It returns Start's error.
func (r *fixture) openProgram(behaviour string) (*running, error) {
	r.t.Helper()
	options, err := python.ParseConfig(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	config := modelConfig("go", 1, infer.Uint8)
	env := envOf(r.t.TempDir(), config)
	env.Host = r.host
	closed := &atomic.Int32{}
	r.t.Cleanup(func() {
		if n := closed.Load(); n != 1 {
			r.t.Errorf("program was closed %d times, want once", n)
		}
	})
	model := r.supervisor.Open(env, &options.Config, &goProgram{children: r.supervisor.Children(), behaviour: behaviour, closed: closed})
	m := &running{fixture: r, name: "go", model: model, events: &fakeEvents{}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	completed, err := model.AutoComplete(ctx, []byte("{}"))
	if err != nil || string(completed) != `{"name":"completed"}` {
		r.t.Fatalf("AutoComplete: got %s, error %v", completed, err)
	}
	if err := model.Start(ctx, config, []byte("{}"), m.events); err != nil {
		m.close()
		return nil, err
	}
	r.t.Cleanup(m.close)
	return m, nil
}

// wantBytes executes n requests as one batch and checks the output of each.
func (m *running) wantBytes(n int, want string) {
	m.fixture.t.Helper()
	requests := make([]*infer.Request, n)
	for i := range requests {
		requests[i] = m.fixture.small()
	}
	responses, report := m.infer(requests...)
	for i, response := range responses {
		if response.Err != nil || len(response.Outputs) != 1 || string(response.Outputs[0].Data) != want || report.Err != nil {
			m.fixture.t.Errorf("request %d of %d: got response %+v, report %+v, want the output %q", i, n, response, report, want)
		}
		response.Release()
	}
}

// TestProgramOfAnotherLanguage runs instances without Python, with every kind of frame, a loss and
// a finalize.
func TestProgramOfAnotherLanguage(t *testing.T) {
	host := &callHost{}
	r := newFixtureWith(t, "", nil)
	r.host = host
	t.Run("answers", func(t *testing.T) {
		m, err := r.in(t).openProgram("answers")
		if err != nil {
			t.Fatal(err)
		}
		m.wantBytes(1, "\x01\x01\x00\x00")
		m.wantBytes(3, "\x02\x03\x00\x00")
		if err := m.instance().Ready(t.Context()); err != nil {
			t.Errorf("Ready: got error %v", err)
		}
		m.close()
		for _, want := range []string{"initialized go_0_0\n", "finalized\n"} {
			if !strings.Contains(r.printed[0].String(), want) {
				t.Errorf("printed is %q, want %q in it", r.printed[0], want)
			}
		}
		if !strings.Contains(r.log.String(), "a word of the stub") {
			t.Error("the log does not have what the stub said")
		}
		if got := host.take(); !strings.Contains(got, "other") {
			t.Errorf("the server was asked %q, want a question about model other", got)
		}
	})
	t.Run("unready", func(t *testing.T) {
		m, err := r.in(t).openProgram("unready")
		if err != nil {
			t.Fatal(err)
		}
		if err := m.instance().Ready(t.Context()); infer.AsError(err).Message != (&process.FakeProgram{}).Text(process.NotReady, "go_0_0") {
			t.Errorf("Ready: got error %v, want the program's text", err)
		}
	})
	t.Run("refuses", func(t *testing.T) {
		_, err := r.in(t).openProgram("refuses")
		var own *infer.Error
		if !errors.As(err, &own) || own.Message != "not today" {
			t.Errorf("Start: got error %v, want that of the stub", err)
		}
	})
	for behaviour, want := range map[string]string{
		"dies": "process exited with code 3", // its last words follow
		"lies": "EXECUTED of batch",
	} {
		t.Run(behaviour, func(t *testing.T) {
			m, err := r.in(t).openProgram(behaviour)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time in another life
				m.wantBytes(1, "\x01\x01\x00\x00")
				m.wantError("", "Stub process 'go_0_0' is not healthy.")
			}
			m.wantBytes(1, "\x01\x01\x00\x00")
			if !strings.Contains(r.log.String(), want) {
				t.Errorf("the log does not say %q", want)
			}
		})
	}
	if !strings.Contains(r.log.String(), "last words") {
		t.Error("the log does not have the last words of a stub that died")
	}
	if rules := r.counts.brokenRules(); rules["handle"] != 2 {
		t.Errorf("rules broken are %v, want that of handles twice", rules)
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == stubArgument {
		runGoStub()
		return
	}
	os.Exit(runTests(m))
}

// runTests has the stub's Python files unpacked into one directory for all tests, so that they are
// compiled once.
func runTests(m *testing.M) int {
	directory, err := os.MkdirTemp("", "nereid-process-")
	if err == nil {
		defer os.RemoveAll(directory)
		err = os.Setenv("XDG_CACHE_HOME", directory)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return leaks.Run(m)
}
