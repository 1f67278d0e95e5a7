package objectstore

import (
	"context"
	"errors"
	"io"
	"time"
)

// Client is a connection to one location with one credential. It implements its store's listing and
// reading; the work common to all stores (checks of keys, renewed credentials, broken bodies) is
// done above it. Its errors are a Cause. Any goroutine may call it.
type Client interface {
	// Page lists at most most objects whose whole key begins with prefix, from the position in the
	// last page, "" at first. next is "" after the last page. It need not keep the keys' order.
	Page(ctx context.Context, prefix, from string, most int) (page []Entry, next string, err error)
	// Read reads a version of the object with that whole key, from byte offset on. It need not
	// check the length. From offset 0 it returns a body WithSum if the store reports one.
	Read(ctx context.Context, key string, o Object, offset int64) (io.ReadCloser, error)
	// Close ends idle connections. Running reads continue.
	Close()
}

// Entry is one object of a page, as the store shows it.
type Entry struct {
	Key       string // whole, from the bucket on; unchecked
	Size      int64
	Modified  time.Time
	Version   string
	Directory bool // the store marks it as a directory
}

// Connect makes a client. It does not wait for the store: the first call does.
type Connect func(ctx context.Context, l Location, c Credential) (Client, error)

// Cause is why a call of a store failed, in the store's words.
type Cause struct {
	Reason  error  // one of the errors above, or the context's, or nil
	Name    string // such as AccessDenied
	Message string
}

// Error gives name and message.
func (c Cause) Error() string { return c.Name + ": " + c.Message }

// Unwrap gives the reason.
func (c Cause) Unwrap() error { return c.Reason }

// causeOf returns why a call failed. The context's error takes precedence over the client's.
func causeOf(ctx context.Context, err error) Cause {
	var c Cause
	switch {
	case ctx.Err() != nil:
		return Cause{Reason: ctx.Err(), Name: "Timeout", Message: "the call was ended before the store had answered: " + context.Cause(ctx).Error()}
	case errors.As(err, &c):
		c.Name, c.Message = shortText(c.Name), shortText(c.Message)
		return c
	}
	return Cause{Name: "Unknown", Message: shortText(err.Error())}
}

const mostText = 300 // bytes of a store's text in an error

// shortText bounds a store's text and keeps it on one line.
func shortText(text string) string {
	if len(text) > mostText {
		text = text[:mostText] + "…"
	}
	return cleanText(text)
}
