package shm

import "fmt"

// Verify checks the pool's books: spans neither overlap nor leave gaps, each is either held or
// spare exactly once, and the sums are right. It is for tests.
func (p *Pool) Verify() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	spare := make(map[*span]bool)
	for size, list := range p.spare {
		if len(list) == 0 && classSize(size) != size {
			return fmt.Errorf("the list of %d bytes, which is no class, is empty", size)
		}
		for _, s := range list {
			if s.size != size {
				return fmt.Errorf("span at %d of %d bytes is in the list of %d bytes", s.offset, s.size, size)
			}
			if spare[s] {
				return fmt.Errorf("span at %d is spare twice", s.offset)
			}
			spare[s] = true // bound: the spans
		}
	}
	var end, inUse, unproven int64
	blocks := 0
	for _, s := range p.spans {
		if s.offset != end {
			return fmt.Errorf("span begins at %d, want %d", s.offset, end)
		}
		end += s.size
		if s.held == spare[s] {
			return fmt.Errorf("span at %d: held is %t and spare is %t", s.offset, s.held, spare[s])
		}
		if s.reserved < 0 || s.reserved > s.size {
			return fmt.Errorf("span at %d of %d bytes has %d reserved", s.offset, s.size, s.reserved)
		}
		if s.kept < 0 || s.kept > s.size || !s.held && s.kept > 0 || s.unproven && !s.held {
			return fmt.Errorf("span at %d of %d bytes has %d kept: held is %t and unproven is %t", s.offset, s.size, s.kept, s.held, s.unproven)
		}
		if s.held {
			inUse += s.size
			blocks++
		}
		if s.unproven {
			unproven += s.size
		}
	}
	if end != p.top {
		return fmt.Errorf("spans end at %d, want %d", end, p.top)
	}
	if unproven != p.unproven {
		return fmt.Errorf("%d bytes are unproven, want %d", unproven, p.unproven)
	}
	if inUse != p.inUse || blocks != p.blocks {
		return fmt.Errorf("%d blocks of %d bytes are in use, want %d of %d", blocks, inUse, p.blocks, p.inUse)
	}
	if real, err := p.region.Reserved(); err == nil && real != p.reserved {
		return fmt.Errorf("%d bytes are real memory, want %d", real, p.reserved)
	}
	return nil
}
