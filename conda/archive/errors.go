package archive

import (
	"fmt"
)

// Error says why an archive was refused, or at which entry its unpacking ended. The
// caller puts the archive's name in front.
type Error struct {
	Entry  string // the entry's name as the archive has it; empty if the reason concerns no single entry
	Reason string // begins with Triton's text where Triton has one
	Err    error  // the cause, if there is one: a decompressor's error, a number of the kernel (ENOSPC)
}

// Error returns one sentence.
func (e *Error) Error() string {
	text := e.Reason
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Entry == "" {
		return text
	}
	return fmt.Sprintf("entry %q: %s", e.Entry, text)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
