//go:build !race

package connections

// rawMost is ShortBytes, except in builds with the race detector.
const rawMost = ShortBytes
