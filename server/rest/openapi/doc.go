// Package openapi makes the OpenAPI 3.1 document of the models that a server serves, from their
// configurations: the paths of each model, with the names, types and shapes of its inputs and
// outputs, and the paths of the server itself.
//
// It owns nothing, has no state and keeps nothing; any goroutine may call it. A document is one
// block of the Go heap of some KiB for each model, whose number its caller bounds.
package openapi
