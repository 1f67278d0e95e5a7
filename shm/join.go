package shm

import "slices"

// Spans of different classes share the address space. When a class finds no span, free neighbours
// are joined and divided again.

// joinLocked joins free neighbours into a span of size bytes, or makes room for it above top and
// returns nil. Their memory is given back.
func (p *Pool) joinLocked(size int64) *span {
	for first := 0; first < len(p.spans); {
		// Held spans never move: stubs know their offsets, and slices of their bytes are in use.
		if p.spans[first].held {
			first++
			continue
		}
		last, total := first, int64(0)
		for last < len(p.spans) && !p.spans[last].held {
			total += p.spans[last].size
			last++
		}
		atEnd := last == len(p.spans)
		if atEnd {
			total += p.region.Size() - p.top
		}
		if total < size {
			first = last
			continue
		}
		if !p.dropLocked(first, last) {
			return nil
		}
		if atEnd {
			return nil // all of it is above top now
		}
		return p.recutLocked(first, last, size, total)
	}
	return nil
}

// dropLocked gives the memory of free spans back and removes them from the lists; spans at the end
// are forgotten. It reports whether the system allowed it.
func (p *Pool) dropLocked(first, last int) bool {
	// Memory first and lists after: if the system refuses, every span is still on its list, with
	// less allocated memory.
	for _, s := range p.spans[first:last] {
		if s.reserved > 0 {
			if p.region.Discard(s.offset, s.reserved) != nil {
				return false
			}
			p.refundLocked(s.reserved)
			s.reserved = 0
		}
	}
	atEnd := last == len(p.spans)
	if atEnd && p.ready > p.top {
		if p.region.Discard(p.top, p.ready-p.top) != nil {
			return false
		}
		p.refundLocked(p.ready - p.top)
	}
	for _, s := range p.spans[first:last] {
		left := slices.DeleteFunc(p.spare[s.size], func(other *span) bool { return other == s })
		if p.spare[s.size] = left; len(left) == 0 {
			delete(p.spare, s.size) // the sizes of divided spans are innumerable
		}
	}
	if atEnd {
		p.top = p.spans[first].offset
		p.ready = p.top
		// The array lives on; its hidden entries must not keep spans alive.
		clear(p.spans[first:])
		p.spans = p.spans[:first]
	}
	return true
}

// recutLocked replaces dropped spans of total bytes by one of size bytes, which it returns, and a
// free one of the rest.
func (p *Pool) recutLocked(first, last int, size, total int64) *span {
	s := &span{offset: p.spans[first].offset, size: size}
	fresh := []*span{s}
	if total > size {
		rest := &span{offset: s.offset + size, size: total - size}
		p.spare[rest.size] = append(p.spare[rest.size], rest)
		fresh = append(fresh, rest)
	}
	p.spans = slices.Replace(p.spans, first, last, fresh...)
	return s
}
