package models

import (
	"errors"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Bounds of what a sample makes.
const (
	maxWarmupBytes = 2 << 30 // of one tensor
	maxWarmupBatch = 1 << 16 // requests of one sample
)

// warmupDirectory is where a model has the files of its samples.
const warmupDirectory = "warmup"

// warmupBatch is a sample with its data: as many requests as its batch size
// says, all alike.
type warmupBatch struct {
	sample *kserve.ModelWarmup
	model  infer.Request // checked, with the inputs that the config does not declare
}

// request returns a request of the batch. All share the bytes of their inputs.
func (b *warmupBatch) request() *infer.Request {
	r := b.model
	r.Inputs = slices.Clone(r.Inputs)
	return &r
}

// batches makes the data of all samples. It is not kept: instances come seldom.
func (w *warmup) batches() ([]*warmupBatch, error) {
	directory, err := w.open()
	if err != nil {
		return nil, err
	}
	defer directory.close()
	var list []*warmupBatch
	for _, sample := range w.samples {
		if sample.GetBatchSize() == 0 {
			w.log.Debug().Msgf("skipping batch 0 warmup sample '%s'", sample.GetName())
			continue
		}
		if sample.GetBatchSize() > maxWarmupBatch {
			return nil, invalid("warmup sample '%s' has batch size %d, want %d at most", sample.GetName(), sample.GetBatchSize(), maxWarmupBatch)
		}
		b, err := w.batch(directory, sample)
		if err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}

// batch makes the data of one sample. What the config declares is checked as a
// client's request is; the rest are controls and states, which schedulers add
// elsewhere.
func (w *warmup) batch(directory *folder, sample *kserve.ModelWarmup) (*warmupBatch, error) {
	b := &warmupBatch{sample: sample, model: infer.Request{Model: w.spec.model}}
	var more []infer.Tensor
	for _, name := range slices.Sorted(maps.Keys(sample.GetInputs())) {
		t, err := w.tensor(directory, name, sample.GetInputs()[name])
		if err != nil {
			return nil, err
		}
		if w.spec.byInput[name] != nil {
			b.model.Inputs = append(b.model.Inputs, t)
		} else {
			more = append(more, t)
		}
	}
	if err := w.spec.validate(&b.model); err != nil {
		var late *backendRefusal
		if errors.As(err, &late) {
			return nil, late.err
		}
		return nil, err
	}
	b.model.Inputs = append(b.model.Inputs, more...)
	return b, nil
}

// tensor makes one input of a sample. In batching models each has a batch
// dimension of 1.
func (w *warmup) tensor(directory *folder, name string, input *kserve.ModelWarmup_Input) (infer.Tensor, error) {
	t := infer.Tensor{Name: name, DataType: infer.DataType(input.GetDataType())}
	prefix := (&infer.Request{}).LogPrefix()
	if slices.Contains(input.GetDims(), -1) {
		return t, invalid("warmup setting expects all variable-size dimensions are specified for input '%s'", name)
	}
	if w.spec.maxBatch > 0 {
		t.Shape = append(t.Shape, 1)
	}
	t.Shape = append(t.Shape, input.GetDims()...)
	declared := w.spec.byInput[name] != nil
	elements, ok := infer.Elements(input.GetDims())
	size := int64(t.DataType.Size())
	text := t.DataType == infer.Bytes
	if text {
		size = 4 // an empty one
	}
	switch {
	case slices.ContainsFunc(input.GetDims(), func(d int64) bool { return d < 0 }):
		if declared {
			return t, nil // its shape is refused
		}
		return t, invalid("%stensor '%s' contains an invalid dimension in shape %s", prefix, name, infer.ShapeString(t.Shape))
	case !ok || size > 0 && elements > math.MaxInt64/size:
		return t, invalid("%sbyte size for tensor '%s' exceeds maximum size of 9223372036854775807", prefix, name)
	case size == 0 && !declared:
		return t, invalid("%swarmup setting expects input '%s' to have a data type", prefix, name)
	case elements*size > maxWarmupBytes:
		return t, invalid("%swarmup setting has %d bytes for input '%s', want %d at most", prefix, elements*size, name, maxWarmupBytes)
	}
	var err error
	switch kind := input.GetInputDataType().(type) {
	case *kserve.ModelWarmup_Input_ZeroData:
		t.Data = make([]byte, elements*size)
	case *kserve.ModelWarmup_Input_RandomData:
		t.Data = make([]byte, elements*size)
		if !text {
			fillRandom(t.Data, t.DataType == infer.Bool)
		}
	case *kserve.ModelWarmup_Input_InputDataFile:
		t.Data, err = w.fromFile(directory, &t, kind.InputDataFile, elements, size, declared)
	default:
		err = invalid("%swarmup setting expects input '%s' to have input_data_type set", prefix, name)
	}
	return t, err
}

// fromFile reads the bytes of an input: so many as it needs, or, of texts, all.
func (w *warmup) fromFile(directory *folder, t *infer.Tensor, file string, elements, size int64, declared bool) ([]byte, error) {
	prefix := (&infer.Request{}).LogPrefix()
	limit := elements * size
	if t.DataType == infer.Bytes {
		limit = maxWarmupBytes
	}
	data, err := directory.readStart(filepath.Join(warmupDirectory, file), limit)
	switch {
	case err != nil:
		return nil, err
	case t.DataType != infer.Bytes && int64(len(data)) < limit:
		return nil, invalid("%swarmup setting expects %d bytes, but the data provided from %sonly has %d bytes", prefix, limit, file, len(data))
	case t.DataType == infer.Bytes && !declared:
		if scan := infer.ScanBytes(data, math.MaxInt); scan.Rest != 0 || int64(scan.Count) != elements {
			return nil, invalid("%sexpected %d string elements for inference input '%s' for model '%s', got %d", prefix, elements, t.Name, w.spec.model, scan.Count)
		}
	}
	return data, nil
}

// fillRandom fills with random bytes, of which truth values are only 0 and 1.
func fillRandom(data []byte, truth bool) {
	for i := range data {
		data[i] = byte(rand.Uint32())
		if truth {
			data[i] &= 1
		}
	}
}

// readStart returns the beginning of a file, at most limit bytes. Errors are
// those of read.
func (f *folder) readStart(name string, limit int64) ([]byte, error) {
	file, err := f.openRegular(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit))
	if err != nil {
		return nil, f.unreadable(name, err)
	}
	return data, nil
}
