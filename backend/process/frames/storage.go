package frames

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// storage is the location of the bytes of a tensor, or of a spilled body, while a frame names them:
// as the frame describes it (region, offset, ticket), as this process has mapped it (data), and the
// memory that keeps it valid (memory).
//
//	region      bytes                          memory         goes back
//	InFrame     a part of the frame's body     nil
//	InRequests  a block of the requests pool   *shm.Block     by its ticket, when the stub says RELEASED
//	InArena     written by the stub            *shm.Extent,   by its ticket, when the extent is released
//	                                           or *privateCopy
//	InClient    a client's, not mapped here    infer.Foreign  by its ticket, as InRequests; only to a stub
//	InDevice    on a device                    *cudaipc.Memory   as InRequests, or as InArena
//	            a client's, on a device        cudaipc.Client    as InRequests; only to a stub
//	InOwnDevice lent by the very stub          *cudaipc.Memory   as InRequests; only to a stub
//
// Outputs that a stub has written into clients' regions have no storage here (shared.go).
//
// On its way to a stub storage is chosen (inFrame, Encoder.inRequests), lent and described; after
// lend the loan holds the block, and the storage may be released. On its way from a stub it is
// located (Decoder.locate): read from a descriptor once, checked, and only then mapped.
type storage struct {
	region uint32
	offset uint64       // in the region; in a frame, from the first byte of its header
	ticket shm.Ticket   // 0 before the loan; no ticket is 0
	data   []byte       // nil if the memory is not mapped here
	memory infer.Memory // with its own reference
	mapped uint32       // the number by which the stub knows the region, for InClient, or the allocation
	length uint64       // of memory that is not mapped here
	whose  uint32       // the descriptor's element for InDevice
}

// inFrame chooses storage in a frame whose body has size bytes so far, and returns the size with
// it. It returns false if the tensor is too long, or the body would have more than most bytes. The
// bytes are copied when the body is written.
func inFrame(data []byte, size, most int) (s storage, after int, ok bool) {
	begin := ipc.AlignInline(size)
	if n := len(data); n > 0 && (n > ipc.MaxInline || begin+n > most) {
		return s, size, false
	}
	return storage{region: ipc.InFrame, offset: uint64(ipc.HeaderSize + begin), data: data}, begin + len(data), true
}

// inRequests chooses storage in the requests pool: the tensor's own if it already lies there,
// otherwise a copy's.
func (e *Encoder) inRequests(t *infer.Tensor) (storage, error) {
	block := own(e.pool, t)
	if block != nil {
		block.Retain()
	} else {
		var err error
		if block, err = Copy(e.pool, t.Data); err != nil {
			return storage{}, err
		}
	}
	return inBlock(block, len(t.Data)), nil
}

// inBlock returns the storage of the first n bytes of a block. It takes over the reference to the
// block.
func inBlock(block *shm.Block, n int) storage {
	return storage{region: ipc.InRequests, offset: block.Offset(), data: block.Bytes()[:n], memory: block}
}

// own returns the block of the requests pool that holds the tensor's bytes, or nil. A range that
// does not start at its block's first byte does not count: a stub drops the pages of whole blocks.
func own(pool *shm.Pool, t *infer.Tensor) *shm.Block {
	if block, ok := t.Memory.(*shm.Block); ok && block.In(pool) {
		if offset, ok := block.Locate(t.Data); ok && offset == block.Offset() {
			return block
		}
	}
	return nil
}

// Copy copies bytes into a new block of the requests pool, which belongs to the caller.
func Copy(pool *shm.Pool, data []byte) (*shm.Block, error) {
	block, err := pool.Alloc(len(data))
	if err != nil {
		return nil, infer.Errorf(infer.Unavailable, "Failed to increase the shared memory pool size to %d bytes. If you are running Triton inside docker, use '--shm-size' flag to control the shared memory region size. Error: a tensor needs %d bytes, and %v (--request-memory-byte-size)",
			pool.Stats().Reserved, len(data), err)
	}
	copy(block.Bytes(), data)
	return block, nil
}

// lend lends the memory, if it has any: the stub may read it until the ticket comes back or
// the life ends. group collects the blocks of a batch; it may be nil. After ipc.ErrClosed nothing
// is lent.
func (s *storage) lend(loans *shm.Loans, group *shm.Group) error {
	var ticket shm.Ticket
	var ok bool
	switch s.region {
	case ipc.InRequests:
		ticket, ok = loans.LendFor(s.memory.(*shm.Block), group)
	case ipc.InClient, ipc.InDevice, ipc.InOwnDevice:
		ticket, ok = loans.LendHeld(s.memory)
	default:
		return nil
	}
	if !ok {
		return ipc.ErrClosed
	}
	s.ticket = ticket
	return nil
}

// takeBack ends the loan of storage whose frame was not sent: the stub does not know the ticket.
func (s *storage) takeBack(loans *shm.Loans) {
	if s.ticket != 0 {
		_ = loans.Return(s.ticket)
		s.ticket = 0
	}
}

// release drops its own reference.
func (s *storage) release() {
	if s.memory != nil {
		s.memory.Release()
		s.memory = nil
	}
}

// fill copies the bytes that travel in the frame into its body.
func (s *storage) fill(body []byte) {
	if s.region == ipc.InFrame {
		copy(body[s.offset-ipc.HeaderSize:], s.data)
	}
}

// describe writes the storage into a descriptor.
func (s *storage) describe(d *ipc.Descriptor) {
	d.Region, d.Offset, d.Length, d.Ticket = s.region, s.offset, uint64(len(s.data)), uint64(s.ticket)
	if s.region >= ipc.InClient {
		d.Length, d.Mapping = s.length, s.mapped
	}
	if s.whose != 0 {
		d.Element = s.whose
	}
}
