package panics

import (
	"testing"

	"github.com/rs/zerolog"
)

// BenchmarkRun is what a call behind a boundary costs.
func BenchmarkRun(b *testing.B) {
	log := zerolog.Nop()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		_ = Run(log, Request, func() error { n++; return nil })
	}
}
