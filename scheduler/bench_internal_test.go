package scheduler

import (
	"context"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

// BenchmarkBLSRequestThatWaits measures a BLS request that finds all instances busy and so checks
// for a deadlock.
func BenchmarkBLSRequestThatWaits(b *testing.B) {
	for _, c := range []struct {
		name  string
		steps []string
	}{
		{"for a client's", []string{"ask r a", "ask s b", "ask t b"}},
		{"for what waits", []string{"ask r a", "ask s b", "ask t b", "call q s c", "call p t c", "call o q d", "call n p d"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := NewWorld(b, "a1 b2 c2 d1")
			for _, step := range c.steps {
				if err := w.Step(step); err != nil {
					b.Fatal(err)
				}
			}
			d, outer := w.Models["b"], w.Asked["r"].request
			req := &infer.Request{Caller: infer.NewCaller("a", 1, []*infer.Request{outer}, true)}
			b.ReportAllocs()
			for b.Loop() {
				r := d.newRequest(context.Background(), req, func(*infer.Response) {})
				if _, err := d.begin(r); err != nil {
					b.Fatal(err)
				}
				d.cancel(r)
			}
		})
	}
}
