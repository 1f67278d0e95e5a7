package values

import (
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// UnableTo puts a context before the error of an accessor: "Unable to parse
// 'name': <err>".
func UnableTo(do, name string, err error) error {
	e := infer.AsError(err)
	return &infer.Error{Code: e.Code, Message: "Unable to " + do + " '" + name + "': " + e.Message}
}

// ReadParameter returns v as a custom parameter; ok is false for arrays, objects
// and null.
func ReadParameter(v jsontext.Value, name string) (p infer.Parameter, ok bool) {
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

// AppendParameter appends the value of p.
func AppendParameter(b []byte, p *infer.Parameter) []byte {
	switch p.Kind {
	case infer.IntParameter:
		return strconv.AppendInt(b, p.Int, 10)
	case infer.BoolParameter:
		return strconv.AppendBool(b, p.Bool)
	case infer.DoubleParameter:
		return jsontext.AppendFloat(b, p.Double)
	default:
		return jsontext.AppendString(b, p.String)
	}
}
