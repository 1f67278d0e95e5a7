package objects

import (
	"context"
	"io"
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
	// List calls each for every object whose key begins with prefix, in ascending order of the keys, until each returns an
	// error. Objects below the prefix whose names no file can have are passed over; List returns a *RefusedError with them at
	// the end if all else went well.
	List(ctx context.Context, prefix string, each func(Object) error) error
	// Open reads that very version: the error is ErrChanged if the key has another one by now, and the reader's is if it
	// changes meanwhile. The reader ends in io.EOF after exactly o.Size bytes. Its reads end with ctx.
	Open(ctx context.Context, o Object) (io.ReadCloser, error)
	// Close ends the connections. Calls that are on their way fail or end.
	Close() error
}

// Opener opens the bucket of a location and makes sure that it can be listed. The error has Triton's text.
type Opener func(ctx context.Context, l Location) (Bucket, error)
