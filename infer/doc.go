// Package infer defines requests, tensors, responses and the errors that clients see. It describes
// an inference independently of its origin (HTTP, gRPC or a model) and of its execution.
//
// Ownership of bytes: a Tensor's Data lies on the Go heap if its Memory is nil, otherwise in the
// memory of another owner. A package that keeps such bytes longer than the call that lent them
// retains the Memory and releases it when done. The inputs of a Request belong to its caller and do
// not change until Infer has returned. A Response belongs to the Sender that receives it, which
// calls Release once.
//
// Kinds of memory: the Go heap, a pool or arena of the server (Memory owns Data), or Foreign
// memory, whose bytes are only available after Localize has copied them. A backend.Mapper accepts
// Foreign memory without a copy. An output is in Foreign memory only if a backend has put it where
// Request.Places wants it (Tensor.InPlace). A Request has places only if no receiver of its
// response needs the bytes.
//
// Locks: there is no lock. One goroutine fills in a Request, including the results of validation
// (BatchSize, the shapes of a raw request). After that all goroutines only read it. Costs is
// updated atomically, and Memory counts its references atomically.
//
// The package imports no other package of this module except trace, and no function blocks.
package infer
