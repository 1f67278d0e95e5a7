package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

// ErrExhausted means that a pool may not grow further, or the machine refuses the memory.
var ErrExhausted = errors.New("shared memory is exhausted")

// ErrUnproven means that mostly unfilled blocks occupy all the address space that they may. See
// Open.
var ErrUnproven = errors.New("too much memory has been announced and not filled")

// PoolConfig sets a pool's sizes, in bytes.
type PoolConfig struct {
	Default int64 // kept reserved while idle; default 1 MiB
	Growth  int64 // reserved at a time; default 1 MiB
	Max     int64 // upper limit of reserved memory; default: the region's size
	// Charge is called before n bytes are allocated, and Refund when they have been given back.
	// Both are called with the pool's lock held; nil: the pool may allocate everything.
	Charge func(n int64) bool
	Refund func(n int64)
	// IdleTrim is the time after which free memory above Default is given back. Default 1 s.
	IdleTrim time.Duration
	Log      zerolog.Logger // for trims that panic
}

// Pool allocates blocks in a region that only this process writes. Blocks begin at page boundaries
// and own their pages, so that a process that maps them privately can drop its own copies of a
// single block's pages.
//
// Free spans wait in lists by size class, last freed first: warm memory costs a tenth of memory
// that must be faulted in. All methods are safe for concurrent use.
type Pool struct {
	region *Region
	config PoolConfig

	born time.Time

	mu       sync.Mutex
	top      int64 // offset of the next new span
	ready    int64 // the region is reserved up to here, except trimmed spans
	reserved int64 // allocated bytes
	inUse    int64 // bytes of spans that blocks hold
	unproven int64 // part of inUse: blocks of which less than an eighth has been filled
	blocks   int
	spans    []*span           // all spans, in the order of their offsets; bound: the pages of the region
	spare    map[int64][]*span // spans without a block, by size; bound: the spans, and the classes
	trimming bool              // a trim is due
	closed   bool
}

// provenPart is the part of a block that must be filled before the block no longer counts as merely
// announced. unprovenPart is the part of the address space for such blocks.
const (
	provenPart   = 8
	unprovenPart = 4
)

// NewPool creates a pool in region, takes over the reference, and reserves the default size.
func NewPool(region *Region, config PoolConfig) (*Pool, error) {
	if config.Default <= 0 {
		config.Default = 1 << 20
	}
	if config.Growth <= 0 {
		config.Growth = 1 << 20
	}
	if config.Max <= 0 || config.Max > region.Size() {
		config.Max = region.Size()
	}
	if config.IdleTrim <= 0 {
		config.IdleTrim = time.Second
	}
	config.Default = min(roundUp(config.Default, PageSize), config.Max)
	config.Growth = roundUp(config.Growth, PageSize)
	p := &Pool{region: region, config: config, born: time.Now(), spare: make(map[int64][]*span)}
	// Charged before it is allocated, as in reserveLocked; no other goroutine has the pool yet.
	if config.Charge != nil && !config.Charge(config.Default) {
		p.config.Default = 0 // it starts empty, since the account has so little
	}
	if n := p.config.Default; n > 0 {
		if err := region.Reserve(0, n); err != nil {
			if config.Refund != nil {
				config.Refund(n)
			}
			return nil, fmt.Errorf("reserve %d bytes: %w", n, err)
		}
		p.ready, p.reserved = n, n
	}
	return p, nil
}

// Region returns the pool's region.
func (p *Pool) Region() *Region { return p.region }

// classSize returns the size of the spans for blocks of n bytes: pages up to
// eight, from there four sizes for each doubling, so that at most a fifth of a
// span is unused.
func classSize(n int64) int64 {
	pages := max(roundUp(n, PageSize)/PageSize, 1)
	if pages <= 8 {
		return pages * PageSize
	}
	step := int64(1) << (bits.Len64(uint64(pages-1)) - 3)
	return roundUp(pages, step) * PageSize
}

