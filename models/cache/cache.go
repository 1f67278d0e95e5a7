package cache

import (
	"container/list"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/metrics"
)

// ErrExists reports that another request has inserted the same response meanwhile.
var ErrExists = errors.New("the key already exists")

// errClosed reports that the version has been unloaded.
var errClosed = errors.New("the space is closed")

// Allocator lends n bytes outside the Go heap.
type Allocator func(n int) ([]byte, infer.Memory, error)

// blockBytes is the size from which outputs use the Allocator. It allocates whole pages, which
// would waste memory for smaller ones.
const blockBytes = 64 << 10

// Config configures a Cache.
type Config struct {
	// Size is the budget in bytes, at least MinSize.
	Size int64
	// Allocate lends memory for large outputs. That memory is free again without the garbage
	// collector, and models can use it without a copy. If it is nil or fails, outputs are stored on
	// the Go heap.
	Allocate Allocator
}

// MinSize is the least budget in bytes, as in Triton's allocator. A budget below the weight of an
// empty response keeps nothing.
const MinSize = 192

// Cache keeps the responses of all spaces. It is safe for concurrent use.
type Cache struct {
	config Config
	hasher *hasher
	spaces atomic.Uint64 // number of spaces ever made

	mu     sync.Mutex
	order  list.List // of *entry, the most recently used first
	used   int64     // bytes of entries, including coming
	coming int64     // bytes of responses that are being copied
	stats  metrics.CacheFigures
}

// New makes an empty cache.
func New(config Config) (*Cache, error) {
	if config.Size < MinSize {
		return nil, errTooSmall
	}
	h, err := newHasher()
	if err != nil {
		return nil, err
	}
	return &Cache{config: config, hasher: h}, nil
}

// Stats returns the current figures.
func (c *Cache) Stats() metrics.CacheFigures {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Size, s.Used = c.config.Size, c.used
	return s
}

// Space is the part of a cache that one loaded version of a model has. It is
// safe for concurrent use.
type Space struct {
	cache   *Cache
	number  uint64 // never used again
	outputs int    // of the model

	// Guarded by Cache.mu.
	entries map[question]*entry // bound: Config.Size
	closed  bool
}

// Space makes an empty space for a model with that number of outputs.
func (c *Cache) Space(outputs int) *Space {
	return &Space{cache: c, number: c.spaces.Add(1), outputs: outputs, entries: make(map[question]*entry)}
}

// question identifies the request that an entry answers.
type question struct {
	key Key
	// outputs are the requested names, as selection writes them, or empty for all, which is also
	// the default.
	outputs string
}

// Miss is a request that was not found, for Insert.
type Miss struct{ question question }

// Lookup returns the response to a request with exactly the requested outputs, or nil: a response
// kept for the same outputs, or a part of one with all outputs. The request is complete, so that
// its inputs have names, types and shapes. The response belongs to the caller, which sets model and
// id. took includes the hashing of the inputs.
func (s *Space) Lookup(r *infer.Request) (found *infer.Response, miss Miss, took time.Duration) {
	c, began := s.cache, time.Now()
	miss.question = question{c.hasher.key(s.number, r), selection(r.Outputs, s.outputs)}
	c.mu.Lock()
	e, wanted := s.entries[miss.question], []string(nil)
	if e == nil && miss.question.outputs != "" {
		if whole := s.entries[question{key: miss.question.key}]; whole != nil && whole.has(r.Outputs) {
			e, wanted = whole, r.Outputs
		}
	}
	if e != nil {
		c.order.MoveToFront(e.position)
		found = e.response(wanted)
		c.stats.Hits++
	} else {
		c.stats.Misses++
	}
	c.stats.Lookups++
	took = time.Since(began)
	c.stats.LookupTime += took
	c.mu.Unlock()
	return found, miss, took
}

// Insert stores a copy of the response to a request that was not found. The response stays the
// caller's. The error is ErrExists, an *infer.Error if the response cannot be kept, or errClosed.
func (s *Space) Insert(m Miss, r *infer.Response) (took time.Duration, err error) {
	began := time.Now()
	err = s.insert(m, r)
	took = time.Since(began)
	c := s.cache
	c.mu.Lock()
	c.stats.InsertionTime += took
	c.mu.Unlock()
	return took, err
}

func (s *Space) insert(m Miss, r *infer.Response) error {
	c := s.cache
	size := sizeOf(r.Outputs, r.Parameters)
	if size > c.config.Size {
		return infer.Errorf(infer.Internal, "Requested byte_size: %d is greater than total cache size: %d", size, c.config.Size)
	}
	e := &entry{question: m.question, space: s, parameters: slices.Clip(slices.Clone(r.Parameters)), size: size} // bound: size

	// Reserve first: the copy made meanwhile is within the budget.
	c.mu.Lock()
	if err := s.refuseLocked(m); err != nil {
		c.mu.Unlock()
		return err
	}
	if coming := c.coming; size > c.config.Size-coming {
		c.mu.Unlock()
		return infer.Errorf(infer.Internal, "Requested byte_size: %d is greater than the cache size that is left while other responses are being stored: %d", size, c.config.Size-coming)
	}
	evicted := c.evictForLocked(size)
	c.mu.Unlock()
	releaseAll(evicted)
	e.outputs = copyOf(r.Outputs, c.config.Allocate)

	c.mu.Lock()
	c.coming -= size
	err := s.refuseLocked(m)
	if err == nil {
		s.entries[e.question] = e
		e.position = c.order.PushFront(e)
		c.stats.Entries++
	} else {
		c.used -= size
	}
	c.mu.Unlock()
	if err != nil {
		e.release()
	}
	return err
}

// refuseLocked returns why a response cannot be inserted.
func (s *Space) refuseLocked(m Miss) error {
	if s.closed {
		return errClosed
	}
	if s.entries[m.question] != nil {
		return ErrExists
	}
	return nil
}

// evictForLocked reserves size bytes of the budget and returns the evicted entries, to be released.
func (c *Cache) evictForLocked(size int64) (evicted []*entry) { // bound: the entries
	for c.used+size > c.config.Size {
		e := c.order.Back().Value.(*entry)
		c.removeLocked(e)
		c.stats.Evictions++
		evicted = append(evicted, e)
	}
	c.used += size
	c.coming += size
	return evicted
}

// removeLocked removes an entry. The caller releases it.
func (c *Cache) removeLocked(e *entry) {
	delete(e.space.entries, e.question)
	c.order.Remove(e.position)
	c.used -= e.size
	c.stats.Entries--
}

// Close drops the entries of the space and refuses new ones. That does not count as eviction. It
// may be called again.
func (s *Space) Close() {
	c := s.cache
	c.mu.Lock()
	s.closed = true
	dropped := slices.Collect(maps.Values(s.entries))
	for _, e := range dropped {
		c.removeLocked(e)
	}
	c.mu.Unlock()
	releaseAll(dropped)
}

func releaseAll(entries []*entry) {
	for _, e := range entries {
		e.release()
	}
}
