package inference

import (
	"math"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/values"
)

// inputFields has the meaningful members of an input object.
type inputFields struct {
	name, datatype, shape, data     jsontext.Value
	binarySize                      jsontext.Value
	region, regionOffset, regionLen jsontext.Value
}

func (q *Request) readInputFields(v jsontext.Value) (f inputFields, err error) {
	var parameters jsontext.Value
	_ = findMembers(v, nil, member{"name", &f.name}, member{"datatype", &f.datatype}, member{"shape", &f.shape},
		member{"parameters", &parameters}, member{"data", &f.data})
	err = findMembers(parameters, q.all.Check,
		member{"binary_data_size", &f.binarySize}, member{"shared_memory_region", &f.region},
		member{"shared_memory_offset", &f.regionOffset}, member{"shared_memory_byte_size", &f.regionLen})
	return f, err
}

// checkSource rejects an input with no source of data or with two.
func (f *inputFields) checkSource() error {
	sources := [...]struct {
		v    jsontext.Value
		name string
	}{{f.data, " 'data'"}, {f.binarySize, " 'binary_data_size'"}, {f.region, " 'shared_memory_region'"}}
	set := 0
	for _, s := range sources {
		if s.v.Exists() {
			set++
		}
	}
	if set == 1 {
		return nil
	}
	const rule = "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But "
	if set == 0 {
		return &infer.Error{Code: infer.InvalidArg, Message: rule + "no field is set"}
	}
	text := rule + "set"
	for _, s := range sources {
		if s.v.Exists() {
			text += s.name
		}
	}
	return &infer.Error{Code: infer.InvalidArg, Message: text}
}

// maxDataType exceeds the length of every data type's name, in bytes.
const maxDataType = 16

// readInputs reads the inputs and their data.
func (q *Request) readInputs(v jsontext.Value, req *infer.Request) error {
	if !v.Exists() {
		return values.UnableTo("parse", "inputs", errMissingMember("inputs"))
	}
	elements, err := v.Elements()
	if err != nil {
		return values.UnableTo("parse", "inputs", err)
	}
	var names server.Names
	for {
		v, ok := elements.Next()
		if !ok {
			return nil
		}
		f, err := q.readInputFields(v)
		if err != nil {
			return err
		}
		if err := f.checkSource(); err != nil {
			return err
		}
		if err := q.items.Add(values.ItemBytes); err != nil {
			return err
		}
		var t infer.Tensor
		if t.Name, err = q.readName(f.name); err != nil {
			return err
		}
		datatype, err := memberString(f.datatype, "datatype")
		if err != nil {
			return err
		}
		t.DataType = infer.ParseDataType(string(datatype.Raw[:min(len(datatype.Raw), maxDataType)]))
		if t.Shape, err = q.readShape(f.shape); err != nil {
			return err
		}
		if !names.Add(t.Name, len(req.Inputs), func(i int) string { return req.Inputs[i].Name }) {
			return infer.Errorf(infer.InvalidArg, "%sinput '%s' already exists in request", req.LogPrefix(), t.Name)
		}
		// The tensor belongs to the request before it has memory, so that the end of the request
		// releases it.
		req.Inputs = append(req.Inputs, t) // bound: tallied
		if err := q.readInputData(&f, &req.Inputs[len(req.Inputs)-1]); err != nil {
			return err
		}
	}
}

func errMissingMember(name string) error {
	return infer.Errorf(infer.Internal, "attempt to access non-existing object member '%s'", name)
}

func memberString(v jsontext.Value, name string) (jsontext.String, error) {
	if !v.Exists() {
		return jsontext.String{}, values.UnableTo("parse", name, errMissingMember(name))
	}
	s, err := v.Text()
	if err != nil {
		return s, values.UnableTo("parse", name, err)
	}
	return s, nil
}

// readName returns a tensor's name, without allocating if the model has it.
func (q *Request) readName(v jsontext.Value) (string, error) {
	s, err := memberString(v, "name")
	if err != nil {
		return "", err
	}
	if !s.Escaped {
		for _, in := range q.target.Info().Config.GetInput() {
			if string(s.Raw) == in.Name {
				return in.Name, nil
			}
		}
		for _, out := range q.target.Info().Config.GetOutput() {
			if string(s.Raw) == out.Name {
				return out.Name, nil
			}
		}
	}
	if err := values.Check("the name of a tensor", s.Len(), budget.MaxName, ""); err != nil {
		return "", err
	}
	return q.items.Text(s)
}

// readShape returns the dimensions. Those beyond int64 become negative, which the checks of shapes
// reject.
func (q *Request) readShape(v jsontext.Value) ([]int64, error) {
	if !v.Exists() {
		return nil, values.UnableTo("parse", "shape", errMissingMember("shape"))
	}
	elements, err := v.Elements()
	if err != nil {
		return nil, values.UnableTo("parse", "shape", err)
	}
	from := len(q.dims)
	for {
		v, ok := elements.Next()
		if !ok {
			break
		}
		d, err := v.Uint()
		if err != nil {
			return nil, values.UnableTo("parse", "shape", err)
		}
		if err := q.items.Add(dimBytes); err != nil {
			return nil, err
		}
		q.dims = append(q.dims, int64(d)) // bound: tallied
	}
	return q.dims[from:len(q.dims):len(q.dims)], nil
}

