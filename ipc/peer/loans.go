package peer

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/shm"
	"golang.org/x/sys/unix"
)

// loans is the file *requests* as this process sees it.
//
// It is mapped copy-on-write: an author may write into an input, and the pages that are written become this process's own.
// They must go before the block does, or the next request in it would be seen through them. The kernel knows which they
// are, and is not asked if the process has had no page fault since the loan began.
type loans struct {
	peer     *Peer
	requests *shm.Region
	private  bool       // else it is mapped read-only, and inputs are copied
	pages    *shm.Pages // nil: the kernel does not tell

	mu     sync.Mutex
	live   []*Loan
	faults Faults // when they were counted last
}

// Loan is a range of *requests* that the server has lent under a ticket. It goes back with the last Release. It implements
// infer.Memory.
type Loan struct {
	loans  *loans
	ticket uint64
	offset uint64
	data   []byte
	faults Faults // nothing was written before this number of faults
	at     int    // in live
	refs   atomic.Int32
	// settled is of the goroutine that has called Settle.
	settled bool
}

// Faults is a number of page faults of this process: it includes all writes into inputs before it was read.
type Faults int64

func (l *loans) attach(p *Peer, file *os.File) (err error) {
	l.peer = p
	again, err := duplicate(file) // Attach takes its file over, and there may be a second try
	if err != nil {
		return err
	}
	if l.requests, err = shm.Attach(file, shm.Private); err == nil {
		_ = again.Close()
		l.private = true
		l.faults = Faults(shm.Faults())
		// Without pagemap the pages of each loan are dropped, written or not.
		l.pages, _ = shm.OpenPages()
		return nil
	}
	// Strict accounting of memory, or a limit on it: inputs are copied then.
	l.requests, err = shm.Attach(again, shm.ReadOnly)
	return err
}

// Borrow takes account of a descriptor of *requests*. The caller has the only reference.
func (p *Peer) Borrow(ticket, offset, n uint64) (*Loan, error) {
	l := &p.loans
	data, err := l.requests.Bytes(offset, n)
	if err != nil {
		p.GiveBack(ticket)
		return nil, err
	}
	loan := &Loan{loans: l, ticket: ticket, offset: offset, data: data}
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

// Copied reports whether its bytes are a copy, as the file cannot be mapped.
func (l *Loan) Copied() bool { return !l.loans.private }

// Bytes returns the bytes of the loan, which may be written.
func (l *Loan) Bytes() []byte { return l.data }

// Faults counts this process's page faults. That is a system call of half a microsecond, so one count serves all loans of a batch:
// Ticket and End take it.
func (p *Peer) Faults() Faults {
	if !p.loans.private {
		return 0
	}
	return Faults(shm.Faults())
}

// Settle reports whether the caller has all references to the loan, which are n, and remembers that. It is called before the count for
// End is taken.
//
// Ownership: an author's hold on an input is a reference, which it gives up with the release of the request, after its last write; and
// a new reference is made by the owner of another alone. When the caller has all that there are, no author has one, and none gets one: the
// author's last write came before the look at refs, and is in a count that is taken after it, whichever goroutine wrote. An author that writes
// into an input after the release of its request breaks the SDK's contract; when that was, before the end of the loan or behind it, made
// no difference that could be relied on before, either.
func (l *Loan) Settle(n int) bool {
	l.settled = int(l.refs.Load()) == n
	return l.settled
}

// End is Release for the caller of Settle. now was counted after that, and spares a loan that was settled a count of its own.
func (l *Loan) End(now Faults) {
	if !l.settled {
		l.Release()
		return
	}
	if l.refs.Add(-1) > 0 {
		return // a response is still to be released by its sender
	}
	if l.loans.private {
		l.loans.end(l, now)
	}
	l.loans.peer.GiveBack(l.ticket)
}

// Ticket returns the ticket, and where data, a part of the loan's bytes, lies in *requests*; ok is false if it lies elsewhere,
// or may have been written when now was counted: then other processes see other bytes there. Later writes are seen by this process
// alone.
func (l *Loan) Ticket(data []byte, now Faults) (ticket, offset uint64, ok bool) {
	if !l.loans.private {
		return 0, 0, false
	}
	offset, ok = l.loans.requests.Locate(data)
	if !ok || offset < l.offset || offset+uint64(len(data)) > l.offset+uint64(len(l.data)) || l.written(now) {
		return 0, 0, false
	}
	return l.ticket, offset, true
}

// Retain adds a reference.
func (l *Loan) Retain() { l.refs.Add(1) }

// Release gives a reference up; the last one ends the loan.
func (l *Loan) Release() {
	switch n := l.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("peer: loan released more often than retained")
	}
	if l.loans.private {
		l.loans.end(l, Faults(shm.Faults()))
	}
	l.loans.peer.GiveBack(l.ticket)
}

// written reports whether the author may have written into the loan, given the process's current number of faults.
func (l *Loan) written(now Faults) bool {
	if now == l.faults {
		return false
	}
	return l.loans.pages == nil || l.loans.pages.Written(l.loans.requests, l.offset, uint64(len(l.data)))
}

// end drops the private pages of a loan that no reference is left to. now was counted when no author had one any more.
func (l *loans) end(loan *Loan, now Faults) {
	written := loan.written(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.live) - 1
	l.live[loan.at] = l.live[last]
	l.live[loan.at].at = loan.at
	l.live[last] = nil
	l.live = l.live[:last]
	if last == 0 {
		// Nothing is lent, so faults up to now speak against no later loan. Those after now may: the kernel is asked then.
		l.faults = now
	}
	if written {
		l.drop(loan)
	}
}

// drop drops the private pages of a loan, but for pages that another loan shows as well: tensors of one request may lie
// side by side in one block. The rest is unmapped with the last of them. The caller holds mu.
func (l *loans) drop(loan *Loan) {
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
func (l *loans) copyOf(offset, n uint64) ([]byte, error) {
	if size := uint64(l.requests.Size()); offset > size || n > size-offset {
		return nil, fmt.Errorf("range [%d, +%d) lies outside the memory of requests of %d bytes", offset, n, size)
	}
	// By read(2), past private pages.
	data := make([]byte, n)
	if _, err := l.requests.File().ReadAt(data, int64(offset)); err != nil {
		return nil, err
	}
	return data, nil
}

// duplicate returns another descriptor of the same file.
func duplicate(file *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("duplicate", err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}
