package server

import (
	"math"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// outputForm says how an output that was asked for is to be sent.
type outputForm struct {
	name    string
	binary  bool
	classes int // top-K classification, 0 none
}

// readOutputs reads which outputs are wanted and how. An empty list is as none.
func (c *inferCall) readOutputs(v jsontext.Value, req *infer.Request) error {
	elements, err := v.Elements()
	if err != nil {
		return unableTo("parse", "outputs", err)
	}
	var names Names
	for {
		v, ok := elements.Next()
		if !ok {
			return nil
		}
		form, err := c.readOutput(v)
		if err != nil {
			return err
		}
		if !names.Add(form.name, len(req.Outputs), func(i int) string { return req.Outputs[i] }) {
			return infer.Errorf(infer.InvalidArg, "%soutput '%s' already exists in request", req.LogPrefix(), form.name)
		}
		if err := c.chargeItem(len(req.Outputs)); err != nil {
			return err
		}
		req.Outputs = append(req.Outputs, form.name)
		c.forms = append(c.forms, form)
	}
}

func (c *inferCall) readOutput(v jsontext.Value) (form outputForm, err error) {
	var binary, classes, region, regionOffset, regionLen jsontext.Value
	for m := v.Member("parameters").Members(); ; {
		name, value, ok := m.Next()
		if !ok {
			break
		}
		switch {
		case name.Is("binary_data"):
			setFirst(&binary, value)
		case name.Is("classification"):
			setFirst(&classes, value)
		case name.Is("shared_memory_region"):
			setFirst(&region, value)
		case name.Is("shared_memory_offset"):
			setFirst(&regionOffset, value)
		case name.Is("shared_memory_byte_size"):
			setFirst(&regionLen, value)
		}
	}
	if region.Exists() {
		if classes.Exists() {
			return form, infer.Errorf(infer.InvalidArg, "Output can't set both 'shared_memory_region' and 'classification'")
		}
		if binary.Exists() {
			on, err := binary.Bool()
			if err != nil {
				return form, unableTo("set", "binary_data", err)
			}
			if on {
				return form, infer.Errorf(infer.InvalidArg, "Output can't set both 'shared_memory_region' and 'binary_data'")
			}
		}
	}
	if form.name, err = c.readName(v.Member("name")); err != nil {
		return form, err
	}
	if classes.Exists() {
		k, err := classes.Uint()
		if err != nil {
			return form, unableTo("set", "classification", err)
		}
		form.classes = int(min(k, math.MaxInt32))
	}
	if region.Exists() {
		return form, findRegion(region, regionOffset, regionLen)
	}
	if binary.Exists() {
		if form.binary, err = binary.Bool(); err != nil {
			return form, unableTo("parse", "binary_data", err)
		}
	}
	return form, nil
}

// form returns how the output of that name is to be sent.
func (c *inferCall) form(name string) outputForm {
	for i := range c.forms {
		if c.forms[i].name == name {
			return c.forms[i]
		}
	}
	return outputForm{binary: c.binary}
}
