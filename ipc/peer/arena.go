package peer

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// Sizes are the sizes of an arena in bytes, as INITIALIZE gives them.
type Sizes struct {
	Default int64 // are kept when they are not needed
	Growth  int64 // are reserved at a time
	Max     int64 // may be reserved; 0: the file
}

// Exhausted is the error for a block for which there is no memory. Clients see its text, which is
// Triton's up to the reason.
type Exhausted struct{ Text string }

func (e *Exhausted) Error() string { return e.Text }

// Arena allocates blocks for outgoing bytes, lends them to the server and reuses returned ones.
// Block sizes are whole pages in size classes, four per power of two, so a block wastes at most a
// fifth of its bytes. A block keeps its class and its offset. Free blocks of a class are reused
// last in, first out, because recently touched memory is many times cheaper than fresh memory. Free
// neighbours are joined and split again only if the file has no room left.
//
//	        place: in the file, sparse, cheap       memory: real, counted in backed
//	taken   the next bytes behind top               reserved before use, in steps of growth
//	freed   kept, in the list of its size           kept; given back while this process idles: "hollow"
type Arena struct {
	peer  *Peer
	sizes Sizes
	end   int64

	mu      sync.Mutex
	extents []extent           // by index
	unused  []uint32           // indices whose place has been joined with others
	free    map[int64][]uint32 // by size, hollow ones first
	// Offsets below top have been allocated, and memory up to reserved has been reserved.
	top, reserved int64
	backed        int64 // bytes of real memory
	used          int64 // of these in blocks that are not free
	size          int64 // of the block that is being taken

	outstanding int    // descriptors at the server
	collected   uint64 // tickets taken out of the return ring
	asked       uint64 // how often the server was asked for memory, or told of it

	mostUsed int64     // since
	since    time.Time // zero: there is nothing to give back
}

// extent is the location of a block; its index and generation form the ticket.
type extent struct {
	offset, size int64
	references   uint32 // of the Block and of each descriptor that is out
	generation   uint32
	hollow       bool
}

// Block is a range of the arena. It implements infer.Memory.
type Block struct {
	arena  *Arena
	index  uint32
	offset uint64
	data   []byte
	refs   atomic.Int32
}

const (
	// trimAfter is how long unneeded memory above the default is kept.
	trimAfter = time.Second
	// grantPatience is how long the server may take to grant or deny memory.
	grantPatience = 10 * time.Second
)

// OpenArena creates this side's arena. It is called once, before the first output and the first
// body that is longer than a frame.
func (p *Peer) OpenArena(sizes Sizes) *Arena {
	a := &Arena{peer: p, sizes: sizes, end: p.up.Size(), free: make(map[int64][]uint32), top: shm.ArenaOffset, reserved: shm.ArenaOffset}
	a.sizes.Growth = sizeClass(max(sizes.Growth, 1))
	if a.sizes.Max <= 0 {
		a.sizes.Max = a.end
	}
	// The goroutine that reads looks at it before it sleeps.
	p.reading.Lock()
	p.arena = a
	p.reading.Unlock()
	return a
}

// Bytes returns the block's bytes, in the requested length.
func (b *Block) Bytes() []byte { return b.data }

// Offset returns the block's offset in *up*.
func (b *Block) Offset() uint64 { return b.offset }

// Locate returns the offset of data in *up*; ok is false if data is not part of the block.
func (b *Block) Locate(data []byte) (offset uint64, ok bool) {
	offset, ok = b.arena.peer.up.Locate(data)
	return offset, ok && offset >= b.offset && offset+uint64(len(data)) <= b.offset+uint64(len(b.data))
}

// Retain adds a reference.
func (b *Block) Retain() { b.refs.Add(1) }

// Release drops a reference. After the last one, the block is free as soon as the server has
// returned it.
func (b *Block) Release() {
	switch n := b.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("peer: block released more often than retained")
	}
	b.arena.mu.Lock()
	b.arena.dropLocked(b.index)
	b.arena.mu.Unlock()
}

// sizeClass returns the size of a block for n bytes.
func sizeClass(n int64) int64 {
	pages := max(1, (n+shm.PageSize-1)/shm.PageSize)
	if pages <= 8 {
		return pages * shm.PageSize
	}
	shift := bits.Len64(uint64(pages-1)) - 3
	return (pages + 1<<shift - 1) >> shift << shift * shm.PageSize
}

