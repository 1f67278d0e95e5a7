package warmup

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/signature"
)

// Bounds of a sample.
const (
	maxWarmupBytes = 2 << 30 // of the inputs of one request; all requests share them
	maxWarmupBatch = 1 << 16 // requests

	// The memory of a request with its task, and of one of its inputs, without the data.
	requestBytes = 1 << 10
	inputBytes   = 256
)

// warmupDirectory is the directory of a model's sample files.
const warmupDirectory = "warmup"

// sampleBatch is a sample with its data: batch size equal requests.
type sampleBatch struct {
	sample *kserve.ModelWarmup
	model  infer.Request // checked, with the inputs that the config does not declare
}

// request returns a request of the batch. All share the bytes of their inputs.
func (b *sampleBatch) request() *infer.Request {
	r := b.model
	r.Inputs = slices.Clone(r.Inputs) // bound: charged by repeat
	return &r
}

// requestsBytes returns the memory of the batch's requests without the data of their inputs.
func (b *sampleBatch) requestsBytes() int64 {
	return int64(b.sample.GetBatchSize()) * int64(requestBytes+inputBytes*len(b.model.Inputs))
}

// heldSample is a sample with its data, or the error of making it. Instances that execute the
// sample share it.
type heldSample struct {
	made   sync.Once
	charge *budget.Charge // for the data
	users  int            // guarded by the warmup's mu
	batch  *sampleBatch
	err    error
}

// hold creates the data of a sample, or waits for another goroutine that is creating it. The caller
// drops the data.
func (w *Samples) hold(directory *repository.Folder, sample *kserve.ModelWarmup) *heldSample {
	w.mu.Lock()
	h := w.held[sample]
	if h == nil {
		h = &heldSample{charge: w.newCharge()}
		if w.held == nil {
			w.held = make(map[*kserve.ModelWarmup]*heldSample)
		}
		w.held[sample] = h // bound: the samples of the config
	}
	h.users++
	w.mu.Unlock()
	h.made.Do(func() { h.batch, h.err = w.batch(h.charge, directory, sample) })
	return h
}

func (w *Samples) drop(sample *kserve.ModelWarmup, h *heldSample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(w.held, sample)
		h.charge.Settle()
	}
}

// batch makes the data of one sample. It is not kept, because instances rarely come. Declared
// inputs are checked like a client's; the others are controls and states, which schedulers add
// elsewhere.
func (w *Samples) batch(c *budget.Charge, directory *repository.Folder, sample *kserve.ModelWarmup) (*sampleBatch, error) {
	if sample.GetBatchSize() > maxWarmupBatch {
		return nil, refuse("warmup sample '%s' has batch size %d, want %d at most", sample.GetName(), sample.GetBatchSize(), maxWarmupBatch)
	}
	b := &sampleBatch{sample: sample, model: infer.Request{Model: w.Model}}
	names := slices.Sorted(maps.Keys(sample.GetInputs()))
	inputs := make([]*sampleInput, len(names)) // bound: the config
	sum := int64(0)
	for i, name := range names {
		in, err := w.input(name, sample.GetInputs()[name])
		if err != nil {
			return nil, err
		}
		if sum += in.bytes(); sum > maxWarmupBytes {
			return nil, refuse("warmup sample '%s' has %d bytes up to input '%s', want %d at most", sample.GetName(), sum, name, maxWarmupBytes)
		}
		inputs[i] = in
	}
	var more []infer.Tensor
	for _, in := range inputs {
		if err := w.fill(c, directory, in, in.bytes()+maxWarmupBytes-sum); err != nil {
			return nil, err
		}
		sum += int64(len(in.tensor.Data)) - in.bytes()
		if in.declared {
			b.model.Inputs = append(b.model.Inputs, in.tensor) // bound: the config
		} else {
			more = append(more, in.tensor) // bound: the config
		}
	}
	if err := w.Signature.Validate(context.Background(), &b.model); err != nil {
		var late *signature.BackendRefusal
		if errors.As(err, &late) {
			return nil, sampleFailed(sample, late.Err.Error())
		}
		return nil, err
	}
	b.model.Inputs = append(b.model.Inputs, more...) // bound: the config
	return b, nil
}

// sampleInput is one input of a sample.
type sampleInput struct {
	tensor         infer.Tensor
	config         *kserve.ModelWarmup_Input
	elements, size int64 // how many, and the bytes of one; of a text the least
	declared       bool  // by the config
	awry           bool  // its shape is to be refused: there is no data
}

func (in *sampleInput) bytes() int64 { return in.elements * in.size }

