package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// asking returns a model whose is_ready has the given one-line body. hold() waits while the file
// "hold" in its directory exists.
func asking(define, body string) string {
	return `
import asyncio, os, signal, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils


def hold(name):
    open(os.path.join(pb_utils.get_model_dir(), name + ".begun"), "w").close()
    while os.path.exists(os.path.join(pb_utils.get_model_dir(), name)):
        time.sleep(0.005)


class TritonPythonModel:
    checks = 0

    ` + define + ` is_ready(self):
        TritonPythonModel.checks += 1
        ` + body + `

    def execute(self, requests):
        hold("execute")
        out = pb_utils.Tensor("OUT0", np.full((1, 1), TritonPythonModel.checks, np.uint8))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
`
}

// ready checks the readiness of the first instance.
func (m *running) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return m.instance().Ready(ctx)
}

// wantReady compares err with a pattern; "" means ready.
func wantReady(t *testing.T, err error, code infer.Code, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("Ready: got error %v, want none", err)
	case want != "" && (err == nil || infer.AsError(err).Code != code || !regexp.MustCompile("(?s)^"+want+"$").MatchString(infer.AsError(err).Message)):
		t.Errorf("Ready: got error %v, want %v %q", err, code, want)
	}
}

func TestIsReadyDecidesReadiness(t *testing.T) {
	for _, interpreter := range testkit.Pythons(t) {
		t.Run(interpreter.String(), func(t *testing.T) {
			r := newFixtureWith(t, interpreter.Path, nil)
			for _, c := range []struct {
				name, define, body string
				code               infer.Code
				want               string
			}{
				{"true", "def", `return True`, 0, ""},
				{"false", "def", `return False`, infer.Unavailable, `Model 'm_0_0' is not ready \(user-defined check failed\)\.`},
				{"async true", "async def", `await asyncio.sleep(0); return True`, 0, ""},
				{"async false", "async def", `await asyncio.sleep(0); return False`, infer.Unavailable, `Model 'm_0_0' is not ready \(user-defined check failed\)\.`},
				{"numpy", "def", `return np.bool_(True)`, infer.Internal, `is_ready\(\) must return a boolean value`},
				{"one", "def", `return 1`, infer.Internal, `is_ready\(\) must return a boolean value`},
				{"text", "async def", `return "ready"`, infer.Internal, `is_ready\(\) must return a boolean value`},
				{"nothing", "def", `pass`, infer.Internal, `is_ready\(\) must return a boolean value`},
				{"raises", "def", `raise ValueError("nö")`, infer.Internal, `ValueError: nö\n\nAt:\n  .*/1/model\.py\(\d+\): is_ready\n`},
				{"raises later", "async def", `await asyncio.sleep(0); raise ValueError("no")`, infer.Internal, `ValueError: no\n\nAt:\n  .*/1/model\.py\(\d+\): is_ready\n.*`},
				{"exits", "def", `sys.exit(3)`, infer.Internal, `SystemExit: 3\n\nAt:\n.*`},
				{"other thread", "def", `return threading.current_thread() is not threading.main_thread()`, 0, ""},
				{"taken away", "def", `del TritonPythonModel.is_ready; return False`, infer.Unavailable, `Model .*`},
				{"logs", "def", `pb_utils.Logger.log_info("asked"); return True`, 0, ""},
			} {
				t.Run(c.name, func(t *testing.T) {
					m, err := r.in(t).open(r.in(t).writeModel("m", asking(c.define, c.body)), modelConfig("m", 1, infer.Uint8))
					if err != nil {
						t.Fatal(err)
					}
					if !m.model.Capabilities().AsksReady() {
						t.Error("AsksReady: got false")
					}
					wantReady(t, m.ready(), c.code, c.want)
					if c.name == "taken away" {
						c.want = ""
					}
					wantReady(t, m.ready(), c.code, c.want)
					// It serves even if it reports that it is not ready.
					response := m.mustInfer(&infer.Request{})
					if want := byte(2); c.name != "taken away" && response.Outputs[0].Data[0] != want {
						t.Errorf("is_ready was called %d times, want %d", response.Outputs[0].Data[0], want)
					}
					response.Release()
				})
			}
		})
	}
}

