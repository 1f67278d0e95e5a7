package execution

import (
	"runtime"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

// WhenDropped calls f with argument, in a goroutine of the runtime's, some time after an author
// has dropped what p points to, or into. The argument knows nothing of that.
func WhenDropped[T, A any](log zerolog.Logger, p *T, f func(A), argument A) {
	runtime.AddCleanup(p, func(argument A) {
		panics.Guard(log, panics.Memory, func() { f(argument) }, nil)()
	}, argument)
}
