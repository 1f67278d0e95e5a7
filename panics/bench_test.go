package panics_test

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

// BenchmarkRun measures a call of Run without a panic.
func BenchmarkRun(b *testing.B) {
	log := zerolog.Nop()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		_ = panics.Run(log, panics.Request, func() error { n++; return nil })
	}
}
