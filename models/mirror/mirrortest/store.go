// Package mirrortest is an in-memory object store for tests. It hangs, fails and changes on
// request.
package mirrortest

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nereid-serving/nereid/objectstore"
)

// Call is a kind of call to a store.
type Call string

// The calls.
const (
	List Call = "list"
	Open Call = "open"
	Read Call = "read" // of a body from Open
)

// Store is an objectstore.Bucket. Any goroutine may change it.
type Store struct {
	mu      sync.Mutex
	at      objectstore.Location
	objects map[string]content
	version int
	errs    map[Call]error
	hangs   map[Call]chan struct{} // closed when the calls go on
	waiting map[Call]int
	opened  map[string]int
	lists   int
	before  func(call Call, key string)
	closed  bool
}

type content struct {
	bytes     []byte
	version   string
	directory bool
}

var _ objectstore.Bucket = (*Store)(nil)

// New makes an empty store.
func New() *Store {
	return &Store{objects: make(map[string]content), errs: make(map[Call]error), hangs: make(map[Call]chan struct{}), waiting: make(map[Call]int), opened: make(map[string]int)}
}

// Opener opens the store at any location.
func (s *Store) Opener(ctx context.Context, at objectstore.Location) (objectstore.Bucket, error) {
	s.mu.Lock()
	s.at = at
	s.mu.Unlock()
	if err := s.call(ctx, Open, ""); err != nil {
		return nil, err
	}
	return s, nil
}

// Put stores a new version of an object. A key that ends in a slash is a directory.
func (s *Store) Put(key, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	name, directory := strings.CutSuffix(key, "/")
	s.objects[name] = content{[]byte(text), strconv.Itoa(s.version), directory}
}

// Delete removes an object.
func (s *Store) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, strings.TrimSuffix(key, "/"))
}

// Fail makes calls fail from now on; nil ends that.
func (s *Store) Fail(call Call, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs[call] = err
}

// Denial is the error for a client that may not read an object.
func (s *Store) Denial(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at.ReadError(key, objectstore.Cause{Reason: objectstore.ErrDenied, Name: "AccessDenied", Message: "no"})
}

// Hang makes calls wait until their context ends or Resume is called.
func (s *Store) Hang(call Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs[call] = make(chan struct{})
}

// Resume continues hanging calls.
func (s *Store) Resume(call Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if hang := s.hangs[call]; hang != nil {
		close(hang)
		delete(s.hangs, call)
	}
}

// Waiting counts the hanging calls.
func (s *Store) Waiting(call Call) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting[call]
}

// Before sets a function that runs before each call.
func (s *Store) Before(f func(call Call, key string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// Opened counts the reads of an object, or of all if key is "".
func (s *Store) Opened(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != "" {
		return s.opened[key]
	}
	all := 0
	for _, n := range s.opened {
		all += n
	}
	return all
}

// Lists counts the listings.
func (s *Store) Lists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

// Closed reports whether the bucket has been closed.
func (s *Store) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// call applies the test's settings to a call.
func (s *Store) call(ctx context.Context, call Call, key string) error {
	s.mu.Lock()
	before, hang, err := s.before, s.hangs[call], s.errs[call]
	if hang != nil {
		s.waiting[call]++
	}
	s.mu.Unlock()
	if before != nil {
		before(call, key)
	}
	if hang != nil {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.waiting[call]--
		}()
		select {
		case <-hang:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// List implements objectstore.Bucket.
func (s *Store) List(ctx context.Context, prefix string, each func(objectstore.Object) error) error {
	s.mu.Lock()
	s.lists++
	s.mu.Unlock()
	if err := s.call(ctx, List, prefix); err != nil {
		return err
	}
	s.mu.Lock()
	now, at := maps.Clone(s.objects), s.at
	s.mu.Unlock()
	var refused objectstore.RefusedError
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if !strings.HasPrefix(key, prefix) && key+"/" != prefix {
			continue
		}
		if why := objectstore.CheckKey(key); why != nil {
			refused.Refuse(at, key, why)
			continue
		}
		c := now[key]
		if err := each(objectstore.Object{Key: key, Size: int64(len(c.bytes)), Version: c.version, Directory: c.directory}); err != nil {
			return err
		}
	}
	if refused.Count > 0 {
		return &refused
	}
	return nil
}

// Open implements objectstore.Bucket.
func (s *Store) Open(ctx context.Context, o objectstore.Object) (io.ReadCloser, error) {
	if err := s.call(ctx, Open, o.Key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened[o.Key]++
	c, there := s.objects[o.Key]
	switch {
	case !there:
		return nil, s.at.ReadError(o.Key, objectstore.Cause{Reason: objectstore.ErrAbsent})
	case c.version != o.Version:
		return nil, objectstore.ErrChanged
	}
	return &body{s, ctx, o.Key, bytes.NewReader(c.bytes)}, nil
}

// Close implements objectstore.Bucket.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

type body struct {
	store *Store
	ctx   context.Context //nolint:containedctx // as that of an answer of net/http
	key   string
	*bytes.Reader
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if err := b.store.call(b.ctx, Read, b.key); err != nil {
		return 0, err
	}
	return b.Reader.Read(p)
}

// WriteTo hides the method of bytes.Reader, which would not hang.
func (b *body) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{b}) }

// Close implements io.Closer.
func (*body) Close() error { return nil }
