// Package sdk is what authors of backends in Go write against. A backend executes models, as Triton's C++ backends do, with the same
// hooks in the same order and the same rules of ownership; docs/backends.md tells them, and how a backend is run.
package sdk
