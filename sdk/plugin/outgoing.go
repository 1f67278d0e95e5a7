package plugin

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
)

// mostInline is the number of bytes of tensors that travel in one frame. Further tensors go into
// blocks, so that no frame is spilled because of tensors.
const mostInline = 28 << 10

// outgoing holds the tensors of one frame under construction.
type outgoing struct {
	tensors []located
	inline  int           // bytes of tensors inside the frame, each rounded up
	lent    []uint64      // tickets in the arena
	blocks  []*peer.Block // that were taken here; lent until the frame is out
	// faults is the count after the author has sent all tensors, for inputs that are passed on; 0 if
	// not counted yet.
	faults peer.Faults
}

// located is a tensor with its descriptor.
type located struct {
	ipc.Descriptor
	data []byte // what travels in the frame
}

// reset removes everything but keeps the memory of the lists.
func (o *outgoing) reset() {
	for _, block := range o.blocks {
		block.Release()
	}
	clear(o.tensors)
	clear(o.blocks)
	o.tensors, o.lent, o.blocks, o.inline, o.faults = o.tensors[:0], o.lent[:0], o.blocks[:0], 0, 0
}

func roundInline(n int) int { return (n + ipc.InlineAlign - 1) &^ (ipc.InlineAlign - 1) }

// addTensor chooses or allocates a location for a tensor's bytes. After an error nothing has
// changed; the error is *peer.Exhausted if there is no memory.
func (o *outgoing) addTensor(s *session, t *infer.Tensor) error {
	name, err := s.names.index(t.Name)
	if err != nil {
		return err
	}
	p := located{Descriptor: ipc.Descriptor{Name: name, Type: uint8(t.DataType), Length: uint64(len(t.Data)), Shape: t.Shape}}
	// Small tensors are cheaper in the frame, regardless of their location.
	if n := roundInline(len(t.Data)); len(t.Data) <= ipc.MaxInline && o.inline+n <= mostInline {
		p.Region, p.data = ipc.InFrame, t.Data
		o.inline += n
		o.tensors = append(o.tensors, p)
		return nil
	}
	if loan, ok := t.Memory.(*peer.Loan); ok {
		if o.faults == 0 {
			o.faults = s.peer.Faults()
		}
		if ticket, offset, ok := loan.Ticket(t.Data, o.faults); ok {
			p.Region, p.Ticket, p.Offset = ipc.InRequests, ticket, offset
			o.tensors = append(o.tensors, p)
			return nil
		}
	}
	block, ok := t.Memory.(*peer.Block)
	if ok {
		p.Offset, ok = block.Locate(t.Data)
	}
	if !ok {
		if block, err = s.arena.Take(int64(len(t.Data))); err != nil {
			return err
		}
		copy(block.Bytes(), t.Data)
		o.blocks = append(o.blocks, block)
		p.Offset = block.Offset()
	}
	if p.Ticket, err = s.arena.Lend(block); err != nil {
		return err
	}
	p.Region = ipc.InArena
	o.lent = append(o.lent, p.Ticket)
	o.tensors = append(o.tensors, p)
	return nil
}

// retract takes back all but the first tensors.
func (o *outgoing) retract(s *session, tensors int) {
	for i := len(o.tensors) - 1; i >= tensors; i-- {
		switch p := &o.tensors[i]; p.Region {
		case ipc.InFrame:
			o.inline -= roundInline(len(p.data))
		case ipc.InArena:
			s.arena.Withdraw(p.Ticket)
			o.lent = o.lent[:len(o.lent)-1]
		}
	}
	clear(o.tensors[tensors:])
	o.tensors = o.tensors[:tensors]
}

// put writes the descriptors of the first n tensors that have not been written yet, and their
// inline bytes, the next of them at offset at of body. It returns the rest of b and the next at.
func put(tensors []located, b, body []byte, at int) ([]byte, int) {
	for i := range tensors {
		p := &tensors[i]
		if p.Region == ipc.InFrame {
			p.Offset = ipc.HeaderSize // of no bytes, which lie anywhere
			if len(p.data) > 0 {
				p.Offset = uint64(ipc.HeaderSize + at)
				copy(body[at:], p.data)
				at += roundInline(len(p.data))
			}
		}
		b = p.Put(b)
	}
	return b, at
}
