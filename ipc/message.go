package ipc

import (
	"encoding/binary"
	"fmt"
)

// Kind is the type of a frame. The numbers are written out because the stub knows them too; none is
// ever reused.
type Kind uint16

// The kinds of frames. The supervisor sends the first group, the stub the second; Name goes both
// ways.
const (
	Pad         Kind = 0
	Initialize  Kind = 1
	Execute     Kind = 2
	Finalize    Kind = 3
	Cancel      Kind = 4
	Name        Kind = 5
	LogSettings Kind = 6

	ReadyQuestion Kind = 7
	InferResponse Kind = 8
	Result        Kind = 9
	Credit        Kind = 10
	AutoComplete  Kind = 12
	Map           Kind = 13
	Unmap         Kind = 14
	Allocation    Kind = 15
	Freed         Kind = 16

	Hello       Kind = 65
	Initialized Kind = 66
	Executed    Kind = 67
	Finalized   Kind = 68
	Response    Kind = 69
	Released    Kind = 70
	Log         Kind = 71

	ReadyAnswer Kind = 72
	Infer       Kind = 73
	Call        Kind = 74
	Completed   Kind = 75
	Demand      Kind = 76
	StopInfer   Kind = 77
	Metric      Kind = 78
	Mapped      Kind = 79
	Lend        Kind = 80
	Unlend      Kind = 81
)

var kindNames = map[Kind]string{
	Pad: "PAD", Initialize: "INITIALIZE", Execute: "EXECUTE", Finalize: "FINALIZE", Cancel: "CANCEL", Name: "NAME",
	LogSettings: "LOG_SETTINGS", Credit: "CREDIT", Hello: "HELLO", Initialized: "INITIALIZED", Executed: "EXECUTED",
	Finalized: "FINALIZED", Response: "RESPONSE", Released: "RELEASED", Log: "LOG",
	InferResponse: "INFER_RESPONSE", Infer: "INFER", Demand: "DEMAND", StopInfer: "STOP_INFER",
	AutoComplete: "AUTO_COMPLETE", Completed: "COMPLETED", ReadyQuestion: "READY?", ReadyAnswer: "READY",
	Result: "RESULT", Call: "CALL", Metric: "METRIC",
	Map: "MAP", Unmap: "UNMAP", Mapped: "MAPPED",
	Allocation: "ALLOCATION", Freed: "FREED", Lend: "LEND", Unlend: "UNLEND",
}

// String returns the name that docs/protocol.md uses.
func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return fmt.Sprintf("kind %d", uint16(k))
}

// Sizes of the protocol, in bytes.
const (
	HeaderSize     = 24
	MaxFrame       = 64 << 10 // header and body
	MaxInlineBody  = 32 << 10 // a longer body is spilled to a block
	MaxSpilledBody = 64 << 20 // of a stub
	MaxInline      = 4 << 10  // a longer tensor travels in a block
	DescriptorSize = 40       // without the dimensions
	RequestSize    = 64       // fixed part of a request in EXECUTE
	ResponseSize   = 32       // fixed part of a response
	ExecuteSize    = 8        // head of EXECUTE's body
	PlaceSize      = 24       // place of an output in EXECUTE
	ExecutedSize   = 32       // head of EXECUTED's body
	ReportedSize   = 16       // text of EXECUTED with StatusReported
	CreditSize     = 16       // body of CREDIT
	MapSize        = 24       // body of MAP
	MappedSize     = 8        // body of MAPPED
	AllocationSize = 96       // body of ALLOCATION and LEND
	MaxRank        = 64       // numpy's own limit
	InlineAlign    = 16       // of tensor bytes inside a frame
)

// Flags in a header.
const (
	// FlagSpilled marks a frame whose body is a descriptor of the actual body.
	FlagSpilled uint16 = 1
	// FlagAhead marks an EXECUTE that was sent while the stub had another batch, so that it may be
	// withdrawn.
	FlagAhead uint16 = 2
)

// ExecuteCopies is the flag in the head of EXECUTE by which the stub copies inputs that lie in
// *requests* and returns their tickets with EXECUTED: its model keeps as many blocks as it may.
const ExecuteCopies uint32 = 1

