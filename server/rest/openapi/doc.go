// Package openapi generates the OpenAPI 3.1 document of the served models from their
// configurations: the paths of each model, with the names, types and shapes of its inputs and
// outputs, and the paths of the server itself.
//
// It has no state. A document is one block of the Go heap of a few KiB for each model, whose number
// its caller bounds.
package openapi
