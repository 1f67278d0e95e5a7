package process_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
)

// sharing is a model whose instances meet in their module. OUT0 of a request is the number of the
// instance, unless the command in IN0 has another result.
const sharing = `
import asyncio, concurrent.futures, gc, os, sys, threading, time
import c_python_backend_utils
import numpy as np
import triton_python_backend_utils as pb_utils

instances = []
kept = []
together = threading.Barrier(3)
pool = concurrent.futures.ThreadPoolExecutor(1)
owner = lambda: c_python_backend_utils.runtime.current().instance()

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_instance_name"]
        # From Python 3.14 on, the main thread has no loop before one is set.
        self.has_loop = sys.version_info < (3, 14) or threading.current_thread() is not threading.main_thread()
        self.loop = asyncio.get_event_loop() if self.has_loop else None
        if self.name.endswith("_9"):
            raise ValueError("no tenth instance")
        instances.append(self)

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        data = pb_utils.get_input_tensor_by_name(request, "IN0").as_numpy()
        command = data.tobytes()[:8].rstrip(b"\0").decode()
        out = np.frombuffer(self.name[-1].encode(), np.uint8)
        if command == "meet":
            together.wait(30)
        elif command == "keep":
            kept[:] = [data]
        elif command == "take":
            out = kept[0]
        elif command == "count":
            out = np.frombuffer(str(len(instances)).encode(), np.uint8)
        elif command == "owner":
            found = []
            thread = threading.Thread(target=lambda: found.append(owner()))
            thread.start()
            thread.join()
            out = np.frombuffer(found[0].encode(), np.uint8)
        elif command == "loop":
            out = np.frombuffer(str(not self.has_loop or asyncio.get_event_loop() is self.loop).encode(), np.uint8)
        elif command == "collect":
            gc.collect()
        elif command == "pool":
            out = np.frombuffer(pool.submit(owner).result().encode(), np.uint8)
        elif command == "exit":
            os._exit(3)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", out.reshape(1, -1))])

    def finalize(self):
        instances.remove(self)
        print("finalized", self.name, flush=True)
        if os.path.exists(os.path.join(os.path.dirname(__file__), "hang")):
            time.sleep(1000)
`

// sharingProcess starts the model with three instances in one process.
func sharingProcess(t *testing.T, interpreter string, change func(*python.Config)) (*fixture, *running) {
	t.Helper()
	r := newFixtureWith(t, interpreter, func(c *python.Config) {
		c.Threads = python.ThreadsOn
		if change != nil {
			change(c)
		}
	})
	m, err := r.open(r.writeModel("m", sharing), modelConfig("m", 3, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	return r, m
}

// command sends a command, padded to a number of bytes, to one instance.
func (m *running) command(in backend.Instance, command string, size int) string {
	data := make([]byte, size)
	copy(data, command)
	q := &infer.Request{Inputs: []infer.Tensor{m.fixture.tensor("IN0", infer.Uint8, []int64{1, int64(size)}, data)}}
	defer releaseInputs(q)
	response := (&running{fixture: m.fixture, model: modelOfOne{m.model, in}}).mustInfer(q)
	defer response.Release()
	return string(response.Outputs[0].Data)
}

// openFiles counts the descriptors and the mapped shared memory of a process.
func openFiles(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list) + strings.Count(string(maps), "memfd:")
}

// pids returns the processes of the instances.
func (m *running) pids() map[int]bool {
	pids := make(map[int]bool)
	for _, in := range m.model.Instances() {
		pids[m.fixture.pid(in)] = true
	}
	return pids
}

// TestInstancesShareAProcess checks that the instances of a group are threads of one process, which
// execute at the same time and have one copy of the module.
func TestInstancesShareAProcess(t *testing.T) {
	for _, interpreter := range testkit.Pythons(t) {
		t.Run(interpreter.String(), func(t *testing.T) {
			_, m := sharingProcess(t, interpreter.Path, nil)
			if pids := m.pids(); len(pids) != 1 {
				t.Errorf("the instances are in the processes %v, want one", pids)
			}
			var meeting sync.WaitGroup
			for i, in := range m.model.Instances() {
				meeting.Go(func() {
					if got := m.command(in, "meet", 8); got != string(rune('0'+i)) {
						t.Errorf("instance %d answered as %s", i, got)
					}
				})
			}
			meeting.Wait()
			all := m.model.Instances()
			if got := m.command(all[1], "owner", 8); got != "m_0_1" {
				t.Errorf("a thread of instance 1 belongs to %q", got)
			}
			if got := m.command(all[2], "loop", 8); got != "True" {
				t.Errorf("instance 2 has another loop than in initialize: %s", got)
			}
			// An input that one instance keeps is another's output.
			for _, size := range []int{8, 100 << 10, 1 << 20} {
				m.command(all[0], "keep", size)
				want := append([]byte("keep"), make([]byte, size-4)...)
				for _, in := range all {
					for range 3 { // the encoded form is kept
						if got := m.command(in, "take", 8); !bytes.Equal([]byte(got), want) {
							t.Errorf("%s: got %d bytes, want %d", in.Name(), len(got), size)
						}
					}
				}
			}
			m.close()
		})
	}
}

// TestSharedProcessIsHealed checks that all instances return after the loss of their process, in
// one new process.
func TestSharedProcessIsHealed(t *testing.T) {
	r, m := sharingProcess(t, testkit.Python(t).Path, nil)
	before := m.pid()
	for round := 1; round <= 3; round++ {
		q := &infer.Request{Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, 8}, []byte("exit\x00\x00\x00\x00"))}}
		responses, _ := m.infer(q)
		if err := responses[0].Err; err == nil || err.Message != "Stub process 'm_0_0' is not healthy." {
			t.Errorf("got error %v", err)
		}
		releaseAll(responses)
		testkit.Eventually(t, patience, func() bool { return r.counts.of(&r.counts.again) == 3*round })
		for i, in := range m.model.Instances() {
			if got := m.command(in, "", 8); got != string(rune('0'+i)) {
				t.Errorf("instance %d answered as %s", i, got)
			}
		}
		if pids := m.pids(); len(pids) != 1 || pids[before] {
			t.Errorf("the instances are in the processes %v, before in %d", pids, before)
		}
		before = m.pid()
	}
}

