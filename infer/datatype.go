package infer

// DataType is an element type. The numbers are Triton's and cross the wire to
// the stubs, so they are written out and never reused.
type DataType uint8

// The data types of the KServe protocol v2 with Triton's extension BF16.
const (
	Invalid DataType = 0
	Bool    DataType = 1
	Uint8   DataType = 2
	Uint16  DataType = 3
	Uint32  DataType = 4
	Uint64  DataType = 5
	Int8    DataType = 6
	Int16   DataType = 7
	Int32   DataType = 8
	Int64   DataType = 9
	FP16    DataType = 10
	FP32    DataType = 11
	FP64    DataType = 12
	Bytes   DataType = 13
	BF16    DataType = 14
)

// dataTypes has a row for each DataType, by number.
var dataTypes = [...]struct {
	protocol string // in requests and responses
	config   string // in config.pbtxt
	size     int    // bytes of one element, 0 without a fixed size
}{
	Invalid: {"<invalid>", "TYPE_INVALID", 0},
	Bool:    {"BOOL", "TYPE_BOOL", 1},
	Uint8:   {"UINT8", "TYPE_UINT8", 1},
	Uint16:  {"UINT16", "TYPE_UINT16", 2},
	Uint32:  {"UINT32", "TYPE_UINT32", 4},
	Uint64:  {"UINT64", "TYPE_UINT64", 8},
	Int8:    {"INT8", "TYPE_INT8", 1},
	Int16:   {"INT16", "TYPE_INT16", 2},
	Int32:   {"INT32", "TYPE_INT32", 4},
	Int64:   {"INT64", "TYPE_INT64", 8},
	FP16:    {"FP16", "TYPE_FP16", 2},
	FP32:    {"FP32", "TYPE_FP32", 4},
	FP64:    {"FP64", "TYPE_FP64", 8},
	Bytes:   {"BYTES", "TYPE_STRING", 0},
	BF16:    {"BF16", "TYPE_BF16", 2},
}

var byProtocolName = func() map[string]DataType {
	m := make(map[string]DataType, len(dataTypes))
	for d := Bool; int(d) < len(dataTypes); d++ {
		m[dataTypes[d].protocol] = d
	}
	return m
}()

// ParseDataType returns the type that the protocol calls name, or Invalid.
func ParseDataType(name string) DataType { return byProtocolName[name] }

// Valid reports whether a tensor can have type d.
func (d DataType) Valid() bool { return d > Invalid && int(d) < len(dataTypes) }

// Size returns the bytes of one element: 0 for Bytes, whose elements have their own lengths, and
// for Invalid.
func (d DataType) Size() int {
	if !d.Valid() {
		return 0
	}
	return dataTypes[d].size
}

// String returns the protocol's name, such as "FP32" or "BYTES", or "<invalid>".
func (d DataType) String() string {
	if !d.Valid() {
		return dataTypes[Invalid].protocol
	}
	return dataTypes[d].protocol
}

// ConfigName returns the name used in config.pbtxt, such as "TYPE_STRING".
func (d DataType) ConfigName() string {
	if !d.Valid() {
		return dataTypes[Invalid].config
	}
	return dataTypes[d].config
}
