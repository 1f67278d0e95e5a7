package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Object is one object in a listing.
type Object struct {
	// Key is the name below the location's path, '/'-separated. CheckKey has accepted it.
	Key  string
	Size int64 // bytes
	// Modified is the time when the store received this version, by the store's clock.
	Modified time.Time
	// Version identifies this content under the key: an ETag or a generation. Only equality is
	// meaningful.
	Version string
	// Directory marks the empty objects with which consoles make directories. Their names end in
	// '/', which Key lacks; they cannot be opened.
	Directory bool
}

// Bucket is one location in a store. Every call ends with its context. Errors are *Error, the
// context's, or those of each.
type Bucket interface {
	// List calls each for every object whose key begins with prefix, in the store's order, until
	// each returns an error. Objects whose names no file can have are skipped; List returns a
	// *RefusedError with them at the end if there is no other error, or earlier if there are more
	// than a million.
	List(ctx context.Context, prefix string, each func(Object) error) error
	// Open reads exactly this version: the error is ErrChanged if the key has another version by
	// now, and the reader's error is if it changes meanwhile. The reader ends with io.EOF after
	// exactly o.Size bytes. Its reads end with ctx.
	Open(ctx context.Context, o Object) (io.ReadCloser, error)
	// Close ends the connections. Running calls end by themselves or with their contexts.
	Close() error
}

// Opener opens the bucket of a location and checks that it can be listed. The error has Triton's
// text.
type Opener func(ctx context.Context, l Location) (Bucket, error)

// pageSize is allowed by all stores.
const pageSize = 1000

// mostEmpty bounds successive pages without an object: stores that filter return some.
const mostEmpty = 100

// NewOpener returns the Opener for all stores that connect knows. Its buckets find their
// credentials with Find, again when the store refuses them: once for each call, and each page of a
// listing is one call.
func NewOpener(getenv func(string) string, connect Connect) Opener {
	return func(ctx context.Context, l Location) (Bucket, error) {
		b := &bucket{location: l, getenv: getenv, connect: connect}
		if err := b.renew(ctx, nil); err != nil {
			return nil, err
		}
		_, _, err := call(ctx, b, func(c Client) ([]Entry, string, error) { return c.Page(ctx, b.whole(""), "", 1) })
		if err != nil {
			_ = b.Close()
			return nil, b.explain(ctx, err, l.OpenError)
		}
		return b, nil
	}
}

// bucket implements Bucket over clients that it replaces.
type bucket struct {
	location Location
	getenv   func(string) string
	connect  Connect

	mu     sync.Mutex // held while client is replaced
	client Client
}

// renew replaces refused by a client with the current credentials. If several goroutines saw the
// same client refused, one of them replaces it.
func (b *bucket) renew(ctx context.Context, refused Client) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client != refused {
		return nil
	}
	credential, err := Find(b.getenv, b.location)
	if err != nil {
		return err
	}
	client, err := b.connect(ctx, b.location, credential)
	if err != nil {
		return b.explain(ctx, err, b.location.OpenError)
	}
	if refused != nil {
		refused.Close()
	}
	b.client = client
	return nil
}

func (b *bucket) current() Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.client
}

const (
	mostTries  = 3 // of a call that gets no answer, or one that the store is busy
	firstPause = 100 * time.Millisecond
)

// call calls the store: again if it is unreachable, and again with new credentials if it refuses
// the current ones. No lock is held meanwhile.
func call[A, B any](ctx context.Context, b *bucket, do func(Client) (A, B, error)) (x A, y B, err error) {
	client, renewed := b.current(), false
	for try := 1; ; {
		x, y, err = do(client)
		switch {
		case ctx.Err() != nil:
			return x, y, err
		case errors.Is(err, ErrDenied) && !renewed:
			if err := b.renew(ctx, client); err != nil {
				return x, y, err
			}
			client, renewed = b.current(), true
		case errors.Is(err, ErrUnreachable) && try < mostTries:
			if err := pause(ctx, try); err != nil {
				return x, y, err
			}
			try++
		default:
			return x, y, err
		}
	}
}

// pause waits before the next try, longer after each.
func pause(ctx context.Context, tries int) error {
	timer := time.NewTimer(firstPause << (tries - 1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// explain converts an error of a client or of renew to an *Error.
func (b *bucket) explain(ctx context.Context, err error, text func(Cause) *Error) error {
	var done *Error
	if errors.As(err, &done) {
		return done
	}
	return text(causeOf(ctx, err))
}

// whole is the store's key for one below the location.
func (b *bucket) whole(key string) string {
	if b.location.Path == "" {
		return key
	}
	return b.location.Path + "/" + key
}

func (b *bucket) List(ctx context.Context, prefix string, each func(Object) error) error {
	fail := func(c Cause) *Error { return b.location.ListError(prefix, c) }
	var refused RefusedError
	from, empty := "", 0
	for {
		page, next, err := call(ctx, b, func(c Client) ([]Entry, string, error) { return c.Page(ctx, b.whole(prefix), from, pageSize) })
		if err != nil {
			return b.explain(ctx, err, fail)
		}
		if err := b.pass(page, prefix, each, &refused); err != nil {
			return err
		}
		if refused.Count > mostListedRefused {
			refused.Partial = true
			return &refused
		}
		if len(page) > 0 {
			empty = 0
		} else if empty++; empty > mostEmpty {
			return fail(Cause{Reason: ErrUnreachable, Name: "EndlessListing", Message: fmt.Sprintf("%d pages without an object followed each other", empty)})
		}
		switch next {
		case "":
			if refused.Count > 0 {
				return &refused
			}
			return nil
		case from:
			return fail(Cause{Reason: ErrUnreachable, Name: "EndlessListing", Message: "a page names itself as the next"})
		}
		from = next
	}
}

// pass passes the objects of a page to each.
func (b *bucket) pass(page []Entry, prefix string, each func(Object) error, refused *RefusedError) error {
	for _, e := range page {
		key, below := strings.CutPrefix(e.Key, b.whole(""))
		if !below || !strings.HasPrefix(key, prefix) {
			refused.Refuse(b.location, e.Key, errors.New("the store was not asked for it"))
			continue
		}
		if key == "" { // the directory itself
			continue
		}
		key, slash := strings.CutSuffix(key, "/")
		if err := CheckKey(key); err != nil {
			refused.Refuse(b.location, key, err)
			continue
		}
		o := Object{Key: key, Size: e.Size, Modified: e.Modified, Version: e.Version, Directory: slash || e.Directory}
		if o.Directory {
			o.Size = 0
		}
		if o.Size < 0 {
			refused.Refuse(b.location, key, fmt.Errorf("its size is %d", o.Size))
			continue
		}
		if err := each(o); err != nil {
			return err
		}
	}
	return nil
}

func (b *bucket) Open(ctx context.Context, o Object) (io.ReadCloser, error) {
	r := &reader{ctx: ctx, bucket: b, object: o}
	if err := r.open(); err != nil {
		return nil, r.fail(err)
	}
	return r, nil
}

func (b *bucket) Close() error {
	if c := b.current(); c != nil {
		c.Close()
	}
	return nil
}
