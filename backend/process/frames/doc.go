// Package frames encodes and decodes the frames of a stub: it turns requests and responses of
// package infer into bodies and descriptors, and back. Package ipc transports the frames and knows
// their layout; package shm holds tensor bytes that do not travel in them.
//
//	infer.Request  ─▶ Encoder.Execute                  EXECUTE         ─┐
//	infer.Response ─▶ Encoder.Prepare ─▶ Response.Send   INFER_RESPONSE  ─┤
//	a struct       ─▶ EncodeMap ─▶ Encoder.Send        all other kinds ─┴▶ ipc ─▶ stub
//
//	infer.Response ◀─ Decoder.Response                 EXECUTED, RESPONSE ◀┬─ ipc ◀─ stub
//	infer.Request  ◀─ Decoder.Request                  INFER              ◀┤
//	a struct       ◀─ DecodeMap                        all other kinds    ◀┘
//
// A tensor has storage while a frame names it: in the frame, in a block of the requests pool, or in
// the stub's arena. storage.go has the type for both directions; a body that is too long for a
// frame has storage too (spill.go). Another kind of memory becomes another region: storage.go and
// located.go alone choose, lend, describe and locate it.
//
// Names of tensors travel as indices into a table for each direction. It starts with the names of
// INITIALIZE and grows by NAME.
//
// Outgoing data passes the door (door.go, decision 0015): data that a stub could not hold or decode
// is rejected, as an *infer.Error for its requests. Incoming data is not trusted: it is read once,
// checked, and only then used. An *ipc.ProtocolError ends the life of the stub. A lack of memory is
// not a protocol error.
//
// One life of a stub has one Encoder and one Decoder, and closes their channel and loans. The
// package keeps no other state and starts no goroutine.
//
// Locks: Execute and Response.Send are called under one lock of the caller's, and all
// methods of a Decoder under the channel's receive lock. Send, Prepare, Copy and their results need
// no lock. Inside, the locks of loans, pool and arena are taken briefly, and the lock behind
// Mapped.
//
// An input in a client's region that the stub has mapped stays there (shared.go): this process does
// not touch its bytes, and the loan holds the region. An output that the stub has written to its
// client's place is located by comparing places. The request holds the region until its final
// response; after that the output's Memory does.
//
// Memory: a block that is sent is lent by ticket, and the loan holds it until the stub returns the
// ticket or the life ends. A tensor that has arrived holds its block, its extent of the arena or
// its private copy until it is released. Block and extent keep their file mapped, even after the
// end of the life. Bytes of small tensors lie in the body of the frame, a private copy on the Go
// heap. Decoded data is charged to the life first (Heap).
package frames