// The status of EXECUTED.
const (
	StatusExecuted uint32 = 0
	StatusFailed   uint32 = 1
	StatusSkipped  uint32 = 2 // the batch was withdrawn before it was begun
	StatusReported uint32 = 3 // executed; the text has the times of its begin and end that the author has reported
)

// The regions of a descriptor's bytes.
const (
	InFrame    uint32 = 0
	InRequests uint32 = 1
	InArena    uint32 = 2
	// InClient is a region of a client that the stub has mapped. An input of EXECUTE lies there, or
	// an output of EXECUTED and RESPONSE, at the place given by EXECUTE.
	InClient uint32 = 3
	// InDevice is an allocation on a device, by the sender's number. InOwnDevice, only in frames to
	// a stub, is one that the stub has lent, by its own number.
	InDevice    uint32 = 4
	InOwnDevice uint32 = 5
	// InDevicePlace is an allocation that the supervisor has announced, by its number. An output of
	// EXECUTED and RESPONSE lies there, at the place given by EXECUTE.
	InDevicePlace uint32 = 6
)

// MaxAllocation is the highest number of an allocation on a device.
const MaxAllocation = 1<<32 - 1

// SoleReader marks, as the element of an InDevice descriptor, bytes that no other process reads or
// writes.
const SoleReader uint32 = 1

// ClientsBytes marks, in the same field, bytes of a client, who may change them after the last
// response.
const ClientsBytes uint32 = 2

// The status of MAPPED.
const (
	MapDone    uint32 = 0
	MapRefused uint32 = 1
	MapEnded   uint32 = 2 // the answer to UNMAP
)

// The kind of a request's correlation id.
const (
	CorrelationNumber uint32 = 0
	CorrelationText   uint32 = 1
)

// AllOutputs is the number of outputs of a request that asks for all of them.
const AllOutputs uint16 = 0xffff

// Flags of a response.
const (
	FlagPresent uint32 = 1
	FlagFinal   uint32 = 2
	FlagError   uint32 = 4
	// FlagReschedule stands alone: the request has to be executed again.
	FlagReschedule uint32 = 8
	// FlagFailure stands alone: the statistics count the request as failed.
	FlagFailure uint32 = 16
)

// ProtocolError is a violation of the protocol by a stub. It ends the life of the stub.
type ProtocolError struct {
	Rule   string // short name of the rule, for the metric: "tail", "frame", "descriptor", …
	Detail string // the value found and the value expected
}

func (e *ProtocolError) Error() string { return "stub broke the protocol: " + e.Detail }

// Broken returns a ProtocolError.
func Broken(rule, format string, args ...any) error {
	return &ProtocolError{Rule: rule, Detail: fmt.Sprintf(format, args...)}
}

// Frame is one message as it was received. Body is a private copy.
type Frame struct {
	Kind Kind
	ID   uint64
	Body []byte
	// Seen is the time, CLOCK_MONOTONIC ns, at which the reader found the frame; 0 if the reader
	// did not look at the clock, or has done other work since.
	Seen int64
	// Spilled marks a body of up to MaxSpilledBody: the handler copies the parts that outlive it.
	Spilled bool
}

var le = binary.LittleEndian

// putHeader writes a frame's header.
func putHeader(b []byte, size int, kind Kind, flags uint16, life uint32, id uint64) {
	_ = b[HeaderSize-1]
	le.PutUint32(b[0:], uint32(size))
	le.PutUint16(b[4:], uint16(kind))
	le.PutUint16(b[6:], flags)
	le.PutUint32(b[8:], life)
	le.PutUint32(b[12:], 0)
	le.PutUint64(b[16:], id)
}

// align rounds n up to a multiple of a power of two.
func align(n, to int) int { return (n + to - 1) &^ (to - 1) }

// Align8 rounds n up to a multiple of 8.
func Align8(n int) int { return align(n, 8) }

// AlignInline returns where tensor bytes can begin in a frame's body that has size bytes
// so far: at multiples of InlineAlign from the frame's first byte.
func AlignInline(size int) int {
	return align(HeaderSize+size, InlineAlign) - HeaderSize
}
