//go:build race

package connections

// rawMost has no call made without the runtime: the race detector knows of data that passes through
// the sockets of package syscall alone.
const rawMost = -1