// input checks an input before its data exists. In batching models each input has a batch dimension
// of 1.
func (w *Samples) input(name string, input *kserve.ModelWarmup_Input) (*sampleInput, error) {
	in := &sampleInput{config: input, declared: w.Signature.Declares(name)}
	t := &in.tensor
	t.Name, t.DataType = name, infer.DataType(input.GetDataType())
	prefix := (&infer.Request{}).LogPrefix()
	if slices.Contains(input.GetDims(), -1) {
		return nil, refuse("warmup setting expects all variable-size dimensions are specified for input '%s'", name)
	}
	if w.Signature.Batches() {
		t.Shape = append(t.Shape, 1) // bound: the config
	}
	t.Shape = append(t.Shape, input.GetDims()...) // bound: the config
	elements, ok := infer.Elements(input.GetDims())
	size := int64(t.DataType.Size())
	if t.DataType == infer.Bytes {
		size = 4 // an empty one
	}
	switch {
	case slices.ContainsFunc(input.GetDims(), func(d int64) bool { return d < 0 }):
		if !in.declared {
			return nil, refuse("%stensor '%s' contains an invalid dimension in shape %s", prefix, name, infer.ShapeString(t.Shape))
		}
		in.awry = true
		return in, nil
	case !ok || size > 0 && elements > math.MaxInt64/size:
		return nil, refuse("%sbyte size for tensor '%s' exceeds maximum size of 9223372036854775807", prefix, name)
	case size == 0 && !in.declared:
		return nil, refuse("%swarmup setting expects input '%s' to have a data type", prefix, name)
	case elements*size > maxWarmupBytes:
		return nil, refuse("%swarmup setting has %d bytes for input '%s', want %d at most", prefix, elements*size, name, maxWarmupBytes)
	}
	in.elements, in.size = elements, size
	return in, nil
}

// fill makes the data of an input, at most limit bytes.
func (w *Samples) fill(c *budget.Charge, directory *repository.Folder, in *sampleInput, limit int64) (err error) {
	if in.awry {
		return nil
	}
	switch kind := in.config.GetInputDataType().(type) {
	case *kserve.ModelWarmup_Input_ZeroData:
		in.tensor.Data, err = budget.Make[byte](c, budget.Bodies, int(in.bytes()))
	case *kserve.ModelWarmup_Input_RandomData:
		in.tensor.Data, err = budget.Make[byte](c, budget.Bodies, int(in.bytes()))
		if in.tensor.DataType != infer.Bytes {
			fillRandom(in.tensor.Data, in.tensor.DataType == infer.Bool)
		}
	case *kserve.ModelWarmup_Input_InputDataFile:
		in.tensor.Data, err = w.fromFile(c, directory, in, kind.InputDataFile, limit)
	default:
		err = refuse("%swarmup setting expects input '%s' to have input_data_type set", (&infer.Request{}).LogPrefix(), in.tensor.Name)
	}
	return err
}

// fromFile reads the bytes of an input: the number it needs, or for texts the whole file, at most
// most bytes.
func (w *Samples) fromFile(c *budget.Charge, directory *repository.Folder, in *sampleInput, file string, most int64) ([]byte, error) {
	prefix := (&infer.Request{}).LogPrefix()
	text := in.tensor.DataType == infer.Bytes
	limit := in.bytes()
	if text {
		limit = most + 1
	}
	data, err := directory.ReadCharged(c, filepath.Join(warmupDirectory, file), limit)
	switch {
	case err != nil:
		return nil, err
	case text && int64(len(data)) > most:
		return nil, refuse("%swarmup setting has more than %d bytes for input '%s' in %s, want %d at most for all inputs of the sample", prefix, most, in.tensor.Name, file, maxWarmupBytes)
	case !text && int64(len(data)) < limit:
		return nil, refuse("%swarmup setting expects %d bytes, but the data provided from %sonly has %d bytes", prefix, limit, file, len(data))
	case text && !in.declared:
		if scan := infer.ScanBytes(data, math.MaxInt); scan.Rest != 0 || int64(scan.Count) != in.elements {
			return nil, refuse("%sexpected %d string elements for inference input '%s' for model '%s', got %d", prefix, in.elements, in.tensor.Name, w.Model, scan.Count)
		}
	}
	return data, nil
}

// fillRandom fills data with random bytes; truth values are only 0 and 1.
func fillRandom(data []byte, truth bool) {
	for i := range data {
		data[i] = byte(rand.Uint32())
		if truth {
			data[i] &= 1
		}
	}
}