// Alloc returns a block of n bytes with one reference. Its content is undefined. The error wraps
// ErrExhausted; smaller blocks may still be available.
func (p *Pool) Alloc(n int) (*Block, error) {
	if n < 0 {
		return nil, fmt.Errorf("block of %d bytes: want a length of 0 or more", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b, err := p.allocLocked(int64(n), max(int64(n), 1))
	if err != nil {
		return nil, err
	}
	b.span.kept = b.span.size
	return b, nil
}

// allocLocked creates a block of n bytes, with the first need bytes allocated.
func (p *Pool) allocLocked(n, need int64) (*Block, error) {
	if p.closed {
		return nil, fmt.Errorf("allocate %d bytes: the pool is closed", n)
	}
	s, err := p.takeLocked(classSize(n), roundUp(max(n, 1), PageSize), roundUp(need, PageSize))
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	s.held = true
	p.inUse += s.size
	p.blocks++
	return &Block{pool: p, span: s, n: n}, nil
}

// takeLocked finds or creates a span of the class, or of least bytes, and allocates its first need
// bytes.
func (p *Pool) takeLocked(size, least, need int64) (*span, error) {
	// The span that was freed last is taken first: its pages are the warmest.
	if list := p.spare[size]; len(list) > 0 {
		s := list[len(list)-1]
		list[len(list)-1] = nil
		p.spare[size] = list[:len(list)-1]
		return p.extendLocked(s, need)
	}
	if size > p.region.Size()-p.top {
		if s := p.joinLocked(size); s != nil {
			return p.extendLocked(s, need)
		}
		// The class rounds up; the bytes needed may still fit.
		if size > p.region.Size()-p.top {
			size = least
			if s := p.joinLocked(size); s != nil {
				return p.extendLocked(s, need)
			}
		}
		if size > p.region.Size()-p.top {
			return nil, fmt.Errorf("%w: %d bytes of address space are in use", ErrExhausted, p.top)
		}
	}
	s := &span{offset: p.top, size: size}
	if end := p.top + need; end > p.ready {
		grow := min(roundUp(end-p.ready, p.config.Growth), p.region.Size()-p.ready)
		err := p.reserveLocked(p.ready, grow)
		if err != nil && grow > roundUp(end-p.ready, PageSize) {
			// A whole step is refused; the necessary bytes may still be available.
			grow = roundUp(end-p.ready, PageSize)
			err = p.reserveLocked(p.ready, grow)
		}
		if err != nil {
			return nil, err
		}
		p.ready += grow
	}
	p.spans = append(p.spans, s)
	p.top += size
	s.reserved = min(size, max(p.ready-s.offset, 0))
	if p.top > p.ready {
		// The rest of the span lies beyond ready: it is allocated when a larger block of the class
		// needs it.
		p.ready = p.top
	}
	return s, nil
}

// extendLocked allocates the first need bytes of a span. The span is on no list, so that making
// room for it does not trim it.
func (p *Pool) extendLocked(s *span, need int64) (*span, error) {
	if s.reserved < need {
		if err := p.reserveLocked(s.offset+s.reserved, need-s.reserved); err != nil {
			// It goes back as the last one although others were freed later. The only effect is
			// that trimLocked gives its memory back later than it could.
			p.spare[s.size] = append(p.spare[s.size], s)
			return nil, err
		}
		s.reserved = need
	}
	return s, nil
}

// reserveLocked allocates a range, and trims free memory if the limit or the machine refuses.
func (p *Pool) reserveLocked(offset, n int64) error {
	if n > p.config.Max-p.reserved {
		p.trimLocked(p.config.Max-n, 0)
		if n > p.config.Max-p.reserved {
			return fmt.Errorf("%w: %d bytes are in use, the limit is %d", ErrExhausted, p.reserved, p.config.Max)
		}
	}
	if charge := p.config.Charge; charge != nil && !charge(n) {
		p.trimLocked(max(p.reserved-n, 0), 0)
		if !charge(n) {
			return fmt.Errorf("%w: %d bytes are in use, and %d more are not available", ErrExhausted, p.reserved, n)
		}
	}
	// Charged first and allocated after, so that the allocated memory never exceeds the charged
	// memory. The lock is held for the system call, so the books are exact whenever another
	// goroutine reads them.
	err := p.region.Reserve(offset, n)
	if err != nil {
		p.trimLocked(0, 0)
		err = p.region.Reserve(offset, n)
	}
	if err != nil {
		if p.config.Refund != nil {
			p.config.Refund(n)
		}
		return fmt.Errorf("%w: reserve %d bytes beyond %d: %w", ErrExhausted, n, p.reserved, err)
	}
	p.reserved += n
	return nil
}

// refundLocked records that n bytes have been given back.
func (p *Pool) refundLocked(n int64) {
	p.reserved -= n
	if p.config.Refund != nil {
		p.config.Refund(n)
	}
}

func (p *Pool) free(s *span) {
	p.mu.Lock()
	p.inUse -= s.size
	p.blocks--
	if s.unproven {
		p.unproven -= s.size
	}
	// The memory stays allocated: the next block of the class gets it, and the system only after
	// IdleTrim.
	s.held, s.unproven, s.kept = false, false, 0
	s.freed = time.Since(p.born)
	p.spare[s.size] = append(p.spare[s.size], s)
	if p.closed && p.blocks == 0 {
		// Close has left the region to the last block. It is released outside the lock, because
		// that unmaps it and calls the function of OnGone.
		p.refundLocked(p.reserved)
		p.mu.Unlock()
		p.region.Release()
		return
	}
	// One timer at a time, however many blocks are freed: trim sets the next one itself.
	due := !p.trimming && !p.closed && p.reserved > p.config.Default
	p.trimming = p.trimming || due
	p.mu.Unlock()
	if due {
		p.trimLater()
	}
}

// trimLater calls trim when memory that is free now has been free for IdleTrim.
func (p *Pool) trimLater() {
	panics.AfterFunc(p.config.Log, panics.Memory, p.config.IdleTrim, p.trim, func(error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.trimming = false // the next freed block tries again
	})
}

// trim gives back memory that has been free for IdleTrim, and schedules itself while there is more.
func (p *Pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.trimLocked(p.config.Default, p.config.IdleTrim)
	p.trimming = false
	if p.reserved > p.config.Default && p.freeReservedLocked() {
		p.trimming = true
		p.trimLater()
	}
}

func (p *Pool) freeReservedLocked() bool {
	for _, list := range p.spare {
		for _, s := range list {
			if s.reserved > 0 {
				return true
			}
		}
	}
	return false
}

// trimLocked gives free spans' memory back, largest class first and coldest
// first within a class, until at most target bytes are reserved.
func (p *Pool) trimLocked(target int64, idle time.Duration) {
	before := time.Since(p.born) - idle
	if p.reserved > target && p.ready > p.top && p.region.Discard(p.top, p.ready-p.top) == nil {
		p.refundLocked(p.ready - p.top)
		p.ready = p.top
	}
	for p.reserved > target {
		var victim *span
		for _, list := range p.spare {
			for _, s := range list { // ascending by freed: the first allocated one is the coldest
				if s.reserved == 0 {
					continue
				}
				if s.freed <= before && (victim == nil || s.size > victim.size) {
					victim = s
				}
				break
			}
		}
		if victim == nil {
			break
		}
		if p.region.Discard(victim.offset, victim.reserved) != nil {
			return
		}
		p.refundLocked(victim.reserved)
		victim.reserved = 0
	}
	if idle == 0 {
		p.trimOpenLocked(target)
	}
}

// Trim gives back all memory that no block needs.
func (p *Pool) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.trimLocked(0, 0)
	}
}

// Stats is a pool's state in bytes.
type Stats struct {
	Reserved int64 // allocated memory
	Kept     int64 // the part of it that blocks need
	InUse    int64 // held by blocks, rounded up to their class
	Blocks   int   // live blocks
}

// Stats returns the pool's present state.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := Stats{Reserved: p.reserved, InUse: p.inUse, Blocks: p.blocks}
	for _, s := range p.spans {
		stats.Kept += min(s.reserved, s.kept)
	}
	return stats
}

// Close ends the pool. The region is released when the last block is.
func (p *Pool) Close() {
	// No block is allocated from here on. Existing ones stay valid, and the last of them does in
	// free what this function does without any.
	p.mu.Lock()
	closed, blocks := p.closed, p.blocks
	p.closed = true
	if !closed && blocks == 0 {
		p.refundLocked(p.reserved)
	}
	p.mu.Unlock()
	if !closed && blocks == 0 {
		p.region.Release()
	}
}
