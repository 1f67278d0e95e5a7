// Package frames is what the frames of a stub hold: it turns requests and responses of
// package infer into bodies and descriptors, and back. Package ipc carries the frames and
// knows their layout; package shm holds the bytes that do not travel in them.
//
//	infer.Request  ─▶ Encoder.Execute                  EXECUTE         ─┐
//	infer.Response ─▶ Encoder.Place ─▶ Response.Send   INFER_RESPONSE  ─┤
//	a struct       ─▶ EncodeMap ─▶ Encoder.Send        all other kinds ─┴▶ ipc ─▶ stub
//
//	infer.Response ◀─ Decoder.Response                 EXECUTED, RESPONSE ◀┬─ ipc ◀─ stub
//	infer.Request  ◀─ Decoder.Request                  INFER              ◀┤
//	a struct       ◀─ DecodeMap                        all other kinds    ◀┘
//
// A tensor has a place for as long as a frame names it: in the frame, in a block of the
// requests pool, or in the stub's arena. place.go has the one type for that, in either
// direction; a body that is too long for a frame has a place too (spill.go). A further
// kind of memory is a further region of a place: how it is chosen, lent and described, or
// how it is located, stands there and in located.go, and nowhere else.
//
// Names of tensors travel as indices in a table for each direction, which begins with the
// names of INITIALIZE and grows by NAME.
//
// What goes out passes the door (door.go, decision 0015): what a stub could not hold or
// decode is refused, as an *infer.Error for the requests that it is about. What comes in
// is not trusted: read once, checked, and only then used; an error that is an
// *ipc.ProtocolError ends the life of the stub. A lack of memory is neither.
//
// Callers: one life of a stub has one Encoder and one Decoder, whose channel and loans it
// closes. The package keeps nothing else and starts no goroutine.
//
// Locks: it has none. SetNames, Execute and Response.Send are called under one lock of
// the caller's, and all methods of a Decoder under the channel's receive lock; Send,
// Place, Copy and what they return need neither. The locks of loans, pool and arena are
// taken inside, for a few instructions, and that of what answers Mapped.
//
// An input in a client's region that the stub has mapped stays where it is (shared.go): this
// process does not touch its bytes, and the loan keeps the region. An output that the stub has
// written where its client wants it is located by comparing places; the request keeps the
// region until it is answered, and the output's Memory does from then on.
//
// Memory: a block that is sent is lent by ticket, and the loan keeps it until the stub
// gives the ticket back or the life ends. A tensor that has come keeps its block, its
// extent of the arena or its private copy until it is released; block and extent keep
// their file mapped, also after the end of the life. Bytes of small tensors lie in the
// body of the frame, which is a private copy on the Go heap.
package frames
