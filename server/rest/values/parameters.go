package values

import (
	"strconv"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// ItemCharges charges for small objects of which a request may have any number: names, parameters,
// dimensions. The first few are not charged.
type ItemCharges struct {
	Charge *budget.Charge
	owed   int
}

// ItemBytes is the memory for an input, an output or a parameter in the lists and maps of this
// server.
const ItemBytes = 256

// freeItems is the uncharged memory of a request, in bytes.
const freeItems = 16 << 10

// Add charges for n bytes.
func (t *ItemCharges) Add(n int) error {
	if t.owed += n; t.owed < freeItems {
		return nil
	}
	n, t.owed = t.owed, 0
	return t.Charge.Take(budget.Bodies, int64(n))
}

// Text copies a text of the request.
func (t *ItemCharges) Text(s jsontext.String) (string, error) {
	if err := t.Add(len(s.Raw)); err != nil {
		return "", err
	}
	return s.String(), nil // bound: charged
}

// Check rejects a text of n bytes that exceeds its limit, which a flag may change.
func Check(what string, n int, most int64, flag string) error {
	if int64(n) <= most {
		return nil
	}
	if flag != "" {
		flag = "; " + flag + " changes the limit"
	}
	return infer.Errorf(infer.InvalidArg, "%s has %d bytes, but at most %d are allowed%s", what, n, most, flag)
}

// UnableTo adds a context to the error of an accessor: "Unable to parse 'name': <err>".
func UnableTo(do, name string, err error) error {
	e := infer.AsError(err)
	return &infer.Error{Code: e.Code, Message: "Unable to " + do + " '" + name + "': " + e.Message}
}

// Parameters checks the parameters of one request against the limits, and charges for them.
type Parameters struct {
	Items *ItemCharges
	bytes int
}

// Add charges for a parameter that is kept, or rejects it.
func (p *Parameters) Add(name jsontext.String, value jsontext.Value) error {
	n := p.bytes
	if err := p.Check(name, value); err != nil {
		return err
	}
	return p.Items.Add(ItemBytes + p.bytes - n)
}

// Check checks a parameter that is not kept.
func (p *Parameters) Check(name jsontext.String, value jsontext.Value) error {
	if err := Check("the name of a parameter", name.Len(), budget.MaxName, ""); err != nil {
		return err
	}
	p.bytes += len(name.Raw) + len(value.Raw())
	return Check("all parameters together", p.bytes, p.Items.Charge.Limits().Parameters, "--client-max-parameters-size")
}

// ReadParameter returns v as a custom parameter; ok is false for arrays, objects and null.
func ReadParameter(v jsontext.Value, name string) (p infer.Parameter, ok bool) {
	p.Name = name
	if s, err := v.Text(); err == nil {
		p.Kind, p.String = infer.StringParameter, s.String() // bound: charged by Add
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
