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

// Object is one object as a listing showed it.
type Object struct {
	// Key is the name below the location's path, '/'-separated. CheckKey has accepted it.
	Key  string
	Size int64 // bytes
	// Modified is when the store got this version, by the store's clock.
	Modified time.Time
	// Version tells this content from any other under the same key: an ETag or a generation. Only equality says something.
	Version string
	// Directory is true of the empty objects by which consoles make directories. Their names end in '/', which Key has not;
	// they cannot be opened.
	Directory bool
}

// Bucket is one location of a store. Every call ends when its context does. Errors are *Error or the context's, and what each
// returned.
type Bucket interface {
	// List calls each for every object whose key begins with prefix, in the store's order, until each returns an error. Objects below the prefix whose names no file can have are passed over; List returns a *RefusedError with them at
	// the end if all else went well, or before the end if there are more than a million.
	List(ctx context.Context, prefix string, each func(Object) error) error
	// Open reads that very version: the error is ErrChanged if the key has another one by now, and the reader's is if it
	// changes meanwhile. The reader ends in io.EOF after exactly o.Size bytes. Its reads end with ctx.
	Open(ctx context.Context, o Object) (io.ReadCloser, error)
	// Close ends the connections. Calls that are on their way end by themselves or with their contexts.
	Close() error
}

// Opener opens the bucket of a location and makes sure that it can be listed. The error has Triton's text.
type Opener func(ctx context.Context, l Location) (Bucket, error)

// pageSize is what all stores allow.
const pageSize = 1000

// mostEmpty is how many pages without an object may follow each other: stores that filter give some.
const mostEmpty = 100

// NewOpener returns the Opener of all stores that connect knows. Its buckets find their credentials by Find, again when the
// store refuses them: once for each call, and each page of a listing is one.
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

// renew replaces refused by a client with the credentials of now. Of several goroutines that saw the same client refused, one
// does.
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

// call calls the store: again where it cannot be reached, and again with new credentials where it refuses those that there are.
// No lock is held meanwhile.
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

// pause waits before the next try, the longer the more there were.
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

// explain makes an *Error of what a client or renew returned.
func (b *bucket) explain(ctx context.Context, err error, text func(Cause) *Error) error {
	var done *Error
	if errors.As(err, &done) {
		return done
	}
	return text(causeOf(ctx, err))
}

// whole is the key of the store for one below the location.
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

// pass hands the objects of a page on.
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
