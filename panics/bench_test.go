package panics

import (
	"testing"

	"github.com/rs/zerolog"
)

// BenchmarkRun measures a call behind a boundary.
func BenchmarkRun(b *testing.B) {
	log := zerolog.Nop()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		_ = Run(log, Request, func() error { n++; return nil })
	}
}