// readInputData gives t its bytes.
func (q *Request) readInputData(f *inputFields, t *infer.Tensor) error {
	switch {
	case f.data.Exists():
		if _, _, err := readRange(f.regionOffset, f.regionLen); err != nil {
			return err
		}
		return q.readJSONData(f.data, t)
	case f.binarySize.Exists():
		size, err := f.binarySize.Uint()
		if err != nil {
			return values.UnableTo("parse", "binary_data_size", err)
		}
		if _, _, err := readRange(f.regionOffset, f.regionLen); err != nil {
			return err
		}
		return q.readBinary(t, size)
	default:
		slice, err := q.findRegion(f.region, f.regionOffset, f.regionLen)
		if err != nil {
			return err
		}
		t.Memory = slice
		return nil
	}
}

// findRegion returns the range of a client's region for a tensor. The caller releases it.
func (q *Request) findRegion(region, offset, size jsontext.Value) (*clientshm.Slice, error) {
	name, err := region.Text()
	if err != nil {
		return nil, values.UnableTo("parse", "shared_memory_region", err)
	}
	from, n, err := readRange(offset, size)
	if err != nil {
		return nil, err
	}
	if err := values.Check("the name of a region", name.Len(), budget.MaxName, ""); err != nil {
		return nil, err
	}
	return q.codec.regions.Find(name.String(), from, n) // bound: budget.MaxName
}

// readRange reads the offset and size of a tensor in a region; absent ones are 0. Triton also reads
// and ignores them for tensors without a region.
func readRange(offset, size jsontext.Value) (from, n uint64, err error) {
	if offset.Exists() {
		if from, err = offset.Uint(); err != nil {
			return 0, 0, values.UnableTo("parse", "shared_memory_offset", err)
		}
	}
	if size.Exists() {
		if n, err = size.Uint(); err != nil {
			return 0, 0, values.UnableTo("parse", "shared_memory_byte_size", err)
		}
	}
	return from, n, nil
}

// readJSONData decodes elements in the JSON. It allocates nothing for a shape that its data cannot
// fill.
func (q *Request) readJSONData(v jsontext.Value, t *infer.Tensor) error {
	for _, d := range t.Shape {
		if d < 0 {
			return infer.Errorf(infer.InvalidArg, "invalid shape for input '%s': shape %s contains one or more invalid dimensions",
				t.Name, infer.ShapeString(t.Shape))
		}
	}
	n, ok := infer.ElementCount(t.Shape)
	if !ok {
		return infer.Errorf(infer.InvalidArg, "invalid shape for input '%s': shape %s causes total element count to exceed maximum size of %d",
			t.Name, infer.ShapeString(t.Shape), int64(math.MaxInt64))
	}
	if n == 0 {
		t.Data = []byte{}
		return nil
	}
	if t.DataType == infer.Bytes {
		walk, err := v.Leaves()
		if err != nil {
			return values.UnableTo("parse", "data", err)
		}
		size, err := values.StringsSize(walk)
		if err != nil {
			return err
		}
		if err := q.allocateJSON(t, size); err != nil {
			return err
		}
		values.ReadStrings(walk, t.Data[:0])
		return nil
	}
	size := int64(t.DataType.Size())
	if size > 0 && n > math.MaxInt64/size {
		return infer.Errorf(infer.InvalidArg, "byte size overflow for input '%s': element count (%d) * data type size (%d) exceeds maximum allowed size (%d)",
			t.Name, n, size, int64(math.MaxInt64))
	}
	if err := q.codec.bodies.CheckInput(t.Name, n*size); err != nil {
		return err
	}
	walk, err := v.Leaves()
	if err != nil {
		return values.UnableTo("parse", "data", err)
	}
	switch t.DataType {
	case infer.Invalid:
		return infer.Errorf(infer.InvalidArg, "invalid datatype for input %s", t.Name)
	case infer.FP16, infer.BF16:
		return infer.Errorf(infer.InvalidArg, "receiving %s data via JSON is not supported. Please use the binary data format for input %s",
			t.DataType, t.Name)
	}
	if n > v.MostLeaves() {
		return values.ReadNumbers(walk, t.DataType, n, nil)
	}
	if err := q.allocateJSON(t, n*size); err != nil {
		return err
	}
	return values.ReadNumbers(walk, t.DataType, n, t.Data)
}

// allocateJSON gives t memory for size decoded bytes.
func (q *Request) allocateJSON(t *infer.Tensor, size int64) error {
	if err := q.codec.bodies.CheckInput(t.Name, size); err != nil {
		return err
	}
	return q.codec.allocate.Tensor(t, int(size), &q.charge)
}
