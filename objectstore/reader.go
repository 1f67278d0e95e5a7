package objectstore

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
)

const mostResumes = 3 // of one object whose body breaks off

// reader reads one version of an object, exactly the listed number of bytes.
type reader struct {
	ctx     context.Context // of Open: the reads belong to that call, and io.Reader has no place for one
	bucket  *bucket
	object  Object
	body    io.ReadCloser
	offset  int64
	resumes int
	sum     Sum       // that the store reports for the whole object
	hash    hash.Hash // of the bytes read; nil: the store reports no sum
	broken  error     // why the body ended too early
	ended   error     // returned by every later read
}

func (r *reader) open() error {
	body, _, err := call(r.ctx, r.bucket, func(c Client) (io.ReadCloser, struct{}, error) {
		body, err := c.Read(r.ctx, r.bucket.whole(r.object.Key), r.object, r.offset)
		return body, struct{}{}, err
	})
	if err != nil {
		return err
	}
	r.body = body
	if r.offset == 0 {
		r.hash = nil
		if s, told := body.(summed); told {
			r.sum, r.hash = s.sum, s.sum.hash()
		}
	}
	return nil
}

// fail makes the error for all later reads.
func (r *reader) fail(err error) error {
	r.ended = r.bucket.explain(r.ctx, err, func(c Cause) *Error { return r.bucket.location.ReadError(r.object.Key, c) })
	return r.ended
}

func (r *reader) Read(p []byte) (int, error) {
	for r.ended == nil {
		rest := r.object.Size - r.offset
		if rest == 0 {
			return 0, r.finish()
		}
		if len(p) == 0 {
			return 0, nil
		}
		if r.broken != nil {
			if err := r.resume(); err != nil {
				return 0, r.fail(err)
			}
		}
		n, err := r.body.Read(p[:min(int64(len(p)), rest)])
		r.offset += int64(n)
		if r.hash != nil {
			_, _ = r.hash.Write(p[:n])
		}
		switch {
		case err == io.EOF && r.offset < r.object.Size:
			r.broken = Cause{Reason: ErrUnreachable, Name: "ShortBody", Message: fmt.Sprintf("received %d bytes, but %d were listed", r.offset, r.object.Size)}
		case err != nil && err != io.EOF:
			r.broken = brokenBody(err)
		}
		if n > 0 || err == nil {
			return n, nil
		}
	}
	return 0, r.ended
}

func brokenBody(err error) error {
	return Cause{Reason: ErrUnreachable, Name: "BrokenBody", Message: err.Error()}
}

// resume continues where the body broke off, or returns why it cannot.
func (r *reader) resume() error {
	for err := r.broken; ; {
		if r.resumes == mostResumes || r.ctx.Err() != nil || !errors.Is(err, ErrUnreachable) {
			return err
		}
		r.resumes++
		if err := pause(r.ctx, r.resumes); err != nil {
			return err
		}
		_ = r.body.Close()
		if err = r.open(); err == nil {
			r.broken = nil
			return nil
		}
	}
}

// finish checks that the body ends at the listed length, and that its bytes have the store's
// checksum.
func (r *reader) finish() error {
	switch n, err := io.ReadFull(r.body, make([]byte, 1)); {
	case n > 0:
		return r.fail(Cause{Reason: ErrChanged, Name: "LongBody", Message: fmt.Sprintf("received more than the %d listed bytes", r.object.Size)})
	case err != io.EOF:
		return r.fail(brokenBody(err))
	}
	if r.hash != nil {
		if err := r.sum.check(r.hash); err != nil {
			return r.fail(err)
		}
	}
	r.ended = io.EOF
	return io.EOF
}

func (r *reader) Close() error {
	r.ended = errClosed
	return r.body.Close()
}

var errClosed = errors.New("the reader is closed")
