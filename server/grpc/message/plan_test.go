package message

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// worst returns messages of about size bytes that need far more memory once decoded: as many
// elements of each field as fit, empty or with elements of an inner field.
func worst(d protoreflect.MessageDescriptor, size, depth int) map[string][]byte {
	bodies := make(map[string][]byte)
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		least := map[string][]byte{"": nil}
		switch wire := wireTypes[f.Kind()]; {
		case wire == protowire.VarintType:
			least[""] = []byte{0}
			if f.IsList() {
				bodies[string(f.Name())+" packed"] = protowire.AppendBytes(protowire.AppendTag(nil, f.Number(), protowire.BytesType), make([]byte, size))
			}
		case wire == protowire.Fixed32Type:
			least[""] = make([]byte, 4)
		case wire == protowire.Fixed64Type:
			least[""] = make([]byte, 8)
		case f.Kind() == protoreflect.MessageKind && depth > 0:
			for _, inner := range []int{8, size} {
				for name, b := range worst(f.Message(), inner, depth-1) {
					least[fmt.Sprint(".", name, " of ", inner)] = protowire.AppendBytes(nil, b)
				}
			}
			least[""] = []byte{0}
		default:
			least[""] = []byte{0}
		}
		for name, b := range least {
			one := append(protowire.AppendTag(nil, f.Number(), wireTypes[f.Kind()]), b...)
			bodies[string(f.Name())+name] = bytes.Repeat(one, max(1, size/len(one)))
		}
		if f.IsMap() && f.MapKey().Kind() == protoreflect.StringKind {
			var many []byte
			for k := 0; len(many) < size; k++ {
				key := fmt.Sprint(k)
				many = protowire.AppendTag(many, f.Number(), protowire.BytesType)
				many = protowire.AppendVarint(many, uint64(len(key)+2))
				many = protowire.AppendString(append(many, 0x0a), key)
			}
			bodies[string(f.Name())+" with keys"] = many
		}
	}
	return bodies
}

// TestPlansCoverDecodedMessages checks that no message of the service needs more memory than its
// plan estimates. It is internal because a receiver charges more than the plan.
func TestPlansCoverDecodedMessages(t *testing.T) {
	service, err := protoregistry.GlobalFiles.FindDescriptorByName("inference.GRPCInferenceService")
	if err != nil {
		t.Fatal(err)
	}
	methods := service.(protoreflect.ServiceDescriptor).Methods()
	for i := range methods.Len() {
		d := methods.Get(i).Input()
		if d.Name() == "ModelInferRequest" {
			continue // has its own decoder
		}
		typ, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			t.Fatal(err)
		}
		plan := PlanOf(typ.Zero().Interface())
		for name, b := range worst(d, 32<<10, 3) {
			weight, err := plan.weigh(b, 1<<30, 0)
			m := typ.New().Interface()
			before := testkit.LiveHeap()
			decodeErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m)
			took := testkit.LiveHeap() - before
			runtime.KeepAlive(m)
			if (err != nil) != (decodeErr != nil) {
				t.Errorf("%s %s: weighed with error %v, decoded with %v", d.Name(), name, err, decodeErr)
			}
			if took > weight+weight/4+16<<10 { // the runtime allocates too
				t.Errorf("%s %s: %d bytes become %d, weighed %d", d.Name(), name, len(b), took, weight)
			}
		}
	}
}
