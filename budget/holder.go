package budget

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
)

// Holder is an owner of memory that outlives a single charge: a connection, a stream, the life of a
// model's process. The account knows all holders, so that the one with the most memory can be named
// and, if necessary, ended.
type Holder struct {
	// Name returns the holder's name for the log, errors and the status page.
	Name func() string
	// End ends the holder to free its memory; it must not block. The holder may have left
	// meanwhile. Nil: the holder cannot be ended.
	End func()
	// Most limits the holder's bytes of each kind; 0 leaves only the account's limit.
	Most [Kinds]int64
	// Within, if not nil, is a holder that several share: their memory counts as its own too, and
	// its limits apply to all of them together.
	Within *Holder

	holders *holders
	held    [Kinds]atomic.Int64
	before  *Holder // guarded by holders.mu, like after
	after   *Holder
	ended   bool // guarded by holders.mu: End has been, or is about to be, called
}

// holders is the list of all holders of an account. Its lock is held while a holder enters or
// leaves and while the list is read, never while memory is charged.
type holders struct {
	mu    sync.Mutex
	first *Holder
}

// Enter adds h to the account's holders. Its fields do not change from here on. Leave must follow.
func (a *Account) Enter(h *Holder) {
	l := &a.holders
	l.mu.Lock()
	defer l.mu.Unlock()
	h.holders, h.ended = l, false
	if h.after = l.first; h.after != nil {
		h.after.before = h
	}
	l.first = h
}

// Leave removes h from the account's holders. Its memory stays charged until it is given back. It
// may be called again.
func (h *Holder) Leave() {
	l := h.holders
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case h.before != nil:
		h.before.after = h.after
	case l.first == h:
		l.first = h.after
	default:
		return // already removed
	}
	if h.after != nil {
		h.after.before = h.before
	}
	h.before, h.after = nil, nil
}

// Hold attributes n bytes of a kind, which are or will be charged, to the holder. It fails with an
// Unavailable *infer.Error if the holder would exceed its limit.
func (h *Holder) Hold(k Kind, n int64) error {
	if h == nil || n <= 0 {
		return nil
	}
	if err := h.Within.Hold(k, n); err != nil {
		return err
	}
	if held := h.held[k].Add(n); h.Most[k] > 0 && held > h.Most[k] {
		h.held[k].Add(-n)
		h.Within.Drop(k, n)
		return h.refuse(k, n, held-n)
	}
	return nil
}

func (h *Holder) refuse(k Kind, n, held int64) error {
	return &infer.Error{Code: infer.Unavailable, OutOfMemory: true, Message: fmt.Sprintf(
		"%s holds %d bytes of %s and needs %d more, but may hold %d", h.String(), held, k, n, h.Most[k])}
}

// String returns the holder's name.
func (h *Holder) String() string {
	if h.Name == nil {
		return "a connection"
	}
	return h.Name()
}

// Drop undoes Hold.
func (h *Holder) Drop(k Kind, n int64) {
	if h != nil && n > 0 {
		h.held[k].Add(-n)
		h.Within.Drop(k, n)
	}
}

// Held returns the holder's bytes of a kind.
func (h *Holder) Held(k Kind) int64 { return h.held[k].Load() }

// Total returns the holder's bytes of all kinds.
func (h *Holder) Total() int64 {
	n := int64(0)
	for k := range h.held {
		n += h.held[k].Load()
	}
	return n
}

// Holders calls see for each holder until it returns false. see must not call Enter or Leave.
func (a *Account) Holders(see func(h *Holder) bool) {
	a.holders.mu.Lock()
	defer a.holders.mu.Unlock()
	for h := a.holders.first; h != nil; h = h.after {
		if !see(h) {
			return
		}
	}
}

// endLargest ends the holder with most memory. Among holders with the same number of MiB it ends
// the latest, the likelier cause. It returns that holder and its bytes, or nil if no holder with at
// least least bytes can still be ended.
func (a *Account) endLargest(least int64) (largest *Holder, held int64) {
	a.Holders(func(h *Holder) bool {
		if n := h.Total(); h.End != nil && !h.ended && n >= least && (largest == nil || n>>20 > held>>20) {
			largest, held = h, n
		}
		return true
	})
	if largest == nil {
		return nil, 0
	}
	a.holders.mu.Lock()
	largest.ended = true
	a.holders.mu.Unlock()
	largest.End() // without the lock, which End may need to leave
	return largest, held
}
