package plugin_test

import (
	"fmt"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// BenchmarkRoundTrip executes one request after another. identity forwards its input, copies
// creates a new output.
func BenchmarkRoundTrip(b *testing.B) {
	for _, model := range []string{"identity", "copies"} {
		for _, size := range []int{4, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("%s/%d", model, size), func(b *testing.B) {
				r := newFixture(b)
				m := r.start(model, nil)
				defer m.close()
				request := r.request(testkit.Pattern(size, 1))
				defer request.Inputs[0].Release()
				done := make(chan struct{}, 1)
				var response *infer.Response
				task := &backend.Task{Context: b.Context(), Request: request, Send: func(answer *infer.Response) {
					response = answer
					done <- struct{}{}
				}}
				batch := &backend.Batch{Tasks: []*backend.Task{task}, Done: func(*backend.Batch, backend.Report) {}}
				awaiter := m.instance.Capabilities().Awaiter
				for b.Loop() {
					m.instance.Execute(batch)
					awaiter.Await(done)
					<-done
					if response == nil || response.Err != nil {
						b.Fatalf("got response %+v", response)
					}
					response.Release()
				}
			})
		}
	}
}
