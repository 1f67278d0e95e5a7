package inference

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
)

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