// TestInstancesComeAndGoInASharedProcess adds and removes instances, the first one included, while
// the process goes on.
func TestInstancesComeAndGoInASharedProcess(t *testing.T) {
	r, m := sharingProcess(t, testkit.Python(t).Path, nil)
	pid := m.pid()
	exchanger := m.model.Capabilities().Exchanger
	grow := func(count int32) (surplus []backend.Instance, err error) {
		c, text := groupsOf(t, modelConfig("m", 1, infer.Uint8), &kserve.ModelInstanceGroup{Name: "m_0", Kind: kserve.ModelInstanceGroup_KIND_CPU, Count: count})
		_, surplus, err = exchanger.Grow(t.Context(), c, text)
		return surplus, err
	}
	files := 0
	for round := range 6 {
		if round == 2 { // everything that is made once is there
			files = openFiles(t, pid)
		}
		if _, err := grow(6); err != nil {
			t.Fatal(err)
		}
		all := m.model.Instances()
		if pids := m.pids(); len(all) != 6 || !pids[pid] || len(pids) != 1 {
			t.Fatalf("%d instances are in the processes %v, want %d", len(all), pids, pid)
		}
		if got := m.command(all[5], "count", 8); got != "6" {
			t.Errorf("the module has %s instances, want 6", got)
		}
		surplus, err := grow(1)
		if err != nil || len(surplus) != 5 {
			t.Fatalf("got %v, %v", surplus, err)
		}
		for _, in := range surplus {
			if err := exchanger.End(t.Context(), in); err != nil {
				t.Error(err)
			}
		}
		if got := m.command(m.model.Instances()[0], "count", 8); got != "1" {
			t.Errorf("the module has %s instances, want 1", got)
		}
	}
	testkit.Eventually(t, patience, func() bool {
		m.command(m.model.Instances()[0], "collect", 8) // some objects end only then
		return openFiles(t, pid) <= files
	})

	// Arrays of an instance that has ended keep their bytes, and its executor works for the others.
	if _, err := grow(2); err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	ended := m.model.Instances()[1]
	m.command(ended, "keep", size)
	if got := m.command(ended, "pool", 8); got != "m_0_1" {
		t.Errorf("the executor of instance 1 works for %s", got)
	}
	if surplus, err := grow(1); err != nil || exchanger.End(t.Context(), surplus[0]) != nil {
		t.Fatalf("got %v, %v", surplus, err)
	}
	for range 20 {
		m.command(m.model.Instances()[0], "other", size) // in the same block
	}
	if got := m.command(m.model.Instances()[0], "take", 8); !strings.HasPrefix(got, "keep\x00") || len(got) != size {
		t.Errorf("the array now begins with %q", got[:8])
	}
	if got := m.command(m.model.Instances()[0], "pool", 8); got != "m_0_0" {
		t.Errorf("the executor of an instance that has ended works for %s", got)
	}

	// A start that fails does not end those that serve.
	if _, err := grow(10); err == nil || !strings.HasPrefix(err.Error(), "ValueError: no tenth instance") {
		t.Errorf("got error %v", err)
	}
	if got := m.command(m.model.Instances()[0], "count", 8); r.pid(m.model.Instances()[0]) != pid {
		t.Errorf("process %d has %s instances, want process %d", r.pid(m.model.Instances()[0]), got, pid)
	}

	// The instance that started the process ends before the others.
	if _, err := grow(3); err != nil {
		t.Fatal(err)
	}
	all := m.model.Instances()
	if err := exchanger.End(t.Context(), all[0]); err != nil {
		t.Error(err)
	}
	if got := m.command(all[2], "count", 8); got != "2" || r.pid(all[2]) != pid {
		t.Errorf("the module of process %d has %s instances, want 2 in %d", r.pid(all[2]), got, pid)
	}
	m.close()
	if lost := r.counts.of(&r.counts.lost); lost != 0 {
		t.Errorf("%d processes were lost, want none", lost)
	}
}

