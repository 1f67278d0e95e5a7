package budget

import (
	"fmt"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
)

// Config sets up an account. Sizes are in bytes.
type Config struct {
	// Limit bounds all kinds except the cache together; default half of the memory that
	// this process may use.
	Limit int64
	// Cache bounds the response cache, which is not part of the limit.
	Cache int64
	// Limits bounds single values of clients and models.
	Limits Limits
}

// Account counts the memory that clients and models have taken, against a limit.
type Account struct {
	limit   int64
	commons int64 // the part of limit that is no kind's own
	own     [kinds]int64
	most    [kinds]int64
	common  pot // taken of commons
	kinds   [kinds]pot
	// short are asked in turn to give free memory back.
	short   []func()
	keeper  keeper
	limits  Limits
	holders holders
	// pressed is true while the process has more memory than it should: large bodies are
	// refused. The goroutine that watches the memory sets it.
	pressed atomic.Bool
}

// pot counts bytes, in a cache line of its own.
type pot struct {
	used atomic.Int64
	_    [56]byte
}

// New returns an account on which nothing is taken.
func New(config Config) *Account {
	if config.Limit <= 0 {
		config.Limit = Limit() / 2
	}
	a := &Account{limit: config.Limit, commons: config.Limit, limits: config.Limits.WithDefaults()}
	for k := range a.kinds {
		a.own[k] = part(config.Limit, shares[k].own)
		a.most[k] = part(config.Limit, shares[k].most)
		a.commons -= a.own[k]
	}
	a.own[Cache], a.most[Cache] = config.Cache, config.Cache
	a.keeper.kick, a.keeper.collected = make(chan struct{}, 1), make(chan struct{}, 1)
	return a
}

// part returns that many 64ths of n.
func part(n, sixtyFourths int64) int64 { return n/64*sixtyFourths + n%64*sixtyFourths/64 }

// OnShort adds an owner of memory that is charged and free: give returns as much
// of it as it can. It is called by goroutines that charge, and must not charge
// with Take itself. It is for the time before anything is charged.
func (a *Account) OnShort(give func()) { a.short = append(a.short, give) }

// Limit returns the bound of all kinds except the cache together.
func (a *Account) Limit() int64 { return a.limit }

// Limits returns the bounds of single values.
func (a *Account) Limits() *Limits { return &a.limits }

// Most returns the bound of one kind while no other kind uses the common part.
func (a *Account) Most(k Kind) int64 { return min(a.most[k], a.own[k]+a.commons) }

// Used returns the bytes that are charged to a kind.
func (a *Account) Used(k Kind) int64 { return a.kinds[k].used.Load() }

// Total returns the bytes that are charged to all kinds except the cache.
func (a *Account) Total() int64 {
	n := int64(0)
	for k := range a.kinds {
		if Kind(k) != Cache {
			n += a.kinds[k].used.Load()
		}
	}
	return n
}

// Take charges n bytes of a kind, or fails with an *infer.Error: of code
// Unavailable, or InvalidArg if n is more than the kind may ever have.
func (a *Account) Take(k Kind, n int64) error {
	if a.Try(k, n) {
		return nil
	}
	if a.refuses(k, n) {
		return errPressed
	}
	if n <= a.Most(k) {
		// Only now, as it costs: owners lock what they own and give memory to the system. The
		// keeper is woken to return freed heap, which comes too late for this request.
		for _, give := range a.short {
			give()
		}
		a.keeper.wake()
		if a.Try(k, n) {
			return nil
		}
	}
	return a.Refuse(k, n)
}

// Fits reports whether a kind may have n bytes more that are taken from another
// kind, by Move.
func (a *Account) Fits(k Kind, n int64) bool { return n <= a.most[k]-a.Used(k) }

// Refuse returns the error for a charge of n bytes that cannot be granted.
func (a *Account) Refuse(k Kind, n int64) error {
	if most := a.Most(k); n > most {
		return infer.Errorf(infer.InvalidArg,
			"request needs %d bytes of memory, but the server has %d for %s of all requests together (--request-memory-byte-size)", n, most, k)
	}
	return &infer.Error{Code: infer.Unavailable, NoRoom: true, Message: fmt.Sprintf(
		"request needs %d bytes of memory, but %d of the server's %d bytes for requests are in use, %d of them for %s",
		n, a.Total(), a.limit, a.Used(k), k)}
}

// Try charges n bytes of a kind if they are available now.
func (a *Account) Try(k Kind, n int64) bool {
	if n <= 0 {
		return true
	}
	if a.refuses(k, n) {
		return false
	}
	pot := &a.kinds[k].used
	for {
		used := pot.Load()
		if n > a.most[k]-used {
			return false
		}
		// What goes beyond the kind's own is taken of the common part first, so that at no
		// moment more is charged than the limit allows. If another goroutine has changed the
		// kind meanwhile, another part of n may go beyond: it is given back and computed again.
		over := a.over(k, used, n)
		if over > 0 && !a.takeCommon(over) {
			return false
		}
		if pot.CompareAndSwap(used, used+n) {
			return true
		}
		a.common.used.Add(-over)
	}
}

// pressedMost is the largest body that is accepted while memory is short.
const pressedMost = 64 << 10

var errPressed = &infer.Error{Code: infer.Unavailable, NoRoom: true, Message: fmt.Sprintf(
	"the server is short of memory and accepts no request of more than %d bytes until some has been freed", pressedMost)}

// Admit refuses a body of more than 64 KiB while memory is short. It is for memory that is
// charged before anybody asks for it.
func (a *Account) Admit(n int64) error {
	if n > pressedMost && a.pressed.Load() {
		return errPressed
	}
	return nil
}

// refuses reports whether n bytes of a kind are refused because memory is short.
func (a *Account) refuses(k Kind, n int64) bool {
	return shares[k].body && a.Admit(n) != nil
}

// over returns how many of the n bytes above used are no longer the kind's own.
func (a *Account) over(k Kind, used, n int64) int64 {
	return max(used+n-a.own[k], 0) - max(used-a.own[k], 0)
}

func (a *Account) takeCommon(n int64) bool {
	for {
		used := a.common.used.Load()
		if n > a.commons-used {
			return false
		}
		if a.common.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Must charges n bytes that are in use whether there is room for them or not, so
// that others are refused meanwhile.
func (a *Account) Must(k Kind, n int64) {
	pot := &a.kinds[k].used
	for n > 0 {
		used := pot.Load()
		if pot.CompareAndSwap(used, used+n) {
			a.common.used.Add(a.over(k, used, n))
			return
		}
	}
}

// Give takes n bytes off that were charged.
func (a *Account) Give(k Kind, n int64) {
	if n <= 0 {
		return
	}
	if n >= releasedMin && shares[k].heap && a.keeper.on.Load() {
		a.Move(k, Released, n)
		a.keeper.wake()
		return
	}
	a.give(k, n)
}

func (a *Account) give(k Kind, n int64) {
	pot := &a.kinds[k].used
	for {
		used := pot.Load()
		if used < n {
			panic("memory: more was given back than was taken of " + k.String())
		}
		// The kind goes down before the common part: another goroutine may be refused in
		// between, and none gets what is still taken.
		if pot.CompareAndSwap(used, used-n) {
			if over := a.over(k, used-n, n); over > 0 {
				a.common.used.Add(-over)
			}
			return
		}
	}
}

// Move charges n bytes, which a kind has, to another one instead, whether that
// one has room or not: the memory has been taken already.
func (a *Account) Move(from, to Kind, n int64) {
	// In this order, so that another goroutine cannot take the n bytes in between.
	a.Must(to, n)
	a.give(from, n)
}