// TestIsReadyWithoutMethod checks that a model without is_ready is ready and not asked.
func TestIsReadyWithoutMethod(t *testing.T) {
	r := newFixture(t, nil)
	source := strings.ReplaceAll(asking("def", "return False"), "def is_ready", "def is_not_asked") +
		"\n    def initialize(self, args):\n        threading.Timer(0, lambda: setattr(self, 'is_ready', lambda: False))\n"
	m, err := r.open(r.writeModel("m", source), modelConfig("m", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	if m.model.Capabilities().AsksReady() {
		t.Error("AsksReady: got true")
	}
	wantReady(t, m.ready(), 0, "")
}

// TestIsReadyBesideExecute checks readiness during execute, which is not affected.
func TestIsReadyBesideExecute(t *testing.T) {
	r := newFixture(t, nil)
	dir := r.writeModel("m", asking("def", "return True"))
	held := filepath.Join(dir, "1", "execute")
	touch(t, held)
	m, err := r.open(dir, modelConfig("m", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan *infer.Response, 1)
	go func() { answered <- m.mustInfer(&infer.Request{}) }()
	testkit.Eventually(t, patience, func() bool { return exists(held + ".begun") })
	for range 3 {
		wantReady(t, m.ready(), 0, "")
	}
	remove(t, held)
	response := <-answered
	if got := response.Outputs[0].Data[0]; got != 3 {
		t.Errorf("is_ready was called %d times, want 3", got)
	}
	response.Release()
}

// TestIsReadyIsSlow checks that the first caller times out, callers during the check share its late
// result, and the next caller starts a new check.
func TestIsReadyIsSlow(t *testing.T) {
	limit := 200 * time.Millisecond
	r := newFixture(t, func(c *python.Config) { c.ReadyTimeout = limit })
	dir := r.writeModel("m", asking("def", `hold("ready"); return True`))
	held := filepath.Join(dir, "1", "ready")
	touch(t, held)
	m, err := r.open(dir, modelConfig("m", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	wantReady(t, m.ready(), infer.Unavailable, `Timed out waiting for user-defined is_ready\(\) response`)
	wantReady(t, m.ready(), infer.Unavailable, `Timed out waiting for in-flight is_ready\(\) response`)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	if err := m.instance().Ready(ctx); err == nil || err.Error() != "gone" {
		t.Errorf("Ready of a client that has gone: got error %v", err)
	}
	m.instance().LimitReady(patience)
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() { wantReady(t, m.ready(), 0, "") })
	}
	remove(t, held)
	asking.Wait()
	wantReady(t, m.ready(), 0, "")
	response := m.mustInfer(&infer.Request{})
	if got := response.Outputs[0].Data[0]; got < 2 || got > 9 {
		t.Errorf("is_ready was called %d times for 12 questions", got)
	}
	response.Release()
}

// TestIsReadyAndDeath kills the stub during a readiness check.
func TestIsReadyAndDeath(t *testing.T) {
	r := newFixture(t, nil)
	dir := r.writeModel("m", asking("def", `hold("ready"); return True`))
	held := filepath.Join(dir, "1", "ready")
	touch(t, held)
	m, err := r.open(dir, modelConfig("m", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 2)
	for range 2 {
		go func() { answered <- m.ready() }()
	}
	testkit.Eventually(t, patience, func() bool { return exists(held + ".begun") })
	m.kill()
	for range 2 {
		wantReady(t, <-answered, infer.Internal, `Stub process ('m_0_0' is not healthy\.|is not healthy while waiting for user-defined is_ready\(\) response)`)
	}
	remove(t, held)
	testkit.Eventually(t, patience, func() bool { return m.ready() == nil })
}

// TestIsReadyIsStopped closes the model during a readiness check.
func TestIsReadyIsStopped(t *testing.T) {
	r := newFixture(t, nil)
	dir := r.writeModel("m", asking("def", `hold("ready"); return True`))
	held := filepath.Join(dir, "1", "ready")
	touch(t, held)
	m, err := r.open(dir, modelConfig("m", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { answered <- m.ready() }()
	testkit.Eventually(t, patience, func() bool { return exists(held + ".begun") })
	m.close()
	wantReady(t, <-answered, infer.Internal, `Stub process is not healthy while waiting for user-defined is_ready\(\) response`)
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
