package backend

import "github.com/nereid-serving/nereid/infer"

// Unhealthy returns Triton's error for a request that a lost instance had, or that only a lost
// instance could execute. Clients recognise the text.
func Unhealthy(instance string) *infer.Error {
	return infer.Errorf(infer.Internal, "Stub process '%s' is not healthy.", instance)
}
