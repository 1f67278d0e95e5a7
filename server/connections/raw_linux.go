//go:build !race

package connections

// rawMost is the most bytes of a call that the Go runtime is not told of. It takes some 20 µs, for
// which the garbage collector and the other goroutines of this processor wait.
const rawMost = 64 << 10
