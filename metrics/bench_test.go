package metrics

import "testing"

// BenchmarkSuccess counts one request, with and without the histograms of its stages.
func BenchmarkSuccess(b *testing.B) {
	for name, without := range map[string]bool{"stages": false, "no stages": true} {
		b.Run(name, func(b *testing.B) {
			m := New(Config{NoStages: without}).Model("m", 1, ModelOptions{})
			b.ReportAllocs()
			for b.Loop() {
				m.Success(1, Durations{Total: 200_000, Queue: 20_000, Input: 10_000, Infer: 150_000, Output: 5_000})
			}
		})
	}
}
