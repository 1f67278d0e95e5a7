package plugin

import (
	"errors"
	"strings"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
)

// responses are the responses in one frame: all of EXECUTED, or the one of RESPONSE.
type responses struct {
	outgoing
	list    []gathered
	head    int // bytes of all, without tensor bytes
	tickets []uint64
}

// gathered is one response of a frame.
type gathered struct {
	ipc.ResponseHead
	parameters []byte // JSON
	text       string // of an error
}

var spareResponses = sync.Pool{New: func() any { return new(responses) }}

// newResponses returns empty responses; free returns them for reuse.
func newResponses() *responses { return spareResponses.Get().(*responses) }

func (a *responses) free() {
	a.reset()
	clear(a.list)
	a.list, a.head, a.tickets = a.list[:0], 0, a.tickets[:0]
	spareResponses.Put(a)
}

// add gathers a response. A response that cannot be sent becomes an error. add reports whether the
// frame is the last of the request.
func (a *responses) add(s *session, handle uint64, r *infer.Response) {
	one := gathered{ResponseHead: ipc.ResponseHead{Handle: handle}}
	if r.Final {
		one.Flags = ipc.FlagFinal
	}
	switch {
	case r.Err != nil:
		a.fail(one, r.Err)
		return
	case r.Empty:
		a.append(one)
		return
	}
	one.Flags |= ipc.FlagPresent
	before := len(a.tensors)
	for i := range r.Outputs {
		if err := a.addTensor(s, &r.Outputs[i]); err != nil {
			a.retract(s, before)
			a.fail(one, infer.Errorf(infer.Internal, "%s", err.Error()))
			return
		}
		a.head += a.tensors[len(a.tensors)-1].Size()
	}
	one.Outputs = uint16(len(a.tensors) - before)
	if len(r.Parameters) > 0 {
		one.parameters = infer.AppendParameters(nil, r.Parameters)
		one.Parameters = uint32(len(one.parameters))
	}
	a.append(one)
}

// fail gathers an error.
func (a *responses) fail(one gathered, err *infer.Error) {
	one.Flags |= ipc.FlagPresent | ipc.FlagError
	one.Code, one.text = uint16(err.Code), strings.ToValidUTF8(err.Message, "\uFFFD")
	one.Error = uint32(len(one.text))
	a.append(one)
}

// reschedule returns a request to the server, to be executed again.
func (a *responses) reschedule(handle uint64) {
	a.append(gathered{ResponseHead: ipc.ResponseHead{Handle: handle, Flags: ipc.FlagReschedule}})
}

// failure counts a request as failed.
func (a *responses) failure(handle uint64) {
	a.append(gathered{ResponseHead: ipc.ResponseHead{Handle: handle, Flags: ipc.FlagFailure}})
}

func (a *responses) append(one gathered) {
	a.list = append(a.list, one)
	a.head += ipc.ResponseSize + ipc.Align8(int(one.Parameters+one.Error))
}

// size returns the size of a body with the responses after a prefix.
func (a *responses) size(prefix int) int {
	if a.inline == 0 {
		return prefix + a.head
	}
	return ipc.AlignInline(prefix+a.head) + a.inline
}

// write writes the responses after a prefix.
func (a *responses) write(body []byte, prefix int) {
	b, at := body[prefix:], ipc.AlignInline(prefix+a.head)
	tensors := a.tensors
	for i := range a.list {
		one := &a.list[i]
		b = one.Put(b)
		b, at = put(tensors[:one.Outputs], b, body, at)
		tensors = tensors[one.Outputs:]
		n := copy(b, one.parameters)
		n += copy(b[n:], one.text)
		b = b[ipc.Align8(n):]
	}
}

// sendResponse sends a single response as RESPONSE.
func (a *responses) sendResponse(s *session, handle uint64) error {
	const prefix = 8 // no tickets
	return a.publish(s, 0, ipc.Response, handle, prefix, func(body []byte) {
		clear(body[:prefix])
		a.write(body, prefix)
	})
}

// sendExecuted sends EXECUTED for a batch, with the times of its report. failure is the reason for
// its failure, or "". at is the current time if the clock was just read, else 0.
func (a *responses) sendExecuted(s *session, at int64, number uint64, times *backend.Report, failure string) error {
	failure = strings.ToValidUTF8(failure, "\uFFFD")
	text, status := len(failure), ipc.StatusExecuted
	switch {
	case failure != "":
		status = ipc.StatusFailed
	case times.Reported:
		text, status = ipc.ReportedSize, ipc.StatusReported
	}
	prefix := ipc.ExecutedSize + 8*len(a.tickets) + ipc.Align8(text)
	head := ipc.ExecutedHead{
		Responses: uint32(len(a.list)), Status: status, Called: times.ComputeStart, Returned: times.ComputeEnd, Tickets: uint32(len(a.tickets)), Text: uint32(text),
	}
	return a.publish(s, at, ipc.Executed, number, prefix, func(body []byte) {
		b := ipc.PutTickets(head.Put(body), a.tickets)
		if status == ipc.StatusReported {
			ipc.PutReported(b, times.Start, times.End)
		} else {
			copy(b, failure)
		}
		a.write(body, prefix)
	})
}

// publish sends the frame. If it fails, lent memory is taken back.
func (a *responses) publish(s *session, at int64, kind ipc.Kind, id uint64, prefix int, write func([]byte)) error {
	err := s.peer.FillAt(at, kind, id, a.size(prefix), write)
	if err != nil {
		a.retract(s, 0)
	}
	return err
}

// exhausted reports whether an error concerns a single frame, because there is no memory for its
// body.
func exhausted(err error) bool {
	if err == nil {
		return false
	}
	var e *peer.Exhausted // below the mostly nil err, as it is an allocation
	return errors.As(err, &e)
}
