package body

import (
	"errors"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// Whole calls use with the whole body of a request, nil if it is empty, and with the charge of its
// bytes. The text is invalid after use has returned.
func (from *Gatherer) Whole(r *http1.Request, use func(text []byte, c *budget.Charge) error) error {
	return from.whole(r, from.MaxBytes, from.CheckLength, use)
}

// Small is Whole for bodies of at most Limits.SmallBody bytes. The texts in the body are charged
// with it, so use may copy each of them once.
func (from *Gatherer) Small(r *http1.Request, use func(text []byte, c *budget.Charge) error) error {
	limit := from.Account.Limits().SmallBody
	if limit >= from.MaxBytes {
		return from.Whole(r, use)
	}
	check := func(n int64) error {
		if n <= limit {
			return nil
		}
		return infer.Errorf(infer.InvalidArg, "request body of %d bytes exceeds the maximum of %d bytes for this endpoint. "+
			"Use --client-max-small-body-size to increase the limit.", n, limit)
	}
	return from.whole(r, limit, check, func(text []byte, c *budget.Charge) error {
		if err := c.Take(budget.JSON, int64(len(text))); err != nil {
			return err
		}
		return use(text, c)
	})
}

// whole reads a body of at most most bytes; check returns the error of a longer one.
func (from *Gatherer) whole(r *http1.Request, most int64, check func(n int64) error, use func(text []byte, c *budget.Charge) error) error {
	c := budget.Charge{Account: from.Account, Holder: r.Holder()}
	defer c.Settle()
	b := NewReader(r.Body(), r.Length)
	if err := check(b.Left); err != nil {
		return err
	}
	limit := most + 1
	if b.Left >= 0 {
		limit = b.Left
	}
	text, room, err := from.Gather(&b, &c, budget.JSON, limit, b.Left > FirstStep)
	if room != nil {
		defer room.Release()
	}
	if err == nil {
		err = check(int64(len(text)))
	}
	if err != nil {
		return err
	}
	return use(text, &c)
}

// JSON returns a function for Whole and Small that parses the body and calls use. An empty body
// becomes a value that does not exist.
func JSON(use func(v jsontext.Value, c *budget.Charge) error) func(text []byte, c *budget.Charge) error {
	return func(text []byte, c *budget.Charge) error {
		if len(text) == 0 {
			return use(jsontext.Value{}, c)
		}
		doc, err := Parse(c, new(jsontext.Scanner), text)
		if err != nil {
			return err
		}
		return use(doc.Root(), c)
	}
}

// CheckLength rejects a JSON text of more than MaxBytes. A negative length is unknown.
func (from *Gatherer) CheckLength(n int64) error {
	if limit := from.MaxBytes; n > limit {
		return infer.Errorf(infer.InvalidArg,
			"request JSON size of %d bytes exceeds the maximum allowed input size of %d bytes. Use --http-max-input-size to increase the limit.", n, limit)
	}
	return nil
}

// Parse checks the syntax of a request's JSON. Its error is RefuseJSON's, and suggests a remedy for
// common mistakes. The memory of the scanner is charged to c.
func Parse(c *budget.Charge, s *jsontext.Scanner, text []byte) (jsontext.Document, error) {
	doc, err := s.Scan(c, text)
	if err == nil {
		return doc, nil
	}
	refusal := infer.AsError(RefuseJSON(err))
	if refusal.Code == infer.Internal {
		refusal.Message += remedy(text)
	}
	return doc, refusal
}

// RefuseJSON returns the protocol's error for a JSON error. It returns nil and the errors of
// charges unchanged.
func RefuseJSON(err error) error {
	var refused *infer.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, jsontext.ErrTooDeep):
		return infer.Errorf(infer.InvalidArg, "%v", err)
	}
	return infer.Errorf(infer.Internal, "failed to parse the request JSON buffer: %v", err)
}
