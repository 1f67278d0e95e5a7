package shm

import "fmt"

// A block can be filled step by step, by a client that has announced more bytes than have arrived.
// The announcement takes only address space: each step allocates and charges memory. Memory that
// the span already had is available to the block's next steps, and to others until then.

// Open returns a block of n bytes with one reference and no allocated memory; Grow allocates it.
// arrived is the number of bytes of its content that the caller already has. If that is less than
// an eighth, Open may fail with ErrUnproven, because all such announcements together may take a
// quarter of the address space.
func (p *Pool) Open(n, arrived int) (*Block, error) {
	if n < 0 {
		return nil, fmt.Errorf("block of %d bytes: want a length of 0 or more", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// The whole span is taken at once, as address space: a block does not move while a client sends
	// its bytes, and its offset may be lent when they are complete.
	unproven := int64(arrived) < int64(n)/provenPart
	if unproven && p.unproven+classSize(int64(n)) > p.region.Size()/unprovenPart {
		return nil, fmt.Errorf("block of %d bytes: %w", n, ErrUnproven)
	}
	b, err := p.allocLocked(int64(n), 0)
	if err != nil {
		return nil, err
	}
	if unproven {
		b.span.unproven = true
		p.unproven += b.span.size
	}
	return b, nil
}

// Grow allocates the first n bytes of a block from Open. The bytes after them must not be touched.
// One goroutine grows a block at a time.
func (b *Block) Grow(n int) error {
	p, s := b.pool, b.span
	need := roundUp(min(int64(n), b.n), PageSize)
	p.mu.Lock()
	defer p.mu.Unlock()
	if need <= s.kept {
		return nil
	}
	before := s.kept
	s.kept = need // so that making room for the rest does not trim the first part
	if s.reserved < need {
		if err := p.reserveLocked(s.offset+s.reserved, need-s.reserved); err != nil {
			s.kept = before
			return fmt.Errorf("allocate %d bytes: %w", n, err)
		}
		s.reserved = need
	}
	if s.unproven && int64(n) >= b.n/provenPart {
		s.unproven = false
		p.unproven -= s.size
	}
	return nil
}

// trimOpenLocked gives back the memory of spans beyond their blocks' needs, until at most target
// bytes are reserved.
func (p *Pool) trimOpenLocked(target int64) {
	for _, s := range p.spans {
		if p.reserved <= target {
			return
		}
		rest := s.reserved - s.kept
		if !s.held || rest <= 0 {
			continue
		}
		if p.region.Discard(s.offset+s.kept, rest) != nil {
			return
		}
		p.refundLocked(rest)
		s.reserved = s.kept
	}
}
