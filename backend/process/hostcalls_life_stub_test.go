package process_test

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestMetricsOfDeadStubs kills a stub that has its own series and shares one with another instance.
// Its own series are removed and start again at 0.
func TestMetricsOfDeadStubs(t *testing.T) {
	r := newFixture(t, nil)
	const source = `
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily("lives", "d", pb_utils.MetricFamily.COUNTER)
        self.common = self.family.Metric(labels={"of": "all"})
        self.own = self.family.Metric(labels={"of": args["model_instance_name"]})
        self.common.increment(1)

    def execute(self, requests):
        self.own.increment(1)
        return [pb_utils.InferenceResponse([]) for _ in requests]
`
	m, err := r.open(r.writeModel("lives", source), modelConfig("lives", 2, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	request := r.small()
	defer releaseInputs(request)
	m.mustInfer(request).Release()
	r.wantLines(`lives{of="all"} 2`, `lives{of="lives_0_0"} 1`, `lives{of="lives_0_1"} 0`)

	lost := r.counts.of(&r.counts.lost)
	m.kill()
	testkit.Eventually(t, patience, func() bool { return r.counts.of(&r.counts.lost) > lost })
	testkit.Eventually(t, patience, func() bool { return strings.Contains(r.exposition(), "\nlives{of=\"all\"} 3\n") })
	r.wantLines(`lives{of="lives_0_0"} 0`)
	// If the model is closed earlier, its new stub has not started, and its metrics are dropped.
	testkit.Eventually(t, patience, func() bool { return r.counts.of(&r.counts.again) == 1 })
	m.close()
	r.wantLines(`lives{of="all"} 3`, `lives{of="lives_0_0"} 0`)

	// After a reload, the remaining metrics continue.
	if m, err = r.open(m.dir, modelConfig("lives", 1, infer.Uint8)); err != nil {
		t.Fatal(err)
	}
	r.wantLines(`lives{of="all"} 4`)
	m.close()
}

// TestMetricsThatAreDropped checks that metrics dropped in finalize are removed, unlike those that
// end with the model object.
func TestMetricsThatAreDropped(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("asks", infer.Uint8)
	m.rows([]callCase{{
		`F = pb.MetricFamily
a, b = F("dropped", "d", F.GAUGE), F("left", "d", F.GAUGE)
am, bm = a.Metric(), b.Metric()
at_the_end = "exec('del names[\"am\"], names[\"a\"]', {'names': globals()})"`, "done",
	}})
	r.wantLines("dropped 0", "left 0")
	m.close()
	r.wantLines("left 0")
	if text := r.exposition(); strings.Contains(text, "dropped") {
		t.Errorf("a series is shown that was dropped in finalize:\n%s", text)
	}
}

// TestMetricsOfFailedModels checks that a model whose initialize fails leaves no metrics.
func TestMetricsOfFailedModels(t *testing.T) {
	r := newFixture(t, nil)
	_, err := r.open(r.writeModel("fails", `
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily("of_failure", "d", pb_utils.MetricFamily.GAUGE)
        self.family.Metric().set(1)
        raise ValueError("no")
`), modelConfig("fails", 1, infer.Uint8))
	if err == nil {
		t.Fatal("Start: got no error")
	}
	if text := r.exposition(); strings.Contains(text, "of_failure") {
		t.Errorf("series of a model that failed are shown:\n%s", text)
	}
}

// TestCallsDoNotFreeze checks that other threads can compute, log, change metrics and make calls
// while threads wait for loads. Replies come in a different order.
func TestCallsDoNotFreeze(t *testing.T) {
	r := newFixture(t, nil)
	host := &callHost{held: make(chan struct{})}
	r.host = host
	m := r.start("asks", infer.Uint8)
	m.rows([]callCase{
		{`outcomes = []
def load(n):
    pb.load_model(str(n))
    outcomes.append(n)
threads = [threading.Thread(target=load, args=(n,)) for n in range(50)]
for thread in threads: thread.start()
F = pb.MetricFamily
family = F("busy", "d", F.COUNTER)
metric = family.Metric()`, "done"},
		{"[metric.increment(1) for _ in range(1000)].count(None), metric.value(), pb.is_model_ready('there'), outcomes", "(1000, 1000.0, True, [])"},
		{"pb.Logger.log_info('while loads wait')", "None"},
	})
	close(host.held)
	m.rows([]callCase{{"[thread.join() for thread in threads].count(None), sorted(outcomes) == list(range(50))", "(50, True)"}})
	testkit.Eventually(t, patience, func() bool { return strings.Contains(r.log.String(), "while loads wait") })
}

// TestMetricsSurviveManyThreads changes shared series from many threads.
func TestMetricsSurviveManyThreads(t *testing.T) {
	eachPython(t, func(t *testing.T, r *fixture) {
		m := r.start("asks", infer.Uint8)
		m.rows([]callCase{{`import gc
F = pb.MetricFamily
total = F("storm", "d", F.COUNTER)
everything = total.Metric({"n": "all"})
sizes = F("storm_sizes", "d", F.HISTOGRAM).Metric
errors = []
def work(n):
    try:
        mine = total.Metric({"n": str(n)})
        for i in range(300):
            everything.increment(1)
            mine.increment(0.5)
            if i % 10 == 0:
                passing = F("storm_passing", "d", F.GAUGE)
                passing.Metric({"n": str(i % 3)}).set(i)
                if mine.value() != (i + 1) * 0.5: errors.append((n, i, mine.value()))
                cycle = [passing]; cycle.append(cycle); del passing, cycle
    except BaseException as error:
        errors.append(error)
threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
gc.collect()`, "done"},
			{"errors, everything.value(), total.Metric({'n': '7'}).value()", "([], 4800.0, 150.0)"},
		})
		if text := r.exposition(); strings.Contains(text, "storm_passing") {
			t.Errorf("families that went by are still shown:\n%s", text)
		}
	})
}

// TestCallsInOddPlaces makes calls from destructors and signal handlers, which interrupt the thread
// that talks to the server, and from forked children, which are not the stub.
func TestCallsInOddPlaces(t *testing.T) {
	eachPython(t, func(t *testing.T, r *fixture) {
		r.host = &callHost{}
		m := r.start("asks", infer.Uint8)
		m.rows([]callCase{
			{`import gc, os, signal, time
F = pb.MetricFamily
family = F("odd", "d", F.COUNTER)
metric = family.Metric()
told = set()
def ask():
    metric.increment(1)
    try:
        metric.value()
        told.add("a value")
    except pb.TritonModelException as error:
        told.add(str(error))
class Noisy:
    def __del__(self): ask()
armed = True
def handle(*_):
    ask()
    if armed: signal.setitimer(signal.ITIMER_REAL, 0.001)
signal.signal(signal.SIGALRM, handle)
handle()
for i in range(3000):
    metric.increment(1)
    cycle = [Noisy()]
    cycle.append(cycle)
    if i % 50 == 0: metric.value()
gc.collect()
end = time.time() + 0.2
while time.time() < end: metric.value()
armed = False`, "done"},
			{"'a value' in told, [t for t in told if t != 'a value' and 'is not possible in a signal handler or destructor' not in t], metric.value() > 6000", "(True, [], True)"},
			{`reader, writer = os.pipe()
child = os.fork()
if child == 0:
    said = []
    for call in (lambda: metric.increment(1), metric.value, lambda: F("child", "d", F.GAUGE), lambda: pb.load_model("m")):
        try: call()
        except pb.TritonModelException as error: said.append("model that the model" if "process that the model forked" in str(error) else str(error))
        except BaseException as error: said.append(repr(error))
    family = metric = None
    os.write(writer, repr(said).encode())
    os._exit(0)
os.close(writer)
said = os.read(reader, 10000).decode()
os.close(reader)
os.waitpid(child, 0)`, "done"},
			{"said", `"['model that the model', 'model that the model', 'model that the model', 'model that the model']"`},
			{"metric.value() > 6000", "True"},
		})
	})
}

// TestCallsOfDeadStubs checks that a stub's calls are cancelled when it dies.
func TestCallsOfDeadStubs(t *testing.T) {
	r := newFixture(t, nil)
	host := &callHost{held: make(chan struct{})}
	r.host = host
	m := r.start("asks", infer.Uint8)
	m.rows([]callCase{{"threading.Thread(target=pb.load_model, args=('slow',), daemon=True).start()", "None"}})
	testkit.Eventually(t, patience, func() bool { return strings.Contains(host.take(), `load "slow"`) })
	m.kill()
	testkit.Eventually(t, patience, func() bool { return strings.Contains(host.take(), "given up slow") })
	m.rows([]callCase{{"1 + 1", "2"}}) // in a new life
}

// TestTooManyHostCallsAreRefused checks that calls beyond the limit per stub are refused and the
// others continue.
func TestTooManyHostCallsAreRefused(t *testing.T) {
	r := newFixture(t, nil)
	host := &callHost{held: make(chan struct{})}
	r.host = host
	m := r.start("asks", infer.Uint8)
	m.rows([]callCase{
		{`outcomes = []
def load():
    try: outcomes.append(pb.load_model("m"))
    except pb.TritonModelException as error: outcomes.append(str(error))
threads = [threading.Thread(target=load) for n in range(300)]
for thread in threads: thread.start()
while len(outcomes) < 44: pass`, "done"},
		{"set(outcomes)", `{"Failed to load model: Failed to process the request for model 'asks_0_0', message: 256 calls of…`},
	})
	close(host.held)
	m.rows([]callCase{{"[thread.join() for thread in threads].count(None), outcomes.count(None)", "(300, 256)"}})
}
