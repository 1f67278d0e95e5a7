package budget

import (
	"fmt"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
)

// Config sets up an account. Sizes are in bytes.
type Config struct {
	// Limit limits all kinds except the cache together; default half of the memory that this
	// process may use.
	Limit int64
	// Cache limits the response cache, which is not part of Limit.
	Cache int64
	// Limits limits single values of clients and models.
	Limits Limits
}

// Account counts the memory taken by clients and models against a limit.
type Account struct {
	limit   int64
	commons int64 // the part of limit that belongs to no kind
	own     [kinds]int64
	most    [kinds]int64
	common  pot // taken of commons
	kinds   [kinds]pot
	// short are called in turn to give free memory back.
	short   []func() // bound: the pools
	keeper  keeper
	limits  Limits
	holders holders
	// pressed is true while the process has more memory than it should: large bodies are rejected.
	// The goroutine that watches the memory sets it.
	pressed atomic.Bool
}

// pot counts bytes, in a cache line of its own.
type pot struct {
	used atomic.Int64
	_    [56]byte
}

// New returns an account without charges.
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

// OnShort registers an owner of charged but free memory. When memory is short, give returns as much
// of it as possible. Goroutines that charge call give, so it must not call Take itself. OnShort is
// called before anything is charged.
func (a *Account) OnShort(give func()) { a.short = append(a.short, give) }

// Limit returns the limit of all kinds except the cache together.
func (a *Account) Limit() int64 { return a.limit }

// Limits returns the limits of single values.
func (a *Account) Limits() *Limits {
	if a == nil {
		return &defaultLimits
	}
	return &a.limits
}

// Most returns the limit of one kind while no other kind uses the common part.
func (a *Account) Most(k Kind) int64 { return min(a.most[k], a.own[k]+a.commons) }

// Used returns the bytes charged to a kind.
func (a *Account) Used(k Kind) int64 { return a.kinds[k].used.Load() }

// Total returns the bytes charged to all kinds except the cache.
func (a *Account) Total() int64 {
	n := int64(0)
	for k := range a.kinds {
		if Kind(k) != Cache {
			n += a.kinds[k].used.Load()
		}
	}
	return n
}

// Take charges n bytes of a kind, or fails with an *infer.Error: of code Unavailable, or of code
// InvalidArg if n exceeds the kind's maximum.
func (a *Account) Take(k Kind, n int64) error {
	if a.Try(k, n) {
		return nil
	}
	if a.refuses(k, n) {
		return errPressed
	}
	// A kind on the heap that is at its maximum gains nothing from free memory of others.
	if n <= a.Most(k) && (a.Fits(k, n) || !shares[k].heap) {
		// Only now, because it is expensive: owners lock their memory and return it to the system.
		// The keeper is woken to return freed heap, too late for this request.
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

// Fits reports whether a kind may have n more bytes that Move takes from another kind.
func (a *Account) Fits(k Kind, n int64) bool { return n <= a.most[k]-a.Used(k) }

// Refuse returns the error for a charge of n bytes that cannot be granted.
func (a *Account) Refuse(k Kind, n int64) error {
	if most := a.Most(k); n > most {
		return infer.Errorf(infer.InvalidArg,
			"request needs %d bytes of memory, but the server has %d for %s of all requests together (--request-memory-byte-size)", n, most, k)
	}
	return &infer.Error{Code: infer.Unavailable, OutOfMemory: true, Message: fmt.Sprintf(
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
		// Bytes beyond the kind's own part are taken from the common part first, so that the
		// charges never exceed the limit. If another goroutine has changed the kind meanwhile, a
		// different part of n may be beyond it: it is given back and computed again.
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

var errPressed = &infer.Error{Code: infer.Unavailable, OutOfMemory: true, Message: fmt.Sprintf(
	"the server is short of memory and accepts no request of more than %d bytes until some has been freed", pressedMost)}

// Admit rejects a body of more than 64 KiB while memory is short. It is for memory that is charged
// before it is requested.
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

// over returns the number of the n bytes above used that exceed the kind's own part.
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

// Must charges n bytes that are already in use, even without room, so that others are refused
// meanwhile.
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

// Give gives back n charged bytes.
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
			panic("budget: more was given back than was taken of " + k.String())
		}
		// The kind is reduced before the common part: another goroutine may be refused in between,
		// and none gets bytes that are still taken.
		if pot.CompareAndSwap(used, used-n) {
			if over := a.over(k, used-n, n); over > 0 {
				a.common.used.Add(-over)
			}
			return
		}
	}
}

// Move transfers n charged bytes from a kind to another one, even without room: the memory has been
// taken already.
func (a *Account) Move(from, to Kind, n int64) {
	// In this order, so that no other goroutine can take the n bytes in between.
	a.Must(to, n)
	a.give(from, n)
}
