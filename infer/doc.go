// Package infer holds the words that all packages share: a request, its tensors,
// its responses and the errors that clients see.
//
// It describes one inference independently of how it arrived (HTTP, gRPC or a
// model that calls another) and of what executes it.
//
// Ownership of bytes: a Tensor's Data lies either on the Go heap, when its
// Memory is nil, or in the memory of another owner, when it is not. A package that
// keeps such bytes longer than the call that lent them retains the Memory and
// releases it when done. The inputs of a Request are its caller's and do not change
// until Infer has returned. A Response that reaches a Sender belongs to that Sender: it
// calls Release once, after the last byte has been written.
//
// Kinds of memory: a tensor lies on the Go heap (Memory is nil), in a pool or an arena of
// the server (Memory owns Data), or in Foreign memory, where only its size is known until
// Localize has copied it; a backend.Mapper takes it uncopied. Of outputs those alone lie in
// Foreign memory that a backend has put where Request.Places wants them (Tensor.InPlace), and
// a Request has places only where nothing on the way back needs the bytes: receivers of other
// Responses read the Data of their outputs.
//
// States and locks: there is none. A Request is filled in by one goroutine, and what
// validation adds (BatchSize, the shapes of a raw request) stands before a scheduler has
// it; after that all goroutines only read it. Costs is written by several at once, by
// atomic addition. Memory counts its references for all goroutines.
//
// Callers: every package. This one imports none of ours, and nothing in it blocks.
package infer