// Take allocates a block for n bytes, or returns *Exhausted if there is no memory for it. The
// caller has the only reference.
func (a *Arena) Take(n int64) (*Block, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.collectLocked(); err != nil {
		return nil, err
	}
	a.size = n
	if n < 0 || n > a.end {
		return nil, a.exhausted(n, a.fullLocked())
	}
	index, err := a.findLocked(sizeClass(n))
	if err != nil {
		return nil, err
	}
	p := &a.extents[index]
	p.references = 1
	a.used += p.size
	a.mostUsed = max(a.mostUsed, a.used)
	data, err := a.peer.up.Bytes(uint64(p.offset), uint64(n))
	if err != nil {
		a.dropLocked(index)
		return nil, err
	}
	b := &Block{arena: a, index: index, offset: uint64(p.offset), data: data}
	b.refs.Store(1)
	return b, nil
}

// Lend creates the ticket for one descriptor that names a block.
func (a *Arena) Lend(b *Block) (ticket uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.outstanding == shm.ReturnRingSlots {
		if err := a.collectLocked(); err != nil {
			return 0, err
		}
		if a.outstanding == shm.ReturnRingSlots {
			return 0, a.exhausted(0, fmt.Sprintf("%d tensors of this process are still being sent, the maximum", a.outstanding))
		}
	}
	a.outstanding++
	p := &a.extents[b.index]
	p.references++
	return uint64(b.index) | uint64(p.generation)<<32, nil
}

// Withdraw takes back a ticket that was not sent after all.
func (a *Arena) Withdraw(ticket uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outstanding--
	a.dropLocked(uint32(ticket))
}

// Lent reports whether the server has any block of the arena.
func (a *Arena) Lent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.collectLocked() == nil && a.outstanding > 0
}

// Usage returns the bytes of real memory, and the part of them in blocks that are not free.
func (a *Arena) Usage() (backed, used int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.collectLocked()
	return a.backed, a.used
}

