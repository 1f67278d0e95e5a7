package shm

import "fmt"

// A block can be filled step by step, by a client that has announced more bytes
// than have come. What is announced takes address space alone: memory becomes
// real, and is charged, with each step. Memory that the span has from before is
// there for the block's next steps, and for others until then.

// Open returns a block of n bytes with one reference, none of which is real yet:
// Grow makes them so. arrived is how many bytes of its content the caller has
// already; where that is less than an eighth, Open may fail with ErrUnproven, as
// announcements together may take a quarter of the address space.
func (p *Pool) Open(n, arrived int) (*Block, error) {
	if n < 0 {
		return nil, fmt.Errorf("block of %d bytes: want a length of 0 or more", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// The whole span is taken at once, as address space: a block does not move while a
	// client sends its bytes, and its offset may be lent when they are there.
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

// Grow makes the first n bytes of a block from Open real. The bytes behind them
// must not be touched. One goroutine grows a block at a time.
func (b *Block) Grow(n int) error {
	p, s := b.pool, b.span
	need := roundUp(min(int64(n), b.n), PageSize)
	p.mu.Lock()
	defer p.mu.Unlock()
	if need <= s.kept {
		return nil
	}
	before := s.kept
	s.kept = need // so that making room for the rest does not take what is there
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

// trimOpenLocked gives back what spans have behind what their blocks need, until
// at most target bytes are reserved.
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