// TestSharedProcessFailsToStart checks that a load fails with the error of the instance that does
// not start, and ends the others.
func TestSharedProcessFailsToStart(t *testing.T) {
	r := newFixture(t, func(c *python.Config) { c.Threads = python.ThreadsOn })
	for range 5 {
		_, err := r.open(r.writeModel("m", sharing), modelConfig("m", 10, infer.Uint8))
		if err == nil || !strings.HasPrefix(err.Error(), "ValueError: no tenth instance") {
			t.Fatalf("got error %v", err)
		}
	}
	testkit.Eventually(t, patience, func() bool { return r.supervisor.Children().Count() == 1 }) // the template
}

// TestSharedProcessThatHangsInFinalize checks that an instance which does not finalize in time ends
// its process, and that the others return.
func TestSharedProcessThatHangsInFinalize(t *testing.T) {
	r, m := sharingProcess(t, testkit.Python(t).Path, func(c *python.Config) { c.FinalizeTimeout = 100e6 })
	testkit.WriteFiles(t, m.dir, map[string]string{"1/hang": ""})
	before := m.pid()
	all := m.model.Instances()
	if err := m.model.Capabilities().Exchanger.End(t.Context(), all[2]); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, patience, func() bool { return r.counts.of(&r.counts.again) == 2 })
	for i, in := range m.model.Instances() {
		if got := m.command(in, "", 8); got != string(rune('0'+i)) {
			t.Errorf("instance %d answered as %s", i, got)
		}
	}
	if pids := m.pids(); len(pids) != 1 || pids[before] {
		t.Errorf("the instances are in the processes %v, before in %d", pids, before)
	}
}

// TestGroupsHaveProcessesOfTheirOwn checks that only instances of the same group share a process.
func TestGroupsHaveProcessesOfTheirOwn(t *testing.T) {
	r := newFixture(t, func(c *python.Config) { c.Threads = python.ThreadsOn })
	config, _ := groupsOf(t, modelConfig("m", 1, infer.Uint8),
		&kserve.ModelInstanceGroup{Name: "a", Kind: kserve.ModelInstanceGroup_KIND_CPU, Count: 2},
		&kserve.ModelInstanceGroup{Name: "b", Kind: kserve.ModelInstanceGroup_KIND_CPU, Count: 2})
	m, err := r.open(r.writeModel("m", sharing), config)
	if err != nil {
		t.Fatal(err)
	}
	all := m.model.Instances()
	if a, b := r.pid(all[0]), r.pid(all[2]); r.pid(all[1]) != a || r.pid(all[3]) != b || a == b {
		t.Errorf("the instances are in %v", m.pids())
	}
	// Each process is counted once.
	var seen int
	for _, p := range r.supervisor.Processes() {
		if p.Resident > 0 {
			seen++
		}
	}
	if seen != 2 {
		t.Errorf("the memory of %d processes is reported, want 2", seen)
	}
}

// TestSharedProcessWhoseDescriptorsAreClosed checks that a model may close all descriptors that it
// can know of, as programs that become daemons do.
func TestSharedProcessWhoseDescriptorsAreClosed(t *testing.T) {
	r := newFixture(t, func(c *python.Config) { c.Threads = python.ThreadsOn })
	// The first instance does it, before the others have descriptors of their own.
	source := strings.Replace(sharing, "        instances.append(self)", "        instances or os.closerange(3, 1024)\n        instances.append(self)", 1)
	m, err := r.open(r.writeModel("m", source), modelConfig("m", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	c, text := groupsOf(t, modelConfig("m", 1, infer.Uint8), &kserve.ModelInstanceGroup{Name: "m_0", Kind: kserve.ModelInstanceGroup_KIND_CPU, Count: 3})
	if _, _, err := m.model.Capabilities().Exchanger.Grow(t.Context(), c, text); err != nil {
		t.Fatal(err)
	}
	for i, in := range m.model.Instances() {
		if got := m.command(in, "", 8); got != string(rune('0'+i)) {
			t.Errorf("instance %d answered as %s", i, got)
		}
	}
}

// TestReasonForTheEndOfASharedProcess checks that the log gives the reason for all instances if the
// server has killed their process because of one.
func TestReasonForTheEndOfASharedProcess(t *testing.T) {
	r, m := sharingProcess(t, testkit.Python(t).Path, func(c *python.Config) { c.ExecuteTimeout = 300e6 })
	q := &infer.Request{Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, 8}, []byte("meet\x00\x00\x00\x00"))}}
	responses, _ := m.infer(q) // waits for the others in vain
	if responses[0].Err == nil {
		t.Error("got a response, want an error")
	}
	releaseAll(responses)
	testkit.Eventually(t, patience, func() bool { return r.counts.of(&r.counts.again) == 3 })
	if n := strings.Count(r.log.String(), "another instance in its process failed: "); n != 2 {
		t.Errorf("the log has the reason for %d other instances, want 2", n)
	}
}
