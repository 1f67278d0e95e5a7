package rest

import (
	"errors"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// parseJSON checks the syntax of a request's JSON and reports what is wrong
// with it as the protocol does.
func parseJSON(s *jsontext.Scanner, buf []byte) (jsontext.Document, error) {
	t, err := s.Scan(buf)
	return t, errJSON(err)
}

// errJSON says what is wrong with a text as the protocol does.
func errJSON(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jsontext.ErrTooDeep):
		return infer.Errorf(infer.InvalidArg, "%v", err)
	}
	return infer.Errorf(infer.Internal, "failed to parse the request JSON buffer: %v", err)
}

// unableTo puts a context before the error of an accessor: "Unable to parse
// 'name': <err>".
func unableTo(do, name string, err error) error {
	e := infer.AsError(err)
	return &infer.Error{Code: e.Code, Message: "Unable to " + do + " '" + name + "': " + e.Message}
}

func errMissingMember(name string) error {
	return infer.Errorf(infer.Internal, "attempt to access non-existing object member '%s'", name)
}

// readParameter returns v as a custom parameter; ok is false for arrays, objects
// and null.
func readParameter(v jsontext.Value, name string) (p infer.Parameter, ok bool) {
	p.Name = name
	if s, err := v.Text(); err == nil {
		p.Kind, p.String = infer.StringParameter, s.String()
		return p, true
	}
	if on, err := v.Bool(); err == nil {
		p.Kind, p.Bool = infer.BoolParameter, on
		return p, true
	}
	if n, err := v.Int(); err == nil {
		p.Kind, p.Int = infer.IntParameter, n
		return p, true
	}
	f, err := v.Float()
	p.Kind, p.Double = infer.DoubleParameter, f
	return p, err == nil
}

// appendShape appends a shape as a JSON array, with first before it unless it is 0.
func appendShape(b []byte, first int64, dims []int64) []byte {
	b = append(b, '[')
	if first != 0 {
		b = strconv.AppendInt(b, first, 10)
	}
	for i, d := range dims {
		if i > 0 || first != 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return append(b, ']')
}