// patience gives back memory that has not been needed for a while. It returns the time until the
// next look is worthwhile, or a negative duration if none is before the next frame. It is called
// before each sleep.
func (p *Peer) patience() time.Duration {
	a := p.arena
	if a == nil {
		return -1
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.collectLocked() != nil {
		return -1
	}
	// Nothing is above the default, so there will be nothing to give back.
	if a.backed <= a.sizes.Default || a.backed == a.used && a.outstanding == 0 {
		a.since = time.Time{}
		a.tellLessLocked()
		return -1
	}
	now := time.Now()
	if !a.since.IsZero() && now.Sub(a.since) >= trimAfter {
		a.giveBackLocked(a.backed - max(a.mostUsed, a.sizes.Default))
		a.since = time.Time{}
		if uint64(a.backed) < p.down.Uint64(shm.GrantOffset).Load() {
			a.tellLocked(a.backed)
		}
		if a.backed <= a.sizes.Default {
			return -1
		}
	}
	if a.since.IsZero() {
		a.since = now
		a.mostUsed = a.used
	}
	return a.since.Add(trimAfter).Sub(now)
}

// collectLocked reads returned tickets. An error ends the connection.
//
// Ordering: the server stores a ticket in its slot before the count, and reuses the slot only when
// our count says that it has been collected.
func (a *Arena) collectLocked() error {
	returned := a.peer.down.Uint64(shm.ReturnOffset).Load()
	if returned == a.collected {
		return nil
	}
	if returned-a.collected > shm.ReturnRingSlots {
		err := ipc.Broken("return", "the return ring has %d tickets at %d, want at most %d more", returned, a.collected, shm.ReturnRingSlots)
		a.peer.fail(err)
		return err
	}
	for ; a.collected != returned; a.collected++ {
		ticket := a.peer.down.Uint64(shm.ReturnRingOffset + 8*int(a.collected%shm.ReturnRingSlots)).Load()
		index := uint32(ticket)
		if int(index) >= len(a.extents) || a.extents[index].generation != uint32(ticket>>32) || a.extents[index].references == 0 || a.outstanding == 0 {
			err := ipc.Broken("return", "ticket %#x came back and was not out", ticket)
			a.peer.fail(err)
			return err
		}
		a.outstanding--
		a.dropLocked(index)
	}
	a.peer.up.Uint64(shm.ReturnOffset).Store(a.collected)
	return nil
}

func (a *Arena) dropLocked(index uint32) {
	p := &a.extents[index]
	if p.references--; p.references > 0 {
		return
	}
	p.generation++
	a.used -= p.size
	a.free[p.size] = append(a.free[p.size], index)
}

// findLocked finds a free extent of exactly size bytes, or allocates one. The caller counts it as
// used.
func (a *Arena) findLocked(size int64) (uint32, error) {
	if free := a.free[size]; len(free) > 0 {
		index := free[len(free)-1]
		p := &a.extents[index]
		if p.hollow {
			if _, err := a.reserveLocked(p.offset, size, size); err != nil {
				return 0, err
			}
			p.hollow = false
		}
		// Memory may have been taken from free extents meanwhile, and free neighbours are never joined in
		// advance.
		free = a.free[size]
		a.free[size] = free[:len(free)-1]
		return index, nil
	}
	if a.top+size > a.end {
		return a.cutLocked(size)
	}
	if missing := a.top + size - a.reserved; missing > 0 {
		steps := (missing + a.sizes.Growth - 1) / a.sizes.Growth * a.sizes.Growth
		n, err := a.reserveLocked(a.reserved, min(steps, a.end-a.reserved), missing)
		if err != nil {
			return 0, err
		}
		a.reserved += n
	}
	a.top += size
	return a.enterLocked(a.top-size, size), nil
}

// enterLocked adds an extent to the table.
func (a *Arena) enterLocked(offset, size int64) uint32 {
	if last := len(a.unused) - 1; last >= 0 {
		index := a.unused[last]
		a.unused = a.unused[:last]
		p := &a.extents[index]
		p.offset, p.size, p.hollow = offset, size, false
		return index
	}
	a.extents = append(a.extents, extent{offset: offset, size: size})
	return uint32(len(a.extents) - 1)
}

// cutLocked joins free neighbours and cuts an extent out of them, because there is no room behind
// the last block.
func (a *Arena) cutLocked(size int64) (uint32, error) {
	run := a.freeRunLocked(size)
	if run == nil {
		return 0, a.exhausted(size, a.fullLocked())
	}
	start, length := a.extents[run[0]].offset, int64(0)
	for _, index := range run {
		p := &a.extents[index]
		length += p.size
		a.free[p.size] = slices.DeleteFunc(a.free[p.size], func(other uint32) bool { return other == index })
		if !p.hollow {
			a.hollowOutLocked(p.offset, p.size)
		}
	}
	a.unused = append(a.unused, run...)
	if _, err := a.reserveLocked(start, size, size); err != nil {
		a.keepHollowLocked(start, length)
		return 0, err
	}
	if length > size {
		a.keepHollowLocked(start+size, length-size)
	}
	return a.enterLocked(start, size), nil
}

// freeRunLocked returns adjacent free extents with a total of at least size bytes, or nil.
func (a *Arena) freeRunLocked(size int64) []uint32 {
	var all []uint32
	for _, indices := range a.free {
		all = append(all, indices...)
	}
	slices.SortFunc(all, func(x, y uint32) int { return int(a.extents[x].offset>>12) - int(a.extents[y].offset>>12) })
	first, length, end := 0, int64(0), int64(-1)
	for i, index := range all {
		p := &a.extents[index]
		if p.offset != end {
			first, length = i, 0
		}
		end = p.offset + p.size
		if length += p.size; length >= size {
			return all[first : i+1]
		}
	}
	return nil
}

func (a *Arena) keepHollowLocked(offset, size int64) {
	index := a.enterLocked(offset, size)
	a.extents[index].hollow = true
	a.free[size] = slices.Insert(a.free[size], 0, index)
}

func (a *Arena) fullLocked() string {
	return fmt.Sprintf("a tensor needs %d bytes in one piece, others of this process use %d, and all together may use %d: the limit is "+
		"shm-max-byte-size of --backend-config, or the model's share (--model-max-memory-share) of --request-memory-byte-size "+
		"if that is less, and not --shm-size", a.size, a.used, a.sizes.Max)
}

func (a *Arena) exhausted(needed int64, reason string) error {
	return &Exhausted{fmt.Sprintf("Failed to increase the shared memory pool size to %d bytes. If you are running "+
		"Triton inside docker, use '--shm-size' flag to control the shared memory region size. Error: %s", a.backed+needed, reason)}
}
