package peer

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/shm"
	"golang.org/x/sys/unix"
)

// requestsMapping manages this process's mapping of the file *requests*.
//
// The file is mapped copy-on-write: if an author writes to an input, the written pages become
// private to this process. They must be dropped before the block is returned, or the next request
// in it would be read through them. The kernel knows which pages are private. It is not asked if
// the process has had no page fault since the loan began.
type requestsMapping struct {
	peer     *Peer
	requests *shm.Region
	private  bool       // else it is mapped read-only, and inputs are copied
	pages    *shm.Pages // nil: the kernel does not tell

	mu     sync.Mutex
	live   []*Loan
	faults Faults // when they were counted last
}

// Loan is a range of *requests* that the server has lent under a ticket. The last Release returns
// it. It implements infer.Memory.
type Loan struct {
	mapping *requestsMapping
	ticket  uint64
	offset  uint64
	data    []byte
	faults  Faults // nothing was written before this number of faults
	at      int    // in live
	refs    atomic.Int32
	// settled is used only by the goroutine that calls Settle.
	settled bool
}

// Faults is the number of this process's page faults. It includes those of all writes to inputs
// before the number was read.
type Faults int64

func (l *requestsMapping) attach(p *Peer, file *os.File) (err error) {
	l.peer = p
	again, err := duplicate(file) // Attach takes its file over, and there may be a second try
	if err != nil {
		return err
	}
	if l.requests, err = shm.Attach(file, shm.Private); err == nil {
		_ = again.Close()
		l.private = true
		l.faults = Faults(shm.Faults())
		// Without pagemap the pages of each loan are dropped, whether written or not.
		l.pages, _ = shm.OpenPages()
		return nil
	}
	// Mapping fails under strict memory accounting or a limit. Inputs are copied then.
	l.requests, err = shm.Attach(again, shm.ReadOnly)
	return err
}

// Borrow returns the loan for a descriptor of *requests*. The caller has the only reference.
func (p *Peer) Borrow(ticket, offset, n uint64) (*Loan, error) {
	l := &p.requests
	data, err := l.requests.Bytes(offset, n)
	if err != nil {
		p.GiveBack(ticket)
		return nil, err
	}
	loan := &Loan{mapping: l, ticket: ticket, offset: offset, data: data}
	loan.refs.Store(1)
	if !l.private {
		loan.data = append([]byte(nil), data...)
		return loan, nil
	}
	l.mu.Lock()
	loan.faults, loan.at = l.faults, len(l.live)
	l.live = append(l.live, loan)
	l.mu.Unlock()
	return loan, nil
}

// Copied reports whether the loan's bytes are a copy, because the file cannot be mapped.
func (l *Loan) Copied() bool { return !l.mapping.private }

// Bytes returns the loan's bytes. They may be written.
func (l *Loan) Bytes() []byte { return l.data }

// Faults returns the current number of page faults. The system call takes half a microsecond, so
// one count serves all loans of a batch: Ticket and End take it.
func (p *Peer) Faults() Faults {
	if !p.requests.private {
		return 0
	}
	return Faults(shm.Faults())
}

// Settle reports whether the caller holds all n references to the loan, and records that. It is
// called before the count for End is taken.
//
// Ownership: an author's hold on an input is a reference, which the author drops when releasing the
// request, after the last write. Only an owner of a reference can create another. If the caller
// holds all references, no author has one or can get one. So the author's last write, by any
// goroutine, came before refs was read, and a count taken after that includes it. An author that
// writes to an input after releasing its request breaks the SDK's contract.
func (l *Loan) Settle(n int) bool {
	l.settled = int(l.refs.Load()) == n
	return l.settled
}

// End releases a loan for the caller of Settle. now was counted after Settle, so a settled loan
// needs no count of its own.
func (l *Loan) End(now Faults) {
	if !l.settled {
		l.Release()
		return
	}
	if l.refs.Add(-1) > 0 {
		return // a response is still to be released by its sender
	}
	if l.mapping.private {
		l.mapping.end(l, now)
	}
	l.mapping.peer.GiveBack(l.ticket)
}

// Ticket returns the ticket and the offset of data in *requests*. ok is false if data is not part
// of the loan's bytes, or may have been written when now was counted, because other processes see
// other bytes then. Later writes are visible only to this process.
func (l *Loan) Ticket(data []byte, now Faults) (ticket, offset uint64, ok bool) {
	if !l.mapping.private {
		return 0, 0, false
	}
	offset, ok = l.mapping.requests.Locate(data)
	if !ok || offset < l.offset || offset+uint64(len(data)) > l.offset+uint64(len(l.data)) || l.written(now) {
		return 0, 0, false
	}
	return l.ticket, offset, true
}

// Retain adds a reference.
func (l *Loan) Retain() { l.refs.Add(1) }

// Release drops a reference; the last one ends the loan.
func (l *Loan) Release() {
	switch n := l.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("peer: loan released more often than retained")
	}
	if l.mapping.private {
		l.mapping.end(l, Faults(shm.Faults()))
	}
	l.mapping.peer.GiveBack(l.ticket)
}

// written reports whether the author may have written to the loan, given the process's current
// number of faults.
func (l *Loan) written(now Faults) bool {
	if now == l.faults {
		return false
	}
	return l.mapping.pages == nil || l.mapping.pages.Written(l.mapping.requests, l.offset, uint64(len(l.data)))
}

// end drops the private pages of a loan without references. now was counted when no author had a
// reference any more.
func (l *requestsMapping) end(loan *Loan, now Faults) {
	written := loan.written(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.live) - 1
	l.live[loan.at] = l.live[last]
	l.live[loan.at].at = loan.at
	l.live[last] = nil
	l.live = l.live[:last]
	if last == 0 {
		// Nothing is lent, so no later loan needs to consider faults up to now. Faults after now may be
		// writes; the kernel is asked then.
		l.faults = now
	}
	if written {
		l.drop(loan)
	}
}

// drop drops the private pages of a loan, except pages that another loan shares, because tensors of
// one request may be adjacent in a block. The shared pages are unmapped with the last of these
// loans. The caller holds mu.
func (l *requestsMapping) drop(loan *Loan) {
	first := loan.offset / shm.PageSize * shm.PageSize
	end := (loan.offset + uint64(len(loan.data)) + shm.PageSize - 1) / shm.PageSize * shm.PageSize
	for _, other := range l.live {
		from, to := other.offset, other.offset+uint64(len(other.data))
		if from <= loan.offset && to > first {
			first = min((to+shm.PageSize-1)/shm.PageSize*shm.PageSize, end)
		} else if from > loan.offset && from < end {
			end = max(from/shm.PageSize*shm.PageSize, first)
		}
	}
	if first < end {
		_ = l.requests.Forget(first, end-first)
	}
}

// copyOf copies bytes of *requests* as the server has written them.
func (l *requestsMapping) copyOf(offset, n uint64) ([]byte, error) {
	if size := uint64(l.requests.Size()); offset > size || n > size-offset {
		return nil, fmt.Errorf("range [%d, +%d) lies outside the memory of requests of %d bytes", offset, n, size)
	}
	// read(2) ignores private pages.
	data := make([]byte, n)
	if _, err := l.requests.File().ReadAt(data, int64(offset)); err != nil {
		return nil, err
	}
	return data, nil
}

// duplicate returns a second descriptor of the same file.
func duplicate(file *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("duplicate", err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}
