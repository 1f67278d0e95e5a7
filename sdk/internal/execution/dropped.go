package execution

import (
	"runtime"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

// WhenDropped calls f with argument, in a goroutine of the runtime's, some time after the author
// has dropped the object of p. The argument must not refer to that object.
func WhenDropped[T, A any](log zerolog.Logger, p *T, f func(A), argument A) {
	runtime.AddCleanup(p, func(argument A) {
		panics.Guard(log, panics.Memory, func() { f(argument) }, nil)()
	}, argument)
}
