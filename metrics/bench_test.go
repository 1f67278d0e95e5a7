package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/metrics"
)

// BenchmarkSuccess measures Success with and without the histograms of the stages.
func BenchmarkSuccess(b *testing.B) {
	for name, without := range map[string]bool{"stages": false, "no stages": true} {
		b.Run(name, func(b *testing.B) {
			m := metrics.New(metrics.Config{NoStages: without}).Model("m", 1, metrics.ModelOptions{})
			b.ReportAllocs()
			for b.Loop() {
				m.Success(1, metrics.Durations{Total: 200_000, Queue: 20_000, Input: 10_000, Infer: 150_000, Output: 5_000})
			}
		})
	}
}

// counted is an http.ResponseWriter that counts the written bytes.
type counted struct {
	header http.Header
	bytes  int
}

func (c *counted) Header() http.Header         { return c.header }
func (*counted) WriteHeader(int)               {}
func (c *counted) Write(b []byte) (int, error) { c.bytes += len(b); return len(b), nil }

// BenchmarkPage renders the page of a thousand models: idle, used with the default buckets, and
// used with all buckets.
func BenchmarkPage(b *testing.B) {
	for _, tt := range []struct {
		name   string
		used   bool
		config metrics.Config
	}{{"idle", false, metrics.Config{}}, {"used", true, metrics.Config{}}, {"all buckets", true, metrics.Config{AllBuckets: true}}} {
		b.Run(tt.name, func(b *testing.B) {
			tt.config.Interval = time.Hour
			r := metrics.New(tt.config)
			var list []metrics.Process
			for i := range 1000 {
				name := fmt.Sprint("model_", i)
				m := r.Model(name, 1, metrics.ModelOptions{})
				r.StubStarted(name)
				m.Loaded(time.Duration(i) * 1234567)
				if tt.used {
					m.Success(1, metrics.Durations{Total: 200_000, Queue: 20_000, Input: 10_000, Infer: 150_000, Output: 5_000})
				}
				list = append(list, metrics.Process{Model: name, Version: 1, Instance: name + "_0_0", CPU: time.Second + time.Duration(i)*time.Millisecond, Resident: 30 << 20})
			}
			r.Processes(func() []metrics.Process { return list })
			request := httptest.NewRequest("GET", "/metrics", nil)
			var w counted
			b.ReportAllocs()
			for b.Loop() {
				w = counted{header: http.Header{}}
				r.Handler().ServeHTTP(&w, request)
			}
			b.ReportMetric(float64(w.bytes), "B/page")
		})
	}
}
