package process_test

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// pss returns a process's proportional set size in bytes.
func pss(b *testing.B, pid int) int64 {
	b.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == "Pss:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib << 10
		}
	}
	b.Fatalf("smaps_rollup of %d has no Pss", pid)
	return 0
}

// processorTime returns a process's CPU time in nanoseconds.
func processorTime(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		b.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return ns
}

// BenchmarkStart measures the time until all 32 instances of a model are ready, and the memory of
// one instance.
func BenchmarkStart(b *testing.B) {
	for _, start := range []string{"template", "program"} {
		b.Run(start, func(b *testing.B) {
			r := newFixture(b, func(c *python.Config) { c.NoTemplate = start == "program" })
			if _, _, _, err := r.backend.Interpreter(); err != nil {
				b.Fatal(err)
			}
			dir := r.copyModel("identity")
			var share int64
			for b.Loop() {
				m, err := r.open(dir, modelConfig("identity", 32, infer.FP32))
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				share = 0
				for _, in := range m.model.Instances() {
					share += pss(b, r.pid(in))
				}
				share /= 32
				m.close()
				b.StartTimer()
			}
			b.ReportMetric(float64(share)/(1<<20), "MiB/stub")
		})
	}
}

// BenchmarkRoundTrip executes one request after another. identity forwards its input, copies
// creates a new array.
func BenchmarkRoundTrip(b *testing.B) {
	for _, model := range []string{"identity", "copies"} {
		for _, size := range []int{16, 4096, 64 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("%s/%d", model, size), func(b *testing.B) {
				r := newFixture(b, nil)
				m := r.in(b).start(model, infer.Uint8)
				request := &infer.Request{Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, int64(size)}, testkit.Pattern(size, 1))}}
				defer releaseInputs(request)
				done := make(chan struct{}, 1)
				var response *infer.Response
				task := &backend.Task{Request: request, Send: func(answer *infer.Response) {
					response = answer
					done <- struct{}{}
				}}
				batch := &backend.Batch{Tasks: []*backend.Task{task}, Done: func(_ *backend.Batch, report backend.Report) {
					if report.Refused {
						b.Error("batch was refused")
						done <- struct{}{}
					}
				}}
				in := m.instance()
				pid := m.pid()
				before := processorTime(b, pid)
				for b.Loop() {
					in.Execute(batch)
					in.Await(done)
					<-done
					if response == nil || response.Err != nil {
						b.Fatalf("got response %+v", response)
					}
					response.Release()
				}
				b.ReportMetric(float64(processorTime(b, pid)-before)/float64(b.N), "stub-ns/op")
				m.close()
			})
		}
	}
}
